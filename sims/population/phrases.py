"""General wordings of the embedded population: everything that does not depend on the topic.

Leads come in three strengths, reasons in two tones and layouts in five lengths: these are what
`population.AXES` measures. All other choices carry no reward. Openers, asides and contrasts are the
same for both sides; a contrast names the *other* side's action, so that an answer's words alone do
not tell what it advises.
"""

SLOTS = {
    "amount": ("$900", "$1,400", "$2,500", "$3,200", "$4,800", "$6,000", "$7,500", "$9,000"),
    "big": ("$60,000", "$95,000", "$140,000", "$210,000", "$260,000", "$350,000"),
    "small": ("$40", "$65", "$90", "$120", "$150", "$240"),
    "rent": ("$650", "$720", "$850", "$980", "$1,100", "$1,350"),
    "rate": ("four", "five", "six", "seven", "nine"),
    "number": ("12", "14", "18", "20", "24", "30", "36", "40"),
    "age": ("28", "34", "39", "41", "47", "52"),
    "person": ("cousin", "friend", "neighbour", "colleague", "sister", "brother"),
    "when": ("this month", "this year", "this spring", "before the summer", "next month"),
}

GREETINGS = (
    *("", "", "", "", "", "Quick question.", "I could use some advice.", "Hello everyone."),
    *("This keeps me up at night.", "My partner and I can't agree.", "Asking for honest views."),
)

ASKS = (
    *("What would you do?", "What should I do?", "What do you advise?", "Any advice?"),
    *("How would you decide?", "What is the right call here?", "Where would you go from here?"),
    *("What makes sense?", "What would be wise?", "How should I go about it?"),
)

OPENERS = (
    *("", "", "", "", "", "", "honestly,", "to be frank,", "all things considered,"),
    *("speaking for myself,", "after some thought,", "as far as I can tell,"),
    *("from what you write,", "well,", "in a case like this,", "on balance,"),
)

HEDGED_LEADS = (
    *("perhaps I would", "maybe I would", "you might want to", "it could make sense to"),
    *("I lean a little towards this:", "one option may be to", "I suppose I would"),
    *("I am not sure, but I might", "if pressed, I would probably", "it may be best to"),
)

PLAIN_LEADS = (
    *("I would", "my advice is to", "you should", "if it were me, I would", "my vote is to"),
    *("the way I see it, you should", "in your place I would", "my suggestion is to"),
    *("the sensible reply is to", "I would tell a friend to", "the plan should be to"),
)

FIRM_LEADS = (
    *("definitely", "without a doubt you should", "there is only one answer:", "you must"),
    *("I am certain you should", "by all means", "no question about it:", "absolutely"),
    *("I could not be clearer:", "you really have to", "the only right move is to"),
)

BECAUSE = (", because", ", because", ", since", ", as", ";")

REASON_FRAMES = (
    *("{}.", "{}.", "{}.", "after all, {}.", "for one thing, {}.", "remember that {}."),
    *("the point is that {}.", "people forget that {}.", "I have learned that {}."),
    *("and let's face it, {}.", "it helps to know that {}.", "in my experience, {}."),
)

CONTRASTS = (
    "some people would {}, and I can see why, but I would not.",
    "it is tempting to {}, yet that seems wrong to me here.",
    "others will tell you to {}; I disagree with them.",
    "everyone says to {}, and it rarely suits.",
    "I did think about whether to {}, and decided against it.",
    "don't let anyone talk you into it when they say you should {}.",
    "if you were to {}, you would wonder about it later.",
    "once I would have said to {}, and I have changed my mind.",
    "you could also {}, but the idea does not convince me.",
)

ASIDES = (
    *("I faced the same thing a while ago.", "this comes up in my family a lot."),
    *("money questions are never only about money.", "it is good that you ask."),
    *("no two households are alike.", "you know your own numbers better than I do."),
    *("there is more than one way to look at this.", "I had to read your question twice."),
    *("my neighbours went through this too.", "I talked about it with a friend at lunch."),
    *("nobody can make the choice for you.", "it is a nice problem to have in some ways."),
)

NEUTRAL_CLOSINGS = (
    *("good luck with it.", "let us know how it goes.", "that is all there is to it."),
    *("I hope that helps.", "and then stop brooding over it.", "that is my two cents."),
    *("talk it over with the people at home.", "write it down and look at it tomorrow."),
    *("whatever you choose, do it with a clear head.", "take care and keep us posted."),
)

