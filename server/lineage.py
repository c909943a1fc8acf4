"""What a base has cost the people whom earlier runs trained it on, and what that adds up to.

A base is here what `--base` names, or the encoder that `--features` does. A language model that a
run saved holds `privacy.json`, a line for that run and for each that its own base came from, with
the digest of the weights that this is about, and beside it the ledger of each run. Who trains on it
composes with all of them:

- (ε, δ) of runs under the same adjacency add up (basic composition, which holds adaptively: a run
  may depend on what earlier ones released; Dwork and Roth 2014, Theorem 3.16 and appendix B);
- that is for people who can have been in all of these runs: those of one declared population
  (`--population`), and of all that nobody declared to be disjoint (`--disjoint`). A run on people
  whom nobody named counts for every population. Figures of disjoint populations stand side by side,
  as nobody is in two (parallel composition);
- where an adjacency differs, or a run promised users nothing, there is no figure.

A base that looks like one of ours and does not have all of that, or whose ledgers are not what was
written, is refused unless somebody says what it cost (`--base-privacy`). Hashes have no key:
whoever can write the folder can write another history (``privacy.accounting.chained_record``).

A linear head holds no `privacy.json`: its run's ledger lies beside its folder. A data set that was
made with models has one as they do, with the digest of its rows.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from murmuration.preference.data.judgements import InputError
from murmuration.preference.data.sources import first_line
from murmuration.preference.language.checkpoint import chain_of, fetch, weights_digest
from murmuration.preference.language.reward import FILE as ABOUT
from murmuration.preference.language.reward import is_language_model
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.chained_record import head_path
from murmuration.privacy.accounting.ledger import LedgerError, read_account
from murmuration.privacy.adjacency import Adjacency
from murmuration.server.config import RunConfig
from murmuration.server.run_files import read_json
from murmuration.strategies.spec import base_config

FORMAT, FILE, CARD = "murmuration-privacy-2", "privacy.json", "README.md"
#: The rows of a data set, in its folder.
ROWS = "train.jsonl"
_ROUNDING = 1e-9  # of an epsilon that was written down and is composed again


@dataclass(frozen=True)
class Trained:
    """One run, and what it cost those whom it trained on.

    Attributes:
        ledger_head: of its ledger, at its end.
        epsilon: of a user; None where it promised users nothing.
        delta: with it.
        adjacency: under which.
        population: as declared; empty: not declared, which may be anybody.
        disjoint: whether it was declared that nobody was in an earlier run's other population.
    """

    ledger_head: str
    epsilon: float | None
    delta: float
    adjacency: str
    population: str = ""
    disjoint: bool = False


@dataclass(frozen=True)
class Lineage:
    """The runs that a base came from, the first one first, and the bytes of their ledgers.

    ``public`` says that one of them was declared to have begun with a base that cost nobody
    anything; ``whose`` they are, in the words of ``sentences``.
    """

    runs: tuple[Trained, ...] = ()
    ledgers: tuple[tuple[bytes, bytes], ...] = ()
    public: bool = False
    whose: str = "THE BASE WAS"

    def with_run(self, result: Mapping[str, Any], config: RunConfig, ledger: Path) -> "Lineage":
        """And the run with this result and ledger."""
        users = result["private"] and result["proven"] and result["privacy_level"] == "user"
        users = users and not result.get("one_user_per_row")  # which protects rows, not people
        run = Trained(
            str(result["ledger_head"]),
            result["epsilon"] if users else None,
            float(result["delta"]),
            str(result["adjacency"]),
            config.population,
            config.disjoint,
        )
        bytes_ = ledger.read_bytes(), head_path(ledger).read_bytes()
        return replace(self, runs=(*self.runs, run), ledgers=(*self.ledgers, bytes_))

    def files(self, folder: Path, promise: Mapping[str, Any] | None = None) -> dict[str, bytes]:
        """What is saved beside the model, or the data set, in a folder, by name; with what its
        users were promised, for programs, if that is given."""
        of = "data" if (folder / ROWS).exists() else "weights"
        about = {
            "format": FORMAT,
            of: _DIGESTS[of](folder),
            "public": self.public,
            "runs": [asdict(run) for run in self.runs],
            **({"promise": dict(promise)} if promise is not None else {}),
        }
        found = {FILE: (json.dumps(about, indent=2, allow_nan=False) + "\n").encode()}
        for place, (lines, head) in enumerate(self.ledgers):
            ledger = Path(_ledger(place))
            found |= {ledger.name: lines, head_path(ledger).name: head}
        return found

    def to_json(self) -> dict[str, object] | None:
        """For a result; None where there were no earlier runs, and nothing was declared public."""
        if len(self.runs) < 2 and not self.public:
            return None
        return {
            "public": self.public,
            "runs": [asdict(run) for run in self.runs],
            "composed": composed(self.runs),
        }

    def sentences(self) -> list[str]:
        """What a reader must know before relying on a run's own epsilon."""
        said = []
        if self.public:
            said = [
                "The base, or a model that it or a policy of its class came from, was declared "
                "public (--base-privacy public, policies commit --public): what that cost anybody "
                "whom it was trained on is not counted here."
            ]
        if (earlier := len(self.runs) - 1) < 1:
            return said
        rows = composed(self.runs)
        apart = len({name for row in rows for name in row["populations"]}) > 1 and all(
            len(row["populations"]) < 2 for row in rows
        )
        return [
            *said,
            f"{self.whose} TRAINED ON USERS, TOO, by {earlier} earlier "
            f"{'run' if earlier == 1 else 'runs'}: {'; '.join(map(in_words, rows))}. Epsilons and "
            "deltas of runs under the same adjacency are added (basic composition)."
            + (" Nobody is in two of these populations, as was declared." if apart else ""),
        ]


