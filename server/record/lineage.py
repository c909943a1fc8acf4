"""The privacy cost of a base to the people of earlier runs, read from its folder.

A base is here what `--base` names, or the encoder that `--features` does. A language model that a
run saved holds the ledger of that run and of each that its own base came from, and `privacy.json`
with their heads and the digest of the weights that this is about. Their promise together is
computed from the ledgers' bytes alone (``privacy.promise``); a run on the base adds to it.

A base that looks like one of ours and does not have all of that, or whose ledgers are not what was
written, is refused unless somebody says what it cost (`--base-privacy`).

A linear head holds no `privacy.json`: its run's ledger lies beside its folder.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType
from typing import Any

from murmuration.preference.data.errors import InputError, first_line
from murmuration.preference.language.checkpoint import chain_of, fetch, weights_digest
from murmuration.preference.language.reward import FILE as ABOUT
from murmuration.preference.language.reward import is_language_model
from murmuration.preference.reward import is_linear_reward
from murmuration.privacy.accounting.chained_record import head_path
from murmuration.privacy.accounting.ledger import LedgerError
from murmuration.privacy.accounting.terms import Caveat, Unit, caveats_in
from murmuration.privacy.plugins import brought
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.privacy.regular_files import read_regular
from murmuration.server.record.result import FILE as RESULT
from murmuration.server.record.result import Result
from murmuration.server.record.run_files import read_json

FORMAT, FILE, CARD = "murmuration-privacy-3", "privacy.json", "README.md"
#: What reading somebody's files raises where they are not what a run wrote.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError)


class DamagedPromise(InputError):
    """A model's account of private runs is there, and not to be believed: ``why``."""

    def __init__(self, why: str, advice: str) -> None:
        super().__init__(f"{why}; {advice}")
        self.why = why


class NothingPromised(InputError):
    """A run among those that a model came from, its ``lineage``, promised users nothing."""

    def __init__(self, message: str, lineage: Promise) -> None:
        super().__init__(message)
        self.lineage = lineage


def files_of(
    promise: Promise, folder: Path, details: Mapping[str, Any] | None = None
) -> dict[str, bytes]:
    """The privacy files to save beside a model, by name; with ``details`` of the promise for
    programs, if they are given."""
    about = {
        "format": FORMAT,
        "weights": weights_digest(folder),
        "stated": sorted(promise.stated),
        "promise": {**(details or {}), **promise.to_json()},
    }
    written = {FILE: (json.dumps(about, indent=2, allow_nan=False) + "\n").encode()}
    for place, run in enumerate(promise.runs):
        ledger = Path(_ledger(place))
        written |= {ledger.name: run.ledger[0], head_path(ledger).name: run.ledger[1]}
    return written


def lineage_of(option: str, path: str, declared: str) -> Promise:
    """The promise of a run's base or encoder; empty for one that no run of ours made.

    Args:
        option: the one that names it, ``--base`` or ``--features``.
        path: where it is; empty where nothing is learnt on a model.
        declared: what ``--base-privacy`` says it cost.

    Raises:
        InputError: it looks like one of ours and what it cost is not known, or not to be believed.
    """
    if declared == "public":
        if not path:
            return Promise().declared_public()
        return _declared_public(option, path, "--base-privacy", may_be_base=True)
    stated, elsewhere = of_ledgers("--base-privacy", declared)
    if not path:
        return stated
    lineage = lineage_of_model(
        option,
        path,
        "say what it cost with --base-privacy LEDGER (the ledger.jsonl of the run that made it; of "
        "several runs all, comma-separated), or --base-privacy public",
        elsewhere,
    )
    return lineage | stated


def lineage_of_start(path: str, declared: str) -> Promise:
    """The promise of the saved model that a run starts from; empty for one that no run of ours
    made.

    Args:
        path: its folder.
        declared: what ``--base-privacy`` says it cost.

    Raises:
        InputError: it is one of ours and what it cost is not known, or not to be believed.
    """
    folder = Path(path).expanduser()
    ours = is_linear_reward(folder) or looks_like_ours(folder)
    return lineage_of_saved("--start", path, "--base-privacy", declared, may_be_base=not ours)


