"""The ε of the charges of each kind by themselves."""

from collections.abc import Iterator, Mapping
from typing import Any

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger_lines import Account, Charge


def rows_of(account: Account, terms: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the ε of each kind of event by itself, with the purpose of its charges.

    ``again`` counts charges of rounds that were charged before.
    """
    named: dict[tuple[Event, str], list[Charge]] = {}
    for charge in account.charges:
        named.setdefault((charge.event, charge.covers), []).append(charge)
    for (event, release), charges in named.items():
        rounds = sorted({charge.round for charge in charges})
        span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}–{rounds[-1]}"
        yield {
            "event": events.to_json(event),
            "covers": release,
            "times": len(charges),
            "rounds": span,
            "again": sum(charge.attempt > 0 for charge in charges),
            "epsilon": accountant.epsilon([(event, len(charges))], **terms),
        }
