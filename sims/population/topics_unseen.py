"""Topics kept for the unseen-topics split: no train or test prompt is ever about one of these."""

from murmuration.sims.population.topics import parse_topics

UNSEEN_TOPICS = parse_topics("""
# extended warranty
? The shop wants {small} for an extended warranty on my laptop.
? I bought a dishwasher and could add a warranty.
? My new phone cost {amount} and the seller offers me a protection plan.
- take the warranty for the long term | add the protection plan and keep the receipt
- get the cover with theft included | register it and pay for the extra years
+ decline it and live with the chance | refuse the plan and buy a faster model
+ walk out without any cover | skip it and bet on luck
-- screens crack the week after the deadline | a small fee beats a big shock
-- machines know when the guarantee ends
++ plans like that are where shops earn their rent | gadgets are out of date before they break
++ you come out ahead by shrugging at small damage
-t accidental damage has a fat right tail for mobile devices
+t the actuarial value of the plan is a third of its price

# sabbatical
? I could take a sabbatical of {number} weeks without pay. | A year off would cost me {amount}.
? I am {age} and dream of a long break from work {when}.
- ask for four weeks and see how it feels | save up paid leave and take it in one piece
- postpone it until the money is in the bank | agree on a way back in writing
+ leave for the whole year | go without a return ticket
+ let the flat and sail off | tell them on Monday and be gone by May
-- a gap on paper must be explained for years | rest does not need an ocean
-- coming home to an empty account undoes the rest
++ the office will stand without you | the sea will not come to your desk
++ a year out can change the other forty
-t forgone pension accrual compounds over the whole career
+t human capital needs reinvestment, and time is its input

# evening degree
? A part-time degree would cost me {amount}. | I am {age} and could go back to university {when}.
? My firm would let me study if I pay the {amount} myself.
- take one free course before enrolling | do the short certificate in the evenings
- ask the firm to share the fee | study slowly and keep the pay
+ enrol full time and live on a loan | apply to the famous school abroad
+ drop to half pay and go for the doctorate | sign up for the whole programme at once
-- many who enrol never finish | a tired student learns little
-- diplomas open fewer doors than they used to
++ a brain is the one thing no crash can take | late starters are the keenest in class
++ new people come with new rooms
-t the wage premium falls with age at completion
+t returns to education exceed nine per cent a year

# holiday cottage
? A cottage by the lake is for sale at {big}. | We could buy a cabin in the hills for {big} {when}.
? Our favourite holiday house is on the market for {big}.
- rent it for two weeks each summer | share it with three families under a contract
- get a surveyor and sleep on it for a season | keep the weekend fund growing
+ make an offer before the weekend | buy it with a second mortgage
+ take it and let it to tourists | sell the flat and live out there
-- a second roof means a second list of chores | lakes are full of houses used nine days a year
-- the gutters will not wait for your leave
++ grandchildren will learn to swim there | such a spot is sold once in a generation
++ you will kick yourself each time you drive by
-t carrying costs of three per cent consume the imputed rent
+t scarce waterfront supply supports real appreciation

# collecting
? A dealer offers me a painting for {amount}. | I found a rare watch at {amount}.
? My {person} says old wine is better than the bank and I have {amount}.
- enjoy it in the museum and keep the cash | have an expert look at it first
- start with a print that costs little | pass unless the papers are perfect
+ buy it on the spot | outbid the room for it
+ start a whole collection with it | trade the savings book for a cellar full
-- the dealer knows more than the buyer | forgeries fool even the proud
-- beauty is hard to sell on a rainy Tuesday
++ you can hang it on a wall, unlike a share | taste pays those who trust their eye
++ the great ones were cheap when nobody cared
-t auction spreads take a quarter of the hammer price
+t collectibles are barely correlated with listed markets

# heating
? Our old boiler could be swapped for a heat pump at {amount}.
? Our heating bill reached {small} a month.
? The heating engineer says the boiler has {number} months left.
- service the boiler and seal the windows | wait for a proven model and a grant
- replace it like for like | ask an energy adviser for a report
+ drill for geothermal heat | rip it out for the newest system
+ rebuild the whole cellar around the pump | be the first in the street to switch
-- pioneers pay for the mistakes of makers | a warm house in January is what counts
-- old iron can be mended with a spanner
++ old fuel only gets dearer | the street will copy you in a year
++ it feels good to be done with smoke
-t the seasonal performance of retrofits is often below specification
+t the net present value turns positive with carbon pricing

# café stake
? My {person} wants me to put {amount} in a café.
? I could own a third of a food truck for {amount}.
? A restaurant nearby seeks partners at {amount} each {when}.
- say no and be a loyal guest | ask for the books of three years
- lend a little against the coffee machine | offer help on Sundays in place of money
+ take the stake and work the bar | put in twice as much for half of it
+ join as a full partner | mortgage the flat and buy the whole place
-- kitchens swallow cash and weekends | nine tables are hard to fill in November
-- partners argue over salt and end up in court
++ a full house on a Friday is a joy to own | good food never goes out of style
++ the corner is waiting for someone with guts
-t hospitality margins of four per cent leave no room for error
+t an equity share captures the goodwill that lenders never see

# lodger
? We have a spare room and could get {rent} a month from a lodger.
? I could let my flat to tourists {when}.
? My attic could be turned into a rental studio for {amount}.
- let it to a colleague for a trial month | check the rules and the insurance first
- keep the room free for family | choose one long-term tenant with references
+ list it to tourists all year | convert the attic and the garage
+ lease two more flats and let them all | borrow for the studio and start in June
-- strangers on the stairs change a home | a bad tenant is harder to lose than a cold
-- neighbours have long memories
++ empty rooms earn dust | travellers pay in a weekend what a tenant pays in a month
++ guests bring the world to the breakfast table
-t vacancy and wear reduce the gross yield by half
+t short lets have twice the occupancy-adjusted revenue
""")
