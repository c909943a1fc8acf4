"""What is saved where LoRA changes a network's last layers alone: states below them are kept.

One after the other in one process, on the same texts: how long the states of all texts take the
first time, and when another process finds them on disk; then a pass over all users by

- plain: the gradient of the mean loss through the whole network, in batches, as a loop of PyTorch
  and peft has it (it goes back through trained layers alone, and forward through all);
- ours: each user's gradient from the states that are kept, clipped and added up. Of a policy the
  reference is computed in each pass by plain, and was computed by ours.

``all`` beside ``last:K`` tells what the same users cost where every layer is changed. The model is
that of `research.bench.language_model`, or a base that is named, with random tokens. What is kept
is kept in a folder that is gone afterwards.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.row_cache import FOLDER
from murmuration.research.bench.language_model import LmBench, Variants, examples, saved_model
from murmuration.research.bench.setting import timed


def measure(
    bench: LmBench, layers: str, task: str, repetitions: int, base: str = ""
) -> dict[str, Any]:
    """Return milliseconds a text of states, and a judgement of each way, with their ratio.

    Args:
        bench: sizes; of a named base those of texts and users alone.
        layers: as of `BaseSettings`.
        task: `reward` or `policy`.
        repetitions: of which medians are taken, after one that warms up.
        base: a folder or name; empty: a model of ``bench``.
    """
    with nullcontext(base) if base else saved_model(bench) as path, _own_cache():
        settings = BaseSettings(
            path=path, rank=bench.rank, max_tokens=bench.tokens, task=task, layers=layers
        )
        first = LanguageBase(settings)
        if base:
            words = first.model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
            bench = replace(bench, vocabulary=int(words))
        computed = _seconds(bench, first)
        again = LanguageBase(settings)
        read = _seconds(bench, again)
        batch = examples(bench, again)
        whole = copy(again)
        whole.lower = None
        ours, plain = Variants(batch), Variants(replace(batch, base=whole))
        if task == "policy":
            ours.ours()  # all references
        readings = []
        for _ in range(repetitions + 1):
            readings.append((timed(plain.plain)[1], timed(ours.kept)[1]))
    judgements, texts = bench.users * bench.judgements, len(batch.tokens.lengths_T)
    seconds = [median(each[way] for each in readings[1:]) for way in (0, 1)]
    return {
        "task": task,
        "layers": layers,
        "judgements": judgements,
        "dimension": again.dimension,
        "device": again.device.type,
        "states_ms_a_text": 1e3 * computed / texts,
        "found_ms_a_text": 1e3 * read / texts,
        "plain_ms_a_judgement": 1e3 * seconds[0] / judgements,
        "ours_ms_a_judgement": 1e3 * seconds[1] / judgements,
        "ours_ratio": median(ours / plain for plain, ours in readings[1:]),
    }


def _seconds(bench: LmBench, base: LanguageBase) -> float:
    """Return how long it takes to have the states of all texts."""
    tokens = examples(bench, base).tokens
    begun = time.perf_counter()
    base.keep_lower(tokens, np.arange(len(tokens.lengths_T)))
    return time.perf_counter() - begun


@contextmanager
def _own_cache() -> Iterator[None]:
    before = os.environ.get(FOLDER)
    with tempfile.TemporaryDirectory(prefix="murmuration-bench-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]
            if before is not None:
                os.environ[FOLDER] = before
