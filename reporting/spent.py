"""What a run has spent, on what, and what an attacker could make of it: from its ledger."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger_lines import Account, Charge


def rows_of(account: Account, terms: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return what charges of each event, by what they covered, cost alone.

    ``again`` counts charges of rounds that were charged before.
    """
    named: dict[tuple[Event, str], list[Charge]] = {}
    for charge in account.charges:
        named.setdefault((charge.event, charge.covers), []).append(charge)
    for (event, covers), charges in named.items():
        rounds = sorted({charge.round for charge in charges})
        span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}–{rounds[-1]}"
        yield {
            "event": events.to_json(event),
            "covers": covers,
            "times": len(charges),
            "rounds": span,
            "again": sum(charge.attempt > 0 for charge in charges),
            "epsilon": accountant.epsilon([(event, len(charges))], **terms),
        }


def sure_at_most(epsilon: float, prior: float = 0.5) -> float:
    """The most that somebody who held it likely with ``prior`` can then hold it likely: odds times
    e^ε, but for outcomes of probability δ."""
    if math.isinf(epsilon):
        return 1.0
    odds = prior / (1.0 - prior) * math.exp(min(epsilon, 700.0))
    return 1.0 if math.isinf(odds) else odds / (1.0 + odds)
