"""The terms of a run: the first line of its ledger, before anything is released.

Whatever is made from a run later is made from its ledger's bytes: who it is, what it protects, who
has to be trusted, whom it trained on, and what a reader has to know before relying on its epsilon.
These lines are chained, so none of it can be lost without the ledger being refused.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any

_RUN_ID = re.compile(r"[0-9a-f]{32}")


class Unit(StrEnum):
    """The record that a run's epsilon is about."""

    USER = "user"
    ROW = "row"
    NOBODY = "nobody"


class Trust(StrEnum):
    """The parties that see more than the releases, and are trusted not to use it."""

    SERVER = "server"
    SERVER_OF_SUMS = "server-of-sums"
    NODES = "nodes"
    OWN_NODE = "own-node"
    UNRECORDED = "unrecorded"

    @property
    def sentence(self) -> str:
        """The sentence in a report."""
        return _TRUSTED[self]


_TRUSTED = {
    Trust.SERVER: "the server, which sees sums before noise; the nodes, which clip",
    Trust.SERVER_OF_SUMS: (
        "the server, which sees sums of all nodes before noise, under secure aggregation; the "
        "nodes, which clip"
    ),
    Trust.NODES: (
        "the server, to toss coins; the nodes, which clip, and so many of which add the noise "
        "under secure aggregation as the ledger's events say"
    ),
    Trust.OWN_NODE: "each user's own node; the server sees no true label",
    Trust.UNRECORDED: "not recorded",
}


class Caveat(StrEnum):
    """A reason not to take an epsilon at its word; it is kept with everything made from the run."""

    SEEDED = "simulation, seed known"
    NOT_PROVEN = "not proven"
    UNCHARGED = "a model moved without a charge"
    SHARED_PASSES = "shared passes"
    LARGE_DELTA = "delta is not below 1 / users"
    EXACT_USERS = "exact number of users"
    FLOATING_POINT = "floating-point noise"
    ROWS_ARE_USERS = "each row counted as a user"
    CHOSEN_FROM_DATA = "settings chosen by looking at the data"
    DECLARED_PUBLIC = "declared public"
    UNRECORDED = "caveats not recorded"

    @property
    def sentence(self) -> str:
        """The sentence in a report."""
        return _CAVEATS[self]


_CAVEATS = {
    Caveat.SEEDED: (
        "SIMULATION, SEED KNOWN: somebody chose the seed (--seed), and whoever knows or guesses it "
        "can subtract the noise. Epsilon is what a run without a seed would have cost."
    ),
    Caveat.NOT_PROVEN: (
        "NOT PROVEN: a claim of privacy is repeated as it was published. Treat what came of it as "
        "without protection."
    ),
    Caveat.UNCHARGED: (
        "A MODEL MOVED WITHOUT A CHARGE: a strategy released something that its ledger does not "
        "have, so epsilon is infinite."
    ),
    Caveat.SHARED_PASSES: (
        "Backward passes were shared (--user-passes shared): last digits of a user's vector depend "
        "on the other users in its pass. How far one user can move others in this way was "
        "measured, not proven, and is not part of epsilon."
    ),
    Caveat.LARGE_DELTA: (
        "delta is not below 1 / users: such a delta allows a mechanism that publishes one user "
        "outright. Choose a smaller --delta."
    ),
    Caveat.EXACT_USERS: (
        "The exact number of users is published, and decides the sampling probability where users "
        "are sampled, so it is treated as public. If it is not, state a round number with --users. "
        "If the whole list of users is public, use --adjacency zero-out."
    ),
    Caveat.FLOATING_POINT: (
        "Noise was drawn in floating point. The guarantee is that of real numbers; what the last "
        "bits of rounded ones may tell is not covered."
    ),
    Caveat.ROWS_ARE_USERS: (
        "EACH ROW COUNTED AS A USER OF ITS OWN (--one-user-per-row): single rows are protected, "
        "not people. Whoever gave k of them has spent up to k times epsilon together."
    ),
    Caveat.CHOSEN_FROM_DATA: (
        "Settings were chosen by looking at the data (--chosen-from-data): what they tell of them, "
        "as how many users there are or what labels mean, is not part of epsilon."
    ),
    Caveat.DECLARED_PUBLIC: (
        "A base, a model or a policy that this was made from was declared public: what that cost "
        "anybody whom it was trained on is not counted here."
    ),
    Caveat.UNRECORDED: (
        "The run is of a program of its own: whether its seed was known, its noise exact and its "
        "users computed apart was not recorded."
    ),
}


def new_run_id() -> str:
    """Draw the identity of a run: 128 bits from the operating system, never from a seed."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class RunTerms:
    """A run's own words about itself; all of them public.

    Attributes:
        run: its identity, 128 random bits in hex.
        unit: what one record is.
        trust: who sees more than what is released.
        population: whom it trained on, as declared; empty: not declared, which may be anybody.
        disjoint_from: identities of the runs of which it was declared that nobody of this one's
            population was in them. It is said of these and of no others.
        caveats: by name, see ``Caveat``; unknown names are of other versions, and are kept.

    Raises:
        ValueError: an identity that is none.
    """

    run: str = field(default_factory=new_run_id)
    _: KW_ONLY
    unit: Unit = Unit.USER
    trust: Trust = Trust.UNRECORDED
    population: str = ""
    disjoint_from: frozenset[str] = frozenset()
    caveats: frozenset[str] = frozenset({Caveat.UNRECORDED})

    def __post_init__(self) -> None:
        for run in (self.run, *self.disjoint_from):
            if not _RUN_ID.fullmatch(run):
                raise ValueError(f"{run!r} is no identity of a run: it has 32 hexadecimal digits")

    def to_json(self) -> dict[str, Any]:
        """The first line of a ledger."""
        return {
            "run": self.run,
            "unit": self.unit.value,
            "trust": self.trust.value,
            "population": self.population,
            "disjoint_from": sorted(self.disjoint_from),
            "caveats": sorted(self.caveats),
        }

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "RunTerms":
        """From the first line of a ledger.

        Raises:
            ValueError, TypeError, KeyError: it is not what a ledger's first line says.
        """
        return cls(
            run=_text(line["run"]),
            unit=Unit(line["unit"]),
            trust=Trust(line["trust"]),
            population=printable(line["population"]),
            disjoint_from=frozenset(map(_text, _listed(line["disjoint_from"]))),
            caveats=caveats_in(line["caveats"]),
        )


def caveat_sentences(caveats: Iterable[str]) -> list[str]:
    """The sentences of caveats, in a fixed order; for unknown names, the name."""
    names = sorted(set(caveats), key=lambda name: (name not in _ORDER, _ORDER.get(name, 0), name))
    return [
        _CAVEATS[Caveat(name)] if name in _ORDER else f"A caveat of another version: {name}."
        for name in names
    ]


def caveats_in(listed: object) -> frozenset[str]:
    """Return the names in a list of caveats that somebody wrote.

    Raises:
        ValueError, TypeError: it is none.
    """
    return frozenset(map(printable, _listed(listed)))


def printable(value: object) -> str:
    """Return a name that stays on one line, and the same, wherever it is shown.

    Raises:
        ValueError, TypeError: it is none.
    """
    text = _text(value)
    if not text.isprintable():
        raise ValueError(f"{text!r} is no name: it has characters that cannot be printed")
    return text


_ORDER = {caveat.value: place for place, caveat in enumerate(Caveat)}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _listed(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value
