"""Responses that a saved language model writes, one token after the other.

What each of T prompts gets depends on the model, its place in the list, and a seed, whose numbers
are drawn apart from any generator of the process: not on which prompts stand beside it, except for
roundings of the last digit, which now and then make another token of one that was drawn on an edge.
Where at least half of a batch repeats others' prompts, each of its prompts is read once.

    from murmuration.preference.language.generation import Writer
    Writer.load("r/model").write(["Spend or save?"], seed=1)

Legend: R responses in a batch, U different prompts of it, L tokens, V words, H width of a state.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.likelihood import load_next_token
from murmuration.preference.language.machine import usual_device
from murmuration.preference.language.tokens import TextTokens, length_batches

#: Tokens whose keys and values are kept at a time: eight times as many are hardly quicker.
_KEPT_TOKENS = {"cpu": 2**14, "cuda": 2**17}
#: Tokens whose chances are there at a time: on a processor as many as stay in its caches.
_CHANCES = defaultdict(lambda: 2**27, cpu=2**18)


@dataclass(frozen=True)
class PublicSeed:
    """The seed of draws that involve no user's data: prompts' order, answers, pairs, intervals.

    It is a type of its own: noise, cohorts and hold-outs are drawn only with the seed of a run.

    Raises:
        InputError: it is negative.
    """

    value: int = 0

    def __post_init__(self) -> None:
        if self.value < 0:
            raise InputError(f"--seed must not be negative; got {self.value}")


@dataclass(frozen=True)
class Sampling:
    """The sampling of next tokens.

    Attributes:
        temperature: the divisor of logits; at 0 the likeliest token is taken.
        top_p: only of the likeliest tokens, as few as have this much probability together.
        max_new_tokens: the number of tokens at which a response is truncated.

    Raises:
        InputError: a value out of range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 128

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"--temperature must not be negative; got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"--top-p must be above 0 and at most 1; got {self.top_p}")
        if self.max_new_tokens < 1:
            raise InputError(f"--max-new-tokens must be at least 1; got {self.max_new_tokens}")

    def draw(self, logits_RV: torch.Tensor, uniform_R: torch.Tensor) -> torch.Tensor:
        """A token for each row, (R,): where its uniform number falls in the distribution.

        Raises:
            NotFiniteError: chances are no numbers.
        """
        if not self.temperature:
            return logits_RV.argmax(1)
        rows = max(1, _CHANCES[logits_RV.device.type] // logits_RV.shape[1])
        parts = zip(logits_RV.split(rows), uniform_R.split(rows), strict=True)
        return torch.cat([self._drawn(*part) for part in parts])

    def _drawn(self, logits_RV: torch.Tensor, uniform_R: torch.Tensor) -> torch.Tensor:
        chance_RV = (logits_RV.double() / self.temperature).softmax(1)
        if self.top_p == 1:
            return _fallen(chance_RV, uniform_R)
        chance_RV, words_RV = chance_RV.sort(dim=1, descending=True, stable=True)
        chance_RV[chance_RV.cumsum(1) - chance_RV >= self.top_p] = 0
        return words_RV.gather(1, _fallen(chance_RV, uniform_R)[:, None])[:, 0]


def _fallen(chance_RV: torch.Tensor, uniform_R: torch.Tensor) -> torch.Tensor:
    below_RV = chance_RV.cumsum(1)
    if not bool(torch.isfinite(below_RV[:, -1]).all()):
        raise NotFiniteError("the model says nothing finite of what follows: none can be drawn")
    at_R1 = uniform_R[:, None] * below_RV[:, -1:]
    return torch.searchsorted(below_RV, at_R1, right=True)[:, 0].clamp(max=chance_RV.shape[1] - 1)


class NotFiniteError(InputError):
    """A model says nothing finite of the token that follows, so that none can be drawn."""


class Writer:
    """A causal language model with its prompt format.

    Attributes:
        cut_off: the number of responses of `write` that were truncated so far.
        states: with ``noting``, those of the responses generated last, each with its prompt and
            without its last token: (tokens, H).
    """

    def __init__(
        self,
        model: Any,
        texts: TextTokens,
        noting: Callable[[], AbstractContextManager[list[torch.Tensor]]] | None = None,
    ) -> None:
        """Take a model, with its LoRA layers if it has any; ``noting`` as of
        `LowerLayers.noting`.
        """
        network = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._device = usual_device()
        self._network, self._texts = network.eval().to(self._device), texts
        self.cut_off, self._noting, self._reads_once = 0, noting, True
        self.states: list[torch.Tensor] = []

    @classmethod
    def load(cls, path: str | os.PathLike, system: str | None = None) -> "Writer":
        """Load what `load_next_token` takes; raises InputError as it does."""
        return cls(*load_next_token(path, system=system))

    def write(
        self,
        prompts: Sequence[str],
        sampling: Sampling = Sampling(),
        seed: int | Sequence[int] = 0,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> list[str]:
        """Generate a response to each prompt, without its end token; a response without an end is
        truncated.

        Prompts are cut in front where they and the longest response would not fit into the context
        together. ``progress`` is called with the number of responses so far, and of all.

        Raises:
            InputError: the longest response leaves no room for a prompt, or a negative seed.
            NotFiniteError: as it says.
        """
        if isinstance(prompts, str):
            raise InputError("write takes a list of prompts")
        openings = self._texts.openings(prompts, sampling.max_new_tokens)
        tokens = self.continue_tokens(openings, sampling, seed, progress, ended=True)
        responses, cut_off = read_responses(self._texts, tokens)
        self.cut_off += cut_off
        return responses

    def continue_tokens(
        self,
        openings: Sequence[list[int]],
        sampling: Sampling = Sampling(),
        seed: int | Sequence[int] = 0,
        progress: Callable[[int, int], None] = lambda *_: None,
        *,
        ended: bool = False,
    ) -> list[list[int]]:
        """As `write`, for prompts in tokens, which together with a response fit into the context.

        ``ended``: with the token that ended a response; a truncated one has none.

        Raises:
            InputError: a negative seed.
            NotFiniteError: as it says.
        """
        entropy = [seed] if isinstance(seed, int) else [*seed]
        if min(entropy) < 0:
            raise InputError(f"--seed must not be negative; got {seed}")
        lengths_T = np.array([len(ids) for ids in openings], dtype=np.int64)
        written: list[list[int]] = [[] for _ in openings]
        states: dict[int, torch.Tensor] = {}
        done = 0
        for places_R in length_batches(
            lengths_T + sampling.max_new_tokens, _KEPT_TOKENS.get(self._device.type, 2**14)
        ):
            uniforms_RN = np.stack(
                [
                    np.random.default_rng([*entropy, place]).random(sampling.max_new_tokens)
                    for place in places_R.tolist()
                ]
            )
            of_batch = [openings[place] for place in places_R]
            with self._noting() if self._noting else nullcontext([]) as noted:
                tokens = self._continued(of_batch, sampling, uniforms_RN, noted)
            if noted:
                rows = _states_of(torch.cat(noted, dim=1), of_batch, tokens)
                states |= zip(places_R.tolist(), rows, strict=True)
            for place, ids in zip(places_R.tolist(), tokens, strict=True):
                at_end = not ended and ids[-1:] and ids[-1] in self._texts.ends
                written[place] = ids[:-1] if at_end else ids
            done += len(places_R)
            progress(done, len(openings))
        self.states = [states[place] for place in sorted(states)]
        return written

    def _continued(
        self,
        openings: list[list[int]],
        sampling: Sampling,
        uniforms_RN: np.ndarray,
        noted: list[torch.Tensor],
    ) -> list[list[int]]:
        """The tokens that follow, up to the end and with it; ``noted`` grows by states of all
        tokens but the last, each (R, tokens, H), where there is something that notes them."""
        from transformers import GenerationConfig, LogitsProcessorList

        pad, ends = self._texts.tokenizer.pad_token_id, self._texts.ends
        longest = max(map(len, openings))  # on the left of the others stands what fills up
        ids = [[pad] * (longest - len(opening)) + opening for opening in openings]
        there = [[0] * (longest - len(opening)) + [1] * len(opening) for opening in openings]
        ids_RL = torch.tensor(ids, device=self._device)
        there_RL = torch.tensor(there, device=self._device)
        uniforms = torch.from_numpy(uniforms_RN).to(self._device)

        def only_the_drawn(ids_RL: torch.Tensor, logits_RV: torch.Tensor) -> torch.Tensor:
            drawn_R = sampling.draw(logits_RV, uniforms[:, ids_RL.shape[1] - longest])
            nothing_RV = torch.full_like(logits_RV, -torch.inf)
            return nothing_RV.scatter_(1, drawn_R[:, None], 0.0)

        with torch.inference_mode(), _without_defaults(self._network):
            whole = self._network.generate(
                input_ids=ids_RL,
                attention_mask=there_RL,
                generation_config=GenerationConfig(
                    max_new_tokens=sampling.max_new_tokens,
                    do_sample=False,
                    use_cache=True,
                    eos_token_id=ends or None,
                    pad_token_id=pad,
                ),
                logits_processor=LogitsProcessorList([only_the_drawn]),
                **self._read_once(openings, ids_RL, there_RL, noted),
            )
        rows = whole[:, longest:].tolist()
        firsts = (
            next((at for at, token in enumerate(row) if token in ends), len(row)) for row in rows
        )
        return [row[: first + 1] for row, first in zip(rows, firsts, strict=True)]

    def _read_once(
        self,
        openings: list[list[int]],
        ids_RL: torch.Tensor,
        there_RL: torch.Tensor,
        noted: list[torch.Tensor],
    ) -> dict[str, Any]:
        """The cache of all prompts without their last tokens, with equal prompts computed once;
        empty if few are equal, or if the model caches more than each token's keys and values.
        """
        from transformers import DynamicCache, GenerationConfig
        from transformers.cache_utils import DynamicLayer

        first_U, place_R = _distinct(openings)
        if not place_R or not self._reads_once:
            return {}
        output = self._network.generate(
            input_ids=ids_RL[first_U, :-1],
            attention_mask=there_RL[first_U, :-1],
            generation_config=GenerationConfig(
                max_new_tokens=1, use_cache=True, return_dict_in_generate=True,
                pad_token_id=self._texts.tokenizer.pad_token_id,
            ),
        )  # fmt: skip
        name = "cache" if hasattr(output, "cache") else "past_key_values"  # transformers < 5.24
        read = getattr(output, name)
        if type(read) is not DynamicCache or {type(each) for each in read.layers} != {DynamicLayer}:
            noted.clear()
            self._reads_once = False
            return {}
        noted[:] = [state_ULH[place_R] for state_ULH in noted]
        read.batch_select_indices(torch.tensor(place_R, device=self._device))
        return {name: read}


def _distinct(openings: list[list[int]]) -> tuple[list[int], list[int]]:
    """Rows of U different prompts, and for each of R which of these it is; the latter empty where
    reading equal ones once would not help."""
    rows: dict[tuple[int, ...], int] = {}
    for row, opening in enumerate(openings):
        rows.setdefault(tuple(opening), row)
    if 2 * len(rows) > len(openings) or min(map(len, openings)) < 2:
        return [*rows.values()], []
    number = {opening: at for at, opening in enumerate(rows)}
    return [*rows.values()], [number[tuple(opening)] for opening in openings]


def _states_of(
    state_RLH: torch.Tensor, openings: list[list[int]], tokens: list[list[int]]
) -> list[torch.Tensor]:
    """Each row's states without what fills it up."""
    longest = max(map(len, openings))
    return [
        state_LH[longest - len(opening) : longest + len(ids) - 1]
        for state_LH, opening, ids in zip(state_RLH, openings, tokens, strict=True)
    ]


def read_responses(texts: TextTokens, tokens: Sequence[list[int]]) -> tuple[list[str], int]:
    """Responses as texts without their end tokens, and the number that have no end because they
    were broken off.

    Args:
        texts: how tokens are read.
        tokens: of each response, with the token that ended it.
    """
    ends, decode = set(texts.ends), texts.tokenizer.decode
    ended = [bool(ends.intersection(ids[-1:])) for ids in tokens]
    whole = [ids[:-1] if end else ids for ids, end in zip(tokens, ended, strict=True)]
    responses = [decode(ids, clean_up_tokenization_spaces=False).strip() for ids in whole]
    return responses, len(ended) - sum(ended)


@contextmanager
def _without_defaults(network: Any) -> Iterator[None]:
    """Without the penalties and limits that a checkpoint sets by default."""
    from transformers import GenerationConfig

    former, network.generation_config = network.generation_config, GenerationConfig()
    try:
        yield
    finally:
        network.generation_config = former
