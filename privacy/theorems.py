"""The table of privacy theorems. A release without a row here cannot be built.

A theorem is about three parts: the bound on one user's contribution (``Unit``), the sampling
(``Participation``), and the noise or random draw (``Mechanism``). It holds under some adjacencies.
A clip names its unit, a sampler its participation, a noise its mechanism. ``find`` returns the row
of three parts, or raises an error that lists the nearest rows.

Theorems about whole runs, whose unit is ``Unit.RUN``, have a file each: users held out by a secret
random assignment (``mechanisms.hold_out``), the best of several runs
(``selection.random_stopping``), and composition of releases (``accounting.composition``).

Another package states its theorem as a ``Theorem`` of its own, and hands it to its ``Strategy``.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum

from murmuration.privacy.adjacency import Adjacency, Unsupported


class Status(StrEnum):
    """The standing of a theorem."""

    PROVEN = "proven"
    #: As published, without a valid proof.
    CLAIMED = "claimed"
    #: Nothing is promised.
    NONE = "none"


class Unit(StrEnum):
    """The bound on one user's part of a release."""

    VECTOR = "one clipped vector per user"
    VECTOR_AND_BIT = "one clipped vector and one bit per user"
    EXAMPLES = "a bounded number of clipped judgements per user"
    LABELS = "one clipped vector per user, of which only the labels are private"
    EACH_LABEL = "all labels of a user, each sent once"
    QUERIES = "counts that one user changes by at most one"
    LOSSES = "one bounded loss per user and candidate"
    NEIGHBOURHOODS = "vectors of users who are close to enough other users"
    UNBOUNDED = "unclipped vectors"
    RUN = "a whole run"

    @property
    def sums(self) -> bool:
        """True where nodes add up contributions on a grid, so that sums can be masked."""
        return self in _SUMMED


_SUMMED = frozenset(
    {Unit.VECTOR, Unit.VECTOR_AND_BIT, Unit.EXAMPLES, Unit.LABELS, Unit.LOSSES, Unit.QUERIES}
)


class Participation(StrEnum):
    """The users, or judgements, that take part in a release."""

    POISSON = "users, by Poisson sampling (everybody, if q = 1)"
    TURNS_BY_COIN = "groups of users in turn, with Poisson sampling in the group"
    TURNS = "groups of users in turn, everybody in the group"
    EXAMPLES = "judgements, by Poisson sampling"
    ONCE = "everybody, once"
    HELD_OUT = "users, trained on or held out by a secret random assignment"
    AS_IN_THE_RUN = "as in the run"


class Mechanism(StrEnum):
    """The noise that is added to a sum, or the random draw that takes its place."""

    GAUSSIAN = "Gaussian noise"
    DISCRETE_GAUSSIAN = "discrete Gaussian noise"
    SHARES = "discrete Gaussian noise, added in shares by the nodes"
    BANDED = "banded correlated Gaussian noise"
    BUFFERED = "buffered correlated Gaussian noise (BLT)"
    LAPLACE = "Laplace noise"
    RANDOMIZED_RESPONSE = "randomized response"
    EXPONENTIAL = "the exponential mechanism"
    RANDOM_STOPPING = "the best of a random number of candidates, by a private score"
    NOTHING = "none"


ALL = frozenset(Adjacency)
#: One user comes or goes, and nobody is replaced.
COMES_OR_GOES = frozenset({Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT})
LABELS = frozenset({Adjacency.REPLACE_LABELS})


@dataclass(frozen=True)
class Theorem:
    """One row.

    Attributes:
        unit, participation, mechanism: its three parts.
        event: the kind of event that one release is charged as; with discrete noise, as its
            discrete form.
        adjacencies: those under which it holds.
        says: its statement.
        source: paper and number.
        audit: the target of ``murmuration audit`` that attacks it.
        status: see ``Status``.
    """

    unit: Unit
    participation: Participation
    mechanism: Mechanism
    _: KW_ONLY
    event: str
    adjacencies: frozenset[Adjacency]
    says: str
    source: str
    audit: str = ""
    status: Status = Status.PROVEN

    @property
    def parts(self) -> tuple[str, ...]:
        """The three parts."""
        return self.unit, self.participation, self.mechanism

    def __str__(self) -> str:
        return f"{self.mechanism} on {self.unit} ({self.participation})"

    def check(self, adjacency: Adjacency) -> None:
        """Raise Unsupported (a ValueError) that names its adjacencies, unless it holds here."""
        if adjacency not in self.adjacencies:
            raise Unsupported(
                f"there is no guarantee under {adjacency} for {self}; there is one under "
                f"{listed(self.adjacencies)}"
            )


def listed(adjacencies: frozenset[Adjacency]) -> str:
    """The names of adjacencies in a fixed order, with "or" between them."""
    return " or ".join(a for a in Adjacency if a in adjacencies)


