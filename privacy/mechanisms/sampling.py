"""Cohorts: by a coin of every user in each round (Poisson), in one round of each block, or by coins
of a group of users whose turn it is.

The accountant's amplification by sampling holds for exactly these draws. A shuffled or fixed-size
cohort is another event, a cohort that is redrawn because it was small or because somebody dropped
out is another distribution: neither can be expressed here. One that is redrawn because it was
large, by coins alone, has an event of its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from murmuration.privacy.accounting.allocation import check_block
from murmuration.privacy.mechanisms.coins import bernoulli, user_words
from murmuration.privacy.mechanisms.randomness import Randomness

#: How likely a cohort is to be above its cap, where that is left to choose: what is tossed again
#: costs time, and no privacy.
RARELY = 1e-6
#: With a cap of the average or more, all of them fail with probability 2^-1000.
_TOSSES = 1_000


@dataclass(frozen=True)
class PoissonSampler:
    """Independent Bernoulli(``probability``) inclusion of each user.

    The probability is a public constant fixed before any data is looked at. Who was drawn, and how
    many, must stay secret: against somebody who sees it there is no amplification.
    """

    probability: float

    def __post_init__(self) -> None:
        if not 0.0 < self.probability <= 1.0:
            raise ValueError(
                f"the sampling probability must be in (0, 1], got {self.probability}; "
                "it is cohort / users: lower --cohort or raise --users"
            )

    def draw(self, names_N: np.ndarray, source: Randomness, round_: int) -> np.ndarray:
        """Places (ascending, int64) of the sampled among users of these distinct 64-bit names.

        Each user's coin is a function of their own name and of a key that nobody else sees, fresh
        or, with a seed, of this round: who else is sampled does not change when a user comes, goes,
        moves or changes.
        """
        return self._toss(names_N, source.key("cohort", round_))

    def _toss(self, names_N: np.ndarray, key: bytes) -> np.ndarray:
        return np.flatnonzero(bernoulli(user_words(key, names_N), self.probability))


class NoCohort(ValueError):
    """No cohort kept to its cap, for more users than the cap was made for."""


@dataclass(frozen=True)
class TruncatedSampler(PoissonSampler):
    """Poisson cohorts of at most ``most`` users: of one that is larger, all coins are tossed again.

    Everybody on the list of users tosses, the held out too: the list is public, and whether
    somebody's coin counts may not depend on what is hidden. So ``most`` bounds how many coins come
    up, and whoever is asked is among them. Guarantee: ``TruncatedGaussian``.
    """

    most: int

    @classmethod
    def for_cohort(
        cls, users: int, cohort: int, most: int = 0, held_out: float = 0.0
    ) -> "TruncatedSampler":
        """Coins for ``cohort`` of ``users``, beside whom a share ``held_out`` of all toss, too.

        ``most`` 0 becomes the least cap that a cohort exceeds with probability at most ``RARELY``.

        Raises:
            ValueError: a cap below the average, which hardly any cohort would keep to.
        """
        from scipy import stats  # dear to import, for this alone

        if cohort > users:
            raise ValueError(f"--cohort {cohort:,} is more than the {users:,} users: lower it")
        everybody, probability = round(users / (1.0 - held_out)), cohort / users
        average = math.ceil(everybody * probability)
        most = most or max(1, int(stats.binom.isf(RARELY, everybody, probability)))
        if most < average:
            held = ", held-out users' among them" if held_out else ""
            raise ValueError(
                f"--max-cohort {most:,} is below the {average:,} coins that come up on average"
                f"{held}: raise it, or lower --cohort"
            )
        return cls(probability, most)

    def draw(self, names_N: np.ndarray, source: Randomness, round_: int) -> np.ndarray:
        """As ``PoissonSampler.draw``, of everybody on the list; at most ``most`` places.

        Raises:
            NoCohort: none was small enough in ``_TOSSES``, which no data decide.
        """
        for toss in range(_TOSSES):
            again = (toss,) if toss else ()
            drawn = self._toss(names_N, source.key("cohort", round_, *again))
            if len(drawn) <= self.most:
                return drawn
        raise NoCohort(
            f"none of {_TOSSES:,} cohorts of {len(names_N):,} users has at most {self.most:,}: "
            "raise --max-cohort, or state with --users how many there are"
        )


@dataclass(frozen=True)
class AllocationSampler:
    """Each user in exactly one round of each block of so many ``rounds``, by a word of their own.

    How long a block is is a public constant. In which round a user is, and how many are in one,
    must stay secret: against somebody who sees it there is no amplification.
    """

    rounds: int

    def __post_init__(self) -> None:
        check_block(self.rounds, 1.0)

    @classmethod
    def for_cohort(
        cls, users: int, cohort: int, sampling: str = "allocation"
    ) -> "AllocationSampler":
        """Blocks of users / cohort rounds; ``sampling`` is named where there are none.

        Each user is in a round with probability 1/b, independently of the others, so nothing but
        b must be whole: ``cohort`` is users / b, to a whole number.

        Raises:
            ValueError: no whole number of rounds has such a cohort; says which ones there are.
        """
        near = users / cohort
        fits = sorted({max(1, math.floor(near)), math.ceil(near)})
        for rounds in fits:
            if cohort in (math.floor(users / rounds), math.ceil(users / rounds)):
                return cls(rounds)
        able = " or ".join(f"--cohort {round(users / b):,} ({b} rounds)" for b in reversed(fits))
        raise ValueError(
            f"--sampling {sampling} puts each of {users:,} users into one of a whole number of "
            f"rounds, and --cohort {cohort:,} would take {near:.3g}: use {able}"
        )

    @property
    def probability(self) -> float:
        """The share of the users that a round has, on average."""
        return 1.0 / self.rounds

    def begin(self, source: Randomness, round_: int) -> "Block":
        """A block whose first round this is, with a key of its own."""
        return Block(round_, self.rounds, source.key("allocation", round_))


@dataclass(frozen=True)
class Block:
    """The rounds from ``first`` on in one of which each user is."""

    first: int
    rounds: int
    key: bytes = field(repr=False)

    def holds(self, round_: int) -> bool:
        """Return whether a round is in it."""
        return self.first <= round_ < self.first + self.rounds

    def draw(self, names_N: np.ndarray, round_: int) -> np.ndarray:
        """Places (ascending, int64) of those in a round among users of these distinct names.

        A user's round is ⌊word · rounds / 2⁶⁴⌋: each as likely as any other, to 2⁻⁶⁴.
        """
        place_N = _one_among(self.rounds, self.key, names_N)
        return np.flatnonzero(place_N == np.uint64(round_ - self.first))


def _one_among(places: int, key: bytes, names_N: np.ndarray) -> np.ndarray:
    """Each user's place of so many: ⌊word · places / 2⁶⁴⌋, uint64 (N,)."""
    words_N, low, places_ = user_words(key, names_N), np.uint64(32), np.uint64(places)
    carried_N = ((words_N & np.uint64(2**32 - 1)) * places_) >> low
    return ((words_N >> low) * places_ + carried_N) >> low


