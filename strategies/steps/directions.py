"""How many directions of the features pay: a rule of public numbers alone.

The noise of one direction, over a whole run, is about √(2 log(1.25/δ)) / (users · ε) of the clip
norm: rounds, cohort and noise multiplier cancel, to first order. What one direction can teach does
not depend on them. So users times ε decides, and the rule reads nothing else.

The steps are from a first look at arguments (UKP) with the 385 features of MiniLM at ε = 1: below
about 200 people 16 directions were best, with 250 to 500 people 64, and with many more all.
"""

from murmuration.preference.data.errors import InputError
from murmuration.strategies.settings.run import Settings

#: ``--directions`` by these rules, or without them.
AUTO, ALL = "auto", "all"
#: Up to so many users times epsilon so many directions pay; above, all.
STEPS = ((225.0, 16), (750.0, 64))


def directions_for(users: int, epsilon: float) -> int:
    """The number of directions that suits a public number of users to train on; 0: all."""
    return next((count for most, count in STEPS if users * epsilon <= most), 0)


def directions_of(config: Settings) -> int:
    """The number of directions that settings ask for; 0: all.

    Raises:
        InputError: it is to follow from the number of users, which is not stated.
    """
    if config.directions in ("", ALL):
        return 0
    if config.directions != AUTO:
        return int(config.directions)
    if not config.users:
        raise InputError("--directions auto follows from --users, which is not given")
    return directions_for(config.users, config.epsilon) if config.private else 0


def advice_for(users: int, epsilon: float) -> str:
    """Which of ``--start`` and ``--directions`` pays for so many users, in a sentence."""
    begin = "--start length, or a public reward, hardly ever costs accuracy and steadies it"
    count = directions_for(users, epsilon)
    which = (
        f"--directions {count} --public FILE pays: most directions are noise here"
        if count
        else "--directions would cost accuracy"
    )
    return f"With {users:,} users at ε = {epsilon:g}: {begin}; {which}"