def composed(runs: Sequence[Trained]) -> list[dict[str, Any]]:
    """What runs add up to, for each population, and for people who may be in several.

    A run whose population was not declared counts in each. ``epsilon`` is None where there is no
    figure, and ``why`` says so.
    """
    groups: list[set[str]] = []
    for run in (run for run in runs if run.population):
        mine = [group for group in groups if run.population in group]
        joined = mine if mine or run.disjoint else groups
        groups = [group for group in groups if group not in joined]
        groups.append({run.population}.union(*joined))
    if runs and not groups:
        groups = [set()]
    found = []
    for group in groups:
        named = sorted(group)
        for names in ([name] for name in named if len(named) > 1):
            found.append(_sum(names, [run for run in runs if run.population in (*names, "")]))
        found.append(_sum(named, [run for run in runs if run.population in (*named, "")]))
    return found


def _sum(names: list[str], runs: Sequence[Trained]) -> dict[str, Any]:
    why = ""
    if len({run.adjacency for run in runs}) > 1:
        why = "the runs' adjacencies differ"
    if any(run.epsilon is None for run in runs):
        why = "a run promised users nothing"
    return {
        "populations": names,
        "runs": len(runs),
        "epsilon": None if why else math.fsum(run.epsilon or 0.0 for run in runs),
        "delta": math.fsum(run.delta for run in runs),
        "adjacency": runs[-1].adjacency,
        "why": why,
    }


def in_words(row: Mapping[str, Any]) -> str:
    """A row of ``composed``, for readers; epsilon is rounded upwards."""
    names = row["populations"]
    who = "whoever was trained on" if not names else f"the population {names[0]!r}"
    if len(names) > 1:
        listed = " and ".join(map(repr, names))
        who = f"whoever is in {listed}, which nobody declared disjoint"
    if row["why"]:
        return f"for {who} there is no figure: {row['why']}"
    # Upwards, in the last digit that is shown.
    epsilon = math.ceil(row["epsilon"] * 1e4 - 1e-6) / 1e4
    times = "one run" if row["runs"] == 1 else f"{row['runs']} runs together"
    return (
        f"for {who}, epsilon = {epsilon:g} and delta = {row['delta']:g} in {times} "
        f"({row['adjacency']})"
    )


def lineage_of(config: RunConfig) -> Lineage:
    """That of a run's base, or of its encoder; empty for one that is none of ours.

    Raises:
        InputError: it looks like one of ours and what it cost is not known, or not to be believed.
    """
    path = base_config(config).get("path", "")
    if config.base_privacy == "public" or not path:
        return Lineage(public=bool(config.base_privacy))
    given, elsewhere = _of_ledgers("--base-privacy", config.base_privacy)
    option = "--base" if config.base else "--features"
    found = lineage_of_model(
        option,
        path,
        "say what it cost with --base-privacy LEDGER (the ledger.jsonl of the run that made it; of "
        "several runs all, comma-separated), or --base-privacy public",
        elsewhere,
    )
    return joined(found, given)


