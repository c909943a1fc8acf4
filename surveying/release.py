"""Statistics of all users from one noisy sum of answers, with their errors.

Everything here is post-processing of one release, without privacy cost. The only error is the
noise, whose size is public: all users took part, so there is no sampling error. Each interval by
itself has confidence 95 %.

*Shares* are means over users with judgements, of each user's own share of judgements: noisy sums of
shares, over the noisy number N of these users. The error is to first order that of both (the delta
method), so a share s has noise·√(1 + s²)/N.

Legend: V coordinates of a user's vector, K answers of a question.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.privacy.figures import CONFIDENCE, interval
from murmuration.surveying.questionnaire import (
    JUDGEMENTS,
    PER_USER,
    Question,
    Questionnaire,
)


@dataclass(frozen=True)
class Share:
    """The share of users who give an answer.

    Attributes:
        answer: its name.
        count: users, as released: noise can make it negative.
        share: of users with judgements, as released.
        error: half of the interval of ``share``.
        within_noise: whether noise alone could make as much, on any of the answers.
    """

    answer: str
    count: float
    share: float
    error: float
    within_noise: bool

    @property
    def low(self) -> float:
        """The lower end of the interval, at least 0."""
        return min(1.0, max(0.0, self.share - self.error))

    @property
    def high(self) -> float:
        """The upper end, at most 1; for a share below 0 that of 0."""
        return min(1.0, max(0.0, self.share) + self.error)


@dataclass(frozen=True, kw_only=True, eq=False)
class SurveyRelease:
    """The noisy sum over users of their answers, and the public numbers needed to read it.

    Attributes:
        topics: the public list, as of `Questionnaire`.
        sum_V: float64, as released.
        noise: standard deviation of the Gaussian noise on each number.
        stated_users: the number of users; None if it is private.
        epsilon, delta: its cost.

    Raises:
        InputError: numbers that do not fit the questions, or are not finite.
    """

    topics: tuple[str, ...]
    sum_V: np.ndarray
    noise: float
    stated_users: int | None
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        expected = (self.questionnaire.dimension,)
        if self.sum_V.shape != expected or not np.isfinite(self.sum_V).all():
            raise InputError(f"answers must be {expected} finite numbers, got {self.sum_V.shape}")
        if not (math.isfinite(self.noise) and self.noise > 0.0):
            raise InputError(f"the noise on answers cannot be {self.noise}")

    @cached_property
    def questionnaire(self) -> Questionnaire:
        """The questions."""
        return Questionnaire(self.topics)

    @property
    def users(self) -> float:
        """The number of users with judgements, N, as released."""
        return float(self.sum_V[0])

    @property
    def users_error(self) -> float:
        """Half the width of the interval of every number of users."""
        return interval(self.noise)

    @property
    def largest_noise(self) -> float:
        """The bound on the noise of all answers at once, with ``CONFIDENCE``."""
        return NormalDist().inv_cdf(1.0 - (1.0 - CONFIDENCE) / len(self.sum_V)) * self.noise

    @property
    def learnt_nothing(self) -> bool:
        """True if noise alone could make as many users."""
        return self.users <= self.users_error

    @cached_property
    def shares(self) -> dict[Question, tuple[Share, ...]]:
        """The shares of all answers, by question; NaN if nothing was learnt."""
        questions = self.questionnaire.questions
        return {
            question: tuple(map(self._share, question.answers, self.sum_V[place].tolist()))
            for question, place in zip(questions, self.questionnaire.places, strict=True)
        }

    def _share(self, answer: str, count: float) -> Share:
        share, error = math.nan, math.nan
        if not self.learnt_nothing:
            share = count / self.users
            error = interval(self.noise * math.sqrt(1.0 + share**2)) / self.users
        within_noise = self.learnt_nothing or count <= self.largest_noise
        return Share(answer, count, share, error, within_noise)

    @property
    def per_user(self) -> tuple[Share, ...]:
        """The share of users by number of judgements, in bins."""
        return next(shares for question, shares in self.shares.items() if question.name == PER_USER)

    def quantile(self, part: float) -> tuple[int, int | None]:
        """The bounds of a quantile of judgements per user; None: no upper bound.

        The number of users in the first k bins, minus ``part``·N, has standard deviation noise·√(k
        + part²); the quantile may lie wherever that is not significantly on one side of zero.
        """
        counts_K = np.array([share.count for share in self.per_user])
        above_K = np.cumsum(counts_K) - part * self.users
        places_K = np.arange(1, len(counts_K) + 1)
        error_K = interval(self.noise) * np.sqrt(places_K + part**2)
        may_K, surely_K = above_K + error_K >= 0.0, above_K - error_K >= 0.0
        first = int(may_K.argmax()) if may_K.any() else len(counts_K) - 1
        last = int(surely_K.argmax()) if surely_K.any() else len(counts_K) - 1
        return JUDGEMENTS[first] + 1, (*JUDGEMENTS[1:], None)[max(first, last)]

    def to_json(self) -> dict[str, Any]:
        """The release as JSON."""
        result = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**result, "topics": [*self.topics], "sum_V": self.sum_V.tolist()}

    @classmethod
    def of_result(cls, result: Mapping[str, Any], folder: Path) -> Self:
        """The release in a run's result.

        Args:
            result: as of ``result.json``.
            folder: of the run, for messages.

        Raises:
            InputError: the run was no survey.
        """
        if not (survey := result["outcome"].get("survey")):
            raise InputError(f"{folder}: no survey: it is no run of murmuration survey, or stopped")
        return cls.from_json(survey)

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Self:
        """The release that ``to_json`` wrote.

        Raises:
            InputError: it is none.
        """
        try:
            sum_V = np.array(written["sum_V"], dtype=np.float64)
            return cls(**{**written, "topics": tuple(written["topics"]), "sum_V": sum_V})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is no release of a survey: {error}") from None