_GAUSSIAN = (
    "Each user is in the sum with probability q, and then moves it by at most C; the noise has "
    "standard deviation σC. The privacy loss is that of (1 − q)·N(0, σ²) + q·N(1, σ²) against "
    "N(0, σ²). If a user is replaced, the second distribution is (1 − q)·N(0, σ²) + q·N(−1, σ²)."
)
_DISCRETE = (
    "Gaussian noise on an integer grid, with a standard deviation of at least s steps, costs as "
    "much as continuous Gaussian noise and a term in δ that vanishes as s grows."
)
_SHARES = (
    "If h nodes each add an honest share of Gaussian noise on an integer grid, these shares cost "
    "as much as one draw of their total variance and a further term in δ."
)
_JOINT = (
    "A clipped sum with noise multiplier σ and a count of bits, each centred at ½, with noise of "
    "standard deviation σ_b are together one Gaussian release with noise multiplier σ′, where "
    "1/σ′² = 1/σ² + 1/(2σ_b)²."
)
_MIXTURE = (
    "If a user has at most G judgements, each sampled with probability p, the privacy loss of the "
    "sum is that of a mixture of Gaussians, whose means are Binomial(G, p), against N(0, σ²)."
)
_CKS = "Canonne, Kamath and Steinke 2020; the bound in `privacy/accounting/grid_noise.py`"
_KLS = "Kairouz, Liu and Steinke 2021; the bound in `privacy/accounting/grid_noise.py`"


def _and_on_grids(row: Theorem) -> tuple[Theorem, ...]:
    """A row about Gaussian noise, and the rows about discrete noise and shares in its place."""
    return (
        row,
        replace(
            row,
            mechanism=Mechanism.DISCRETE_GAUSSIAN,
            says=_DISCRETE,
            source=_CKS,
            audit="discrete-gaussian",
        ),
        replace(
            row,
            mechanism=Mechanism.SHARES,
            says=_SHARES,
            source=_KLS,
            audit="distributed-gaussian",
        ),
    )


