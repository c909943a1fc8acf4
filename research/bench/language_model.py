"""The cost of clipping each user's gradient of a language model, over plain batched training.

Three ways through the same judgements, one after the other, so that whatever else the machine does
meets all of them alike; the figures are medians of ratios:

- plain: the gradient of the mean loss, in batches of as many tokens; users are not kept apart;
- ours: `preference.language.examples`, each user's mean gradient clipped and added up;
- loop: a backward pass for each user by itself, its gradients put together, clipped and added.

Of a policy (`kept_states`) the loss is DPO's, of the last half of each text. Plain computes the
reference in every step, as a second model that is not trained; ours when a text comes for the first
time, and then not again: ``ours`` computes all references, ``kept`` none.

With rivals also what others train with: TRL's reward trainer (`research.bench.rivals`).

The model has random weights and GPT-2's kind (Llama's, if heads of keys are given), by default 4
layers, 256 wide, GPT-2's vocabulary; 64 users have 4 judgements each, all texts 128 tokens.

Legend: D trained parameters, J judgements.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import NOTHING, BaseSettings
from murmuration.preference.language.examples.judgements import TokenExamples
from murmuration.preference.language.examples.next_tokens import (
    NextTokens,
    scored_states,
    scored_tokens,
)
from murmuration.preference.language.examples.policies import PolicyExamples
from murmuration.preference.language.machine import usual_device
from murmuration.preference.language.tokens import Tokens, length_batches
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.research.bench.rivals import Trl
from murmuration.research.bench.setting import timed
from murmuration.sims.runtimes.process_reaper import kept

_MODEL = preference_model("btl")
#: Those that train on pairs.
TASKS = ("reward", "policy")


@dataclass(frozen=True)
class LmBench:
    """Sizes of what is measured."""

    users: int = 64
    judgements: int = 4
    tokens: int = 128
    layers: int = 4
    width: int = 256
    vocabulary: int = 50_257
    rank: int = 16
    batch_tokens: int = 0  # as suits the device
    attention_heads: int = 0  # 0: each 64 wide
    key_heads: int = 0  # of Llama's kind, as ``inner``
    inner: int = 0


#: By about how many weights a model has.
SIZES = {
    "16M": LmBench(),
    "30M": LmBench(layers=6, width=384),
    "124M": LmBench(layers=12, width=768),  # GPT-2's shape
}


def measure(bench: LmBench, train: str, repetitions: int, rivals: bool = False) -> dict[str, Any]:
    """Ratios of time to plain training, as medians over ``repetitions`` readings, and plain's
    seconds.

    With ``rivals`` also those of TRL's trainer.

    Raises:
        NoRival: TRL is not installed.
    """
    with saved_model(bench) as path:
        settings = BaseSettings(
            path=path,
            train=train,
            rank=bench.rank,
            max_tokens=bench.tokens,
            batch_tokens=bench.batch_tokens,
        )
        base = LanguageBase(settings)
        given = examples(bench, base)
        ways = Variants(given)
        calls = {"plain": ways.plain, "ours": ways.ours, "loop": ways.loop}
        trainer = Trl(base, given) if rivals else None
        readings = []
        for _ in range(repetitions + 1):
            reading = {name: timed(way)[1] for name, way in calls.items()}
            readings.append(reading | ({"trl": trainer.seconds()} if trainer else {}))
    readings = readings[1:]  # the first warms up
    plain = median(each["plain"] for each in readings)
    figures = {
        "train": train,
        "users": bench.users,
        "judgements": bench.judgements,
        "dimension": base.dimension,
        "device": base.device.type,
        "plain_ms_a_judgement": 1e3 * plain / (bench.users * bench.judgements),
    }
    for name in readings[0]:
        if name != "plain":
            figures[f"{name}_ratio"] = median(each[name] / each["plain"] for each in readings)
    return figures


def texts(bench: LmBench, base: LanguageBase) -> NextTokens:
    """Texts of random tokens, as many of a user as ``bench`` has judgements."""
    number = bench.users * bench.judgements
    generator = torch.Generator().manual_seed(0)
    return NextTokens(
        base=base,
        tokens=Tokens(
            ids=torch.randint(3, bench.vocabulary, (number * bench.tokens,), generator=generator),
            start_T=np.arange(number + 1) * bench.tokens,
            second_T=np.zeros(number, dtype=np.int64),
            cut=0,
        ),
        text_JK=np.arange(number)[:, None],
        start_U=torch.arange(bench.users + 1) * bench.judgements,
    )


def examples(bench: LmBench, base: LanguageBase) -> TokenExamples:
    """Judgements of random tokens; of a policy the first half of each text is a pair's prompt."""
    judgements, prompt = bench.users * bench.judgements, bench.tokens // 2
    generator = torch.Generator().manual_seed(0)
    size = (judgements, 2, bench.tokens)
    ids_JKL = torch.randint(3, bench.vocabulary, size, generator=generator)
    second_T = np.zeros(2 * judgements, dtype=np.int64)
    if base.settings.task == "policy":
        ids_JKL[:, 1, :prompt] = ids_JKL[:, 0, :prompt]
        second_T += prompt
    result = TokenExamples(
        base=base,
        tokens=Tokens(
            ids=ids_JKL.reshape(-1),
            start_T=np.arange(2 * judgements + 1) * bench.tokens,
            second_T=second_T,
            cut=0,
        ),
        text_JK=np.arange(2 * judgements).reshape(-1, 2),
        y_R=torch.ones(judgements),
        start_U=torch.arange(bench.users + 1) * bench.judgements,
    )
    if base.settings.task != "policy":
        return result
    known = {each.name: getattr(result, each.name) for each in fields(result)}
    return PolicyExamples(**known, reference_T=np.append(np.full(2 * judgements, np.nan), 0.0))


