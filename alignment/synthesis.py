"""Synthetic preferences: a policy answers public prompts, a private reward says which is better.

The reward was learnt with a promise to each user, about all that they judged; pairs that it labels
are post-processing of it, so the promise holds for them, too, at the level of users. (DPPrefSyn,
arXiv 2605.30808, promises it for single judgements.) Whoever has the pairs can train on them as
they like. Nobody's data are read here.

Legend: P prompts, N answers to each, J pairs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from murmuration.alignment.pool import Pool
from murmuration.preference.data.rows import InputError
from murmuration.preference.language.generation import PublicSeed
from murmuration.preference.models import declared

#: Which pairs of a prompt's answers are made.
PAIRS = ("best-worst", "all", "random")
#: Who of a pair is chosen: the one of higher score, or by a coin of the reward's own odds.
LABELS = ("hard", "sampled")
#: Why a pair is left out.
LEFT_OUT = ("empty answers", "equal texts", "equal scores")

# Streams of a seed, far from those of samples, which are 0, 1, ….
_PAIRS, _COINS = 2**31, 2**31 + 1


@dataclass(frozen=True)
class Synthesis:
    """Which pairs are made of a pool of answers, and how they are labelled.

    Attributes:
        pairs: one of `PAIRS`. Of ``random`` one pair of each prompt.
        labels: one of `LABELS`.
        seed: of random pairs and of coins.
        model: the preference model that the reward was learnt under, which gives a coin's odds.

    Raises:
        InputError: a value that there is not.
    """

    pairs: str = "best-worst"
    labels: str = "hard"
    seed: PublicSeed = field(default_factory=PublicSeed)
    model: str = "btl"

    def __post_init__(self) -> None:
        for name, known in (("pairs", PAIRS), ("labels", LABELS)):
            if (value := getattr(self, name)) not in known:
                option = "--label-draw" if name == "labels" else f"--{name}"
                raise InputError(f"{option} must be one of {', '.join(known)}; got {value!r}")


@dataclass(frozen=True)
class Preferences:
    """Labelled pairs.

    Attributes:
        rows: ``prompt``, ``chosen``, ``rejected``, ``score_chosen``, ``score_rejected``; in the
            order of prompts.
        left_out: how many pairs are not there, by reason (`LEFT_OUT`).
    """

    rows: list[dict[str, object]]
    left_out: Mapping[str, int]


def preferences(pool: Pool, how: Synthesis = Synthesis()) -> Preferences:
    """The pairs of a pool, labelled; those with equal texts or scores are left out and counted."""
    picks = np.random.default_rng([how.seed.value, _PAIRS])
    coins = np.random.default_rng([how.seed.value, _COINS])
    chance = declared(how.model).chance
    rows: list[dict[str, object]] = []
    left_out: Counter[str] = Counter(dict.fromkeys(LEFT_OUT, 0))
    for prompt, answers, rewards_N in zip(pool.prompts, pool.answers, pool.rewards_PN, strict=True):
        for one, other in _pairs(answers, rewards_N, how.pairs, picks):
            if min(one, other) < 0:
                left_out["empty answers"] += 1
            elif answers[one].split() == answers[other].split():
                left_out["equal texts"] += 1
            elif rewards_N[one] == rewards_N[other]:
                left_out["equal scores"] += 1
            else:
                ahead = rewards_N[one] - rewards_N[other]
                first = ahead > 0 if how.labels == "hard" else coins.random() < chance(ahead)
                chosen, rejected = (one, other) if first else (other, one)
                rows.append(
                    {
                        "prompt": prompt,
                        "chosen": answers[chosen],
                        "rejected": answers[rejected],
                        "score_chosen": float(rewards_N[chosen]),
                        "score_rejected": float(rewards_N[rejected]),
                    }
                )
    return Preferences(rows, dict(left_out))


def _pairs(
    answers: Sequence[str], rewards_N: np.ndarray, pairs: str, picks: np.random.Generator
) -> Iterator[tuple[int, int]]:
    """Places of pairs among a prompt's answers that say anything; (−1, −1) if there are too few."""
    there = [place for place, text in enumerate(answers) if text.strip()]
    if len(there) < 2:
        yield -1, -1
    elif pairs == "all":
        yield from combinations(there, 2)
    elif pairs == "random":
        one, other = picks.choice(there, 2, replace=False).tolist()
        yield one, other
    else:
        yield (
            max(there, key=lambda place: rewards_N[place]),
            min(reversed(there), key=lambda place: rewards_N[place]),  # of equal ones another
        )
