"""The speed of other libraries at the same work on the same machine: pfl-research, Flower by
itself, TRL.

pfl-research pins what we do not, so it gets an environment of its own, made once below the user's
cache folder and kept. Where it cannot be installed the comparison is left out, and says why. TRL
works with the packages that are here: it is taken if it is installed.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.layers import trained_layers
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.examples.judgements import TokenExamples
from murmuration.preference.language.examples.policies import PolicyExamples
from murmuration.research.bench import flower_runs
from murmuration.research.bench.setting import Setting
from murmuration.research.bench.synthetic_users import write_rows

PFL = "pfl==0.6.0"
_ROUNDS = 15
_FLOWER_ROUNDS = 6
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "murmuration"


class NoRival(RuntimeError):
    """It cannot be measured here; one line that says why."""


def pfl_environment(folder: Path = _CACHE / "pfl-0.6") -> Path:
    """The interpreter of an environment with pfl-research, made if need be.

    Raises:
        NoRival: it cannot be installed.
    """
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    torch = f"torch=={version('torch').partition('+')[0]}"
    # torch first and by itself: left to the resolver it might be another build.
    for command in (
        [sys.executable, "-P", "-m", "venv", "--clear", str(folder)],
        [str(python), "-P", "-m", "pip", "install", "-q", torch],
        [str(python), "-P", "-m", "pip", "install", "-q", PFL, torch],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise NoRival(f"{PFL} cannot be installed: {last}")
    (folder / "complete").touch()
    return python


def pfl_users_per_second(python: Path, setting: Setting) -> float:
    """The number of users per second that pfl-research trains, as a median over rounds.

    Raises:
        NoRival: it failed.
    """
    sizes = [setting.dimension, setting.cohort, setting.users, setting.each, _ROUNDS]
    return _pfl_users_per_second(python, sizes)


def pfl_language_users_per_second(folder: str, sizes: Sequence[int]) -> float:
    """The same of a language model in a folder, where pfl-research is installed beside us.

    Args:
        folder: of the model.
        sizes: of a cohort, of all users, texts of each, rounds, tokens of a text, rank of LoRA.

    Raises:
        NoRival: it is not, or it failed.
    """
    if find_spec("pfl") is None:
        raise NoRival(f"pfl-research is not installed: pip install {PFL}")
    return _pfl_users_per_second(Path(sys.executable), [folder, *sizes])


def _pfl_users_per_second(python: Path, arguments: Sequence[object]) -> float:
    script = Path(__file__).with_name("pfl_worker.py")
    done = subprocess.run(
        [str(python), str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise NoRival(f"pfl-research failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return float(json.loads(lines[-1])["users_per_second"])


def flower_users_per_second(setting: Setting, users_per_node: int | None) -> float:
    """The number of users per second that a simulation by ``flwr run`` trains, without start-up.

    With ``users_per_node`` 1 this is Flower as it is commonly used: each user a client.

    Raises:
        NoRival: Flower failed.
    """
    with setting.config(_FLOWER_ROUNDS) as config, tempfile.TemporaryDirectory() as folder:
        # Flower's app brings a package of its own, without benchmarks: it reads files.
        files = {name: str(Path(folder, f"{name}.jsonl")) for name in ("data", "test")}
        for name, file in files.items():
            write_rows(getattr(config, name).rpartition(":")[2], file)
        try:
            result = flower_runs.execute(replace(config, **files), users_per_node=users_per_node)
        except (InputError, RuntimeError) as error:
            raise NoRival(f"Flower failed: {error}") from error
    return float(result["users_per_second"])


class Trl:
    """TRL's `RewardTrainer` on a base and its pairs, or its `DPOTrainer`, without any privacy.

    The same tokens in batches of as many, in float32 and without dropout, recomputation or logs;
    LoRA by the same peft configuration. What is timed is a step: gradients of all pairs added up
    over batches, then AdamW's one update. Loading, tokens and shuffling are not. The reference of a
    policy is computed in every step: with LoRA by the same network without it, else by another.
    Both answers follow the prompt as it was cut for the one that was chosen.

    Raises:
        NoRival: it is not installed.
    """

    def __init__(self, base: LanguageBase, given: TokenExamples) -> None:
        try:
            import trl  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise NoRival(f"TRL is not installed: {error}") from None
        import peft
        import torch
        from datasets import Dataset
        from transformers import (
            AutoModelForCausalLM,
            AutoModelForSequenceClassification,
            PrinterCallback,
            TrainerCallback,
        )

        settings, tokens, begun = base.settings, given.tokens, []
        policy = isinstance(given, PolicyExamples)

        class Timed(TrainerCallback):
            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                begun.append(time.perf_counter())

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                begun.append(time.perf_counter())

        ids_TL = [
            tokens.ids[low:high].tolist() for low, high in pairwise(np.asarray(tokens.start_T))
        ]
        prompt_T = [int(first) if policy else 0 for first in tokens.second_T]
        columns = {
            name: [ids_TL[text][prompt_T[text] :] for text in given.text_JK[:, place]]
            for place, name in enumerate(("chosen_ids", "rejected_ids"))
        }
        if policy:
            columns["prompt_ids"] = [ids_TL[t][: prompt_T[t]] for t in given.text_JK[:, 0]]
        pairs = Dataset.from_dict(columns)
        each = max(1, base.batch_tokens // (2 * int(tokens.lengths_T.max())))
        self._folder = tempfile.TemporaryDirectory(prefix="murmuration-trl-")
        configured = trl.DPOConfig if policy else trl.RewardConfig  # pyright: ignore[reportPrivateImportUsage]
        arguments = configured(
            output_dir=self._folder.name,
            per_device_train_batch_size=each,
            gradient_accumulation_steps=-(-len(pairs) // each),
            max_steps=2,  # the first makes the optimizer's state
            max_length=None,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=base.device.type == "cpu",
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        lora = None
        if settings.train == "lora":
            layers = trained_layers(base.model, settings.layers, settings.path)
            lora = peft.LoraConfig(
                task_type="CAUSAL_LM" if policy else "SEQ_CLS",
                r=settings.rank,
                lora_alpha=settings.rank,
                lora_dropout=0.0,
                layers_to_transform=None if layers is None else [*layers],
            )
        made, head = AutoModelForSequenceClassification, {"num_labels": 1}
        if policy:
            made, head = AutoModelForCausalLM, {}
        network = made.from_pretrained(settings.path, dtype=torch.float32, **head)
        # Of two classes, each with a configuration of its own, which no type says.
        trainer: Any = trl.DPOTrainer if policy else trl.RewardTrainer  # pyright: ignore[reportPrivateImportUsage]
        words = Dataset.from_dict({"prompt": ["a"], "chosen": ["a"], "rejected": ["b"]})
        self._times, self._trainer = (
            begun,
            trainer(
                model=network,
                args=arguments,
                train_dataset=words if policy else pairs,
                processing_class=base.tokenizer,
                peft_config=lora,
                callbacks=[Timed()],
            ),
        )
        self._trainer.remove_callback(PrinterCallback)  # which prints where a result is printed
        self._trainer.train_dataset = pairs  # of a policy it takes tokens by no other way

    def seconds(self) -> float:
        """The seconds of one step."""
        self._times.clear()
        self._trainer.train()
        return self._times[-1] - self._times[-2]
