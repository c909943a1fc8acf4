"""What accuracy to expect of so many users at an epsilon: what was measured on two crowds.

The file beside this one has the figures and the commands that made them: ``uls`` with its defaults
and hashed words. Other judgements are harder or easier, so this is no forecast.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("accuracy_curves.json")
#: What the table of ``bands`` needs said with it.
CAVEAT = (
    "Held-out accuracy measured on two other crowds, as means of three seeds (murmuration.planning."
    "expected_accuracy): uls with hashed words, 200 rounds, δ = 1e-5. Guessing is right in 50 %, "
    "the longer response in {baselines}. Yours will differ: look at `murmuration data`."
)


@cache
def crowds() -> Sequence[Mapping[str, Any]]:
    """Return what was measured, by crowd, as the file has it."""
    return json.loads(FILE.read_text(encoding="utf-8"))["crowds"]


def bands() -> list[dict[str, str]]:
    """Return a row for each number of users: ``users`` and, by epsilon, the least and the largest
    accuracy of a crowd, in words.

    A crowd's nearest number of users stands for one that was not measured there.
    """
    sizes = sorted({row["users"] for row in crowds()[0]["rows"]})
    return [_band(users) for users in sizes]


def caveat() -> str:
    """Return what has to be said with ``bands``."""
    shares = (f"{100 * crowd['length_baseline']:.0f} %" for crowd in crowds())
    return CAVEAT.format(baselines=" and ".join(shares))


def _band(users: int) -> dict[str, str]:
    numbers, by_epsilon = [], {}
    for crowd in crowds():
        near = min((row["users"] for row in crowd["rows"]), key=lambda n: abs(n - users))
        numbers.append(near)
        for row in crowd["rows"]:
            if row["users"] == near and row["epsilon"] is not None:
                by_epsilon.setdefault(f"{row['epsilon']:g}", []).append(row["accuracy_mean"])
    whole = {"users": "–".join(f"{n:,}" for n in sorted(set(numbers)))}
    for epsilon, means in by_epsilon.items():
        shares = (f"{100 * mean:.0f}" for mean in sorted(means))
        whole[epsilon] = "–".join(dict.fromkeys(shares)) + " %"
    return whole
