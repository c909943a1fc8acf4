"""Events: releases as immutable data that accountants interpret and ledgers record.

An event carries public parameters only. Every event knows its privacy loss distribution, so events
of different kinds compose in one accountant.

Another package brings a kind by an entry point ``murmuration.events``, which is named as the kind
and leads to its class: a frozen dataclass of numbers, texts and booleans with an ``Event``'s
``kind`` and ``loss``. A ledger with an event whose package is not there is not read at all.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.event import Event, check_gaussian
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian, PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.extensions import Group
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.selection.random_stopping import RandomStopping
from murmuration.privacy.theorems import check_event

# One round of example-level DP-SGD, to be accounted for whole users by group privacy.
#
# Apart from ``privacy.accounting.group_privacy``, which does that, because ledgers must know the
# event and the conversion must know the accountant.


@dataclass(frozen=True)
class GroupGaussian:
    """A Gaussian sum of clipped examples, as the black-box conversion for ≤ ``group_size`` sees it.

    ``noise_multiplier`` is the standard deviation over the clip norm of one example, each of which
    is in with ``probability``. Group privacy converts a whole composition, not a round: the event
    has no privacy loss distribution, and ``accounting.epsilon`` hands all of its rounds to
    ``group.group_epsilon`` together. Only with others of its kind can it be composed.
    """

    kind: ClassVar[str] = "group-gaussian"
    noise_multiplier: float
    group_size: int
    probability: float

    def __post_init__(self) -> None:
        check_gaussian(self.noise_multiplier, self.probability, self.group_size)

    def loss(self, adjacency: Adjacency, interval: float) -> NoReturn:
        """There is none for a round; ValueError."""
        raise ValueError("group privacy converts all rounds together; other events cannot join")


# The event of local label privacy: randomized labels of one user.
#
# The loss is suffered when a label leaves its user; a server charges it all the same, so that its
# ledger says what one user's labels have cost in what it holds.

_MOST = 500.0


@dataclass(frozen=True)
class RandomizedLabels:
    """All labels of a user, (``epsilon``, ``delta``)-DP together."""

    kind: ClassVar[str] = "randomized-labels"
    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and 0.0 < self.epsilon <= _MOST):
            raise ValueError(f"epsilon of labels must be in (0, {_MOST:g}], got {self.epsilon}")
        if not 0.0 <= self.delta < 1.0:
            raise ValueError(f"delta of labels must be in [0, 1), got {self.delta}")

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The worst such release (Kairouz et al. 2015); Unsupported elsewhere."""
        check_event(self.kind, adjacency)
        return (DiscretePMF.worst(self.epsilon, self.delta, interval),)


@dataclass(frozen=True)
class ParallelEvent:
    """An event about the users of one part; no user is in two parts.

    Where users are divided at random, independently of all data, two neighbouring data sets differ
    in one part only. Releases about the others are then post-processing of what is common to both,
    and the whole costs as much as the most expensive part (parallel composition, McSherry 2009;
    ``by_part``). That holds within one run: two runs divide their users differently.
    """

    kind: ClassVar[str] = "on-part"
    part: int
    event: Event

    def __post_init__(self) -> None:
        if type(self.part) is not int:
            raise ValueError(f"a part is named by a whole number, not by {self.part!r}")
        if isinstance(self.event, ParallelEvent):
            raise ValueError("a part of a part: users are divided once")

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The privacy loss of a user of this part."""
        return self.event.loss(adjacency, interval)


@dataclass(frozen=True)
class PureDp:
    """Any mechanism that is (``epsilon``, 0)-DP under the adjacency at hand, such as a threshold.

    Composed as the worst such mechanism, randomized response with two outcomes, under every
    relation. ``dp_accounting``'s own randomized-response event would not do: in version 0.6 it is
    refused under add-remove, and a repetition of it is counted once.
    """

    kind: ClassVar[str] = "pure-dp"
    epsilon: float

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon <= 500.0:
            raise ValueError(f"a pure epsilon must be in (0, 500], got {self.epsilon}")

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """Mass at plus and minus epsilon, in both directions (Kairouz et al. 2015)."""
        return (DiscretePMF.worst(self.epsilon, 0.0, interval),)


@dataclass(frozen=True)
class PureChoice(PureDp):
    """An (``epsilon``, 0)-DP release by whose outcome parameters of later releases are chosen.

    Privacy loss distributions compose mechanisms whose parameters are fixed in advance. For each
    outcome of a choice the rest may meet the same (epsilon, delta) and still not be dominated by
    one distribution for all outcomes, so a choice is never convolved with the rest: its epsilon is
    added to the rest's (basic composition, which allows any adaptivity).
    """

    kind: ClassVar[str] = "pure-choice"


@dataclass(frozen=True)
class BandedGaussian:
    """A Gaussian sum over sampled users of one of ``bands`` groups, with noise of so many bands.

    ``noise_multiplier`` is the standard deviation of the independent noise behind it over the clip
    norm, ``probability`` that with which a user of the group is in. Charged as a ``ParallelEvent``
    of the group, whose rounds are ``bands`` apart; see ``privacy.continual.banded``.
    Guarantee: the loss of one user of the group who is added, removed or zeroed out.
    """

    kind: ClassVar[str] = "banded-gaussian"
    bands: int
    probability: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_gaussian(self.noise_multiplier, self.probability)
        if not (type(self.bands) is int and self.bands >= 1):
            raise ValueError(f"there must be at least one band, got {self.bands!r}")

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The loss of a sampled Gaussian sum; Unsupported where a user is replaced."""
        check_event(self.kind, adjacency)
        return PoissonGaussian(self.probability, self.noise_multiplier).loss(adjacency, interval)


