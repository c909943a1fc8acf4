"""Common base of language models that are trained, for all tasks.

Before the first round it is tried out: gradients are compared on short made-up texts, how much is
computed at a time follows from what a token takes, and memory is looked for with as much as a round
can ask for. Made-up texts depend on public limits only.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.kinds.model import Examples, Model
from murmuration.preference.language.base.network import LanguageBase, language_base
from murmuration.preference.language.examples.language_examples import LanguageExamples
from murmuration.preference.language.examples.next_tokens import NextTokens
from murmuration.preference.language.reward import save_language_model
from murmuration.preference.language.tokens import Tokens
from murmuration.preference.model_folder import DEFAULT, SaveOptions
from murmuration.preference.models import PreferenceModel

_TRIAL_TOKENS = 48  # of the longest text on which gradients are compared


@dataclass(frozen=True)
class LanguageModel(Model, ABC):
    """A network, and what it learns; see `preference.kinds.model.Model`.

    Attributes:
        network: the base, whose task is that of the kind.
    """

    network: LanguageBase

    holds_promise = True

    @classmethod
    def load(cls, config: Mapping[str, Any], weights: bool) -> Self:
        """The model that a config describes; as `language_base`."""
        return cls(language_base(config, weights))

    @property
    def dimension(self) -> int:
        """D."""
        return self.network.dimension

    @property
    def computes(self) -> bool:
        """True unless the network is on the meta device."""
        return self.network.device.type != "meta"

    @property
    def details(self) -> Mapping[str, object]:
        """The way in which attention is computed."""
        return {"attention": self.network.attention}

    def to_config(self) -> dict[str, Any]:
        """The network's config."""
        return self.network.to_config()

    def loaded(self) -> Self:
        """The same model with weights."""
        return self if self.computes else replace(self, network=language_base(self.to_config()))

    @abstractmethod
    def examples(self, data: Data, left_out: LeftOut | None = None) -> LanguageExamples:
        """Users' data as tokens."""

    def scores(
        self, theta_ID: Sequence[np.ndarray], prompts: Sequence[str], responses: Sequence[str]
    ) -> np.ndarray:
        """Raise InputError: it gives no reward."""
        del theta_ID, prompts, responses
        raise InputError(f"a language model of --task {self.network.settings.task} has no reward")

    def fits(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """True for each text that fits into the context, (R,) bool."""
        return self.network.texts.fits(prompts, responses)

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """Save as `save_language_model` does."""
        save_language_model(folder, self.network, theta_D, model, options)

    def reuse(self, made: Examples) -> Examples | None:
        """Examples of the same network, at this model's tokens per batch; None for another
        network's.
        """
        if made.network is not self.network.model:
            return None
        return made.in_batches(self.network.settings.batch_tokens)

    def texts_of_each(self, schema: Schema) -> int:
        """The most texts of an example."""
        return schema.responses

    def longest_examples(self, schema: Schema, most: int) -> LanguageExamples:
        """One made-up user with ``most`` examples of the greatest possible length."""
        limit = self.network.settings.max_tokens
        return self.examples(long_judgements(limit, schema, most))

    def largest_batch(self, schema: Schema, group_size: int = 0) -> LanguageExamples:
        """One made-up user whose examples fill a batch, within ``group_size`` (0: any)."""
        network = self.network
        filling = max(1, network.batch_tokens // (self.texts_of_each(schema) * network.texts.limit))
        return self.longest_examples(schema, min(filling, group_size or filling))

    def trial_examples(self, schema: Schema) -> LanguageExamples:
        """Two made-up users with two examples each, of random tokens.

        All texts have different lengths, also within an example.
        """
        users, each, width = 2, 2, self.texts_of_each(schema)
        text_JK = np.arange(users * each * width).reshape(users * each, width)
        longest = max(2, min(self.network.texts.limit, _TRIAL_TOKENS))
        generator = np.random.default_rng(0)
        lengths_T = generator.permutation(np.linspace(2, longest, text_JK.size).astype(np.int64))
        tokenizer = self.network.tokenizer
        words = np.delete(np.arange(len(tokenizer)), tokenizer.pad_token_id)
        tokens = Tokens(
            ids=torch.from_numpy(generator.choice(words, int(lengths_T.sum()))),
            start_T=np.concatenate([[0], np.cumsum(lengths_T)]),
            second_T=lengths_T // 2,
            cut=0,
        )
        return self._of_tokens(tokens, text_JK, torch.arange(users + 1) * each, schema)

    def _of_tokens(
        self, tokens: Tokens, text_JK: np.ndarray, start_U: torch.Tensor, schema: Schema
    ) -> LanguageExamples:
        """Examples whose gradients reach all trained parameters: next-token prediction."""
        del schema
        return NextTokens(self.network, tokens, text_JK, start_U)

    def try_out(self, schema: Schema, model: PreferenceModel, group_size: int, users: int) -> None:
        """Compute a few examples, and one full batch; once for each of these sizes."""
        _try_out(self, schema, model, group_size, users)


@lru_cache(maxsize=4)
def _try_out(
    learnt: LanguageModel, schema: Schema, model: PreferenceModel, group_size: int, users: int
) -> None:
    learnt.trial_examples(schema).check(model)
    learnt.largest_batch(schema, group_size).check_memory(model, users)


def long_texts(max_tokens: int, number: int) -> list[str]:
    """``number`` different texts of more than ``max_tokens`` tokens: a word is at least one token.

    Of a text that is too long, the front is cut off or another window is made.
    """
    long = "word " * max_tokens
    return [f"{long}{row}" for row in range(number)]


def long_judgements(max_tokens: int, schema: Schema, rows: int) -> Judgements:
    """A made-up user with ``rows`` different judgements, of prompts that are too long."""
    return Judgements(
        ("made up",),
        np.array([0, rows]),
        long_texts(max_tokens, rows),
        [tuple(f"{place}" for place in range(schema.responses)) for _ in range(rows)],
        np.ones(rows, dtype=np.float32),
        kind=schema.kind,
        most_responses=schema.responses,
    )