class Variants:
    """The ways through some examples, at θ away from zero; each gives the sum, (D,).

    ``plain``'s is the sum of gradients without clipping.
    """

    def __init__(self, given: TokenExamples | NextTokens, clip: float = 0.1) -> None:
        self._examples, self._base, self._clip = given, given.base, UserClip(clip)
        self._parameters = given.base.trained
        generator = torch.Generator().manual_seed(1)
        self.theta_D = 0.02 * torch.randn(given.dimension, generator=generator)
        if isinstance(given, PolicyExamples):
            settings = replace(given.base.settings, train=NOTHING, layers="all")
            self._reference = LanguageBase(settings)

    def first(self, users: int) -> "Variants":
        """The ways through the examples of the first ``users``."""
        result = copy(self)
        result._examples = self._examples.select(np.arange(users))
        return result

    def ours(self) -> torch.Tensor:
        """By hooks, in chunks; for a policy without a cache of its reference."""
        if isinstance(self._examples, PolicyExamples):
            self._examples.reference_T[:-1] = np.nan
        return self.kept()

    def kept(self, shared_passes: bool = False) -> torch.Tensor:
        """As `ours`, with a policy's reference cached after the first call."""
        given = self._examples
        taken_N = torch.arange(int(given.start_U[-1]))
        return given.sum_over_users(
            self.theta_D,
            taken_N,
            given.counts_U,
            self._clip.clip_sum,
            _MODEL,
            shared_passes=shared_passes,
            add=getattr(self._clip, "add_to", None),
        )

    def plain(self) -> torch.Tensor:
        """By automatic differentiation of the whole, in batches."""
        given, users = self._examples, len(self._examples.counts_U)
        lengths_J = given.tokens.lengths_T[given.text_JK].sum(1)
        self._base.put(self.theta_D)
        with self._tracked():
            for part in length_batches(lengths_J, self._base.batch_tokens):
                (self._loss(part) * users / len(lengths_J)).backward()
            return self._gradient().double()

    def loop(self) -> torch.Tensor:
        """By automatic differentiation, user by user."""
        given = self._examples
        total_D = torch.zeros(given.dimension, dtype=torch.float64)
        self._base.put(self.theta_D)
        with self._tracked():
            for low, high in pairwise(given.start_U.tolist()):
                for parameter in self._parameters:
                    parameter.grad = None
                (self._loss(np.arange(low, high)) / (high - low)).backward()
                total_D += self._clip.clip_sum(self._base.to_theta(self._gradient()[None]))
        return total_D

    def _loss(self, judgements_J: np.ndarray) -> torch.Tensor:
        given, texts_R = self._examples, self._examples.text_JK[judgements_J].reshape(-1)
        if isinstance(given, NextTokens):
            each_R = torch.from_numpy(scored_tokens(given.tokens, texts_R)).to(self._base.device)
            return -(self._log_likelihoods(self._base, texts_R) / each_R).sum()
        y_JW = given.y_R.view(-1, given.width)[torch.from_numpy(judgements_J)]
        if isinstance(given, PolicyExamples):
            with torch.no_grad():
                reference_R = self._log_likelihoods(self._reference, texts_R)
            ratio_R = self._log_likelihoods(self._base, texts_R) - reference_R
            ratio_JK = ratio_R.view(len(judgements_J), -1)
            return given.loss.loss(ratio_JK, y_JW.to(ratio_JK.device)).sum()
        reward_JK = self._base.rewards(given.tokens, texts_R).view(len(judgements_J), -1)
        return _MODEL.loss(reward_JK[:, :1] - reward_JK[:, 1:], y_JW.to(reward_JK.device)).sum()

    def _log_likelihoods(self, base: LanguageBase, texts_R: np.ndarray) -> torch.Tensor:
        with base.computing():
            state_QH, next_Q, text_Q = scored_states(base, self._examples.tokens, texts_R)
            loss_Q = cross_entropy(base.said(state_QH), next_Q, reduction="none")
        return loss_Q.new_zeros(len(texts_R)).index_add(0, text_Q, -loss_Q)

    def _gradient(self) -> torch.Tensor:
        result = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        return torch.cat([gradient.reshape(-1) for gradient in result])

    @contextmanager
    def _tracked(self) -> Iterator[None]:
        """The trained parameters collect gradients, from zero."""
        for parameter in self._parameters:
            parameter.grad = None
            parameter.requires_grad_(True)
        try:
            yield
        finally:
            for parameter in self._parameters:
                parameter.requires_grad_(False)
                parameter.grad = None