def lineage_of_model(
    what: str, path: str, advice: str, elsewhere: Mapping[str, Path] = MappingProxyType({})
) -> Lineage:
    """That of a model and, where it is an adapter, of all that it is put on.

    ``elsewhere`` has ledgers by their heads that its folders need not hold.

    Raises:
        InputError: as ``lineage_of``; it says ``what`` it is about, and gives ``advice``.
    """
    found = Lineage()
    try:
        for name, folder in chain_of(path):
            fetch(name, folder, FILE, ABOUT, CARD)
            if not _ours(folder) or (elsewhere and not (folder / FILE).exists()):
                continue
            try:
                found = joined(_read(name, folder, elsewhere), found)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{what} {name}: a model that was trained on users, and what that cost them "
                    f"is not known: {first_line(error)}; {advice}"
                ) from None
            if found.public:  # which says it of all that is below, too
                break
    except OSError as error:
        raise InputError(f"{what} {path}: cannot be read: {first_line(error)}") from None
    return found


def lineage_of_saved(
    what: str, path: str, option: str, given: str, *, may_be_base: bool = False
) -> Lineage:
    """That of a model that is there, a linear head too, and what somebody says that it cost.

    Args:
        what: the option that names the model.
        path: what it names.
        option: the one that says what it cost.
        given: what that says: nothing, ``public``, or ledgers, comma-separated. What its folder
            says of private runs counts also where it is declared public.
        may_be_base: whether it may be a model that no run made, of which nothing is known.

    Raises:
        InputError: what it cost is not known or not to be believed, or a run promised users
            nothing.
    """
    if given == "public":
        return _declared_public(what, path, option, may_be_base)
    said, elsewhere = _of_ledgers(option, given)
    advice = (
        f"say what it cost with {option} LEDGER (the ledger.jsonl of the run that made it; of "
        f"several runs all, comma-separated), or {option} public if its data were"
    )
    folder = Path(path).expanduser()
    head = not (may_be_base or is_language_model(folder) or (folder / FILE).exists())
    if head:
        found = _of_head(what, folder, advice, elsewhere)
    else:
        found = lineage_of_model(what, path, advice, elsewhere)
    found = joined(found, said)
    if not (found.runs or found.public or may_be_base):
        raise InputError(f"{what} {path}: nothing says whose data it was made from; {advice}")
    if any(run.epsilon is None for run in found.runs):
        raise InputError(
            f"{what} {path}: a run that made it promised its users nothing, so what is made with "
            f"it is not private either; if all its data were public, say so with {option} public"
        )
    return found


def _declared_public(what: str, path: str, option: str, may_be_base: bool) -> Lineage:
    """With the private runs that its folder states: a word does not take them back."""
    try:
        found = lineage_of_saved(what, path, option, "", may_be_base=may_be_base)
    except InputError:  # nothing is stated, or nothing was promised
        return Lineage(public=True)
    return joined(found, Lineage(public=True))


def _of_head(what: str, folder: Path, advice: str, elsewhere: Mapping[str, Path]) -> Lineage:
    """That of a linear head, from what its run left beside ``folder``, and of its encoder."""
    run = folder.resolve().parent
    try:
        # Under another name it may have been put into some run's folder.
        mine = folder.resolve().name == "model"
        if not (mine and (result := read_json(run / "result.json", "ledger_head", "features"))):
            if elsewhere:
                return Lineage()
            raise ValueError("it is no folder model/ beside a run's result.json")
        if result.get("weights") not in (None, weights_digest(folder)):  # None: of earlier runs
            raise ValueError("its weights are not those that the run beside it saved")
        settings = read_json(run / "config.json", "population", "disjoint")
        config = RunConfig(population=settings["population"], disjoint=settings["disjoint"])
        this = Lineage().with_run(result, config, run / "ledger.jsonl")
        _check(run / "ledger.jsonl", this.runs[0])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{what} {folder}: a model that was trained on users, and what that cost them is not "
            f"known: {first_line(error)}; {advice}"
        ) from None
    told = result.get("lineage") or {"public": False, "runs": []}
    if told["public"]:
        before = Lineage(public=True)
    else:
        encoder = str(result["features"].get("path", ""))
        before = lineage_of_model(what, encoder, advice, elsewhere) if encoder else Lineage()
    found = joined(before, this)
    heads = Counter(one["ledger_head"] for one in told["runs"])
    if heads - Counter([*(one.ledger_head for one in found.runs), *elsewhere]):
        raise InputError(
            f"{what} {folder}: its encoder came from runs whose ledgers are not there; {advice}"
        )
    return found


def _of_ledgers(option: str, names: str) -> tuple[Lineage, dict[str, Path]]:
    """What ledgers say that somebody names, and these by their heads."""
    given, elsewhere = Lineage(), {}
    for ledger in _files(names):
        run, bytes_ = _of_ledger(option, ledger)
        given = Lineage((*given.runs, run), (*given.ledgers, bytes_))
        elsewhere[run.ledger_head] = ledger
    return given, elsewhere


