"""The embedded default population: judgements of text whose truth is known.

Users ask for advice on everyday money decisions and see two answers, a cautious and a daring
one. Every answer has a known value on three axes (`AXES`); a user's reward is linear in them,

    reward(answer) = weights · axes(answer)
    weights = crowd mean + deviation of the user's group + deviation of the user

and labels follow Bradley, Terry and Luce: P(first is chosen) = sigmoid(reward difference).

Design decisions:
- The text shows the axes only through wording (`phrases`, `topics`): many wordings for each value,
  contrasts that name the other side's action, and lengths that vary on both sides. No single word
  and no length decides; a model has to combine many weak signs.
- Groups come in opposite pairs of equal share and personal deviations are symmetric, so the crowd
  mean ranks answers as well as any reward that does not know the user can be expected to.
- A near-indifferent user may call a tie: probability `tie_peak` · 4p(1 − p), where p is the BTL
  probability. That depends on p only through the closeness of the call, so the judgements that are
  not ties follow BTL exactly. In a tie the order of the two answers is uniformly random.
- Every user draws from an own seed sequence (seed, split, user), so a user's rows depend neither on
  how many users there are nor on the order in which they are generated. Numbers of judgements are
  lognormal, independent of the attitude.
- `texts` draws from streams of its own: it is public text on the same topics, not what users saw.
"""

import gzip
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from math import exp, isfinite, nan
from pathlib import Path

import numpy as np

from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.strict_json import strict_json
from murmuration.sims.population.topics import LIVING_TOPICS, MONEY_TOPICS, UNSEEN_TOPICS, Topic
from murmuration.sims.population.wording import AXES, MAX_DRAWS, Answer, Axes, Draws, exchange

SPLITS = ("train", "test", "unseen-topics")

GROUPS = {
    "savers": (-0.9, 0.0, 0.0),
    "adventurers": (0.9, 0.0, 0.0),
    "experts": (0.0, 0.4, 0.6),
    "plain speakers": (0.0, -0.4, -0.6),
}
"""Deviation of each group from the crowd, per axis. Equal shares; the deviations sum to zero."""

# First elements of the seed keys of `texts` and `prompts`.
_PUBLIC_STREAM, _PROMPT_STREAM = len(SPLITS), len(SPLITS) + 1

