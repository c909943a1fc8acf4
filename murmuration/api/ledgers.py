"""Read and verify the ledger of a run or an owner's agent, and compute its epsilon.

Also the total cost of all runs below a folder for a user who was in every one of them. No single
ledger shows the others, and ids do not show whether a user is in two runs (an e-mail in one file, a
number in the other), so the costs of all runs add up, except of those that were declared disjoint
(``privacy.promise``). Every ledger counts, those of other packages' releases too. (An owner's
ledger has another name, and is about other users.) If a run left files and no ledger, the cost is
unknown.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.client.agent.ledger import OwnLedger
from murmuration.preference.data.errors import InputError, disk_errors_as, first_line
from murmuration.privacy.accounting import accountant, chained_record, second_opinion
from murmuration.privacy.accounting.by_event import rows_of
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
from murmuration.privacy.figures import counted
from murmuration.privacy.mechanisms.distributed import against_server
from murmuration.privacy.promise import Promise, ReleasedRun, combined
from murmuration.server.record.lineage import derived_run, looks_like_ours, promise_of_run
from murmuration.server.record.resuming import Done, missing
from murmuration.server.record.run_files import read_json
from murmuration.strategies.protocol.stated_plan import cost

_RUN, _OWN = "ledger.jsonl", "own-ledger.jsonl"
#: What only a run writes into its folder, beside settings, result and model.
_OF_A_RUN = (
    f"{_RUN}.head",
    "metrics.jsonl",
    "released.json",
    "aborted.json",
    "private/keys.json",
    "private/search.json",
)


def verify(
    place: Path, *, expected: Head | None = None, write_events: bool = False
) -> dict[str, Any]:
    """Read a ledger, verify it, and compute what was spent.

    Without ``write_events`` nothing is written. Another process may append to the ledger meanwhile.

    Args:
        place: A run's folder, an agent's folder, or the ledger's file.
        expected: A head that was kept elsewhere: it must be on this ledger's chain.
        write_events: Write the events of a run, for another accountant.

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
        wrong = _wrong(path, contents, account, done=done, result=result, expected=expected)
        spent = _of_run(account, path) if account else _of_owner(OwnLedger.read(path))
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
    *,
    done: Done | None,
    result: Mapping[str, Any],
    expected: Head | None,
) -> list[str]:
    """Everything that does not agree with the ledger; empty if it is intact."""
    reasons = []
    if account and done and (what := missing(path, account, contents.on_chain, done)):
        reasons.append(what)
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


def _of_run(account: Account, path: Path) -> dict[str, Any]:
    """The privacy spent by a run; LedgerError if it cannot be computed."""
    try:
        return _spent(account)
    except (ValueError, OverflowError) as error:
        raise LedgerError(f"{path}: its charges cannot be composed ({error})") from None


def _spent(account: Account) -> dict[str, Any]:
    promise = account.promise
    terms: dict[str, Any] = {
        "adjacency": Adjacency(promise["adjacency"]),
        "delta": float(promise["delta"]),
    }
    budget = promise["budget_epsilon"]
    total = accountant.epsilon(account.spent.items(), **terms)
    seen = against_server(account.spent)
    return {
        "kind": "run",
        **promise,
        "epsilon": total,
        "epsilon_against_server": accountant.epsilon(seen.items(), **terms) if seen else None,
        "budget_left": None if budget is None else max(0.0, budget - total),
        "caveats": sorted(map(str, account.terms.caveats)),
        "events": list(rows_of(account, terms)),
        "parts": _parts(account, terms),
    }


def _events(account: Account | None, folder: Path) -> list[str]:
    """Write the events of a run; return the names of the files."""
    if account is None:
        raise InputError("--events is about a run's ledger, and this is an owner's: leave it out")
    promise = account.promise
    terms = {"adjacency": Adjacency(promise["adjacency"]), "delta": float(promise["delta"])}
    with disk_errors_as(f"--events: {folder} cannot be written"):
        written = second_opinion.write_events(folder, account.spent.items(), **terms)
    return [str(path) for path in written]


