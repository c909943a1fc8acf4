"""Topics of the train and test splits about work, saving and debt."""

from murmuration.sims.population.topics import parse_topics

MONEY_TOPICS = parse_topics("""
# bonus
? I got a bonus of {amount} at work {when}. | My employer paid out {amount} on top of the salary.
? There is an unplanned {amount} bonus in my account {when}.
- put the bonus into a savings account | keep most of it as a cushion for lean months
- lock it away in a fixed deposit | pay down what is owed and bank the rest
+ put all of it into a fund of small growth companies | use it to launch something new
+ spend half on a big trip and gamble the rest on shares | back a bold idea with the whole sum
-- bonuses are never promised twice | extra cash is what saves you when the washing machine dies
-- a windfall disappears faster than anyone expects
++ you lived fine without it, so it can work hard | found money is the best kind to play with
++ a bonus is the one sum you can lose and still pay the bills
-t an unexpected inflow should first restore three to six months of liquidity
+t one-off income has a low marginal utility, so its risk budget can be large

# side business
? I bake on weekends and could start a side business with {amount}.
? A friend and I want to sell furniture online and need {amount} to begin.
? I have an idea for a small repair shop and {amount} to start it {when}.
- test the idea on three customers first | begin with a single market stall
- keep the job and grow it from the kitchen table
- write down the costs for a year before buying tools
+ rent a proper shop and hire someone | order the big machine and open next month
+ go to four days a week and launch at full scale | spend the whole sum on a loud launch
-- most small shops close before their third birthday | a hobby can sour once rent depends on it
-- the first hundred orders teach more than any plan
++ half-hearted shops get half-hearted customers | someone else will take the spot if you dawdle
++ you learn to swim by getting wet
-t unit economics should be proven before fixed costs are added
+t early scale lowers the average cost and deters entrants

# friend's loan
? My {person} asked me for a loan of {amount}. | My {person} wants to borrow {amount} {when}.
? My {person} is short on rent and hopes I can lend {amount}.
- say no kindly and help to draw up a budget | lend a small part with a written note
- offer a tenth of it as a gift and leave it there | ask for a signed repayment plan first
+ hand over the full sum on a handshake | lend it all and ask no questions
+ send the money tonight without a deadline | give everything asked for and never mention it again
-- unpaid loans end more friendships than quarrels | it is hard to ask for money back at dinner
-- a clear paper keeps both of you honest
++ people remember who showed up | money comes back around, people may not
++ someone trusted you enough to ask
-t unsecured lending without covenants has a poor recovery rate
+t social capital has a return that no deposit can match

# pension
? My company matches pension payments up to {small} a month.
? I could pay {small} more into my pension.
? At {age} I still have to choose how my pension is invested.
- raise the monthly contribution and pick the bond fund | choose the guaranteed plan
- pay in enough for the full match and let it sit | take the default lifecycle option
+ put the whole pension in emerging markets | opt out and invest the cash myself
+ choose the all-equity fund with borrowed exposure | skip the payments and build a business instead
-- old age comes whether markets rise or not | the match is free money
-- nobody hires you at eighty to make up a loss
++ decades are long enough to ride out any crash | guaranteed plans guarantee a thin old age
++ a pension you can't touch is a poor servant of your plans
-t sequence risk near retirement justifies a glide path
+t a long horizon gives equities a dominant expected terminal value

# crypto
? Everyone in the office buys crypto and I have {amount} to spare.
? I hold {amount} in digital coins {when}.
? My {person} made a fortune with a coin and I have {amount} on hand.
- leave coins alone and buy a broad fund | put in no more than a dinner's worth
- sell most of it and keep a token amount | wait until the noise has died down
+ buy a basket of young coins and hold on | go in with everything and sit tight
+ double the stake at the next dip | stake it all on the one coin with momentum
-- a coin pays no rent and no wages | those who got out in time are a quiet minority
-- office tips are the last stop before the fall
++ the early believers were laughed at too | a new kind of money turns up once in a century
++ the upside is many times the stake
-t annualised volatility above seventy per cent swamps any edge
+t a positively skewed asset deserves an overweight in small portfolios

# emergency fund
? I have {amount} in my emergency fund. | My emergency fund of {amount} earns almost nothing.
? I finally have {amount} of savings for bad days.
- leave the fund alone | top it up to half a year of costs
- keep it on instant access | split it over two banks and not touch it
+ move the whole fund into shares | cut it to one month and invest the rest
+ use it as the stake for a rental flat | put it to work in a high-yield bond
-- bad luck likes to come in pairs | selling shares in a panic is the dearest loan of all
-- boring cash is what lets you say no to a bad boss
++ a credit line covers the odd broken tooth | inflation eats idle notes every night
++ the disaster you save for seldom arrives
-t liquidity has an option value that yields do not show
+t the opportunity cost of cash compounds at five per cent

# job offer
? A start-up pays {small} a month less but adds shares.
? I have a job offer from a young company {when}.
? A recruiter wants me to leave a steady post for a firm with {number} people.
- stay in the steady post | ask for a year of notice and a written guarantee
- decline and seek a raise at home | keep the current contract until they show profits
+ take the offer for the shares | sign on as employee number nine
+ jump and ask for more equity instead of pay | resign tomorrow and join
-- shares in a young firm are mostly wallpaper | a known boss is worth a lot
-- the sofa in the lobby will not pay the rent
++ steady posts get cut by email as well | you learn three years' worth in one
++ old age is dull without a story about the garage
-t illiquid options should be discounted by nine tenths
+t equity grants carry convex pay-offs that wages lack

# student debt
? I owe {amount} in student debt at {rate} per cent.
? My student loan of {amount} runs ten more years.
? I have {small} left each month and a student loan of {amount}.
- pay off the loan ahead of time | send every spare coin to the lender
- clear the debt before thinking of shares | double the instalment until it is gone
+ pay the minimum and invest the rest | defer it and travel for a year
+ let the loan run and buy growth shares | stretch the term to the limit and start a firm
-- the day the last bill is paid feels like a birthday | owing less makes every choice lighter
-- lenders never have a bad year
++ no loan will ever be cheaper than this one | youth is short and the loan is patient
++ a slow loan leaves room for fast plans
-t prepayment is a certain return equal to the coupon
+t the spread between equity returns and the coupon is positive

# credit card
? I carry {amount} on a credit card. | My card balance is {amount} at {rate} per cent {when}.
? I got a letter that offers me a balance transfer for {amount}.
- cut up the card and clear it month by month | move to a budget of cash in envelopes
- pay it off before buying anything else | call the bank and agree on a plan
+ juggle it through three zero-rate cards | use the transfer and invest the freed cash
+ take a bigger limit and fund the shop with it | let it ride until the next pay rise
-- card interest grows like mould | the minimum payment is a trap with a bow on it
-- plastic makes spending feel like nothing
++ teaser rates are a gift for those who can count | the bank lends to you at nothing if you ask
++ a tight month is no reason to stop living
-t revolving credit at that rate dominates any achievable yield
+t rate arbitrage between teaser offers has a negative carry cost

# inheritance
? I inherited {big} from an aunt. | My grandmother left me {big} {when}.
? After the estate was settled I have {big} in the bank.
- leave it untouched for a year | spread it over deposits and government bonds
- settle all debts and put the rest in a broad fund | hire a fee-only adviser before any move
+ buy a vineyard with it | put it all in one young firm
+ quit work and live from a portfolio of shares | borrow against it and buy three flats
-- grief is a poor adviser | it took her a lifetime to save it
-- sudden money has a way of leaving by the same door
++ she would have wanted it to make a splash | a sum like that comes once and opens any door
++ tiptoeing with a fortune is a waste of it
-t staged deployment lowers regret and timing variance
+t lump-sum investment beats averaging in two of three periods

# salary talk
? I have earned the same for {number} months and want {small} more.
? My review with the boss is {when}.
? A colleague makes {small} a month more than I do.
- collect good numbers and ask politely | wait for the yearly review
- accept the usual raise and ask for training | sound out a mentor before saying a word
+ demand twenty per cent or leave | show up with a rival offer and an ultimatum
+ ask for the boss's own job | name a figure that makes them gasp
-- a boss in a corner rarely gives gifts | good will in the team is part of the pay
-- a quiet record of work speaks for years
++ nobody gets what they do not ask for | the worst they can say is no
++ a firm that wants you will find the money
-t outside options should be firm before one bargains on them
+t anchoring high shifts the settlement by half the gap

# freelancing
? I could quit and freelance with {amount} saved.
? A client promised me {number} days of freelance work.
? I am {age}, tired of my office and thinking of working for myself.
- freelance on Saturdays for a year | keep the job until two clients have signed
- go part time before going alone | put a year of costs aside first
+ hand in notice on Friday | quit and rent a studio
+ burn the bridges and hunt for clients full time | start an agency with two staff
-- a promise of work is not an invoice | sick days are free only for employees
-- dry spells find everyone sooner or later
++ hunger is the best sales coach | you will be amazed who calls once you are free
++ an office can drain a whole life one Tuesday at a time
-t client concentration is a severe cash-flow exposure
+t the hourly rate doubles once overhead is eliminated

# company shares
? My employer gives staff shares worth {amount} at a discount.
? I hold {amount} in my own firm's stock.
? A stock tip from my {person} could turn {amount} into more.
- sell the shares as soon as it is allowed | keep no more than a twentieth in one firm
- swap them for a world fund | ignore the tip and stick to the monthly plan
+ buy the largest package and keep it | add a call option on top
+ load up on that single stock | borrow to buy twice as many
-- wage and wealth should not sink on the same day | tips reach the crowd when the feast is over
-- even fine firms stumble
++ you know that company better than any analyst | great fortunes came from a single name
++ a discount is profit from the first minute
-t idiosyncratic risk earns no premium
+t concentrated positions are how outliers are produced
""")