def lineage_of_model(
    what: str, path: str, advice: str, elsewhere: Mapping[str, Path] = MappingProxyType({})
) -> Promise:
    """The promise of a model and, if it is an adapter, of everything below it.

    ``elsewhere`` has ledgers by their heads that its folders need not hold.

    Raises:
        InputError: as ``lineage_of``; it says ``what`` it is about, and gives ``advice``.
    """
    lineage = Promise()
    try:
        for name, folder in chain_of(path):
            fetch(name, folder, FILE, ABOUT, CARD)
            if not looks_like_ours(folder) or (elsewhere and not (folder / FILE).exists()):
                continue
            try:
                lineage |= _read(name, folder, elsewhere)
            except _UNREADABLE as error:
                # What was declared public above says it of this, unless this states runs.
                if not lineage.public or (folder / FILE).exists():
                    raise _unknown(f"{what} {name}", error, advice, folder) from None
    except OSError as error:
        if lineage.public:
            return lineage
        raise InputError(f"{what} {path}: cannot be read: {first_line(error)}") from None
    return lineage


def lineage_of_saved(
    what: str,
    path: str,
    option: str,
    given: str,
    *,
    may_be_base: bool = False,
    served: bool = False,
) -> Promise:
    """The promise of a saved model, also of a linear head, and of what is declared about it.

    Args:
        what: the option that names the model.
        path: what it names.
        option: the one that says what it cost.
        given: what that says: nothing, ``public``, or ledgers, comma-separated. What its folder
            says of private runs counts also where it is declared public.
        may_be_base: whether it may be a model that no run made, of which nothing is known.
        served: whether it is behind a server, which shows no folder: then somebody must say what it
            cost, unless what it names is a folder here.

    Raises:
        InputError: what it cost is not known or not to be believed, or a run promised users
            nothing.
    """
    if served and not Path(path).expanduser().is_dir():
        return _of_served(what, path, option, given)
    if given == "public":
        return _declared_public(what, path, option, may_be_base)
    stated, elsewhere = of_ledgers(option, given)
    advice = (
        f"say what it cost with {option} LEDGER (the ledger.jsonl of the run that made it; of "
        f"several runs all, comma-separated), or {option} public if its data were"
    )
    folder = Path(path).expanduser()
    head = not (may_be_base or is_language_model(folder) or (folder / FILE).exists())
    if head:
        lineage = _of_head(what, folder, advice, elsewhere)
    else:
        lineage = lineage_of_model(what, path, advice, elsewhere)
    lineage |= stated
    if not (lineage.runs or lineage.public or may_be_base):
        raise InputError(f"{what} {path}: nothing says whose data it was made from; {advice}")
    if not all(map(_promised_users, lineage.runs)):
        raise NothingPromised(
            f"{what} {path}: a run that made it promised its users nothing, so what is made with "
            f"it is not private either; if all its data were public, say so with {option} public",
            lineage,
        )
    return lineage


def _of_served(what: str, name: str, option: str, given: str) -> Promise:
    """The declared promise of a served model; InputError if nothing is declared."""
    if given == "public":
        return Promise().declared_public()
    stated, _ = of_ledgers(option, given)
    if not stated.runs:
        raise InputError(
            f"{what} {name}: a server shows no folder, so what the model cost users is not known: "
            f"say {option} public if it was trained on no private data, or {option} LEDGER"
        )
    if not all(map(_promised_users, stated.runs)):
        raise InputError(f"{option}: a run of {what} {name} promised its users nothing")
    return stated


def _promised_users(run: ReleasedRun) -> bool:
    """True if a run has an ε, and it is for users."""
    return run.epsilon is not None and run.terms.unit is Unit.USER


def derived_run(described: Mapping[str, Any]) -> EntryPoint | None:
    """The plug-in for folders of this ``format`` that are made from runs and release nothing
    themselves; None for a training run."""
    return brought("murmuration.derived_runs").get(str(described.get("format")))