Weights = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One judgement with its truth; margins are rewards of `chosen` minus rewards of `rejected`."""

    user_id: str
    prompt: str
    chosen: Answer
    rejected: Answer
    tie: bool
    crowd_margin: float
    personal_margin: float

    def row(self) -> dict[str, object]:
        """The row in a file of judgements, without the truth."""
        return {
            "user_id": self.user_id,
            "prompt": self.prompt,
            "chosen": self.chosen.text,
            "rejected": self.rejected.text,
            "tie": self.tie,
        }


@dataclass(frozen=True)
class Attainable:
    """Accuracy of true rewards on the judgements of a split that are not ties.

    crowd: of the crowd-mean reward, the ceiling for a model that does not know the user.
    personal: of every user's own reward, the ceiling for a model that does.
    """

    crowd: float
    personal: float
    judgements: int


@dataclass(frozen=True, kw_only=True)
class Population:
    """Parameters of a population; equal parameters give equal rows, byte for byte.

    users, test_users, unseen_users: users of the splits train, test and unseen-topics.
    crowd: mean reward weights, per axis of `AXES`, in logits. personal_spread: standard deviation
    of a user's own deviation, per axis.
    median_judgements, judgements_spread, max_judgements: numbers of judgements of a user are
    round(median · exp(spread · normal)), limited to 1 … max.
    tie_peak: probability of a tie when a user is fully indifferent.

    Raises ValueError for a parameter out of range.
    """

    users: int = 2500
    seed: int = 0
    test_users: int = 500
    unseen_users: int = 500
    crowd: Weights = (-1.3, 1.1, -1.5)
    personal_spread: Weights = (0.5, 0.25, 0.4)
    median_judgements: float = 10.0
    judgements_spread: float = 1.1
    max_judgements: int = 400
    tie_peak: float = 0.06

    def __post_init__(self) -> None:
        for name in ("users", "test_users", "unseen_users", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("crowd", "personal_spread"):
            values = getattr(self, name)
            if len(values) != len(AXES) or not all(map(isfinite, values)):
                raise ValueError(f"{name} needs one finite number per axis {AXES}, got {values}")
        if min(self.personal_spread) < 0 or self.judgements_spread < 0:
            raise ValueError("personal_spread and judgements_spread must not be negative")
        if self.median_judgements <= 0 or self.max_judgements < 1:
            raise ValueError("median_judgements must be positive and max_judgements at least 1")
        if not 0 <= self.tie_peak <= 1:
            raise ValueError(f"tie_peak must be a probability, got {self.tie_peak}")

    def rows(self, split: str = "train") -> Iterator[dict[str, object]]:
        """Rows `user_id, prompt, chosen, rejected, tie` of one of `SPLITS`, grouped by user."""
        return (judgement.row() for judgement in self.judgements(split))

    def judgements(self, split: str = "train") -> Iterator[Judgement]:
        """The same judgements with their truth."""
        for user in range(self._user_count(split)):
            yield from self._user_judgements(split, user)

    def user_weights(self, split: str, user: int) -> Weights:
        """True reward weights of the user with this number (the digits of the user id)."""
        return self._user(split, user)[0]

    def texts(self, split: str = "train", count: int = 5000) -> Iterator[tuple[str, str, str]]:
        """`count` public triples (prompt, answer, answer) on a split's topics, in random order.

        They carry no labels and come from no user: free to use for tokenizers and language models.
        """
        topics = _split_topics(split)
        for index in range(count):
            rng = self._generator(_PUBLIC_STREAM, SPLITS.index(split), index)
            draws = Draws(rng.random(MAX_DRAWS).tolist())
            prompt, first, second = exchange(topics, draws)
            answers = (first.text, second.text) if draws.below(0.5) else (second.text, first.text)
            yield (prompt, *answers)

    def prompts(self, split: str = "train", count: int = 2000, seed: int = 0) -> Iterator[str]:
        """``count`` prompts on a split's topics, in random order, to be answered by models.

        Drawn apart from what users saw and from `texts`: what is there, too, is there by chance.
        """
        topics = _split_topics(split)
        for index in range(count):
            rng = self._generator(_PROMPT_STREAM, SPLITS.index(split), seed, index)
            yield exchange(topics, Draws(rng.random(MAX_DRAWS).tolist()))[0]

    def truth(self) -> dict[str, object]:
        """The parameters and what they mean, JSON-able."""
        return {
            "reward": "weights . axes; P(chosen) = sigmoid(reward difference)",
            "weights": "crowd + deviation of the group + normal(0, personal_spread)",
            "tie": "probability tie_peak * 4 p (1 - p), order of the answers a fair coin",
            "axes": list(AXES),
            "groups": {name: list(deviation) for name, deviation in GROUPS.items()},
            "topics": {split: [topic.name for topic in _split_topics(split)] for split in SPLITS},
            "population": asdict(self),
        }

    def _user_count(self, split: str) -> int:
        _split_topics(split)  # refuses unknown splits
        counts = (self.users, self.test_users, self.unseen_users)
        return counts[SPLITS.index(split)]

    def _generator(self, *key: int) -> np.random.Generator:
        return np.random.Generator(
            np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=key))
        )

    def _user(self, split: str, user: int) -> tuple[Weights, np.random.Generator]:
        """A user's weights and the generator, advanced past them."""
        rng = self._generator(SPLITS.index(split), user)
        group = tuple(GROUPS.values())[int(rng.random() * len(GROUPS))]
        normal = rng.standard_normal(len(AXES)).tolist()
        daring, detail, technical = (
            mean + shift + spread * draw
            for mean, shift, spread, draw in zip(
                self.crowd, group, self.personal_spread, normal, strict=True
            )
        )
        return (daring, detail, technical), rng

    def _user_judgements(self, split: str, user: int) -> Iterator[Judgement]:
        weights, rng = self._user(split, user)
        wanted = self.median_judgements * exp(self.judgements_spread * rng.standard_normal())
        count = min(max(round(wanted), 1), self.max_judgements)
        topics = _split_topics(split)
        user_id = f"{split}-{user:06d}"
        for uniforms in rng.random((count, MAX_DRAWS)).tolist():
            draws = Draws(uniforms)
            prompt, first, second = exchange(topics, draws)
            p_first = 1.0 / (
                1.0 + exp(true_reward(weights, second.axes) - true_reward(weights, first.axes))
            )
            tie = draws.below(self.tie_peak * 4.0 * p_first * (1.0 - p_first))
            if not draws.below(0.5 if tie else p_first):
                first, second = second, first
            yield Judgement(
                user_id=user_id,
                prompt=prompt,
                chosen=first,
                rejected=second,
                tie=tie,
                crowd_margin=true_reward(self.crowd, first.axes)
                - true_reward(self.crowd, second.axes),
                personal_margin=true_reward(weights, first.axes)
                - true_reward(weights, second.axes),
            )


