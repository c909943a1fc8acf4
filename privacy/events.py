"""What a release costs, as immutable data that accountants interpret and ledgers record.

An event carries public parameters only. Its privacy loss distribution (PLD) comes from
``dp_accounting``; every event knows how to become one, so events of different kinds compose in one
accountant.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld

from privacy.adjacency import Adjacency
from privacy.group_event import GroupGaussian
from privacy.hold_out import HoldOut
from privacy.label_event import RandomizedLabels
from privacy.mixture import MixtureGaussian
from privacy.on_grid import OnGrid
from privacy.parts import OnPart
from privacy.tested import TestedGaussian

PLD = pld.PrivacyLossDistribution


class Event(Protocol):
    """One mechanism, run once."""

    kind: ClassVar[str]

    def loss(self, adjacency: Adjacency, interval: float) -> PLD:
        """The privacy loss distribution of one run, discretized pessimistically to ``interval``."""
        ...


@dataclass(frozen=True)
class PoissonGaussian:
    """A Gaussian sum over a Poisson-sampled cohort.

    ``noise_multiplier`` is the standard deviation over the clip norm under *every* relation: for
    ``replace`` the accountant itself supplies the factor two.
    """

    kind: ClassVar[str] = "poisson-gaussian"
    probability: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not 0.0 < self.probability <= 1.0:
            raise ValueError(f"the sampling probability must be in (0, 1], got {self.probability}")
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0.0):
            raise ValueError(f"the noise multiplier must be positive, got {self.noise_multiplier}")

    def loss(self, adjacency: Adjacency, interval: float) -> PLD:
        """See ``Event.loss``; Koskela et al. 2020, Zhu et al. 2022."""
        return pld.from_gaussian_mechanism(
            standard_deviation=self.noise_multiplier,
            value_discretization_interval=interval,
            sampling_prob=self.probability,
            neighboring_relation=adjacency.relation,
        )


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

    def loss(self, adjacency: Adjacency, interval: float) -> PLD:
        """Mass at plus and minus epsilon, in both directions (Kairouz et al. 2015)."""
        return pld.from_privacy_parameters(
            common.DifferentialPrivacyParameters(self.epsilon, 0.0),
            value_discretization_interval=interval,
        )


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
class Unprotected:
    """A release with no guarantee at all: its epsilon is infinite."""

    kind: ClassVar[str] = "unprotected"

    def loss(self, adjacency: Adjacency, interval: float) -> PLD:
        """All mass at an infinite loss."""
        return pld.from_privacy_parameters(
            common.DifferentialPrivacyParameters(0.0, 1.0), value_discretization_interval=interval
        )


#: A new kind of event is a class of its own module, named here: ledgers are read through this.
_KINDS: dict[str, type] = {
    event.kind: event
    for event in (
        PoissonGaussian,
        MixtureGaussian,
        GroupGaussian,
        PureDp,
        PureChoice,
        RandomizedLabels,
        TestedGaussian,
        OnPart,
        OnGrid,
        HoldOut,
        Unprotected,
    )
}


def to_json(event: Event) -> dict[str, Any]:
    """The event as JSON-able data."""
    if isinstance(event, OnPart | OnGrid):
        fields = {f.name: getattr(event, f.name) for f in dataclasses.fields(event)}
        return {"kind": event.kind, **fields, "event": to_json(event.event)}
    return {"kind": event.kind, **dataclasses.asdict(event)}  # type: ignore[call-overload]


def from_json(data: dict[str, Any]) -> Event:
    """The event back from ``to_json``; ValueError for an unknown kind or wrong fields."""
    fields = dict(data)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"unknown event kind {kind!r}; known: {', '.join(sorted(_KINDS))}")
    if kind in (OnPart.kind, OnGrid.kind):
        if not isinstance(fields.get("event"), dict):
            raise ValueError(f"event {kind!r} is about another event, and names none")
        fields["event"] = from_json(fields["event"])
    try:
        return _KINDS[kind](**fields)
    except TypeError as error:
        raise ValueError(f"event {kind!r}: {error}") from None
