"""A saved reward as what optimization climbs: one batched callable, and guards against gaming it.

A private reward is right about answers like those that people judged, and a policy that climbs it
leaves those: to length without end, to words that happen to have large weights, to whatever noise
has made attractive. Guards are fitted to the reference's own answers to public prompts, so they use
no private data and have no privacy cost:

- **centred**: of each prompt the mean reward of the reference's answers is taken off, so that a
  prompt whose answers all score high is worth no more than another;
- **clipped**: to the range that the reference's answers have, centred: beyond what was ever seen a
  reward says nothing;
- **length**: ``penalise`` takes off a number for each doubling of an answer's length beyond the
  reference's mean for the prompt; ``match`` takes off what length alone explains of the reward of
  the reference's answers (least squares on log words, within prompts), so that longer is no better.

Legend: R answers, P prompts, K answers of the reference to each.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.words import words_of
from murmuration.preference.language.reward import SavedReward
from murmuration.preference.reward import RewardModel

LENGTHS = ("none", "penalise", "match")
_AT_A_TIME = 1000


#: What gives answers to prompts their rewards, (R,) float64; only differences for one prompt mean
#: anything.
Scores = Callable[[Sequence[str], Sequence[str]], np.ndarray]


class AnswerReward:
    """The reward of a model folder, for any number of answers at a time.

    The texts go to the model as `murmuration score` gives them to it: its own templating, and no
    tokens from the answers' writer. One that is too long for a language model's reward is worth as
    little as the worst of those that it is given with: to go on for ever must not pay, and one
    answer must not end a run.

    Attributes:
        model: the reward model.
        too_long: the number of answers so far that were too long.
    """

    def __init__(self, model: RewardModel | SavedReward) -> None:
        self.model, self.too_long = model, 0

    @classmethod
    def load(cls, folder: str | Path) -> "AnswerReward":
        """Load RUN/model; raises InputError if it is not a reward."""
        return cls(RewardModel.load(folder))

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """As `Scores`.

        Raises:
            InputError: a reward is not finite, or no answer fits into the model's context.
        """
        prompts, responses = list(prompts), list(responses)
        read_R = self.model.fits(prompts, responses)
        if len(responses) and not read_R.any():
            raise InputError(
                "--reward: every answer is too long for it to read: lower --max-new-tokens, or "
                "train the reward with more --max-tokens"
            )
        places, rewards_R = np.flatnonzero(read_R), np.empty(len(responses))
        for at in range(0, len(places), _AT_A_TIME):
            some = places[at : at + _AT_A_TIME].tolist()
            rewards_R[some] = self.model.score(
                [prompts[place] for place in some], [responses[place] for place in some]
            )
        if len(places) < len(responses):
            rewards_R[~read_R] = rewards_R[read_R].min()
            self.too_long += len(responses) - len(places)
        if not np.isfinite(rewards_R).all():
            raise InputError("--reward: a reward is not finite; nothing can be learnt from it")
        return rewards_R


@dataclass(frozen=True)
class Guards:
    """Guards of a reward against reward hacking.

    Attributes:
        clip: whether centred rewards are clipped to the reference's range.
        length: one of `LENGTHS`.
        length_penalty: of ``penalise``, in the reward's own logits for each doubling.

    Raises:
        InputError: a value out of range.
    """

    clip: bool = True
    length: str = "none"
    length_penalty: float = 0.5

    def __post_init__(self) -> None:
        if self.length not in LENGTHS:
            raise InputError(
                f"--length-control must be one of {', '.join(LENGTHS)}; got {self.length!r}"
            )
        if not (math.isfinite(self.length_penalty) and self.length_penalty >= 0):
            raise InputError(
                f"--length-penalty must be a number that is not negative; got {self.length_penalty}"
            )


class GuardedReward:
    """A reward with guards that were fitted to the reference's answers to P prompts.

    Attributes:
        low, high: the range of these answers' centred rewards, after length.
        slope: the deduction of ``match`` per unit of log words.
        clipped: the number of answers beyond the range so far, and of all.
    """

    def __init__(
        self,
        scores: Scores,
        guards: Guards,
        prompts: Sequence[str],
        answers_PK: Sequence[Sequence[str]],
    ) -> None:
        """Raises InputError if there are fewer than two answers to a prompt."""
        if not prompts or min(map(len, answers_PK)) < 2:
            raise InputError("guards need at least two answers of the reference to each prompt")
        self._scores, self.guards = scores, guards
        flat = [answer for answers in answers_PK for answer in answers]
        asked = [
            prompt for prompt, answers in zip(prompts, answers_PK, strict=True) for _ in answers
        ]
        place_R = np.repeat(np.arange(len(prompts)), [len(answers) for answers in answers_PK])
        self._place: Mapping[str, int] = {prompt: at for at, prompt in enumerate(prompts)}
        counts_P = np.bincount(place_R, minlength=len(prompts)).astype(float)

        def mean_P(values_R: np.ndarray) -> np.ndarray:
            return np.bincount(place_R, values_R, len(prompts)) / counts_P

        raw_R, log_R = scores(asked, flat), _log_words(flat)
        self._reward_P, self._log_P = mean_P(raw_R), mean_P(log_R)
        self._words_P = mean_P(np.exp(log_R))
        apart_R, longer_R = raw_R - self._reward_P[place_R], log_R - self._log_P[place_R]
        spread = float(longer_R @ longer_R)
        self.slope = float(longer_R @ apart_R) / spread if spread else 0.0
        self.low, self.high, self.clipped, self.seen = -math.inf, math.inf, 0, 0
        found_R = self(asked, flat)
        self.low, self.high = float(found_R.min()), float(found_R.max())
        self.clipped = self.seen = 0

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """As `Scores`, for the prompts that guards were fitted to.

        Raises:
            InputError: another prompt.
        """
        try:
            place_R = np.array([self._place[prompt] for prompt in prompts], dtype=int)
        except KeyError as error:
            raise InputError(f"guards were not fitted to the prompt {error}") from None
        guards, log_R = self.guards, _log_words(responses)
        found_R = self._scores(prompts, responses) - self._reward_P[place_R]
        if guards.length == "match":
            found_R -= self.slope * (log_R - self._log_P[place_R])
        if guards.length == "penalise":
            doublings_R = (log_R - np.log(self._words_P[place_R])) / math.log(2.0)
            found_R -= guards.length_penalty * np.maximum(doublings_R, 0.0)
        self.seen += len(found_R)
        self.clipped += int(((found_R < self.low) | (found_R > self.high)).sum())
        return found_R.clip(self.low, self.high) if guards.clip else found_R


def _log_words(texts: Sequence[str]) -> np.ndarray:
    """log(number of words), of none as of one, (R,)."""
    return np.log([max(1, len(words_of(text))) for text in texts])
