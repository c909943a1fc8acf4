"""Beside a run's figures: when and by which command it was made, and what each part of it cost.

All from files that are for release: ``config.json`` and the ledger. The command is written anew
from the settings, without the seed, which is a secret, and without folders, which are private if a
report is passed on.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.preference.base_names import name_of
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.by_event import rows_of
from murmuration.privacy.accounting.ledger import read_account
from murmuration.privacy.accounting.ledger_lines import LedgerError
from murmuration.privacy.adjacency import Adjacency
from murmuration.server.record.run_files import read_json
from murmuration.strategies.config import CHECK, SETTINGS, RunConfig

_MOST_PARTS = 12
#: What an owner declares of the data, rather than what was found in it.
_DECLARED = {
    "kind": "kind",
    "responses": "most responses",
    "labels": "labels",
    "users": "nominal users",
    "max_judgements": "most judgements of a user",
    "max_characters": "most characters of a text",
}


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Information in a run's folder beside its result; empty if missing.

    Attributes:
        date: of its first release, as YYYY-MM-DD.
        command: the settings that are not defaults.
        declared: the declarations about the data, by name.
        note: of the operator.
        parts: the charges: name, times, and ε of it alone.
        twin: the ``result.json`` of the run without privacy, where the operator named one.
        audit: a line of ``murmuration audit --json``, where the operator named one.
    """

    date: str = ""
    command: str = ""
    declared: Mapping[str, str] | None = None
    note: str = ""
    parts: Sequence[tuple[str, int, float]] = ()
    twin: Mapping[str, Any] | None = None
    audit: Mapping[str, Any] | None = None


def provenance(folder: Path) -> Provenance:
    """The provenance of the run in a folder; missing or damaged files are left out."""
    try:
        settings = read_json(folder / "config.json")
    except InputError:
        settings = {}
    settings.pop(CHECK, None)
    date, parts = _of_ledger(folder / "ledger.jsonl")
    return Provenance(
        date=date,
        command=command(settings),
        declared=_declared(settings),
        note=str(settings.get("note", "")),
        parts=parts,
    )


def command(settings: Mapping[str, Any]) -> str:
    """The command line of settings: those that are not defaults, paths by their last name."""
    if not settings:
        return ""
    defaults = {name: field.default for name, field in SETTINGS.items()}
    defaults["rounds"] = RunConfig().rounds
    said = ["murmuration", "run"]
    for name, value in settings.items():
        if name in ("seed", "out", "resume") or name not in defaults or value == defaults[name]:
            continue
        option = "--" + name.replace("_", "-")
        said += [option] if value is True else [option, shlex.quote(name_of(value))]
    return " ".join(said)


def _declared(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        told: name_of(settings[name])
        for name, told in _DECLARED.items()
        if settings.get(name) not in (None, "", 0)
    }


def _of_ledger(path: Path) -> tuple[str, list[tuple[str, int, float]]]:
    """The day of the first release, and what was charged."""
    try:
        account, contents = read_account(path)
    except (OSError, ValueError, LedgerError):
        return "", []
    days = [str(line["at"])[:10] for line in contents.lines if "at" in line]
    terms = {
        "adjacency": Adjacency(account.promise["adjacency"]),
        "delta": float(account.promise["delta"]),
    }
    named = {(charge.event, charge.covers) for charge in account.charges}
    if len(named) > _MOST_PARTS:  # each takes its time
        return (days[0] if days else ""), []
    rows = [(row["covers"], row["times"], row["epsilon"]) for row in rows_of(account, terms)]
    return (days[0] if days else ""), rows