@contextmanager
def saved_model(bench: LmBench, words: Any = None) -> Iterator[str]:
    """Yield a folder with a model of random weights; it is removed afterwards.

    ``words``: the tokenizer, with [PAD] and [UNK]; None: one that knows two words.
    """
    try:
        from tokenizers import Tokenizer, models
        from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    except ImportError:
        raise InputError(
            "bench lm needs transformers: pip install 'murmuration-rlhf[lm]'"
        ) from None
    two = {"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}
    words = words or Tokenizer(models.WordLevel(two, "[UNK]"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", eos_token="[PAD]"
    )
    folder = Path(tempfile.mkdtemp(prefix="murmuration-bench-"))
    # A process that waits beside us, whose keeper removes the folder even if we are killed.
    waiting, elsewhere = ["sleep", "2147483647"], folder.parent
    with (
        Path(os.devnull).open("wb") as nowhere,
        kept(waiting, scratch=folder, cwd=elsewhere, env=os.environ, output=nowhere),
    ):
        with torch.random.fork_rng(), usual_device():
            torch.manual_seed(0)
            network = AutoModelForCausalLM.from_config(_shape(bench), dtype=torch.float32)
            network.save_pretrained(folder)
            del network
        tokenizer.save_pretrained(folder)
        yield str(folder)


def _shape(bench: LmBench) -> Any:
    """The configuration of the network."""
    from transformers import GPT2Config, LlamaConfig

    attention_heads = bench.attention_heads or max(1, bench.width // 64)
    ends: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    if not bench.key_heads:
        return GPT2Config(
            vocab_size=bench.vocabulary,
            n_positions=bench.tokens,
            n_embd=bench.width,
            n_layer=bench.layers,
            n_head=attention_heads,
            **ends,
        )
    return LlamaConfig(
        vocab_size=bench.vocabulary,
        max_position_embeddings=bench.tokens,
        hidden_size=bench.width,
        intermediate_size=bench.inner,
        num_hidden_layers=bench.layers,
        num_attention_heads=attention_heads,
        num_key_value_heads=bench.key_heads,
        tie_word_embeddings=True,
        **ends,
    )
