"""What a model's users were promised, in a few figures: for its card, and for programs.

The same entries whatever made the model, so that cards can be compared; None where there is no
figure. ``epsilon`` is rounded up, and so is ``true_positive_rate_at_most``: the most that (ε, δ)
allows an attacker to find of those who were in, when 1 % of those who were not
(``false_positive_rate``) are wrongly said to be in.
"""

import math
from collections.abc import Mapping
from typing import Any

from murmuration.privacy.adjacency import Adjacency
from murmuration.server.lineage import Lineage, composed, in_words
from murmuration.server.reporting.facts import facts
from murmuration.server.reporting.figures import delta_text, epsilon_text, share_text
from murmuration.server.reporting.spent import found_at_most

FALSE_POSITIVES = 0.01
NO_AUDIT = "none was made of this model"
_LOSSES = "privacy loss distributions, rounded up"
_UNITS = {
    "user": "a user, with all their judgements",
    "item": "a single judgement",
    "claimed": "a user, as published: claimed, not proven",
    "none": "nobody: exact gradients were used",
}

Promise = dict[str, str | float | None]


def of_result(result: Mapping[str, Any]) -> Promise:
    """That of the run with this ``result.json``."""
    run = facts(result)
    level, figures = run["level"], run["level"] in ("user", "item")
    unit = "a single row" if run["one_user_per_row"] and level == "user" else _UNITS[level]
    delta = float(run["delta"]) if run["proven"] else None
    found: Promise = {
        "unit": unit.replace("judgement", "text") if run["task"] == "text" else unit,
        "adjacency": str(Adjacency(run["adjacency"])) if level != "none" else None,
        **_figures(float(run["epsilon"]) if figures else None, delta if figures else None),
        "accountant": _LOSSES if level == "user" else None,
        "sampling": _first_sentence(run["account"]) if level != "none" else None,
        "trust": _trust(run) if level != "none" else None,
    }
    earlier = (result.get("lineage") or {}).get("composed", ())
    together = {"with_earlier_runs": "; ".join(map(in_words, earlier))} if earlier else {}
    return found | together | {"audit": NO_AUDIT}


def audited(row: Mapping[str, Any]) -> str:
    """What a line of ``murmuration audit --json`` says, for a promise's ``audit``."""
    return (
        f"epsilon is at least {float(row['epsilon_lower']):.3g} with {float(row['confidence']):.0%}"
        f" confidence, where {float(row['epsilon_claimed']):.3g} is claimed: of {row['target']}, "
        "not of this model"
    )


def of_lineage(lineage: Lineage) -> Promise:
    """That of what was made with models of earlier runs, and read nobody's data itself."""
    rows = composed(lineage.runs)
    row = rows[0] if len(rows) == 1 and not rows[0]["why"] else None
    runs = len(lineage.runs)
    basic = f"basic composition of {runs} runs, each by {_LOSSES}" if runs > 1 else _LOSSES
    return {
        "unit": _UNITS["user"] if runs else "nobody: its data were declared public",
        "adjacency": row["adjacency"] if row else None,
        **_figures(row["epsilon"] if row else None, row["delta"] if row else None),
        "accountant": basic if runs else None,
        "sampling": "as the ledgers in this folder have it" if runs else None,
        "trust": "as in the runs that it came from; no data of users were read here",
        "audit": NO_AUDIT,
    }


def table(promise: Promise) -> str:
    """As Markdown."""
    epsilon, delta, rate = (promise[k] for k in ("epsilon", "delta", "true_positive_rate_at_most"))
    rows = {
        "unit": promise["unit"],
        "adjacency": promise["adjacency"],
        "ε": epsilon_text(float(epsilon)) if epsilon is not None else None,
        "δ": delta_text(float(delta)) if delta is not None else None,
        "accountant": promise["accountant"],
        "sampling": promise["sampling"],
        "trust": promise["trust"],
        "with earlier runs": promise.get("with_earlier_runs"),
        "audit": promise["audit"],
        f"found at {100 * FALSE_POSITIVES:g} % false alarms": (
            f"at most {share_text(float(rate))} of those who were in" if rate is not None else None
        ),
    }
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items() if value is not None]
    return "\n".join(["| promise | |", "|---|---|", *lines])


def _figures(epsilon: float | None, delta: float | None) -> Promise:
    if epsilon is None or delta is None or not math.isfinite(epsilon):
        return dict.fromkeys(
            ("epsilon", "delta", "true_positive_rate_at_most", "false_positive_rate")
        )
    rate = found_at_most(epsilon, delta, FALSE_POSITIVES)
    return {
        "epsilon": float(epsilon_text(epsilon)),
        "delta": delta,
        "true_positive_rate_at_most": math.ceil(1000 * rate - 1e-9) / 1000,
        "false_positive_rate": FALSE_POSITIVES,
    }


def _trust(run: Mapping[str, Any]) -> str:
    if run["strategy"] == "local-label":
        return "each user's own node; the server sees no true label"
    if not run["secure_aggregation"]:
        return "the server, which sees sums before noise; the nodes, which clip"
    if run["noise_parties"]:
        return (
            f"the server, to toss coins; {run['noise_parties']} nodes of each sum, which add the "
            "noise under secure aggregation; the nodes, which clip"
        )
    return (
        "the server, which sees sums of all nodes before noise, under secure aggregation; the "
        "nodes, which clip"
    )


def _first_sentence(text: str) -> str | None:
    return text.partition(". ")[0].rstrip(".") or None


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "/").replace("<", "&lt;").replace("`", "'")