def result_of_training(folder: Path) -> Result | None:
    """The result of the run in a folder; None if it trained nothing, or has not ended.

    Raises:
        InputError: the file is damaged.
    """
    written = read_json(folder / RESULT)
    if not written or derived_run(written):
        return None
    return Result.from_json(written, folder / RESULT)


def promise_of_run(folder: Path) -> Promise:
    """The promise of a finished run, including its base.

    Raises:
        InputError: there is no finished run, or its files do not fit each other.
    """
    if not (written := read_json(folder / RESULT)):
        raise InputError(f"{folder}: no finished run: it has no {RESULT}")
    try:
        if derived_run(written):  # its model carries what it was made from
            return _read(str(folder / "model"), folder / "model", {})
        result = Result.from_json(written, folder / RESULT)
        own = Promise((_of_result(folder, result),))
        if (folder / "model" / FILE).exists():
            return _read(str(folder / "model"), folder / "model", {}) | own
        encoder = str(result.features.get("path", ""))
        public, heads = _stated(result)
        if public:
            before = _declared_public("the encoder", encoder, "", may_be_base=True)
        else:
            before = lineage_of_model("the encoder", encoder, "") if encoder else Promise()
        promise = own | before
        if heads - _heads(promise):
            raise ValueError("its encoder came from runs whose ledgers are not there")
        return promise
    except _UNREADABLE as error:
        raise InputError(f"{folder}: what it promises is not known: {first_line(error)}") from None


def _unknown(model: str, error: Exception, advice: str, folder: Path) -> InputError:
    """The error that a model's cost is not known, or that what states it is damaged or gone: a file
    in its folder, or what its run left beside that."""
    why = (
        f"{model}: a model that was trained on users, and what that cost them is not known: "
        f"{first_line(error)}"
    )
    place, files = folder.resolve(), [folder / FILE]
    if place.name == "model":
        files += [place.parent / RESULT, place.parent / "ledger.jsonl"]
    stated = any(file.exists() for file in files)
    return DamagedPromise(why, advice) if stated else InputError(f"{why}; {advice}")


def _declared_public(what: str, path: str, option: str, may_be_base: bool) -> Promise:
    """With the private runs that its folder states: a word does not take them back, nor does damage
    to what states them. What promised nothing is what the word is about."""
    try:
        lineage = lineage_of_saved(what, path, option, "", may_be_base=may_be_base)
    except DamagedPromise as error:
        raise InputError(
            f"{error.why}; that it is public takes back nothing that it stated: bring back an "
            "undamaged copy, or name the ledgers of its runs"
        ) from None
    except NothingPromised as error:
        runs = tuple(filter(_promised_users, error.lineage.runs))
        return Promise(runs, error.lineage.stated).declared_public()
    except InputError:  # nothing is stated
        return Promise().declared_public()
    return lineage.declared_public()


def _of_head(what: str, folder: Path, advice: str, elsewhere: Mapping[str, Path]) -> Promise:
    """The promise of a linear head, from the files that its run left beside ``folder``, and of its
    encoder."""
    run = folder.resolve().parent
    try:
        # Under another name it may have been put into some run's folder.
        mine = folder.resolve().name == "model"
        if not (mine and (result := Result.read(run))):
            if elsewhere:
                return Promise()
            raise ValueError("it is no folder model/ beside a run's result.json")
        if result.weights != weights_digest(folder):
            raise ValueError("its weights are not those that the run beside it saved")
        this = _of_result(run, result)
        public, heads = _stated(result)
        encoder = str(result.features.get("path", ""))
    except _UNREADABLE as error:
        raise _unknown(f"{what} {folder}", error, advice, folder) from None
    if public:
        before = _declared_public(what, encoder, "", may_be_base=True)
    else:
        before = lineage_of_model(what, encoder, advice, elsewhere) if encoder else Promise()
    lineage = before | Promise((this,))
    if heads - (_heads(lineage) + Counter(elsewhere.keys())):
        raise DamagedPromise(
            f"{what} {folder}: it came from runs whose ledgers are not there", advice
        )
    return lineage


