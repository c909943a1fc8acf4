"""Bounds on attacks, and the second accountant's epsilon: rows for reports and cards.

Every figure about an attacker is an upper bound, rounded up. The posterior follows from ε, the
others from the run's whole privacy curve (``privacy.attack_bounds``).
"""

import math
from collections.abc import Mapping
from typing import Any

from murmuration.privacy.attack_bounds import sure_at_most
from murmuration.privacy.promise import delta_text, epsilon_text

#: The one rule by which a run costs less than its training.
_HOLD_OUT = (
    "the training alone counts every user as trained on; a secret coin held some of them out, and "
    "nobody can tell whom"
)


def attack_rows(run: Mapping[str, Any]) -> dict[str, str]:
    """Upper bounds on attacks, by name; ``run`` has the entries of ``result.json``.

    Empty if there is no guarantee for users or single judgements.
    """
    if run["epsilon"] is None:
        return {}
    epsilon, delta = float(run["epsilon"]), float(run["delta"])
    bounds = run["attack"]
    rows = {
        "Membership inference: TPR at 1 % FPR (upper bound)": bounds["tpr_at_1_percent_fpr"],
        "Membership inference: TPR at 0.1 % FPR (upper bound)": bounds["tpr_at_0_1_percent_fpr"],
        "Attacker's posterior, from a 50 % prior": sure_at_most(epsilon),
        "Attacker's posterior, from a 1 % prior": sure_at_most(epsilon, 0.01),
    }
    told = {name: f"at most {_percent(float(share))}" for name, share in rows.items()}
    mu = bounds["gdp_mu"]
    shown = f"{epsilon_text(float(mu))}, but for δ = {delta_text(delta)}" if mu is not None else "∞"
    return told | {"μ-GDP (upper bound)": shown}


def second_opinion_rows(run: Mapping[str, Any]) -> dict[str, str]:
    """The epsilons of the training alone by both accountants, by name."""
    opinion = run["second_opinion"]
    if not opinion:
        return {}
    theirs, ours = opinion["theirs"], opinion["ours"]
    rows = {}
    if ours is not None:
        rows["ε of the training alone, by Murmuration"] = f"{ours:.6f}"
    rows[f"ε of the training alone, by {opinion['library']}"] = (
        f"{theirs:.6f}" if theirs is not None else f"not evaluated: {opinion['why']}"
    )
    rules = [rule.partition(":")[0] for rule in opinion["by_our_rules"]]
    if "hold-out" in rules and ours is not None and ours > run["epsilon"]:
        rows["Why ε is smaller than that"] = _HOLD_OUT
    rows["Counted by Murmuration's rules alone"] = ", ".join(rules) or "nothing"
    return rows


def second_opinion_text(run: Mapping[str, Any]) -> str | None:
    """The same as one line, for a card; None if there is none."""
    rows = second_opinion_rows(run)
    return "; ".join(f"{name}: {value}" for name, value in rows.items()) or None


def _percent(share: float) -> str:
    """A share in per cent, rounded up to a tenth, or to two digits below 1 %."""
    digits = 1 if share >= 0.01 else 2
    return f"{math.ceil(share * 100 * 10**digits - 1e-9) / 10**digits:g} %"
