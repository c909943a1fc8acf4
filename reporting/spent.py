"""What a run has spent, on what, and what an attacker could make of it: from its ledger."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger_lines import Account, Charge


def rows_of(account: Account, terms: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return what charges of each event, by what they covered, cost alone; and what losses cost.

    ``again`` counts charges of rounds that were charged before, ``lost`` those that losses cost.
    """

    def row(event: Event, covers: str, times: int, **more: object) -> dict[str, Any]:
        alone = accountant.epsilon([(event, times)], **terms)
        told = {"event": events.to_json(event), "covers": covers, "times": times}
        return {**told, "rounds": "", "again": 0, "lost": 0, **more, "epsilon": alone}

    named: dict[tuple[Event, str], list[Charge]] = {}
    for charge in account.charges:
        named.setdefault((charge.event, charge.covers), []).append(charge)
    for (event, covers), charges in named.items():
        rounds = sorted({charge.round for charge in charges})
        span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}–{rounds[-1]}"
        again = sum(charge.attempt > 0 for charge in charges)
        yield row(event, covers, len(charges), rounds=span, again=again)
    charged = Counter(charge.event for charge in account.charges)
    for event, lost in (account.spent - charged).items():
        yield row(event, "on account of a loss", lost, lost=lost)


def sure_at_most(epsilon: float, prior: float = 0.5) -> float:
    """The most that somebody who held it likely with ``prior`` can then hold it likely: odds times
    e^ε, but for outcomes of probability δ."""
    if math.isinf(epsilon):
        return 1.0
    odds = prior / (1.0 - prior) * math.exp(min(epsilon, 700.0))
    return 1.0 if math.isinf(odds) else odds / (1.0 + odds)
