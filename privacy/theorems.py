"""What is proven, as a table. A release that is not in it cannot be built.

A guarantee is a theorem about three parts: how much of one user can be in a sum (``Unit``), who
takes part (``Participation``), and what is added or drawn (``Mechanism``). It holds under some
adjacencies. The parts name themselves: a clip its unit, a sampler its participation, a noise its
mechanism. ``find`` gives the row of three parts, or says which rows there are.

Theorems about whole runs, whose unit is ``Unit.RUN``, have a file each: users held out by a secret
coin (``mechanisms.hold_out``), the best of several runs (``selection.random_stopping``), and how
releases compose (``accounting.composition``).

Another package states its theorem as a ``Theorem`` of its own, and hands it to its ``Strategy``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from murmuration.privacy.adjacency import Adjacency, Unsupported


class Status(StrEnum):
    """The standing of a theorem."""

    PROVEN = "proven"
    #: As published; no proof that we could follow.
    CLAIMED = "claimed"
    #: Nothing is promised.
    NONE = "none"


class Unit(StrEnum):
    """The bound on one user's part of a release."""

    VECTOR = "one clipped vector of each user"
    VECTOR_AND_BIT = "one clipped vector of each user, and a bit"
    EXAMPLES = "a bounded number of clipped judgements of each user"
    LABELS = "one clipped vector of each user, of which only labels are private"
    EACH_LABEL = "the labels of each user, which leave once"
    QUERIES = "counts that one user changes by at most one"
    LOSSES = "one bounded loss of each user for each candidate"
    NEIGHBOURHOODS = "vectors of users who have enough others near them"
    UNBOUNDED = "unclipped vectors"
    RUN = "a whole run, with what is proven of it"

    @property
    def sums(self) -> bool:
        """True where nodes add up contributions on a grid, so that sums can be masked."""
        return self in _SUMMED


_SUMMED = frozenset(
    {Unit.VECTOR, Unit.VECTOR_AND_BIT, Unit.EXAMPLES, Unit.LABELS, Unit.LOSSES, Unit.QUERIES}
)


class Participation(StrEnum):
    """The users, or judgements, that take part in a release."""

    POISSON = "users, by Poisson sampling (probability 1: everybody)"
    TURNS_BY_COIN = "groups of users in turn, by Poisson sampling within a group"
    TURNS = "groups of users in turn, everybody of a group"
    EXAMPLES = "judgements, by Poisson sampling"
    ONCE = "everybody, once"
    HELD_OUT = "users, trained on or held out by a secret random assignment"
    AS_IN_THE_RUN = "as in the run"


class Mechanism(StrEnum):
    """The noise on a sum, or the draw in place of one."""

    GAUSSIAN = "Gaussian noise"
    DISCRETE_GAUSSIAN = "discrete Gaussian noise"
    SHARES = "discrete Gaussian noise, in shares of the nodes"
    BANDED = "Gaussian noise, correlated in bands"
    BUFFERED = "Gaussian noise, correlated by buffers"
    LAPLACE = "Laplace noise"
    RANDOMIZED_RESPONSE = "randomized-response"
    EXPONENTIAL = "exponential-mechanism"
    RANDOM_STOPPING = "the best of a random number of candidates, by a private score"
    NOTHING = "nothing"


ALL = frozenset(Adjacency)
#: One user comes or goes, and nobody is replaced.
COMES_OR_GOES = frozenset({Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT})
LABELS = frozenset({Adjacency.REPLACE_LABELS})


@dataclass(frozen=True)
class Theorem:
    """One row.

    Attributes:
        unit, participation, mechanism: what it is about.
        event: the kind of what one release is charged as; with discrete noise, as its
            discrete form.
        adjacencies: under which it holds.
        says: the statement, in a sentence.
        source: paper and number.
        audit: what attacks it: a target of ``murmuration audit``.
        status: see ``Status``.
    """

    unit: Unit
    participation: Participation
    mechanism: Mechanism
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
        """Unsupported (a ValueError), saying where it holds, if that is not there."""
        if adjacency not in self.adjacencies:
            raise Unsupported(
                f"there is no guarantee under {adjacency} for {self}; there is one under "
                f"{listed(self.adjacencies)}"
            )


