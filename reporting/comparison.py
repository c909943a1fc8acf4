"""Runs beside each other, as their folders hold them: a page, and what keeps them from comparing.

A run that is not finished, or whose files do not fit each other, is shown with what is missing.
Its epsilon is then the ledger's, which is written before anything is released and so is never too
small, or is said to be unknown; where result and ledger differ it is the larger one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.chained_record import Head
from murmuration.privacy.accounting.ledger import read_account
from murmuration.privacy.accounting.ledger_lines import Account, LedgerError
from murmuration.privacy.accounting.terms import Caveat
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.figures import (
    duration,
    points_of_error,
    share_text,
)
from murmuration.privacy.promise import delta_text, epsilon_text, with_seed_known
from murmuration.reporting.facts import facts
from murmuration.reporting.jinja import TEMPLATES, html_templates
from murmuration.server.record.result import Result
from murmuration.server.record.run_files import read_json, read_metrics

_NO_LEDGER = "Its ledger is not there, or not intact: nobody can tell what was spent."
_DISAGREE = "Its result and its ledger do not agree: the larger ε of both is shown."
_ROUNDING = 1e-9  # of an epsilon that was written down and is composed again
#: Of the table, in order.
HEADINGS = (
    *("run", "strategy", "ε", "δ", "adjacency", "unit"),
    *("rounds", "cohort", "accuracy", "length baseline", "time"),
)
#: The first thing in a page, by which one knows its own.
MARK = "<!-- murmuration report -->"


@dataclass(frozen=True, kw_only=True)
class RunSeen:
    """A run as its folder holds it.

    Attributes:
        name: of its folder.
        result: its ``result.json``; empty if it has not ended.
        settings: its ``config.json``.
        epsilon: what it spent; infinite where that is not known, None without privacy.
        rounds: that are done.
        missing: what is not there, or does not fit, in whole sentences.
        by_ledger: the caveats that its ledger has.
        run: its identity; empty where that is not known.
    """

    name: str
    result: dict[str, Any]
    settings: dict[str, Any]
    epsilon: float | None
    rounds: int
    missing: tuple[str, ...] = ()
    by_ledger: frozenset[str] = frozenset()
    run: str = ""

    @property
    def private(self) -> bool:
        """True if the run has a privacy guarantee."""
        return self.settings.get("strategy") != "nonprivate"

    @property
    def seeded(self) -> bool:
        """True if its seed was chosen."""
        known = Caveat.SEEDED in self.by_ledger or (self.result and self.result["seeded"])
        return self.private and bool(known)

    @property
    def with_its_base(self) -> str:
        """The guarantee in its result if it builds on earlier runs; otherwise empty."""
        if not self.result or len(self.result["promise"]["runs"]) < 2:
            return ""
        return str(self.result["promise"]["statement"])

    @property
    def unit(self) -> str:
        """The unit that is protected."""
        if not self.private:
            return "nobody"
        if (self.result or self.settings).get("one_user_per_row"):
            return "row"
        if not self.result:
            return "user"  # what the ledger counts
        levels = {"user": "user", "claimed": "user, not proven"}
        return levels.get(facts(self.result)["level"], "nobody")

    def line(self) -> tuple[str, ...]:
        """The cells under ``HEADINGS``."""
        result, said = self.result, {**self.settings, **self.result}
        delta = said.get("delta")
        accuracy = "not there yet"
        if result:
            public = result["test_is_public"]
            share = result["heldout_accuracy" if public else "heldout_accuracy_by_user"]
            accuracy = share_text(share, result["heldout_users"])
            if share is not None:
                accuracy += f" ± {points_of_error(result['heldout_error'])}"
        rule = result["baselines"]["longer_wins"] if result and result["baselines"] else None
        planned = said.get("rounds_planned") or self.settings.get("rounds") or self.rounds
        return (
            self.name,
            str(said.get("strategy", "unknown")),
            with_seed_known(epsilon_told(self.epsilon), self.seeded),
            "–" if not delta else delta_text(float(delta)),
            str(said.get("adjacency", "unknown")) if self.private else "–",
            self.unit,
            f"{self.rounds:,}" + ("" if self.rounds == planned else f" of {planned:,}"),
            f"{said['cohort']:,}" if said.get("cohort") else "–",
            accuracy,
            "–" if rule is None else share_text(rule),
            duration(result["seconds_training"]) if result else "–",
        )


def epsilon_told(epsilon: float | None) -> str:
    """An ε that may be none, or not known."""
    if epsilon is None:
        return "no privacy"
    return epsilon_text(epsilon) if math.isfinite(epsilon) else "unknown"


def read_run(folder: Path) -> RunSeen:
    """The run in a folder; changes nothing.

    Raises:
        InputError: there is none, or its settings or result are damaged.
    """
    settings, ended = read_json(folder / "config.json"), Result.read(folder)
    result = ended.to_json() if ended else {}
    if not settings and not result:
        raise InputError(f"{folder}: there is no run in it: it has neither config nor result")
    settings = settings or {key: result.get(key) for key in ("strategy", "delta", "adjacency")}
    missing = [] if result else [_why_unfinished(folder)]
    rounds = result.get("rounds") or max(
        (line["round"] for line in read_metrics(folder)), default=0
    )
    epsilon: float | None = None
    caveats: frozenset[str] = frozenset()
    identity = ""
    if settings.get("strategy") != "nonprivate":
        try:
            account, contents = read_account(folder / "ledger.jsonl")
        except (OSError, LedgerError):
            epsilon, told = math.inf, [_NO_LEDGER]
        else:
            caveats, identity = account.terms.caveats, account.terms.run
            try:
                epsilon, told = _spent(account, contents.head, result)
            except (ValueError, OverflowError) as error:
                epsilon, told = math.inf, [f"Its charges cannot be composed: {error}."]
        missing += told
    name = folder.resolve().name
    return RunSeen(
        name=name,
        result=result,
        settings=settings,
        epsilon=epsilon,
        rounds=int(rounds),
        missing=tuple(missing),
        by_ledger=caveats,
        run=identity,
    )


def _why_unfinished(folder: Path) -> str:
    text = "It has not ended: there is no result, no accuracy and no report of it. "
    if because := read_json(folder / "aborted.json").get("because"):
        text += f"It was aborted: {because} "
    return text + "Its ε is what the ledger holds so far. It goes on with --resume."


def _spent(account: Account, head: Head, result: dict[str, Any]) -> tuple[float, list[str]]:
    """ε, never too small, and what is wrong with what it is known from."""
    terms = account.terms
    spent = accountant.epsilon(
        account.spent.items(),
        adjacency=Adjacency(account.promise["adjacency"]),
        delta=float(account.promise["delta"]),
    )
    if not result:
        return spent, []
    number = result["epsilon"] or 0.0
    seeded = Caveat.SEEDED in terms.caveats and not result["seeded"]
    same = number >= spent * (1.0 - _ROUNDING) and not seeded
    if same and result["ledger_head"] == str(head):
        return number, []
    return max(spent, number), [_DISAGREE]


def digest_of_test(result: Mapping[str, Any]) -> str | None:
    """The digest of the public test; None if there is none."""
    return (result.get("baselines") or {}).get("test_digest")


def warnings_of(runs: Sequence[RunSeen]) -> list[str]:
    """Why some of the runs cannot be compared, and what is missing of each."""
    result = []
    private = [run for run in runs if run.private]
    said = [{**run.settings, **run.result} for run in private]
    for name, of in (
        ("adjacency", [str(each.get("adjacency")) for each in said]),
        ("the unit that is protected", [run.unit for run in private]),
        ("δ", [delta_text(float(each["delta"])) for each in said if each.get("delta")]),
    ):
        if len(set(of)) > 1:
            different = ", ".join(dict.fromkeys(of))
            result.append(
                f"These runs differ in {name} ({different}): they cannot be compared on ε alone."
            )
    ended = [run for run in runs if run.result]
    tests = {digest_of_test(run.result) for run in ended}
    if len(tests) > 1:
        result.append("Accuracies were measured on different people: they cannot be compared.")
    elif len(ended) > 1 and None in tests:
        result.append(
            "Nothing tells whether accuracies were measured on the same people: held out of each "
            "run, or no digest of the test was kept."
        )
    if private and len(private) < len(runs):
        result.append(
            "A run here has no privacy: do not publish its figures, or this page, unless the data "
            "are public."
        )
    if len(private) > 1:
        result.append(
            "If these runs are on the same people their epsilons add up, and choosing the best of "
            f"them by hand is a release of each: {_together(private)}."
        )
    result += [
        f"{run.name}: ε is of this run alone. With what its base cost: {told}"
        for run in runs
        if (told := run.with_its_base)
    ]
    return result + [f"{run.name}: {text}" for run in runs for text in run.missing]


def _together(private: Sequence[RunSeen]) -> str:
    """The total cost of some runs by themselves; copies of one run count once."""
    runs = list({run.run or str(place): run for place, run in enumerate(private)}.values())
    said = [{**run.settings, **run.result} for run in runs]
    units, adjacencies = {run.unit for run in runs}, {str(each.get("adjacency")) for each in said}
    epsilon = math.fsum(math.inf if run.epsilon is None else run.epsilon for run in runs)
    deltas = [float(each["delta"]) for each in said if each.get("delta")]
    alike = len(units) == len(adjacencies) == 1 and len(deltas) == len(runs)
    if not (alike and math.isfinite(epsilon)):
        return "what that costs together has no figure"
    text = f"ε = {epsilon_text(epsilon)}, δ = {delta_text(math.fsum(deltas))} together"
    return with_seed_known(text, any(run.seeded for run in runs))


def comparison_page(runs: Sequence[RunSeen]) -> str:
    """The runs as one page that fetches nothing."""
    return f"{MARK}\n" + _PAGE.render(
        headings=HEADINGS[1:],
        runs=[(run.name, run.line()[1:]) for run in runs],
        warnings=warnings_of(runs),
    )


_PAGE = html_templates(TEMPLATES).get_template("comparison.html.md")
