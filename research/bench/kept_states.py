"""The saving if LoRA changes only a network's last layers, so that states below them are cached.

One after the other in one process, on the same texts: how long the states of all texts take the
first time, and when another process finds them on disk; then a pass over all users by

- plain: the gradient of the mean loss through the whole network, in batches, as a loop of PyTorch
  and peft has it (it goes back through trained layers alone, and forward through all);
- ours: each user's gradient from the states that are kept, clipped and added up, user by user;
  ``shared`` with `--user-passes shared`, so that users share batches as in plain. Of a policy the
  reference is computed in each pass by plain, and was computed by ours.

``all`` beside ``last:K`` is the cost of the same users if every layer is changed. The model is that
of `research.bench.language_model`, or a base that is named, with random tokens. The cache is in a
folder that is removed afterwards.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from murmuration.preference.data.loading import read_judgements
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.judgements import TokenExamples, token_examples
from murmuration.preference.language.examples.policies import PolicyExamples, policy_examples
from murmuration.preference.language.row_cache import FOLDER
from murmuration.research.bench.language_model import LmBench, Variants, examples, saved_model
from murmuration.research.bench.rivals import Trl
from murmuration.research.bench.setting import timed

_MOST, _EACH = 1000, 16  # judgements in all, and of a user
_FEW = 64  # judgements that are computed one by one


def measure(
    bench: LmBench, layers: str, task: str, repetitions: int, base: str = "", rivals: bool = False
) -> dict[str, Any]:
    """Measure milliseconds per text for states, and per judgement for each way, with their ratio.

    Args:
        bench: sizes; of a named base those of texts and users alone.
        layers: as of `BaseSettings`.
        task: `reward` or `policy`.
        repetitions: of which medians are taken, after one that warms up.
        base: a folder or name; empty: a model of ``bench``.
        rivals: also a step of TRL's trainer, with LoRA in the same layers (`rivals.Trl`).

    Raises:
        NoRival: there is no TRL.
    """
    with nullcontext(base) if base else saved_model(bench) as path, _own_cache():
        settings = BaseSettings(
            path=path, rank=bench.rank, max_tokens=bench.tokens, task=task, layers=layers
        )
        first = LanguageBase(settings)
        if base:
            words = first.model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
            bench = replace(bench, vocabulary=int(words))
        computed = _seconds(examples(bench, first))
        again = LanguageBase(settings)
        batch = examples(bench, again)
        read = _seconds(batch)
        ours, plain = Variants(batch), _plain(batch)
        if task == "policy":
            ours.ours()  # all references
        calls: dict[str, Callable[[], float]] = {
            "plain": partial(_seconds_of, plain.plain),
            "ours": partial(_seconds_of, ours.kept),
            "shared": partial(_seconds_of, partial(ours.kept, shared_passes=True)),
        }
        if rivals:
            calls["trl"] = Trl(again, batch).seconds
        readings = [{n: way() for n, way in calls.items()} for _ in range(repetitions + 1)][1:]
    judgements, texts = bench.users * bench.judgements, len(batch.tokens.lengths_T)
    return {
        **_about(task, layers, again),
        "judgements": judgements,
        "states_ms_a_text": 1e3 * computed / texts,
        "found_ms_a_text": 1e3 * read / texts,
        **_figures(readings, dict.fromkeys(calls, judgements)),
    }


def measure_people(
    data: str, layers: str, task: str, repetitions: int, base: str, rivals: bool = False
) -> dict[str, Any]:
    """Measure milliseconds per judgement for each way, with a file of judgements by users who
    judged the same texts.

    ``once`` is ours with ``--once-per-text``, where a text's gradient is computed once for all
    users who judged it; ``ours``, ``shared``, ``plain`` and TRL's step are of 64 of the judgements,
    at even distances, since the time of one does not depend on their number. The shares of padding
    are of all judgements.

    Args:
        data: a file of judgements.
        layers, task, base: as of `measure`.
        repetitions: of which medians are taken, after four judgements that warm up.
        rivals: as of `measure`.

    Raises:
        InputError: no such file, or no such base.
        NoRival: there is no TRL.
    """
    judgements = read_judgements(data, "btl", "", {})
    first_U, count_U = judgements.start_U[:-1], np.diff(judgements.start_U)
    place_J = np.arange(len(judgements.prompts)) - np.repeat(first_U, count_U)
    taken_J = np.flatnonzero(place_J < _EACH)[:_MOST]
    with _own_cache():
        again = LanguageBase(BaseSettings(path=base, task=task, layers=layers))
        made = policy_examples if task == "policy" else token_examples
        batch, few, fewest = (
            made(judgements.keep(np.isin(np.arange(len(place_J)), some_J)), again)
            for some_J in (taken_J, *(taken_J[:: max(1, len(taken_J) // n)] for n in (_FEW, 4)))
        )
        rival = Trl(again, few) if rivals else None
        once = copy(again)
        once.settings = replace(again.settings, once_per_text=True)
        ways = {
            "plain": (_plain(few), few),
            "ours": (Variants(few), few),
            "once": (Variants(replace(batch, base=once)), batch),
        }
        for _, given in ways.values():
            _seconds(given)
            if isinstance(given, PolicyExamples):
                given.refer(np.arange(len(given.tokens.lengths_T)))
        calls: dict[str, Callable[[], float]] = {
            name: partial(_seconds_of, variants.plain if name == "plain" else variants.kept)
            for name, (variants, _) in ways.items()
        }
        calls["shared"] = partial(_seconds_of, partial(ways["ours"][0].kept, shared_passes=True))
        every = torch.arange(len(batch.text_JK)), batch.counts_U
        counts = {name: len(given.text_JK) for name, (_, given) in ways.items()}
        counts["shared"] = counts["ours"]
        if rival is not None:
            calls["trl"], counts["trl"] = rival.seconds, counts["plain"]
        for way in (_plain(fewest).plain, Variants(fewest).kept):
            way()  # warms up
        readings = [{name: way() for name, way in calls.items()} for _ in range(repetitions)]
    return {
        **_about(task, layers, again),
        "judgements": len(taken_J),
        "texts": len(batch.tokens.lengths_T),
        "isolated_padding": batch.padding(*every, shared_passes=False),
        "shared_padding": batch.padding(*every, shared_passes=True),
        **_figures(readings, counts),
    }


def _plain(given: TokenExamples) -> Variants:
    whole = copy(given.base)
    whole.lower = None
    return Variants(replace(given, base=whole))


def _about(task: str, layers: str, base: LanguageBase) -> dict[str, Any]:
    return {
        "task": task,
        "layers": layers,
        "dimension": base.dimension,
        "device": base.device.type,
    }


def _figures(
    readings: Sequence[Mapping[str, float]], judgements: Mapping[str, int]
) -> dict[str, float]:
    """Medians of milliseconds per judgement, and of ratios to plain."""
    each = [{n: 1e3 * s / judgements[n] for n, s in reading.items()} for reading in readings]
    return {f"{name}_ms_a_judgement": median(ms[name] for ms in each) for name in each[0]} | {
        f"{name}_ratio": median(ms[name] / ms["plain"] for ms in each)
        for name in each[0]
        if name != "plain"
    }


def _seconds_of(call: Callable[[], object]) -> float:
    return timed(call)[1]


def _seconds(given: TokenExamples) -> float:
    begun = time.perf_counter()
    given.base.keep_lower(given.tokens, np.arange(len(given.tokens.lengths_T)))
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