def listed(adjacencies: frozenset[Adjacency]) -> str:
    """Their names, in one order, with "or" between them."""
    return " or ".join(a for a in Adjacency if a in adjacencies)


_GAUSSIAN = (
    "A sum that one user, in it with probability q, moves by at most C, with Gaussian noise of "
    "standard deviation σC, costs the privacy loss of N(1, σ²) against N(0, σ²), sampled with "
    "probability q; where a user is replaced, of N(1, σ²) against N(−1, σ²)."
)
_DISCRETE = (
    "As the row above: discrete Gaussian noise of at least s steps costs what continuous "
    "noise costs, and an addition to δ that vanishes with s."
)
_SHARES = (
    "As the row above: the sum of equal shares of noise costs what one draw costs, and a further "
    "addition to δ, as long as so many nodes are honest as shares are counted."
)
_JOINT = (
    "A sum with noise multiplier σ and a count of bits b − ½ with noise σ_b are one Gaussian "
    "release with 1/σ′² = 1/σ² + 1/(2σ_b)²."
)
_MIXTURE = (
    "Where a user has at most G judgements, each in with probability p, the sum costs the privacy "
    "loss of a mixture of Gaussians with means Binomial(G, p) against one with mean 0."
)
_CKS = "Canonne, Kamath and Steinke 2020; the bound in `privacy/accounting/grid_noise.py`"
_KLS = "Kairouz, Liu and Steinke 2021; the bound in `privacy/accounting/grid_noise.py`"


def _sampled(
    unit: Unit,
    participation: Participation,
    event: str,
    adjacencies: frozenset[Adjacency],
    audit: str,
    says: str,
    source: str,
) -> tuple[Theorem, ...]:
    """A sum with each of the three kinds of independent noise."""
    noises = (
        (Mechanism.GAUSSIAN, says, source, audit),
        (Mechanism.DISCRETE_GAUSSIAN, _DISCRETE, _CKS, "discrete-gaussian"),
        (Mechanism.SHARES, _SHARES, _KLS, "distributed-gaussian"),
    )
    return tuple(
        Theorem(unit, participation, mechanism, event, adjacencies, statement, source, audit)
        for mechanism, statement, source, audit in noises
    )


