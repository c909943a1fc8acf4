"""Settings of the privacy guarantee."""

import math
from dataclasses import dataclass

from murmuration.preference.data.errors import InputError
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.settings.declaration import PROMISE, not_negative, positive, settings_in

_setting = settings_in(PROMISE)
NOISES = ("discrete", "gaussian", "distributed")


@dataclass(frozen=True, kw_only=True)
class PrivacyConfig:
    """Settings of what a run promises, and to whom."""

    heldout_epsilon: float = _setting(
        0.0,
        "Budget for the accuracy on held-out users. [default: half of --epsilon, which is part of "
        "it; under replace and replace-labels all of it, at no extra cost]",
        good=not_negative,
        expected="between 0 and --epsilon",
    )
    epsilon: float = _setting(
        3.0,
        "Privacy budget. [default: 3]",
        common=True,
        good=positive,
        expected="a positive number",
    )
    delta: float = _setting(
        1e-5,
        "Delta of the promise. Well below 1 / users; or n^-1.1, of the number of users. "
        "[default: 1e-5]",
        common=True,
        good=lambda value: 0.0 <= value < 1.0,
        expected="between 0 and 1, well below 1 / users, or n^-1.1",
    )
    adjacency: str = _setting(
        "add-remove",
        "Which data sets are neighbours. [default: add-remove]",
        common=True,
        choices=tuple(adjacency.value for adjacency in Adjacency),
    )
    users: int = _setting(
        0,
        "Number of users. To train on, as a nominal, round, public figure.",
        common=True,
        good=not_negative,
        expected="a positive number",
    )
    base_privacy: str = _setting(
        "",
        "Privacy cost of --base, of an encoder, or of models that wrote the rows, where no folder "
        "records it: public, or the ledger.jsonl of the run that made it (of several, "
        "comma-separated). [default: as its folder records]",
    )
    population: str = _setting(
        "",
        "A name of your own for the people trained on. If --base, or an encoder, was trained on "
        "the same people, or on people without such a name, epsilons add up.",
        good=str.isprintable,
        expected="characters that can be printed",
    )
    disjoint: bool = _setting(
        False,
        "Declare that nobody in --population is among the people that --base, or an encoder, was "
        "trained on.",
    )
    chosen_from_data: bool = _setting(
        False,
        "Settings were chosen by looking at the data, as `murmuration data` does: epsilon does not "
        "cover what they tell, and the promise says so.",
    )
    noise: str = _setting(
        "",
        "discrete (exact whole numbers), gaussian (floating point), or distributed (added by the "
        "nodes, in shares, under masks). [default: discrete if there is no seed and OpenDP is "
        "installed]",
        choices=NOISES,
    )
    honest_nodes: int = _setting(
        0,
        "--noise distributed: the least number of nodes that add their shares of noise honestly "
        "and do not drop out. [default: more than two thirds of those registered]",
        good=lambda value: value == 0 or value >= 2,
        expected="at least 2",
    )
    secure_aggregation: bool = _setting(
        False, "Let nodes mask their sums: the server sees only the sum over the cohort."
    )


def check_delta(delta: float | None, users: int | None) -> None:
    """Check delta against a stated number of users; None or 0: not stated.

    Raises:
        InputError: it is 1 / users or more, which allows to publish one user outright.
    """
    if delta and users and delta >= 1.0 / users:
        raise InputError(
            f"--delta {delta:g} is not below 1 / users = {1.0 / users:.2g}: that allows to publish "
            f"one user outright. Take --delta {10.0 ** math.floor(math.log10(0.1 / users)):g}, or "
            "n^-1.1"
        )


def parse_delta(text: str) -> float:
    """The delta that ``--delta`` names: a number, or n^-1.1, which is 0 in a ``RunConfig``.

    Raises:
        InputError: it is neither, or not between 0 and 1.
    """
    if text.replace(" ", "").replace("−", "-") in ("n^-1.1", "n**-1.1"):
        return 0.0
    try:
        delta = float(text)
    except ValueError:
        delta = math.nan
    if not 0.0 < delta < 1.0:
        raise InputError(f"--delta must be a number between 0 and 1, or n^-1.1; got {text!r}")
    return delta