def _files(names: str) -> Iterable[Path]:
    """The files that are named, comma-separated, each once."""
    paths = (Path(name.strip()).expanduser() for name in names.split(",") if name.strip())
    return {path.resolve(): path for path in paths}.values()


def _ours(folder: Path) -> bool:
    """Whether a model looks as if a run of ours had saved it."""
    if is_language_model(folder) or (folder / FILE).exists():
        return True
    try:
        card = (folder / CARD).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "library_name: murmuration" in card or "\n- murmuration\n" in card


def joined(first: Lineage, then: Lineage) -> Lineage:
    """The runs of two, each once.

    Ledgers of two runs can have the same head, as neither has a name in it: a head counts as often
    as in that of the two that has it more often.
    """
    there, new = Counter(run.ledger_head for run in first.runs), []
    for run, ledger in zip(then.runs, then.ledgers, strict=True):
        there[run.ledger_head] -= 1
        if there[run.ledger_head] < 0:
            new.append((run, ledger))
    return Lineage(
        (*first.runs, *(run for run, _ in new)),
        (*first.ledgers, *(ledger for _, ledger in new)),
        first.public or then.public,
    )


def _rows_digest(folder: Path) -> str:
    with (folder / ROWS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


#: Of what a ``privacy.json`` is about, by its word for that.
_DIGESTS = {"weights": weights_digest, "data": _rows_digest}


def _ledger(place: int) -> str:
    return f"ledger-{place + 1}.jsonl"


def _read(name: str, folder: Path, elsewhere: Mapping[str, Path]) -> Lineage:
    """What a model's folder says, compared with the ledgers in it, or with those that are
    ``elsewhere``, by their heads; ValueError and others where there is something wrong with it."""
    about = json.loads((folder / FILE).read_bytes())
    if about["format"] != FORMAT or not (about["runs"] or about["public"]):
        raise ValueError(f"{FILE} names no run in format {FORMAT}")
    of = "data" if "data" in about else "weights"
    if about[of] != _DIGESTS[of](folder) and not elsewhere:
        what = "other rows" if of == "data" else "a model with other weights"
        raise ValueError(f"{FILE} is about {what}")
    ledgers, runs = [], tuple(Trained(**run) for run in about["runs"])
    for place, run in enumerate(runs):
        if (ledger := elsewhere.get(run.ledger_head)) is None:
            ledger = folder / _ledger(place)
            fetch(name, folder, ledger.name, head_path(ledger).name)
        _check(ledger, run)
        ledgers.append((ledger.read_bytes(), head_path(ledger).read_bytes()))
    return Lineage(runs, tuple(ledgers), bool(about["public"]))


def _check(ledger: Path, run: Trained) -> None:
    """ValueError unless a run's ledger is the one that is meant, and costs no more than is said."""
    if not ledger.exists():
        raise ValueError(f"{ledger.name} is missing")
    account, contents = read_account(ledger)
    if str(contents.head) != run.ledger_head:
        raise ValueError(f"{ledger.name} does not end where the run's did")
    promise = account.promise
    if (promise["adjacency"], promise["delta"]) != (run.adjacency, run.delta):
        raise ValueError(f"{ledger.name} is of another adjacency or delta")
    if run.epsilon is None:
        return
    spent = _epsilon(account)
    if not run.epsilon >= spent * (1.0 - _ROUNDING):
        raise ValueError(f"{ledger.name} comes to epsilon = {spent:.4g}, not {run.epsilon:.4g}")


def _epsilon(account: Any) -> float:
    return accountant.epsilon(
        account.spent.items(),
        adjacency=Adjacency(account.promise["adjacency"]),
        delta=account.promise["delta"],
        interval=accountant.INTERVAL,
    )


def _of_ledger(option: str, path: Path) -> tuple[Trained, tuple[bytes, bytes]]:
    """What a ledger says that somebody names."""
    try:
        account, contents = read_account(path)
        epsilon = _epsilon(account)
        bytes_ = path.read_bytes(), head_path(path).read_bytes()
    except (OSError, LedgerError) as error:
        raise InputError(f"{option} {path}: {first_line(error)}") from None
    promise = account.promise
    run = Trained(
        str(contents.head),
        epsilon if math.isfinite(epsilon) else None,
        promise["delta"],
        promise["adjacency"],
    )
    return run, bytes_