TABLE: tuple[Theorem, ...] = (
    *_and_on_grids(
        Theorem(
            Unit.VECTOR,
            Participation.POISSON,
            Mechanism.GAUSSIAN,
            event="poisson-gaussian",
            adjacencies=ALL,
            audit="poisson-gaussian",
            says=_GAUSSIAN,
            source="Mironov, Talwar and Zhang 2019; Koskela, Jälkö and Honkela 2020",
        )
    ),
    *_and_on_grids(
        Theorem(
            Unit.VECTOR_AND_BIT,
            Participation.POISSON,
            Mechanism.GAUSSIAN,
            event="poisson-gaussian",
            adjacencies=ALL,
            audit="adaptive",
            says=_JOINT,
            source="Andrew, Thakkar, McMahan and Ramaswamy 2021, Theorem 1",
        )
    ),
    *_and_on_grids(
        Theorem(
            Unit.LABELS,
            Participation.POISSON,
            Mechanism.GAUSSIAN,
            event="poisson-gaussian",
            adjacencies=LABELS,
            audit="label-moment",
            says="If prompts, responses and counts are public, labels enter a linear model's "
            "likelihood only through one sum, which one user's labels move by at most 2C. Solving "
            "for the model is post-processing of the noisy sum.",
            source="Chowdhury et al. 2024, Theorem 5.2; Balle and Wang 2018",
        )
    ),
    *_and_on_grids(
        Theorem(
            Unit.EXAMPLES,
            Participation.EXAMPLES,
            Mechanism.GAUSSIAN,
            event="mixture-gaussian",
            adjacencies=COMES_OR_GOES,
            audit="els",
            says=_MIXTURE,
            source="Charles et al. 2024, Theorem 1",
        )
    ),
    Theorem(
        Unit.EXAMPLES,
        Participation.EXAMPLES,
        Mechanism.GAUSSIAN,
        event="group-gaussian",
        adjacencies=ALL,
        says="Group privacy, applied to all rounds together: what is (ε, δ)-DP for one judgement "
        "is (kε, δ(e^kε − 1)/(e^ε − 1))-DP for k judgements.",
        source="Vadhan 2017, Lemma 2.2",
        audit="group",
    ),
    Theorem(
        Unit.VECTOR,
        Participation.TURNS_BY_COIN,
        Mechanism.BANDED,
        event="banded-gaussian",
        adjacencies=COMES_OR_GOES,
        says="If noise is correlated over b rounds and b groups of users take turns, a user pays "
        "only for the rounds of their own group, each a sampled Gaussian sum.",
        source="Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu 2023, Theorem 4",
        audit="banded-gaussian",
    ),
    Theorem(
        Unit.VECTOR,
        Participation.TURNS,
        Mechanism.BUFFERED,
        event="blt-gaussian",
        adjacencies=ALL,
        says="All rounds together are one Gaussian release. Its sensitivity bounds all that one "
        "user adds in all of their turns.",
        source="Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024; McMahan, Xu and Zhang "
        "2024",
        audit="blt-gaussian",
    ),
    Theorem(
        Unit.EACH_LABEL,
        Participation.ONCE,
        Mechanism.RANDOMIZED_RESPONSE,
        event="randomized-labels",
        adjacencies=LABELS,
        says="If each label is randomized once and the result is remembered, all randomized labels "
        "of a user together are (ε, δ)-DP, even if everybody sees them.",
        source="Warner 1965; Kairouz, Oh and Viswanath 2015",
        audit="randomized-response",
    ),
    Theorem(
        Unit.QUERIES,
        Participation.POISSON,
        Mechanism.LAPLACE,
        event="pure-dp",
        adjacencies=ALL,
        says="If a series of queries is compared with one noisy threshold, all answers up to the "
        "first query below it are (ε, 0)-DP together.",
        source="Dwork and Roth 2014, Algorithm 1; Lyu, Su and Li 2017, Theorem 3",
        audit="above-threshold",
    ),
    Theorem(
        Unit.QUERIES,
        Participation.ONCE,
        Mechanism.EXPONENTIAL,
        event="pure-choice",
        adjacencies=ALL - LABELS,
        says="A value near the median is drawn by scores that one user changes by at most one. Its "
        "ε is added to that of all releases that use it.",
        source="McSherry and Talwar 2007",
        audit="median",
    ),
    Theorem(
        Unit.RUN,
        Participation.HELD_OUT,
        Mechanism.LAPLACE,
        event="hold-out",
        adjacencies=ALL,
        says="Each user is either trained on or held out, by a secret random assignment, so the "
        "privacy loss is a mixture of that of training and that of the held-out figures. If a user "
        "is replaced, it is the larger of the two.",
        source="the derivation in `privacy/mechanisms/hold_out.py`",
        audit="hold-out",
    ),
    Theorem(
        Unit.RUN,
        Participation.AS_IN_THE_RUN,
        Mechanism.RANDOM_STOPPING,
        event="random-stopping",
        adjacencies=COMES_OR_GOES,
        says="If K is truncated negative binomial (η, γ), the best of K candidates by a private "
        "score costs (1 + η)·s more than a candidate at δ/E[K], where its δ at s is at most "
        "(e^s − 1)·γ/(1 − γ).",
        source="Koskela, Redberg and Wang 2024; the derivation in "
        "`privacy/selection/random_stopping.py`",
        audit="random-stopping",
    ),
    Theorem(
        Unit.NEIGHBOURHOODS,
        Participation.POISSON,
        Mechanism.GAUSSIAN,
        event="poisson-gaussian",
        adjacencies=ALL,
        says="A test whether users' vectors are concentrated, then noisy means of those users who "
        "pass a filter.",
        source="AUP-RLHF, Algorithms 1 to 3",
        audit="aup:published",
        status=Status.CLAIMED,
    ),
    Theorem(
        Unit.UNBOUNDED,
        Participation.POISSON,
        Mechanism.NOTHING,
        event="unprotected",
        adjacencies=ALL,
        says="Sums without noise have no guarantee.",
        source="",
        audit="",
        status=Status.NONE,
    ),
)


def select(
    *parts: Unit | Participation | Mechanism, status: Status = Status.PROVEN, event: str = ""
) -> tuple[Theorem, ...]:
    """The rows of the table that have all of these parts."""
    return tuple(
        row
        for row in TABLE
        if set(parts) <= set(row.parts) and row.status is status and event in ("", row.event)
    )


def find(
    unit: Unit,
    participation: Participation,
    mechanism: Mechanism,
    adjacency: Adjacency,
    *,
    event: str = "",
) -> Theorem:
    """Return the row of these parts, if it holds under ``adjacency``.

    Args:
        event: chooses among several rows of these parts.

    Raises:
        Unsupported: there is no such row; the message names the nearest ones.
    """
    matching = select(unit, participation, mechanism, event=event)
    if not matching:
        near = "; or ".join(f"{row.participation}, with {row.mechanism}" for row in select(unit))
        raise Unsupported(
            f"nothing is proven of {mechanism} on {unit} ({participation}); for {unit} there are "
            f"theorems about {near or 'nothing'}"
        )
    matching[0].check(adjacency)
    return matching[0]


def check_event(kind: str, adjacency: Adjacency) -> None:
    """Raise Unsupported, if no row whose event is of this ``kind`` holds under ``adjacency``.

    For ledgers, which record kinds of events, and not the three parts.
    """
    held = frozenset[Adjacency]().union(*(row.adjacencies for row in TABLE if row.event == kind))
    if held and adjacency not in held:
        row = next(row for row in TABLE if row.event == kind)
        raise Unsupported(
            f"there is no guarantee under {adjacency} for {row}; there is one under {listed(held)}"
        )