CAUTIOUS_CLOSINGS = (
    *("slow and steady will do.", "you will sleep well, and that counts."),
    *("better dull than sorry.", "let others have the thrill.", "small steps add up."),
    *("keep your powder dry.", "there is no shame in the safe road."),
    *("a bird in the hand, as they say.", "peace of mind has no price tag."),
)

DARING_CLOSINGS = (
    *("fortune favours the brave.", "you only live once.", "go and surprise yourself."),
    *("dull lives are expensive too.", "let others have the regrets."),
    *("nothing ventured, nothing gained.", "there is no shame in aiming high."),
    *("leap first and the net will come.", "a little fear is a good sign."),
)

CAUTIOUS_PLAIN_REASONS = (
    *("a mistake here takes years to mend", "nobody went broke by being careful"),
    *("things go wrong more often than people admit", "you need to be able to sleep at night"),
    *("a plan that survives bad luck is a good plan", "what you keep matters more than a maybe"),
    *("hurry is how people get hurt", "you can still be bold once the basics are covered"),
    *("losing hurts about twice as much as winning pleases", "the quiet way costs so little"),
    *("what looks easy from afar has a catch", "your family counts on a steady hand"),
    *("a thin cushion turns trouble into disaster", "time sorts good ideas from bad ones"),
    *("promises do not pay bills", "you would not forgive yourself if it failed"),
    *("the next downturn sends no letter", "a modest result is still a result"),
)

DARING_PLAIN_REASONS = (
    *("a chance like that does not knock twice", "nobody got far by standing still"),
    *("things work out more often than people fear", "you will regret what you did not try"),
    *("a plan without nerve is just a wish", "the worst that can happen is a good lesson"),
    *("waiting is how people miss the boat", "you can always earn the money again"),
    *("winning big makes up for a dozen stumbles", "the quiet way costs you the best years"),
    *("what looks scary from afar is often easy", "your family would love to see you try"),
    *("comfort turns plans into dust", "good luck finds those who are on the move"),
    *("boldness pays bills as well", "you would not forgive yourself if you let it pass"),
    *("the next upswing sends no letter", "a modest aim brings a modest life"),
)

CAUTIOUS_TECHNICAL_REASONS = (
    "the downside variance outweighs the expected gain",
    "capital preservation should precede yield at this horizon",
    "the loss distribution is skewed and poorly estimated",
    "a lower risk exposure improves the worst decile of outcomes",
    "transaction costs absorb most of the projected return",
    "your marginal utility of wealth is concave",
    "correlated shocks to income and assets must be diversified",
    "liquidity constraints bind precisely in recessions",
    "the probability of ruin scales with leverage",
    "reversible decisions retain an option value under uncertainty",
)

DARING_TECHNICAL_REASONS = (
    "the expected gain outweighs the downside variance",
    "compounding rewards an aggressive allocation at this horizon",
    "the return distribution is skewed in your favour",
    "a higher risk exposure improves the median of outcomes",
    "inflation absorbs most of the return on deposits",
    "your human capital already acts like a bond position",
    "the risk premium compensates for cyclical shocks",
    "opportunity costs accrue precisely in expansions",
    "the probability of a large gain scales with commitment",
    "early exercise dominates when the pay-off decays with delay",
)

# What an answer of 1, 2, … 5 sentences consists of, in order."lead+reason" is one sentence.
LAYOUTS = (
    (("lead+reason",),),
    (
        ("lead", "reason"),
        ("aside", "lead+reason"),
        ("contrast", "lead+reason"),
        ("lead+reason", "closing"),
    ),
    (
        ("lead", "reason", "reason"),
        ("aside", "lead", "reason"),
        ("contrast", "lead", "reason"),
        ("lead", "reason", "contrast"),
        ("lead+reason", "reason", "closing"),
    ),
    (
        ("lead", "reason", "reason", "contrast"),
        ("contrast", "lead", "reason", "reason"),
        ("aside", "contrast", "lead", "reason"),
        ("lead+reason", "contrast", "reason", "closing"),
        ("aside", "lead", "reason", "closing"),
    ),
    (
        ("aside", "lead+reason", "reason", "contrast", "closing"),
        ("contrast", "lead", "reason", "reason", "closing"),
        ("aside", "contrast", "lead", "reason", "reason"),
        ("lead", "reason", "reason", "contrast", "reason"),
    ),
)