def _parts(account: Account, terms: Mapping[str, Any]) -> dict[str, float]:
    """The ε of a user of each part, if users are divided into parts."""

    def of(part: int) -> float:
        spent = account.spent.items()
        mine = [
            (e, times) for e, times in spent if not isinstance(e, ParallelEvent) or e.part == part
        ]
        return accountant.epsilon(mine, **terms)

    parts = sorted({event.part for event in account.spent if isinstance(event, ParallelEvent)})
    return {str(part): of(part) for part in parts}


def _of_owner(own: OwnLedger) -> dict[str, Any]:
    """The privacy spent by an owner's agent."""
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
    }


@dataclass(frozen=True)
class AllRuns:
    """All runs below a folder.

    Attributes:
        runs: folders with a ledger.
        costs: the cost of each of them by itself; empty if the sum is not known.
        without_ledger: folders with files of a run, and no ledger.
        promise: of the runs that have one, together.
    """

    runs: tuple[Path, ...]
    costs: tuple[Promise, ...]
    without_ledger: tuple[Path, ...]
    promise: Promise

    @property
    def statement(self) -> str:
        """Their total cost, in a line."""
        if not self.without_ledger:
            runs = counted(len(self.runs), "run")
            return f"{runs}, for whoever was in all of them: {self.promise}"
        first, *others = self.without_ledger
        more = f" (and {counted(len(others), 'other folder')})" if others else ""
        return (
            f"what all runs cost is not known: {first} has files of a run, and no {_RUN}{more}; "
            "bring it back, or move the folder away if nothing of it was ever seen"
        )

    def to_json(self) -> dict[str, Any]:
        """The runs as JSON: no promise if the sum is not known."""
        return {
            "runs": [str(run) for run in self.runs],
            "costs": [cost.to_json() for cost in self.costs],
            "without_ledger": [str(run) for run in self.without_ledger],
            "promise": None if self.without_ledger else self.promise.to_json(),
        }


def all_runs(folder: Path) -> AllRuns:
    """All runs in a folder and below it.

    Raises:
        InputError: there is no run, a folder cannot be read, or one's files are damaged.
    """
    runs, without = [], []
    for place, files in _below(folder):
        if _RUN in files:
            runs.append(place)
        elif _has_traces(place):
            without.append(place)
    if not (runs or without):
        raise InputError(f"{folder}: there is no run below it: no {_RUN}")
    promise = combined(map(_promise, sorted(runs)))
    costs = () if without else tuple(map(_alone, sorted(runs)))
    return AllRuns(tuple(sorted(runs)), costs, tuple(sorted(without)), promise)


def _below(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the folder and each one below it, links included, once each, with the names of its
    files; InputError for a folder that cannot be read, since a run may lie in it.
    """

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}")

    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        status = Path(place).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        yield Path(place), files


def _has_traces(folder: Path) -> bool:
    """True if a run of training or a search has left files in a folder."""
    settings, result = (read_json(folder / name) for name in ("config.json", "result.json"))
    if derived_run(settings) or derived_run(result):  # which released nothing itself
        return False
    return (
        "strategy" in settings  # which a model's config.json has not
        or "search" in settings
        or "ledger_head" in result
        or any((folder / name).exists() for name in _OF_A_RUN)
        or looks_like_ours(folder / "model")
    )


def _promise(run: Path) -> Promise:
    """The cost of a run, finished or not."""
    return promise_of_run(run) if (run / "result.json").exists() else _alone(run)


def _alone(run: Path) -> Promise:
    """The cost of a run, without that of its base."""
    try:
        return Promise((ReleasedRun.read(run / _RUN),))
    except (OSError, LedgerError) as error:
        raise InputError(f"{run}: {first_line(error)}") from None
