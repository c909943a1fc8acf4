"""What a ledger holds, whether it is whole, and what it comes to: of a run, or an owner's agent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from murmuration.client.agent.ledger import OwnLedger
from murmuration.preference.data.rows import InputError
from murmuration.privacy.accounting import accountant, chained_record, second_opinion
from murmuration.privacy.accounting.chained_record import (
    Contents,
    Head,
    NoRecord,
    RecordDamaged,
    RecordInUse,
)
from murmuration.privacy.accounting.events import ParallelEvent
from murmuration.privacy.accounting.ledger_lines import Account, LedgerError, account_of
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.distributed import against_server
from murmuration.reporting.run_files import read_json
from murmuration.reporting.spent import rows_of
from murmuration.server.resuming import Done, missing
from murmuration.strategies.protocol.stated_plan import cost

_RUN, _OWN = "ledger.jsonl", "own-ledger.jsonl"


def verify(
    place: Path, *, expected: Head | None = None, write_events: bool = False
) -> dict[str, Any]:
    """Return what a ledger holds, whether it is whole, and what it comes to.

    Without ``write_events`` nothing is written, and it may be written meanwhile.

    Args:
        place: A run's folder, an agent's folder, or the ledger's file.
        expected: A head that was kept elsewhere: it must be on this ledger's chain.
        write_events: Write the events of a run, for whoever would rather ask another accountant.

    Returns:
        ``ledger`` (its file), ``whole``, ``wrong`` (why it is not); unless it cannot be read
        ``lines``, ``head``, ``kind`` (run or owner) and what that has spent.

    Raises:
        InputError: there is no ledger, or another process holds it.
    """
    path = _file(place.expanduser())
    folder = path.parent
    # What must agree with the ledger is read before it: the ledger is always further.
    done = Done.of(folder) if path.name == _RUN else None
    result = read_json(folder / "result.json") if path.name == _RUN else {}
    try:
        contents = chained_record.read(path)
        first = contents.lines[0] if contents.lines else {}
        account = None if "own-ledger" in first else account_of(contents, path)
        wrong = _wrong(path, contents, account, done, result, expected)
        spent = _of_run(account) if account else _of_owner(OwnLedger.read(path))
        if write_events:
            spent["written"] = _events(account, folder)
    except (RecordDamaged, NoRecord, LedgerError) as error:
        return {"ledger": str(path), "whole": False, "wrong": [str(error)]}
    except RecordInUse as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return {
        "ledger": str(path),
        "whole": not wrong,
        "wrong": wrong,
        "lines": contents.head.index,
        "head": str(contents.head),
        **spent,
    }


def _file(place: Path) -> Path:
    if not place.is_dir():
        return place
    for name in (_RUN, _OWN, f"state/{_OWN}"):
        path = place / name
        if path.exists() or chained_record.head_path(path).exists():
            return path
    if (place / "config.json").exists():
        return place / _RUN
    raise InputError(f"{place}: there is neither {_RUN} nor {_OWN}")


def _wrong(
    path: Path,
    contents: Contents,
    account: Account | None,
    done: Done | None,
    result: Mapping[str, Any],
    expected: Head | None,
) -> list[str]:
    """Return everything that does not agree with the ledger; nothing if it is whole."""
    reasons = []
    if account and done and (what := missing(path, account, contents.on_chain, done)):
        reasons.append(what)
    if account and account.settled < len(account.lost):
        reasons.append(f"{path}: a loss was noted, and the plan not charged again yet")
    if head := result.get("ledger_head"):
        try:
            known = contents.on_chain(Head.parse(str(head)))
        except ValueError:
            known = False
        if not known:
            reasons.append(f"{path} was rolled back or replaced: result.json knows another head")
    if expected and not contents.on_chain(expected):
        reasons.append(
            f"{path} was rolled back or replaced: the expected head, of {expected.index} lines, "
            "is not on its chain"
        )
    return reasons


def _of_run(account: Account) -> dict[str, Any]:
    """Return what a run has spent."""
    promise = account.promise
    terms: dict[str, Any] = {
        "adjacency": Adjacency(promise["adjacency"]),
        "delta": float(promise["delta"]),
    }
    budget = promise["budget_epsilon"]
    total = accountant.epsilon(account.spent.items(), **terms)
    seen = against_server(account.spent)
    counted = account.spent - account.closed
    against = accountant.epsilon(counted.items(), **terms) if account.closed else total
    return {
        "kind": "run",
        **promise,
        "epsilon": total,
        "epsilon_against_server": accountant.epsilon(seen.items(), **terms) if seen else None,
        "budget_left": None if budget is None else max(0.0, budget - against),
        "losses": account.lost,
        "caveats": sorted(map(str, account.terms.caveats)),
        "events": list(rows_of(account, terms)),
        "parts": _parts(account, terms),
    }


def _events(account: Account | None, folder: Path) -> list[str]:
    """Return the files that were written about a run's events."""
    if account is None:
        raise InputError("--events is about a run's ledger, and this is an owner's: leave it out")
    promise = account.promise
    terms = {"adjacency": Adjacency(promise["adjacency"]), "delta": float(promise["delta"])}
    try:
        written = second_opinion.write_events(folder, account.spent.items(), **terms)
    except OSError as error:
        raise InputError(f"--events: {folder} cannot be written: {error.strerror}") from None
    return [str(path) for path in written]


def _parts(account: Account, terms: Mapping[str, Any]) -> dict[str, float]:
    """Return ε of a user of each part, where users are divided into parts."""

    def of(part: int) -> float:
        spent = account.spent.items()
        mine = [
            (e, times) for e, times in spent if not isinstance(e, ParallelEvent) or e.part == part
        ]
        return accountant.epsilon(mine, **terms)

    parts = sorted({event.part for event in account.spent if isinstance(event, ParallelEvent)})
    return {str(part): of(part) for part in parts}


def _of_owner(own: OwnLedger) -> dict[str, Any]:
    """Return what an owner's agent has let out."""
    plans = list(own.plans.values())
    delta = max((plan.delta for plan in plans), default=0.0)
    same = len({plan.adjacency for plan in plans}) == 1
    return {
        "kind": "owner",
        "answered": dict(own.answered),
        "refused": own.refusals,
        "plans": [
            {
                "run": plan.run,
                "adjacency": plan.adjacency.value,
                "delta": plan.delta,
                "rounds": plan.rounds,
                "answered": sum(n for (run, _), n in own.rounds.items() if run == plan.run),
                "epsilon": plan.epsilon(),
            }
            for plan in plans
        ],
        "delta": delta or None,
        "epsilon": cost(plans, delta) if same else None,
        "randomized_weights": len(own.weights),
        "weights_epsilon": own.weights_epsilon(),
    }