def train() -> Iterator[dict[str, object]]:
    """Training rows of the default population; the data source `murmuration.population:train`."""
    return Population().rows("train")


def test() -> Iterator[dict[str, object]]:
    """Rows of other users on the same topics; the data source `murmuration.population:test`."""
    return Population().rows("test")


def own_texts(population: Population, split: str) -> Iterator[dict[str, object]]:
    """Rows `user_id, text` of one of a population's splits, grouped by user.

    What somebody there would have said: the answers that they preferred, in their order, without
    prompts and other answers. So they differ between users as rewards do, and from
    `Population.texts`, which has both answers alike.
    """
    for judgement in population.judgements(split):
        yield {"user_id": judgement.user_id, "text": judgement.chosen.text}


def texts_train() -> Iterator[dict[str, object]]:
    """Texts of the default population's users; `murmuration.population:texts_train`."""
    return own_texts(Population(), "train")


def texts_test() -> Iterator[dict[str, object]]:
    """Texts of other users on the same topics; `murmuration.population:texts_test`."""
    return own_texts(Population(), "test")


def write(directory: str | Path, population: Population) -> None:
    """Write `<split>.jsonl.gz` for every split and, last, `truth.json` into a directory.

    Each file appears whole or not at all. The bytes depend on the population only (and on the zlib
    in use). truth.json adds `attainable` accuracies to `Population.truth`.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    reached: dict[str, object] = {}
    for split in SPLITS:
        judgements = list(population.judgements(split))
        packed = io.BytesIO()
        with gzip.GzipFile("", "wb", 6, packed, mtime=0) as file:
            for judgement in judgements:
                file.write(json.dumps(judgement.row()).encode() + b"\n")
        replace_file(directory / f"{split}.jsonl.gz", packed.getvalue())
        reached[split] = asdict(attainable(judgements))
    truth = population.truth() | {"attainable": reached}
    replace_file(directory / "truth.json", strict_json(truth, indent=2).encode() + b"\n")


def _split_topics(split: str) -> tuple[Topic, ...]:
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
    return UNSEEN_TOPICS if split == "unseen-topics" else MONEY_TOPICS + LIVING_TOPICS


def true_reward(weights: Weights, axes: Axes) -> float:
    """The reward of an answer with these axes, in logits."""
    return sum(weight * value for weight, value in zip(weights, axes, strict=True))


def attainable(judgements: Iterable[Judgement]) -> Attainable:
    """Accuracy of the true rewards on judgements; nan where there is none without a tie."""
    count = crowd = personal = 0.0
    for judgement in judgements:
        if not judgement.tie:
            count += 1
            crowd += _hit(judgement.crowd_margin)
            personal += _hit(judgement.personal_margin)
    if not count:
        return Attainable(nan, nan, 0)
    return Attainable(crowd / count, personal / count, int(count))


def _hit(margin: float) -> float:
    return 0.5 if abs(margin) < 1e-9 else float(margin > 0)  # half for equal rewards
