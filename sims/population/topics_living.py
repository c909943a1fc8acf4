"""Topics of the train and test splits about home, family and things to buy."""

from murmuration.sims.population.topics import parse_topics

LIVING_TOPICS = parse_topics("""
# car repair
? My old car needs a repair that costs {amount}. | The garage quoted {amount} to fix my car {when}.
? My hatchback failed its inspection and the bill would be {amount}.
- pay for the repair and drive it another two years | get a second quote before anything else
- fix only what the inspection requires | have a trusted mechanic patch it up
+ scrap it and lease the electric model | sell it for parts and order a brand new one
+ skip the garage and live without a car | trade it in today for something fun to drive
-- the faults of an old car are at least familiar | a patched car still gets you to work on Monday
-- a car payment hangs around much longer than a repair bill
++ one repair on an old car is followed by the next | you spend years of your life in that seat
++ nobody ever looked back fondly on a gearbox
-t first-year depreciation on a replacement exceeds the invoice
+t expected maintenance rises with mileage, so the replacement pays for itself

# mortgage rate
? I must choose the rate for a {big} mortgage {when}. | My mortgage of {big} is up for renewal.
? The bank offers me a fixed or a variable rate on {big}.
- fix the rate for the full fifteen years | pay a little more to have the rate nailed down
- take the long fixed offer | choose the same instalment every month
+ take the variable rate and ride it down | go for the short teaser rate and refinance later
+ float the whole loan | stay variable and invest the difference
-- your home is not the place for surprises | knowing the payment makes every other plan simple
-- when rates jump, families with floating loans lie awake
++ fixed offers have the bank's profit baked in | rates fall as often as they rise
++ you can always switch once the wind turns
-t a fixed coupon removes duration risk from the household balance sheet
+t the term premium in fixed quotes is around eighty basis points

# home insurance
? My home insurance went up to {small} a month.
? I must pick the deductible of my home insurance {when}.
? The broker offers me a full cover for the house at {small} a month.
- take the full cover with the low deductible | renew the old policy without changes
- add water damage and keep the rest | insure everything at replacement value
+ drop everything but fire and pocket the rest | cancel it and carry the damage alone
+ pick the highest deductible on the list | self-insure from now on
-- one burst pipe can cost a year of wages | you buy cover for the day you can't imagine
-- a roof is more than most people could ever replace twice
++ insurers build marble halls from premiums | most households never file a claim worth the name
++ small damage can be paid from the pocket
-t tail losses on property dwarf the loading in the premium
+t loss ratios near sixty per cent mean the cover is overpriced

# moving city
? A move to a bigger city would cost me {amount}.
? I could move to the coast {when} for about {amount}.
? My partner wants to move to the capital and the rent there is {small} higher.
- stay put until a job there is signed | try it for a month in a sublet
- keep the flat and commute at first | save the first year of higher rent before going
+ pack the van and look for work on arrival | give notice and go this spring
+ sell the furniture and start over there | sign a lease in the nicest quarter at once
-- a cheap flat given up is gone for good | new cities are lonely when money is short
-- moving twice costs more than waiting once
++ chances live where people crowd together | you get bored faster than you get poor
++ no spreadsheet ever told anyone where to live
-t relocation without income drains working capital quickly
+t agglomeration effects raise lifetime wages by a fifth

# renting or buying
? I pay {rent} in rent and could buy a flat for {big}.
? My landlord would sell me the flat for {big}.
? We rent for {rent} a month and wonder about buying a house {when}.
- go on renting and put the down payment aside | buy only with a third of the price in hand
- wait for a smaller place within easy reach | rent for two more years and watch prices
+ buy now with the smallest down payment allowed | bid above the asking price to get it
+ stretch for the bigger house | borrow the deposit too and sign
-- a tenant can leave when the job does | a roof with leaks belongs to its owner
-- being house-rich and broke is no way to live
++ rent is gone the day it is paid | the price of waiting has been steep for thirty years
++ owning the walls lets you tear them down
-t the price-to-rent ratio is far above its mean
+t leverage on a real asset is an inflation hedge

# holiday
? Our dream holiday would cost {amount}. | My {person} wants to fly to Japan for {amount} {when}.
? We could spend {amount} on a trip this summer.
- take a train to the lakes instead | save for it first and go next year
- book a week close to home | set a daily limit and pick the low season
+ book the long trip tonight | put the flights on the card and go
+ stay six weeks and work out the rest on the way | upgrade to the good seats and enjoy it
-- the tan fades long before the bill | children like a lake as much as a palace
-- a trip paid in advance tastes better
++ knees do not get younger | nobody on a deathbed asks for the bank statement
++ the best weeks of a life are rarely the cheap ones
-t consumption financed at card rates has a real cost of one and a half times
+t experiences yield a higher hedonic return than durables

# wedding
? We plan a wedding with {number} guests for {amount}. | Our wedding quote came in at {amount}.
? My fiancé wants a castle wedding that costs {amount}.
- marry at the town hall and eat at home | cut the guest list to close family
- set half aside and pick a Friday in winter | choose the village hall and a potluck
+ rent the castle and invite everyone | hire the band and the fireworks
+ take a loan for the party of a lifetime | fly the whole family to Sicily
-- a marriage starts better without a debt | guests remember the laughter and forget the napkins
-- parents worry when a party costs a car
++ everyone you love is in a room just once | you will look at those pictures for fifty years
++ a grand day makes a grand beginning
-t event spending has no residual value
+t the utility of a unique event is badly captured by its price

# renovation
? Our kitchen renovation is estimated at {amount}.
? The bathroom needs work and the offer is {amount}.
? We own a tired house and have {amount} for renovation {when}.
- repaint it and replace the taps | do one room a year from income
- fix the wiring and leave the looks | ask three builders and keep a fifth in reserve
+ knock down the wall and build the open kitchen | gut the whole floor in one go
+ add the glass extension with a loan | order the marble and the sauna
-- builders always find one more thing | tiles out of fashion keep the water out all the same
-- dust and debt are a bad pair
++ living in a house you love is worth the mess | half measures get torn out again
++ prices for builders only know one direction
-t cost overruns average thirty per cent in such projects
+t capital improvements lift the appraisal by more than their outlay

# solar roof
? A solar roof would cost us {amount}. | An installer offers me panels and a battery for {amount}.
? The neighbours got solar panels and we have {amount} to spend {when}.
- wait for the next round of grants | begin with two panels on the balcony
- insulate the attic first | get the roof checked and compare five offers
+ cover the whole roof and add the battery | finance the biggest set on offer
+ go off the grid altogether | sign with the installer this week
-- gadgets on a roof need a sound roof | last year's panel is half the price by spring
-- salesmen who knock on doors seldom bring gifts
++ every sunny day without panels is lost | power prices are set by people you never meet
++ it is a thrill to see the meter run backwards
-t the payback period exceeds the inverter's service life
+t the levelised cost of self-generation is below the retail tariff

# used or new car
? I need a car and can spend {amount}. | We have a baby coming and need a family car {when}.
? My commute changed and I am shopping for a car at {amount}.
- buy a five year old estate with papers | take over the aunt's sedan
- pick the small reliable one and pay cash | look for a lease return with low mileage
+ order the new electric one with all extras | finance the sports car
+ buy the vintage roadster | lease the top model and drive in style
-- a new car loses a holiday's worth at the gate | a dent hurts less on a car with dents
-- paid in full means nobody can take it away
++ the drive is the best hour of a hard day | a beautiful machine is a joy each morning
++ somebody has to buy the first one of a good thing
-t the depreciation curve flattens after year four
+t total cost of ownership favours the latest drivetrain

# children's education
? We could set aside {small} a month for our daughter's studies.
? My son starts school and a private one asks {amount}.
? Our twins are {number} weeks old and we think of their education fund.
- open a plain savings plan in the child's name | choose the school round the corner
- buy a bond ladder until the studies begin | put away a little on each birthday
+ put the fund in technology shares | pay for the boarding school abroad
+ buy a student flat on credit and let it | spend it on a year round the world as a family
-- fees fall due on a date that will not move | a child needs calm parents more than a crest
-- little sums grow tall in eighteen years
++ eighteen years forgive any crash | a wide horizon is the best school
++ the world they enter will reward nerve
-t liabilities with a known date call for matched maturities
+t a long accumulation phase tolerates a full equity allocation
""")
