"""The claim about everything that was made from private runs: one frozen object, made in one place.

A promise is a set of runs, each as its ledger's bytes have it, and a set of caveats. Everything
else follows: epsilon, delta, whom they are about, who is trusted, and the words. Combining promises
is the union of both sets, so nothing that is made from a run can lose a part of its promise, and no
order, repetition or regrouping changes what comes out.

- A run is known by its identity, 128 random bits in its ledger's first line, and by its ledger. A
  history that another goes on from is part of that one. What forks (a folder that was copied, and
  continued twice) is two runs.
- (ε, δ) of runs under the same adjacency add up (basic composition, which holds adaptively: a run
  may depend on what earlier ones released; Dwork and Roth 2014, Theorem 3.16 and appendix B).
- That is for people who can have been in all of these runs: any two, unless one of them names the
  other's identity as disjoint, and both populations are declared and differ. Nobody is in two runs
  that are disjoint, so the figure is the largest over sets of runs without such a pair (parallel
  composition). What was said about one run is said about no other.
- Where adjacencies or units differ, or a run promised nobody anything, there is no figure.

Hashes have no key: anybody who can write a ledger can write another history
(``privacy.accounting.chained_record``).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.chained_record import Head, head_path
from murmuration.privacy.accounting.ledger import read_account
from murmuration.privacy.accounting.ledger_lines import Account, LedgerError
from murmuration.privacy.accounting.terms import Caveat, RunTerms, Unit, caveat_sentences
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.regular_files import read_regular

#: Caveats under which there is no figure at all.
_NO_FIGURE = frozenset({Caveat.NOT_PROVEN, Caveat.UNCHARGED})
#: So many sets of runs without a disjoint pair are looked at; beyond, all runs are added.
_MOST_SETS = 1000

_OF = {Unit.USER: "User-level DP", Unit.ROW: "Row-level DP"}


def epsilon_text(epsilon: float) -> str:
    """Return epsilon with three significant digits, two decimals at most from 1 on, rounded up:
    2.991 → ``3.00``."""
    if not math.isfinite(epsilon):
        return "∞"
    exact = Decimal(f"{epsilon:.10g}")  # else 0.1 + 0.2 would be rounded up to 0.301
    if exact <= 0:
        return "0"
    places = 2 if exact >= 1 else 2 - exact.adjusted()
    if exact >= 10:
        places = max(0, 3 - exact.adjusted() - 1)
    return str(exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_CEILING))


def delta_text(delta: float) -> str:
    """Return delta as it is typed on the command line: ``1e-5``, ``0.02``."""
    if not 0 < delta < 1e-3:
        return f"{delta:g}"
    mantissa, exponent = f"{delta:.5e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def with_seed_known(text: str, seeded: bool) -> str:
    """Return the text of a figure that stands for a private run's, with the words that must follow
    it where somebody chose the seed."""
    return f"{text} ({Caveat.SEEDED.value})" if seeded else text


@dataclass(frozen=True, kw_only=True)
class ReleasedRun:
    """One run, and what it cost one record of those that it trained on.

    Attributes:
        terms: what it says of itself.
        adjacency: under which its epsilon holds.
        delta: with it.
        epsilon: None where it promised nobody anything, or that is not known to be finite.
        head: of its ledger.
        heads: of the ledger after each line.
        ledger: its bytes, and those of the file of its head.
        begun: when, to the second.
    """

    terms: RunTerms
    adjacency: Adjacency
    delta: float
    epsilon: float | None
    head: Head
    heads: tuple[Head, ...] = field(default=(), repr=False, compare=False)
    ledger: tuple[bytes, bytes] = field(default=(b"", b""), repr=False, compare=False)
    begun: str = ""

    @classmethod
    def read(cls, path: Path) -> "ReleasedRun":
        """Read the run of a ledger, verified.

        Raises:
            LedgerError: it cannot be read, or is not what was written.
            OSError: it is not there.
        """
        account, contents = read_account(path)
        promise, terms = account.promise, account.terms
        try:
            epsilon = spent_by(account, terms)
        except (ValueError, OverflowError) as error:
            raise LedgerError(f"{path}: its charges cannot be composed ({error})") from None
        ledger = read_regular(path)[: contents.size], read_regular(head_path(path))
        return cls(
            terms=terms,
            adjacency=Adjacency(promise["adjacency"]),
            delta=float(promise["delta"]),
            epsilon=epsilon,
            head=contents.head,
            heads=contents.heads,
            ledger=ledger,
            begun=str(promise.get("begun", "")),
        )

    @property
    def name(self) -> str:
        """The run's identity."""
        return self.terms.run

    @property
    def sort_key(self) -> tuple[str, str, int, str]:
        """The place of a run among others: the first one first, where that is known."""
        return self.begun, self.terms.run, self.head.index, self.head.hash

    def goes_on_from(self, other: "ReleasedRun") -> bool:
        """True if the other run is an earlier state of this one."""
        return (
            self.terms.run == other.terms.run
            and other.head.index < self.head.index
            and self.heads[other.head.index] == other.head
        )

    def can_share_people(self, other: "ReleasedRun") -> bool:
        """True unless it was declared that nobody was in both."""
        mine, theirs = self.terms, other.terms
        if not (mine.population and theirs.population) or mine.population == theirs.population:
            return True
        named = theirs.run in mine.disjoint_from or mine.run in theirs.disjoint_from
        return not named

    def to_json(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {
            "ledger_head": str(self.head),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency.value,
            **self.terms.to_json(),
        }


def spent_by(account: Account, terms: RunTerms) -> float | None:
    """Return epsilon of one record of a ledger's unit; None where there is no finite figure."""
    if terms.unit is Unit.NOBODY or terms.caveats & _NO_FIGURE:
        return None
    epsilon = accountant.epsilon(
        account.spent.items(),
        adjacency=Adjacency(account.promise["adjacency"]),
        delta=float(account.promise["delta"]),
        interval=accountant.INTERVAL,
    )
    return epsilon if math.isfinite(epsilon) else None


@dataclass(frozen=True, kw_only=True)
class Composed:
    """The total cost of some runs to anybody who can have been in all of them.

    Attributes:
        populations: those that they declared.
        runs: how many.
        unit: of what.
        adjacency: of all; None where they differ.
        epsilon: None where there is no figure, and ``why`` says so.
        delta: with it.
        why: there is no figure; empty where there is one.
    """

    populations: tuple[str, ...]
    runs: int
    unit: Unit
    adjacency: Adjacency | None
    epsilon: float | None
    delta: float
    why: str = ""

    @classmethod
    def of(cls, runs: Sequence[ReleasedRun]) -> "Composed":
        """Add up some runs."""
        why, units = "", {run.terms.unit for run in runs}
        adjacencies = {run.adjacency for run in runs}
        if len(adjacencies) > 1:
            why = "the runs' adjacencies differ"
        if len(units) > 1:
            why = "the runs protect different units"
        if any(run.epsilon is None for run in runs):
            why = "a run promised users nothing"
        return cls(
            populations=tuple(sorted({run.terms.population for run in runs} - {""})),
            runs=len(runs),
            unit=next(iter(units)) if len(units) == 1 else Unit.NOBODY,
            adjacency=next(iter(adjacencies)) if len(adjacencies) == 1 else None,
            epsilon=None if why else math.fsum(run.epsilon or 0.0 for run in runs),
            delta=min(1.0, math.fsum(run.delta for run in runs)),
            why=why,
        )

    @property
    def who(self) -> str:
        """Return whom the figure is about, in words."""
        if not self.populations:
            return "whoever was trained on"
        listed = " and ".join(map(repr, self.populations))
        if len(self.populations) == 1:
            return f"the population {listed}"
        return f"whoever is in {listed}, which nobody declared disjoint"

    def statement(self, seeded: bool) -> str:
        """The figure in words; epsilon is rounded upwards."""
        if self.epsilon is None or self.adjacency is None:
            return f"no figure: {self.why}"
        text = (
            f"{_OF[self.unit]}: ε = {epsilon_text(self.epsilon)}, δ = {delta_text(self.delta)}, "
            f"{self.adjacency}"
        )
        return with_seed_known(text, seeded)

    def to_json(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {
            "populations": list(self.populations),
            "runs": self.runs,
            "unit": self.unit.value,
            "adjacency": self.adjacency.value if self.adjacency else None,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "why": self.why,
        }


@dataclass(frozen=True)
class Promise:
    """The runs that something was made from, and what is to be known before relying on them.

    Attributes:
        runs: the first one first; no two of them with one identity and one ledger.
        stated: caveats beside those of the runs, by name.
    """

    runs: tuple[ReleasedRun, ...] = ()
    stated: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        each = {(run.terms.run, run.head): run for run in self.runs}
        ordered = sorted(each.values(), key=lambda run: run.sort_key)
        object.__setattr__(self, "runs", tuple(ordered))

    def __or__(self, other: "Promise") -> "Promise":
        return Promise((*self.runs, *other.runs), self.stated | other.stated)

    def declared_public(self) -> "Promise":
        """Return this promise with the caveat that something was declared public."""
        return replace(self, stated=self.stated | {Caveat.DECLARED_PUBLIC.value})

    @property
    def public(self) -> bool:
        """True if something that it was made from was declared public."""
        return Caveat.DECLARED_PUBLIC in self.stated

    @cached_property
    def caveats(self) -> frozenset[str]:
        """By name: of all runs, and those stated beside."""
        return self.stated.union(*(run.terms.caveats for run in self.runs))

    @cached_property
    def counted(self) -> tuple[ReleasedRun, ...]:
        """The runs without those that are earlier states of others."""
        return tuple(
            run for run in self.runs if not any(other.goes_on_from(run) for other in self.runs)
        )

    @cached_property
    def composed(self) -> tuple[Composed, ...]:
        """The total cost for each set of people who can have been in several runs; if such a set
        has several populations, also for each of these."""
        if not self.counted:
            return ()
        rows: list[Composed] = []
        for runs in _without_disjoint_pairs(self.counted):
            names = sorted({run.terms.population for run in runs} - {""})
            for name in names if len(names) > 1 else ():
                rows.append(Composed.of([r for r in runs if r.terms.population in (name, "")]))
            rows.append(Composed.of(runs))
        unique = {(row.populations, row.runs, row.epsilon, row.delta): row for row in rows}
        return tuple(
            sorted(unique.values(), key=lambda row: (len(row.populations), row.populations))
        )

    @property
    def epsilon(self) -> float | None:
        """The most that anybody's record cost; None where there is no figure."""
        figures = [row.epsilon for row in self.composed]
        if not figures or None in figures or self.adjacency is None:
            return None
        return max(figure for figure in figures if figure is not None)

    @property
    def delta(self) -> float | None:
        """With epsilon, the largest."""
        return max(row.delta for row in self.composed) if self.epsilon is not None else None

    @property
    def adjacency(self) -> Adjacency | None:
        """The adjacency of all runs; None if they differ, or there are none."""
        adjacencies = {run.adjacency for run in self.counted}
        return next(iter(adjacencies)) if len(adjacencies) == 1 else None

    @property
    def unit(self) -> Unit:
        """The unit of all runs; nobody if they differ, or there are none."""
        units = {run.terms.unit for run in self.counted}
        return next(iter(units)) if len(units) == 1 else Unit.NOBODY

    @property
    def seeded(self) -> bool:
        """True if somebody chose a seed, so that nothing is private from anybody who knows it."""
        return Caveat.SEEDED in self.caveats

    @property
    def private(self) -> bool:
        """True if epsilon is a promise to anybody."""
        return self.epsilon is not None and not self.seeded

    @property
    def populations(self) -> tuple[str, ...]:
        """Those that the runs declared."""
        return tuple(sorted({run.terms.population for run in self.counted} - {""}))

    @property
    def _by_unit(self) -> list["Promise"]:
        """The promise of the runs of each unit."""
        units = {run.terms.unit for run in self.counted}
        return [
            replace(self, runs=tuple(run for run in self.counted if run.terms.unit is unit))
            for unit in Unit
            if unit in units
        ]

    @property
    def statement(self) -> str:
        """The promise in a line; where runs protect different units, what each of them promises."""
        if not self.runs:
            return "No privacy cost: made from data that was declared public"
        if self.unit is Unit.NOBODY and all(run.terms.unit is Unit.NOBODY for run in self.counted):
            return "No privacy: exact figures of private data were used"
        if self.epsilon is None or self.delta is None or self.adjacency is None:
            why = "; ".join(dict.fromkeys(row.why for row in self.composed if row.why))
            of_units = [part for part in self._by_unit if part.epsilon is not None]
            if len(of_units) < 2 or len(of_units) < len(self._by_unit):
                return f"No privacy guarantee: {why}"
            each = "; and, by other runs, ".join(part.statement for part in of_units)
            return f"{each} ({why}: no figure is about all of them)"
        worst = Composed(
            populations=(),
            runs=1,
            unit=self.unit,
            adjacency=self.adjacency,
            epsilon=self.epsilon,
            delta=self.delta,
        )
        return worst.statement(self.seeded)

    def __str__(self) -> str:
        return f"{self.statement}; caveats: {', '.join(sorted(self.caveats)) or 'none'}"

    @property
    def sentences(self) -> list[str]:
        """The sentence of each caveat, in a fixed order."""
        return caveat_sentences(self.caveats)

    def to_json(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {
            "private": self.private,
            "statement": self.statement,
            "unit": self.unit.value,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency.value if self.adjacency else None,
            "trust": sorted({run.terms.trust.value for run in self.counted}),
            "populations": list(self.populations),
            "caveats": sorted(self.caveats),
            "runs": [run.to_json() for run in self.runs],
            "composed": [row.to_json() for row in self.composed],
        }


def combined(promises: Iterable[Promise]) -> Promise:
    """Return the union of promises."""
    whole = Promise()
    for promise in promises:
        whole |= promise
    return whole


def _without_disjoint_pairs(runs: Sequence[ReleasedRun]) -> list[list[ReleasedRun]]:
    """The largest sets of runs that one person can have been in: the maximal cliques of the graph
    of those that can share people (by the algorithm of Bron and Kerbosch, with a pivot).

    All runs in one, which costs at least as much, where there are too many such sets.
    """
    near: Mapping[int, set[int]] = {
        place: {
            other
            for other in range(len(runs))
            if other != place and runs[place].can_share_people(runs[other])
        }
        for place in range(len(runs))
    }
    sets: list[list[int]] = []
    waiting = [(set[int](), set(near), set[int]())]
    while waiting:
        chosen, left, done = waiting.pop()
        if not left and not done:
            sets.append(sorted(chosen))
            if len(sets) > _MOST_SETS:
                return [list(runs)]
            continue
        pivot = max(left | done, key=lambda place: (len(near[place] & left), -place))
        for place in sorted(left - near[pivot]):
            waiting.append((chosen | {place}, left & near[place], done & near[place]))
            left, done = left - {place}, done | {place}
    return [[runs[place] for place in places] for places in sorted(sets)]


def earlier_runs(promise: Promise, own: ReleasedRun, whose: str) -> list[str]:
    """Sentences for readers of a run's own epsilon: its base cost people privacy, too. ``whose`` is
    what was trained on them, in capitals."""
    if (earlier := len([run for run in promise.counted if run != own])) < 1:
        return []
    runs = "run" if earlier == 1 else "runs"
    return [f"{whose} TRAINED ON USERS, TOO, by {earlier} earlier {runs}: {together(promise)}"]


def cost_in_words(row: Composed) -> str:
    """The total cost of some runs in words; epsilon is rounded upwards."""
    if row.why or row.epsilon is None:
        return f"for {row.who} there is no figure: {row.why}"
    times = "one run" if row.runs == 1 else f"{row.runs} runs together"
    return (
        f"for {row.who}, ε = {epsilon_text(row.epsilon)}, δ = {delta_text(row.delta)} in {times} "
        f"({row.adjacency})"
    )


def together(promise: Promise) -> str:
    """The total cost of all runs of a promise, with the reason why they add up so."""
    rows = promise.composed
    apart = len(rows) > 1 and all(len(row.populations) < 2 for row in rows)
    return (
        composed_text(promise)
        + ". Epsilons and deltas of runs under the same adjacency are added (basic composition)."
        + (" Nobody is in two of these populations, as was declared." if apart else "")
    )


def composed_text(promise: Promise) -> str:
    """The total cost of all runs of a promise."""
    return with_seed_known("; ".join(map(cost_in_words, promise.composed)), promise.seeded)