@dataclass(frozen=True)
class BufferedGaussian:
    """All sums of so many ``rounds`` to which no user adds in two that are less than ``separation``
    apart, with buffered linear Toeplitz noise: one Gaussian release, spread over time.

    ``noise_multiplier`` is the standard deviation of the independent noise behind it over what one
    user can add to all of it. Charged whole with the first round
    (``privacy.continual.buffered``); whatever breaks the noise off begins another, which pays for
    itself. Guarantee: that of one Gaussian release under every relation.
    """

    kind: ClassVar[str] = "blt-gaussian"
    rounds: int
    separation: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_gaussian(self.noise_multiplier, 1.0)
        for number in (self.rounds, self.separation):
            if not (type(number) is int and number >= 1):
                raise ValueError(f"rounds and separation are whole numbers ≥ 1, got {number!r}")

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The loss of a Gaussian sum over all users."""
        return PoissonGaussian(1.0, self.noise_multiplier).loss(adjacency, interval)


@dataclass(frozen=True)
class BufferedLater(BufferedGaussian):
    """A later round of a ``BufferedGaussian``, which its first has paid for.

    A ledger takes it only where that is so: the round before was charged last, it is of the same
    release, and that is not over.
    """

    kind: ClassVar[str] = "blt-later"

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """None, for certain: it was charged with the first."""
        del adjacency
        return (DiscretePMF.worst(0.0, 0.0, interval),)

    def paid_by(self, event: object) -> int:
        """The number of rounds that an event pays for: all of its release, if it is the first of
        this one; 0 for any other event."""
        first = BufferedGaussian(self.rounds, self.separation, self.noise_multiplier)
        return self.rounds if event == first else 0


@dataclass(frozen=True)
class Unprotected:
    """A release with no guarantee at all: its epsilon is infinite."""

    kind: ClassVar[str] = "unprotected"

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """All mass at an infinite loss."""
        return (DiscretePMF.worst(0.0, 1.0, interval),)


def of_several_runs(events: Iterable[tuple[Event, int]]) -> list[tuple[Event, int]]:
    """The charges of several runs, each with random assignments of its own, as they compose.

    A user in one part of a run, or held out from it, may be in another part of the next, so
    everybody counts as exposed to everything.
    """
    result: Counter[Event] = Counter()
    for event, times in events:
        if not isinstance(event, HoldOut):
            result[event.event if isinstance(event, ParallelEvent) else event] += times
        elif event.epsilon:
            result[PureDp(event.epsilon)] += times
    return list(result.items())


def of_one_group(run: Iterable[tuple[Event, int]]) -> list[tuple[Event, int]]:
    """The charges of one run, where of the groups that take turns under banded noise only the one
    with most turns counts. A user may be in that group in every run."""
    turns: Counter[ParallelEvent] = Counter()
    result: list[tuple[Event, int]] = []
    for event, times in run:
        if isinstance(event, ParallelEvent) and isinstance(event.event, BandedGaussian):
            turns[event] += times
        else:
            result.append((event, times))
    most: dict[Event, int] = {}
    for turn, times in turns.items():
        most[turn.event] = max(times, most.get(turn.event, 0))
    return [*result, *most.items()]


def by_part(events: Iterable[tuple[Event, int]]) -> list[list[tuple[Event, int]]]:
    """The events that a user of each part is exposed to: those of the part, and those without a
    part. Parts with equal events appear once.

    For each number of bands, users are divided anew into as many groups: a user in a part of one
    division may be in any part of another. One list with everything if no event belongs to a part.
    """
    everybody: list[tuple[Event, int]] = []
    divisions: dict[int, dict[int, list[tuple[Event, int]]]] = {}
    for event, times in events:
        if isinstance(event, ParallelEvent):
            bands = event.event.bands if isinstance(event.event, BandedGaussian) else 0
            parts = divisions.setdefault(bands, {})
            parts.setdefault(event.part, []).append((event.event, times))
        else:
            everybody.append((event, times))
    distinct = (
        dict.fromkeys(tuple(parts[part]) for part in sorted(parts)) for parts in divisions.values()
    )
    return [[*everybody, *itertools.chain(*one)] for one in itertools.product(*distinct)]


def noise_of(event: Event) -> float:
    """Return the noise multiplier; infinite for what is no noisy sum, or was charged before."""
    if isinstance(event, BufferedLater):
        return math.inf
    return float(getattr(event, "noise_multiplier", math.inf))


def group_of(event: Event) -> int:
    """The most examples of a user that are sampled independently into a sum; 1 for other events,
    and for group privacy, which is accounted for one example."""
    event = event.event if isinstance(event, DiscretizedGaussian) else event
    return event.group_size if isinstance(event, MixtureGaussian) else 1


def examples_of(event: Event) -> tuple[float, np.ndarray]:
    """The probability that an example of a user is in a sum, and that of every number of them from
    0 on."""
    event = event.event if isinstance(event, DiscretizedGaussian) else event
    sampled, size = float(getattr(event, "probability", 1.0)), group_of(event)
    if size == 1:
        return sampled, np.array([1.0 - sampled, sampled])
    from scipy import stats  # slow to import, only for this

    return sampled, np.asarray(stats.binom.pmf(np.arange(size + 1), size, sampled))


#: A new kind of event of ours is named here: ledgers are read through this.
_KINDS: dict[str, type] = {
    event.kind: event
    for event in (
        PoissonGaussian,
        MixtureGaussian,
        GroupGaussian,
        PureDp,
        PureChoice,
        RandomizedLabels,
        ParallelEvent,
        DiscretizedGaussian,
        HoldOut,
        BandedGaussian,
        BufferedGaussian,
        BufferedLater,
        RandomStopping,
        Unprotected,
    )
}


def _check_event(name: str, loaded: object) -> str:
    if not (isinstance(loaded, type) and dataclasses.is_dataclass(loaded)):
        return "an event is a dataclass"
    if not loaded.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return "an event is a frozen dataclass"
    if getattr(loaded, "kind", None) != name:
        return f"its kind is {getattr(loaded, 'kind', None)!r}"
    return "" if callable(getattr(loaded, "loss", None)) else "it has no loss"


#: The kinds that other packages bring, and other rooms.
EVENTS = Group("murmuration.events", _check_event, _KINDS)


def to_json(event: Event) -> dict[str, Any]:
    """The event as JSON-able data.

    Raises:
        ValueError: it could not be read back as what it is.
    """
    if isinstance(event, ParallelEvent | DiscretizedGaussian):
        fields = {f.name: getattr(event, f.name) for f in dataclasses.fields(event)}
        return {"kind": event.kind, **fields, "event": to_json(event.event)}
    if _class_of(event.kind) is not type(event):
        raise ValueError(f"{type(event).__name__} is not the event of the kind {event.kind!r}")
    return {"kind": event.kind, **dataclasses.asdict(event)}  # type: ignore[call-overload]


def from_json(data: dict[str, Any]) -> Event:
    """The event back from ``to_json``; ValueError for an unknown kind or wrong fields."""
    fields = dict(data)
    kind = fields.pop("kind", None)
    event = _class_of(kind)
    if kind in (ParallelEvent.kind, DiscretizedGaussian.kind):
        if not isinstance(fields.get("event"), dict):
            raise ValueError(f"event {kind!r} is about another event, and names none")
        fields["event"] = from_json(fields["event"])
    try:
        return event(**fields)
    except TypeError as error:
        raise ValueError(f"event {kind!r}: {error}") from None


def _class_of(kind: object) -> type:
    """The class of a kind, ours or another package's; ValueError if there is none here."""
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    if isinstance(kind, str) and kind in EVENTS.names():
        return EVENTS.load(kind)
    raise ValueError(
        f"unknown event kind {kind!r}; known: {', '.join(sorted({*_KINDS, *EVENTS.names()}))}; "
        "if another package brings it, install that: nothing is counted without it"
    )
