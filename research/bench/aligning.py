"""The time of a step of `align`, over TRL's own trainer of the same method.

Both optimize the same reward (the number of words of an answer) from the same base, by the same
configuration, and train LoRA in the same layers. What differs is what `alignment.reinforce`
replaces: plain TRL computes each answer's likelihoods in all layers, under the policy, its
reference and the policy that is changed; ours computes once what is below the first trained layer.
A step is answers written, rewarded, and one update.

The two take turns, so that whatever else the machine does meets both alike. Each writes its own
answers, so what is compared is the time for each token that was written.
"""

import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from murmuration.alignment.reinforce import (
    Steps,
    answers_together,
    configuration,
    train_policy,
)
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.generation import Sampling
from murmuration.research.bench.language_model import LmBench, saved_model
from murmuration.sims.population.prompts import questions

_STEPS = 2  # the first makes the optimizer's state


@dataclass(frozen=True)
class AlignBench:
    """Sizes of what is measured.

    Attributes:
        base: a folder or a base's name; by default random weights.
        layers: which LoRA changes, as of `BaseSettings`.
        answers: of a step.
        tokens: the most of an answer.
        model: shape of the random one.
    """

    base: str = ""
    layers: str = "all"
    answers: int = 32
    tokens: int = 64
    model: LmBench = field(default_factory=lambda: LmBench(tokens=256))


def measure_step(bench: AlignBench, repetitions: int) -> dict[str, Any]:
    """Measure seconds per step and milliseconds per generated token of both, and their ratio.

    Raises:
        InputError: there is no such base, or TRL is not installed.
    """
    steps = Steps(steps=_STEPS, batch=bench.answers)
    sampling = Sampling(max_new_tokens=bench.tokens)
    with nullcontext(bench.base) if bench.base else saved_model(bench.model) as path:
        readings = []
        for seed in range(repetitions + 1):
            reading = {}
            for name, way in WAYS.items():
                base = LanguageBase(BaseSettings(path, task="policy", layers=bench.layers))
                listed = questions() if bench.base else ["a", "b a"] * 8
                reading[name] = way(base, listed, steps, sampling, seed)
            readings.append(reading)
    readings = readings[1:]  # the first warms up
    result: dict[str, Any] = {
        "layers": bench.layers,
        "answers": bench.answers,
        "max_new_tokens": bench.tokens,
        "device": base.device.type,
    }
    for name in WAYS:
        result[f"{name}_s_a_step"] = median(each[name][0] for each in readings)
        result[f"{name}_ms_a_token"] = median(1e3 * s / n for s, n in (r[name] for r in readings))
    result["ratio"] = median(
        each["ours"][0] / each["ours"][1] / (each["plain"][0] / each["plain"][1])
        for each in readings
    )
    return result


class _Clock:
    """A reward, the words of an answer, that counts tokens; and when steps ended."""

    def __init__(self, base: LanguageBase) -> None:
        self._tokenizer, self._written, self._ended = base.tokenizer, [0], [0.0]

    def reward(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        self._written.append(sum(len(ids) for ids in self._tokenizer([*responses])["input_ids"]))
        return np.array([float(len(response.split())) for response in responses])

    def step_ended(self, _: int) -> None:
        self._ended.append(time.perf_counter())

    @property
    def last(self) -> tuple[float, int]:
        """Seconds of the last step, and tokens that it wrote."""
        return self._ended[-1] - self._ended[-2], max(1, self._written[-1])


def _ours(
    base: LanguageBase, prompts: Sequence[str], steps: Steps, sampling: Sampling, seed: int
) -> tuple[float, int]:
    clock = _Clock(base)
    with tempfile.TemporaryDirectory(prefix="murmuration-bench-") as folder:
        train_policy(
            base,
            prompts,
            clock.reward,
            steps,
            sampling,
            seed=seed,
            folder=Path(folder),
            on_step=lambda _: False,
            every=steps.steps + 1,
            progress=clock.step_ended,
        )
    return clock.last


def _plain(
    base: LanguageBase, prompts: Sequence[str], steps: Steps, sampling: Sampling, seed: int
) -> tuple[float, int]:
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl.trainer.rloo_config import RLOOConfig
    from trl.trainer.rloo_trainer import RLOOTrainer

    clock = _Clock(base)

    class AfterSteps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock.step_ended(state.global_step)

    chat = base.tokenizer.chat_template is not None
    rows = [[{"role": "user", "content": prompt}] if chat else prompt for prompt in prompts]

    def reward(completions: list[Any], **_: Any) -> list[float | None]:
        answers = [one[0]["content"] if chat else one for one in completions]
        return clock.reward(prompts, answers).tolist()

    network: Any = base.model
    for parameter in base.trained:
        parameter.requires_grad_(True)
    with (
        tempfile.TemporaryDirectory(prefix="murmuration-bench-") as folder,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of libraries, about each other
        longest = max(map(len, base.texts.openings(prompts, sampling.max_new_tokens)))
        tokens = longest + sampling.max_new_tokens
        together = answers_together(steps.batch, tokens, sampling.max_new_tokens, base)
        trainer = RLOOTrainer(
            model=network,
            reward_funcs=reward,
            args=RLOOConfig(
                **configuration(base, steps, sampling, seed, folder=Path(folder), together=together)
            ),
            train_dataset=Dataset.from_dict({"prompt": rows}),
            processing_class=base.tokenizer,
            callbacks=[AfterSteps()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return clock.last


#: Ours says what is missing.
WAYS = {"ours": _ours, "plain": _plain}
