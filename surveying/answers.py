"""Answers to a survey's questions: what of users' judgements a survey looks at, and no model.

Legend: U users, S sampled users, C users of a chunk, J judgements, Q questions that judgements
answer, V coordinates of a user's vector.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import torch

from murmuration.preference.choices import Kind
from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.kinds.array_examples import ArrayExamples
from murmuration.preference.kinds.model import Model
from murmuration.preference.model_folder import DEFAULT, SaveOptions
from murmuration.surveying.questionnaire import Questionnaire

_CHUNK = 4096  # users whose vectors are there at a time


@dataclass(frozen=True, eq=False)
class SurveyAnswers(ArrayExamples):
    """Users' answers, as `preference.kinds.model.Examples` has them.

    Attributes:
        start_U: int64, U + 1 offsets of judgements.
        place_JQ: int32, where in a vector a judgement's answers stand.
        questionnaire: what was asked.
        kind: of judgements.
        width: responses of a judgement beside the first, as declared.
        flip_J: None; labels that went through randomized response are refused.
    """

    start_U: torch.Tensor
    place_JQ: np.ndarray
    questionnaire: Questionnaire
    _: KW_ONLY
    kind: Kind = "pairs"
    width: int = 1
    flip_J: None = None

    @property
    def dimension(self) -> int:
        """V."""
        return self.questionnaire.dimension

    def select(self, users_S: np.ndarray) -> Self:
        """The answers of some users, in the given order."""
        starts = self.start_U.tolist()
        ranges = [np.arange(starts[user], starts[user + 1]) for user in users_S.tolist()]
        rows_N = np.concatenate([np.arange(0), *ranges])
        start_S = torch.from_numpy(np.cumsum([0, *map(len, ranges)]))
        return replace(self, start_U=start_S, place_JQ=self.place_JQ[rows_N])

    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> NoReturn:
        """Raise ValueError."""
        raise ValueError("a survey learns no model that could be right")

    def figures(self, theta_D: np.ndarray) -> NoReturn:
        """Raise ValueError."""
        raise ValueError("a survey learns no model that could be right")

    def vector(self, user: int) -> np.ndarray:
        """A user's vector, (V,) float64; see `surveying.questionnaire`."""
        first, end = self.start_U[user : user + 2].tolist()
        vector_V = np.zeros(self.dimension)
        if judgements := end - first:
            places = self.place_JQ[first:end].ravel()
            vector_V += np.bincount(places, minlength=self.dimension) / judgements
            vector_V[0] = vector_V[self.questionnaire.per_user(judgements)] = 1.0
        return vector_V

    def vectors(self, users_S: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the sampled users' vectors, chunk by chunk, (C, V) float64."""
        for low in range(0, len(users_S), _CHUNK):
            users = users_S[low : low + _CHUNK].tolist()
            yield np.stack([self.vector(user) for user in users])


@dataclass(frozen=True)
class SurveyModel(Model):
    """The questions, where others have a model; see `preference.kinds.model.Model`."""

    questionnaire: Questionnaire

    trains = False

    @classmethod
    def load(cls, config: Mapping[str, Any], weights: bool) -> Self:
        """The questions that a config describes."""
        del weights
        topics = config.get("topics", ())
        if not isinstance(topics, list | tuple) or not all(isinstance(t, str) for t in topics):
            raise InputError("topics of a survey are a list of lines")
        return cls(Questionnaire(tuple(topics)))

    @property
    def dimension(self) -> int:
        """V."""
        return self.questionnaire.dimension

    def to_config(self) -> dict[str, Any]:
        """The config of the questions."""
        return self.questionnaire.to_config()

    def examples(self, data: Data, left_out: LeftOut | None = None) -> SurveyAnswers:
        """Users' answers; nothing is left out.

        Raises:
            InputError: single ratings, or labels that went through randomized response.
        """
        del left_out
        judgements: Judgements = data.as_judgements("a survey asks about judgements, not texts")
        if judgements.kind == "thumbs":
            raise InputError("single ratings compare nothing: leave out --kind thumbs")
        if judgements.randomized:
            raise InputError("these labels have been randomized already, which is protection")
        return SurveyAnswers(
            torch.from_numpy(np.asarray(judgements.start_U, dtype=np.int64)),
            self.questionnaire.answers(judgements),
            self.questionnaire,
            kind=judgements.kind,
            width=judgements.most_responses - 1,
        )

    def scores(
        self, theta_ID: Sequence[np.ndarray], prompts: Sequence[str], responses: Sequence[str]
    ) -> NoReturn:
        """Raise InputError."""
        raise InputError("a survey gives no reward")

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """Write nothing: there is no model."""
