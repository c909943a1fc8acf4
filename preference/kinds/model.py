"""The interfaces of a kind of model and of its examples.

`preference.bases` names the kinds that there are; a new one is a file with these methods and a line
in its table. Code that trains, answers or reports calls a model or its examples, and never checks
their kind.

Legend: D trained numbers, U users, S sampled users, N sampled examples, B users of a chunk, R rows
of examples or texts that are scored, I parameters, one after the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch

from murmuration.preference.accuracy import Accuracy
from murmuration.preference.choices import Kind
from murmuration.preference.data.judgements import LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.model_folder import DEFAULT, SaveOptions
from murmuration.preference.models import PreferenceModel

#: ``add(total_D, grads_BD, stretches_P2)`` is ``total_D += reduce(grads_BD)`` in place: all but
#: these stretches of the rows is zero.
AddTo = Callable[[torch.Tensor, torch.Tensor, np.ndarray], None]


class Examples(Protocol):
    """Users' data as a model is measured, and perhaps trained, on them; in the order of users."""

    @property
    def dimension(self) -> int:
        """D."""
        ...

    @property
    def kind(self) -> Kind:
        """The kind of the judgements; `pairs` if there are none."""
        ...

    @property
    def width(self) -> int:
        """Responses of a judgement beside the first."""
        ...

    @property
    def start_U(self) -> torch.Tensor:
        """int64, U + 1 offsets of examples."""
        ...

    @property
    def counts_U(self) -> torch.Tensor:
        """The number of examples of each user, int64."""
        ...

    @property
    def flip_J(self) -> torch.Tensor | None:
        """Probability of each label not to be the true one, float64; None if unknown or 0."""
        ...

    @property
    def network(self) -> torch.nn.Module | None:
        """The network whose tokens they are; None where they serve one model alone."""
        ...

    @property
    def measures_loss(self) -> bool:
        """True if `Accuracy.loss` is known for these examples."""
        ...

    def select(self, users_S: np.ndarray) -> Self:
        """The examples of some users, in the given order."""
        ...

    def in_public(self) -> Self:
        """The same examples, declared public: users may share operations."""
        ...

    def in_batches(self, tokens: int) -> Self:
        """The same examples, computed ``tokens`` tokens at a time; 0: as suits the device."""
        ...

    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> Accuracy:
        """Measure a model with these numbers on them."""
        ...

    def figures(self, theta_D: np.ndarray) -> tuple[Accuracy, dict[str, float]]:
        """The accuracy, and other metrics of a finished model by name."""
        ...


class TrainingExamples(Examples, Protocol):
    """Examples by which a model is trained: they have gradients.

    A user's gradient is a function of that user's examples, θ and public constants, bit for bit,
    unless ``shared_passes`` lets several share operations.
    """

    @property
    def single_rows(self) -> Any:
        """The `PairExamples` that these are, if each gradient is a multiple of one row of x; else
        None."""
        ...

    def user_gradients(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        model: PreferenceModel,
        *,
        shared_passes: bool = False,
    ) -> Iterator[torch.Tensor]:
        """Yield each sampled user's mean gradient at θ, chunk by chunk, (B, D) float32.

        Args:
            theta_D: θ.
            taken_N: examples, user after user, as of `preference.linear.gradients.windows`.
            taken_S: the number of them that each user has.
            model: of preferences.
            shared_passes: whether several users may share an operation.
        """
        ...

    def sum_over_users(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        reduce: Callable[[torch.Tensor], torch.Tensor],
        model: PreferenceModel,
        *,
        local: LocalSteps | None = None,
        width: int | None = None,
        shared_passes: bool = False,
        add: AddTo | None = None,
    ) -> torch.Tensor:
        """Sum ``reduce`` of the users' gradients over chunks, (D,) float64.

        Args:
            theta_D, taken_N, taken_S, model, shared_passes: as of `user_gradients`.
            reduce: takes a chunk (B, D) to a vector (D,); called from several threads at once.
            local: steps of a user's own, whose descent takes the place of the gradient.
            width: of ``reduce``'s vectors, if it is not D.
            add: adds a chunk up to the bits that ``reduce`` would give, if it can do that faster.
        """
        ...


class Model(Protocol):
    """A model at any θ; the trainer keeps θ itself.

    The methods implemented here suit most models that are not language models.
    """

    @property
    def dimension(self) -> int:
        """D."""
        ...

    #: Whether rounds move θ; False for a class of given models, of which one is chosen.
    trains: bool = True
    #: Whether its folder, once saved, always holds the ledgers that it was paid from.
    holds_promise: bool = False

    @property
    def computes(self) -> bool:
        """True if its weights are loaded; without them it can only make examples."""
        return True

    @property
    def details(self) -> Mapping[str, object]:
        """Details for a result, beside `to_config`."""
        return {}

    @property
    def start_D(self) -> np.ndarray:
        """θ where training begins, (D,) float32: a public constant."""
        return np.zeros(self.dimension, dtype=np.float32)

    def to_config(self) -> dict[str, Any]:
        """The config, as JSON, from which `preference.bases.base_of` makes an equal model."""
        ...

    def loaded(self) -> Self:
        """The same model with weights; itself if it has them."""
        return self

    def examples(self, data: Data, left_out: LeftOut | None = None) -> Examples:
        """Users' data as examples.

        Args:
            data: judgements or texts.
            left_out: takes what cannot be used; its user stays.

        Raises:
            InputError: the data are not of the kind that is learnt from; or something cannot be
                used (names the row) and there is nothing to take it.
        """
        ...

    def reuse(self, made: Examples) -> Examples | None:
        """Examples made by another model if this one would make the same of the same data, computed
        as this one computes; else None.
        """
        del made

    def try_out(self, schema: Schema, model: PreferenceModel, group_size: int, users: int) -> None:
        """Compute made-up examples of the largest size, if memory could be short.

        Args:
            schema: of the judgements.
            model: of preferences.
            group_size: most examples of one user in a round; 0: any number.
            users: the number of users whose gradients are kept at a time.

        Raises:
            InputError: it cannot be trained here.
        """
        del schema, model, group_size, users

    def scores(
        self, theta_ID: Sequence[np.ndarray], prompts: Sequence[str], responses: Sequence[str]
    ) -> np.ndarray:
        """The rewards of R prompts with R responses at each θ, (I, R) float64.

        Only differences between rewards at one θ count.

        Raises:
            InputError: it gives no reward, or a text cannot be read.
        """
        ...

    def fits(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """True for each of R texts that can be read, (R,) bool."""
        del prompts
        return np.ones(len(responses), dtype=bool)

    def choice(self, theta_D: np.ndarray, test: Any) -> dict[str, object]:
        """The one of several given models that θ stands for, with their results on a public test if
        there is one; empty if θ was trained.
        """
        del theta_D, test
        return {}

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """Write the model at θ as a folder that `preference.language.likelihood.load_scorer`
        reads, whole or not at all.

        Args:
            folder: where.
            theta_D: θ.
            model: of preferences, by its name.
            options: what is written beside it, and whether over another.

        Raises:
            InputError: something is there already, and may not be overwritten or is no model.
        """
        ...