TABLE: tuple[Theorem, ...] = (
    *_sampled(
        Unit.VECTOR,
        Participation.POISSON,
        "poisson-gaussian",
        ALL,
        "poisson-gaussian",
        _GAUSSIAN,
        "Mironov, Talwar and Zhang 2019; Koskela, Jälkö and Honkela 2020",
    ),
    *_sampled(
        Unit.VECTOR_AND_BIT,
        Participation.POISSON,
        "poisson-gaussian",
        ALL,
        "adaptive",
        _JOINT,
        "Andrew, Thakkar, McMahan and Ramaswamy 2021, Theorem 1",
    ),
    *_sampled(
        Unit.LABELS,
        Participation.POISSON,
        "poisson-gaussian",
        LABELS,
        "label-moment",
        "Where prompts, responses and counts are public, labels enter a linear model's likelihood "
        "through one sum, which one user's labels move by at most 2C; what is solved from it is "
        "post-processing.",
        "Chowdhury et al. 2024, Theorem 5.2; Balle and Wang 2018",
    ),
    *_sampled(
        Unit.EXAMPLES,
        Participation.EXAMPLES,
        "mixture-gaussian",
        COMES_OR_GOES,
        "els",
        _MIXTURE,
        "Charles et al. 2024, Theorem 1",
    ),
    Theorem(
        Unit.EXAMPLES,
        Participation.EXAMPLES,
        Mechanism.GAUSSIAN,
        "group-gaussian",
        ALL,
        "What is (ε, δ)-private for one judgement is (kε, δ(e^kε − 1)/(e^ε − 1))-private for k, "
        "all rounds together.",
        "Vadhan 2017, Lemma 2.2",
        "group",
    ),
    Theorem(
        Unit.VECTOR,
        Participation.TURNS_BY_COIN,
        Mechanism.BANDED,
        "banded-gaussian",
        COMES_OR_GOES,
        "With noise of b bands and b groups in turn, a user pays for the rounds of their own group "
        "alone, each a sampled Gaussian sum.",
        "Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu 2023, Theorem 4",
        "banded-gaussian",
    ),
    Theorem(
        Unit.VECTOR,
        Participation.TURNS,
        Mechanism.BUFFERED,
        "blt-gaussian",
        ALL,
        "All rounds together are one Gaussian release, whose noise is measured against all that "
        "one user adds in their turns.",
        "Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024; McMahan, Xu and Zhang 2024",
        "blt-gaussian",
    ),
    Theorem(
        Unit.EACH_LABEL,
        Participation.ONCE,
        Mechanism.RANDOMIZED_RESPONSE,
        "randomized-labels",
        LABELS,
        "Labels that are flipped once and remembered are (ε, δ)-private together, whoever sees "
        "them.",
        "Warner 1965; Kairouz, Oh and Viswanath 2015",
        "randomized-response",
    ),
    Theorem(
        Unit.QUERIES,
        Participation.POISSON,
        Mechanism.LAPLACE,
        "pure-dp",
        ALL,
        "All answers of a series of questions against one noisy threshold, up to the first below, "
        "are (ε, 0)-private together.",
        "Dwork and Roth 2014, Algorithm 1; Lyu, Su and Li 2017, Theorem 3",
        "above-threshold",
    ),
    Theorem(
        Unit.QUERIES,
        Participation.ONCE,
        Mechanism.EXPONENTIAL,
        "pure-choice",
        ALL - LABELS,
        "A size near the median, drawn by scores that one user moves by at most one; its ε is "
        "added to that of what follows.",
        "McSherry and Talwar 2007",
        "median",
    ),
    Theorem(
        Unit.RUN,
        Participation.HELD_OUT,
        Mechanism.LAPLACE,
        "hold-out",
        ALL,
        "A user is exposed to the run, or to what is said of held-out users, and not to both: a "
        "mixture of the two; where a user is replaced, the dearer one.",
        "the derivation in `privacy/mechanisms/hold_out.py`",
        "hold-out",
    ),
    Theorem(
        Unit.RUN,
        Participation.AS_IN_THE_RUN,
        Mechanism.RANDOM_STOPPING,
        "random-stopping",
        COMES_OR_GOES,
        "The best of K candidates by a private score costs little more than one, where K is drawn "
        "from a truncated negative binomial distribution.",
        "Papernot and Steinke 2022, Theorem 2",
        "random-stopping",
    ),
    Theorem(
        Unit.NEIGHBOURHOODS,
        Participation.POISSON,
        Mechanism.GAUSSIAN,
        "poisson-gaussian",
        ALL,
        "As published: a test of concentration and noisy means of the users who pass it.",
        "AUP-RLHF, Algorithms 1 to 3",
        "aup:published",
        Status.CLAIMED,
    ),
    Theorem(
        Unit.UNBOUNDED,
        Participation.POISSON,
        Mechanism.NOTHING,
        "unprotected",
        ALL,
        "Exact sums promise nothing.",
        "",
        "",
        Status.NONE,
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
    """The row of these parts, which holds under ``adjacency``; of an ``event``, if several do.

    Raises:
        Unsupported: there is none; the message names the nearest, or where it holds.
    """
    matching = select(unit, participation, mechanism, event=event)
    if not matching:
        near = "; or ".join(f"{row.participation}, with {row.mechanism}" for row in select(unit))
        raise Unsupported(
            f"nothing is proven of {mechanism} on {unit} ({participation}); of the same there is "
            f"something for {near or 'nothing'}"
        )
    matching[0].check(adjacency)
    return matching[0]


def check_event(kind: str, adjacency: Adjacency) -> None:
    """Unsupported, if what is charged as this ``kind`` has no guarantee under ``adjacency``.

    A ledger knows the kind of what was charged, and not its parts.
    """
    held = frozenset[Adjacency]().union(*(row.adjacencies for row in TABLE if row.event == kind))
    if held and adjacency not in held:
        row = next(row for row in TABLE if row.event == kind)
        raise Unsupported(
            f"there is no guarantee under {adjacency} for {row}; there is one under {listed(held)}"
        )