def _heads(promise: Promise) -> Counter[str]:
    return Counter(str(run.head) for run in promise.runs)


def _stated(result: Result) -> tuple[bool, Counter[str]]:
    """True if a result says that something was declared public; and the heads of its ledgers."""
    promise = result.promise
    heads = Counter(run["ledger_head"] for run in promise["runs"])
    return Caveat.DECLARED_PUBLIC in promise["caveats"], heads


def _of_result(folder: Path, result: Result) -> ReleasedRun:
    """The run that left a result beside its ledger; ValueError where they do not fit."""
    return _read_ledger(folder / "ledger.jsonl", result.ledger_head)


def of_ledgers(option: str, names: str) -> tuple[Promise, dict[str, Path]]:
    """The promise of named ledgers, and their paths by head."""
    runs, elsewhere = [], {}
    for ledger in _files(names):
        try:
            run = ReleasedRun.read(ledger)
        except (OSError, LedgerError) as error:
            raise InputError(f"{option} {ledger}: {first_line(error)}") from None
        runs.append(run)
        elsewhere[str(run.head)] = ledger
    return Promise(tuple(runs)), elsewhere


def _files(names: str) -> Iterable[Path]:
    """The files that are named, comma-separated, each once."""
    paths = (Path(name.strip()).expanduser() for name in names.split(",") if name.strip())
    return {path.resolve(): path for path in paths}.values()


def looks_like_ours(folder: Path) -> bool:
    """True if a run of ours seems to have saved the model."""
    if is_language_model(folder) or (folder / FILE).exists():
        return True
    try:
        card = read_regular(folder / CARD).decode(errors="replace")
    except OSError:
        return False
    return "library_name: murmuration" in card or "\n- murmuration\n" in card


def _ledger(place: int) -> str:
    return f"ledger-{place + 1}.jsonl"


def _read(name: str, folder: Path, elsewhere: Mapping[str, Path]) -> Promise:
    """The promise of a model's folder, compared with the ledgers in it or ``elsewhere``, by their
    heads; ValueError and others if something is wrong with it."""
    about = json.loads(read_regular(folder / FILE))
    if about["format"] != FORMAT:
        raise ValueError(f"{FILE} is in format {about['format']!r}, not {FORMAT}")
    if about["weights"] != weights_digest(folder) and not elsewhere:
        raise ValueError(f"{FILE} is about a model with other weights")
    records, stated = about["promise"]["runs"], caveats_in(about["stated"])
    if not (records or Caveat.DECLARED_PUBLIC in stated):
        raise ValueError(f"{FILE} names no run")
    if (folder / _ledger(len(records))).exists():
        raise ValueError(f"{_ledger(len(records))} is of a run that {FILE} does not name")
    runs = []
    for place, record in enumerate(records):
        head = str(record["ledger_head"])
        if (ledger := elsewhere.get(head)) is None:
            ledger = folder / _ledger(place)
            fetch(name, folder, ledger.name, head_path(ledger).name)
        runs.append(_read_ledger(ledger, head))
    promise = Promise(tuple(runs), stated)
    _check_whole(promise, about["promise"])
    return promise


def _check_whole(promise: Promise, record: Mapping[str, Any]) -> None:
    """ValueError where a record adds up more runs than it names, or has a caveat that none of them
    has: one was left out."""
    most = max((row["runs"] for row in record["composed"]), default=0)
    if most > len(promise.counted) or caveats_in(record["caveats"]) - promise.caveats:
        raise ValueError(f"{FILE} leaves out a run, or a caveat, that its own figures have")


def _read_ledger(path: Path, head: str) -> ReleasedRun:
    """The run of a ledger; ValueError unless it is there, and ends where it is meant to."""
    if not path.exists():
        raise ValueError(f"{path.name} is missing")
    run = ReleasedRun.read(path)
    if str(run.head) != head:
        raise ValueError(f"{path.name} does not end where the run's did")
    return run