#: What users are divided into groups by, beside their names: a name is made with the run's salt,
#: and in which group somebody is need not be secret.
_GROUPS = b"groups of users, which take turns"


@dataclass(frozen=True)
class CyclicSampler:
    """Coins of the users of one of so many ``groups``, which take turns from round to round.

    Who is in which group depends on one's own name alone, is the same in all rounds and may be
    known. Coins are as in ``PoissonSampler``, and as secret: those of a group are tossed every so
    many rounds, and come up so much more often that ``probability`` of all users are in a round, on
    average. With a probability of one in so many groups everybody of a group is in, by no coin.
    """

    probability: float
    groups: int

    def __post_init__(self) -> None:
        if not (type(self.groups) is int and self.groups >= 1):
            raise ValueError(f"users take turns in at least one group, got {self.groups!r}")
        if self.groups * self.probability > 1.0 + 1e-9:
            raise ValueError(
                f"a round of one group of {self.groups} has {1 / self.groups:.3g} of the users at "
                f"most, not {self.probability:.3g}: lower --bands or --cohort, or raise --users"
            )
        _ = self.of_group  # validates the probability

    @property
    def of_group(self) -> PoissonSampler:
        """Return the coins of those whose turn it is."""
        return PoissonSampler(min(1.0, self.groups * self.probability))

    def group(self, round_: int) -> int:
        """Return whose turn it is."""
        return (round_ - 1) % self.groups

    def draw(self, names_N: np.ndarray, source: Randomness, round_: int) -> np.ndarray:
        """As ``PoissonSampler.draw``: of those of the round's group."""
        group_N = _one_among(self.groups, _GROUPS, names_N)
        turn_S = np.flatnonzero(group_N == np.uint64(self.group(round_)))
        return turn_S[self.of_group.draw(names_N[turn_S], source, round_)]


class Blocks:
    """The blocks of one run, one after the other: which one a round is in.

    A run that is gone on with goes on in the ``running`` block if that was kept, with its key and
    ``number``, and if its ledger has that block last and nothing for the round. Else the block is
    over, wherever it was, and another begins, which pays for itself: nobody is in two rounds that
    were paid for as one. Only a seeded run does a round twice, on the same coins, and releases no
    other sum of it (``Ledger.charge``).
    """

    def __init__(self, sampler: AllocationSampler) -> None:
        self.sampler = sampler
        self.running: Block | None = None
        self.number = 0  # of the running one among all that the ledger has, when it has it
        self._open = 0  # the round that is being run: drawn, and not yet released

    def at(self, round_: int, source: Randomness, last: tuple[int, frozenset[int]]) -> Block:
        """Return the block of a round, until it is ``done``.

        ``last`` is what the ledger has: how many blocks, and which rounds of the last are paid for
        and left (``AllocatedLater.latest_block``).
        """
        block, (number, left) = self.running, last
        if block is not None and self._open == round_:
            return block
        paid = number == self.number and round_ in left
        if block is None or not block.holds(round_) or not (source.seeded or paid):
            block, self.number = self.sampler.begin(source, round_), number + 1
        self.running, self._open = block, round_
        return block

    def done(self) -> None:
        """The round that was drawn last was released: it can be drawn no more."""
        self._open = 0

    def state(self, round_: int) -> dict[str, np.ndarray]:
        """Return what this round needs of the running block, if it is in it: secrets."""
        block = self.running
        if block is None or not block.holds(round_):
            return {}
        placed = np.array([block.first, self.number])
        return {"block": placed, "block key": np.frombuffer(block.key, np.uint8)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from ``state``."""
        if "block" in state:
            first, self.number = state["block"].tolist()
            self.running = Block(first, self.sampler.rounds, state["block key"].tobytes())


#: Who is asked in a round.
Sampler = PoissonSampler | AllocationSampler | CyclicSampler
