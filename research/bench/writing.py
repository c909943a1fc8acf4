"""The speed of generation: tokens per second of ours, over plain transformers' batched generate.

Both answer the same prompts in turn, so that whatever else the machine does meets both alike; the
ratio is the median of ratios. Tokens are counted up to the one that ends an answer, and with it.
Plain is ``model.generate`` in batches of a fixed number of prompts, in their order, padded on the
left, drawing from everything as ours does (`top_k=0`).

Without a base, the model is of GPT-2's kind with random weights, which hardly ever ends an answer,
and prompts are 8 to 64 random tokens; with one, prompts are those of `murmuration.questions`.

Legend: R prompts in a batch, L tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig

from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.likelihood import load_next_token
from murmuration.preference.language.tokens import TextTokens
from murmuration.research.bench.language_model import LmBench, saved_model
from murmuration.research.bench.setting import timed
from murmuration.sims.population.prompts import questions

_LENGTHS = (8, 64)  # of random prompts
_WARMING = 8  # prompts


@dataclass(frozen=True)
class WritingBench:
    """The sizes of a measurement.

    Attributes:
        base: a folder or a base's name; by default random weights.
        prompts: their number.
        tokens: the most of an answer.
        temperature: of both.
        model: shape of the random one.
    """

    base: str = ""
    prompts: int = 32
    tokens: int = 32
    temperature: float = 0.7
    model: LmBench = field(default_factory=lambda: LmBench(tokens=256))


def measure_writing(
    bench: WritingBench, batch_sizes: Sequence[int], repetitions: int
) -> list[dict[str, Any]]:
    """A row for each batch size of plain generate: tokens per second of both, and the ratio.

    Raises:
        InputError: there is no such base.
    """
    with _model_folder(bench) as path:
        network, texts = load_next_token(path)
        openings = _openings(bench, texts)
        ours = Writer(network, texts)
        sampling = Sampling(bench.temperature, max_new_tokens=bench.tokens)

        def write(some: Sequence[list[int]], seed: int) -> int:
            written = ours.continue_tokens(some, sampling, seed, ended=True)
            return sum(map(len, written))

        readings: list[dict[int, float]] = []
        for seed in range(repetitions + 1):  # the first warms up, on few prompts
            some = openings if seed else openings[:_WARMING]
            rates = {0: _rate(lambda some=some, seed=seed: write(some, seed))}
            for size in batch_sizes:
                rates[size] = _rate(
                    lambda some=some, size=size: _plain(network, texts, some, bench, size)
                )
            readings.append(rates)
    readings = readings[1:]
    return [
        {
            "prompts": bench.prompts,
            "max_new_tokens": bench.tokens,
            "batch_size": size,
            "plain_tokens_per_second": median(rates[size] for rates in readings),
            "ours_tokens_per_second": median(rates[0] for rates in readings),
            "ratio": median(rates[0] / rates[size] for rates in readings),
        }
        for size in batch_sizes
    ]


def _rate(write: Any) -> float:
    tokens, seconds = timed(write)
    return tokens / seconds


@contextmanager
def _model_folder(bench: WritingBench) -> Iterator[str]:
    if bench.base:
        yield bench.base
        return
    with saved_model(bench.model) as folder:
        yield folder


def _openings(bench: WritingBench, texts: TextTokens) -> list[list[int]]:
    """The prompts in tokens."""
    if bench.base:
        listed = questions()
        prompts = [listed[place % len(listed)] for place in range(bench.prompts)]
        return texts.openings(prompts, bench.tokens)
    generator = np.random.default_rng(0)
    lengths = generator.integers(*_LENGTHS, size=bench.prompts, endpoint=True)
    return [generator.integers(3, bench.model.vocabulary, size=n).tolist() for n in lengths]


def _plain(
    network: Any,
    texts: TextTokens,
    openings: Sequence[list[int]],
    bench: WritingBench,
    batch_size: int,
) -> int:
    """Generate answers as is usual with transformers; the number of tokens generated."""
    pad, count = texts.tokenizer.pad_token_id, 0
    config = GenerationConfig(
        max_new_tokens=bench.tokens,
        do_sample=True,
        temperature=bench.temperature,
        top_k=0,
        eos_token_id=texts.ends or None,
        pad_token_id=pad,
    )
    for low in range(0, len(openings), batch_size):
        batch = openings[low : low + batch_size]
        longest = max(map(len, batch))
        ids_RL = torch.tensor([[pad] * (longest - len(ids)) + ids for ids in batch])
        mask_RL = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in batch])
        with torch.inference_mode():
            whole_RL = network.generate(
                input_ids=ids_RL.to(network.device),
                attention_mask=mask_RL.to(network.device),
                generation_config=config,
            )
        for row in whole_RL[:, longest:].tolist():
            end = next((at for at, token in enumerate(row) if token in texts.ends), len(row) - 1)
            count += end + 1
    return count
