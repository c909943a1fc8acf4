"""Policy gradients against a reward, by TRL's trainers: RLOO or GRPO of LoRA layers.

What is TRL's: advantages, the KL penalty, the optimizer, checkpoints. What is ours: how prompts are
written down (`preference.language.tokens`, as in every other training and use of the model; TRL
would hand the prompt's text to the tokenizer as it stands), how answers are written, unless vLLM
does, and read off the tokens (`preference.language.generation`), the reward, and how likely answers
are (`alignment.likelihoods`): TRL would compute all layers three times for each, and on a processor
the words' numbers of each prompt's tokens, too.

PPO, which papers name, is left out: TRL has no trainer of it any more. RLOO (Ahmadian et al. 2024)
takes the same reward with the same penalty β on log π − log π_ref, and the mean of the prompt's
other answers where PPO learns a value function.
"""

import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.alignment.likelihoods import AnswerLikelihoods
from murmuration.alignment.rewards import Scores
from murmuration.alignment.writing import writing
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.layers import trained_layers
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.generation import NotFiniteError, Sampling

METHODS = ("rloo", "grpo")
#: Numbers in the states of a step's texts, of all layers, at a time: some 2 GiB with what is kept.
_STATES = 2**24
#: What of TRL's trainers is replaced.
_OURS = ("_tokenize_prompts", "_generate_single_turn", "_get_per_token_logps_and_entropies")
OPTIMIZERS = ("rmsprop", "adamw_torch")
#: vLLM in the process that trains.
COLOCATE = "colocate"


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The settings of a policy's optimization.

    Attributes:
        method: one of `METHODS`.
        steps: their number.
        batch: answers of a step.
        answers: to each of its prompts; divides ``batch``.
        rate: the learning rate of LoRA's factors.
        beta: the cost of a nat of KL divergence, in the reward's logits.
        optimizer: one of `OPTIMIZERS`.
        vllm: the generator of a step's answers: the policy itself (empty), vLLM on the same GPU
            (`COLOCATE`), or the address of a vLLM server that TRL sends the policy's weights.

    Raises:
        InputError: a value out of range.
    """

    method: str = "rloo"
    steps: int = 20
    batch: int = 32
    answers: int = 4
    rate: float = 1e-3
    beta: float = 0.15
    optimizer: str = "rmsprop"
    vllm: str = ""

    def __post_init__(self) -> None:
        for name, known in (("method", METHODS), ("optimizer", OPTIMIZERS)):
            if getattr(self, name) not in known:
                said = ", ".join(known)
                raise InputError(f"--{name} must be one of {said}; got {getattr(self, name)!r}")
        if self.steps < 1:
            raise InputError(f"--steps must be at least 1; got {self.steps}")
        if self.answers < 2 or self.batch < 2 or self.batch % self.answers:
            raise InputError(
                "--num-generations must be at least 2, since a reward counts beside those of the "
                f"prompt's other answers, and divide --batch-size; "
                f"got {self.answers} and {self.batch}"
            )
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise InputError(f"--learning-rate must be a positive number; got {self.rate}")
        if not (math.isfinite(self.beta) and self.beta >= 0):
            raise InputError(f"--kl-coef must not be negative; got {self.beta}")
        if not re.fullmatch(rf"|{COLOCATE}|https?://\S+", self.vllm):
            raise InputError(
                f"--vllm must be {COLOCATE} or a vLLM server's address (http://…); "
                f"got {self.vllm!r}"
            )

    @property
    def written_by(self) -> dict[str, Any]:
        """The settings of TRL's configurations for generation."""
        if not self.vllm:
            return {}
        if self.vllm == COLOCATE:
            return {"use_vllm": True, "vllm_mode": COLOCATE}
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": self.vllm}

    @property
    def prompts(self) -> int:
        """The number of prompts in a step."""
        return self.batch // self.answers


def trainer_of(method: str) -> tuple[Any, Any]:
    """TRL's trainer and the class of its configuration.

    Raises:
        InputError: TRL, or what it needs, is not installed, or not in a version that fits.
    """
    try:
        import datasets  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import peft  # noqa: F401  # pyright: ignore[reportUnusedImport]
        from trl.trainer.grpo_config import GRPOConfig
        from trl.trainer.grpo_trainer import GRPOTrainer
        from trl.trainer.rloo_config import RLOOConfig
        from trl.trainer.rloo_trainer import RLOOTrainer
    except ImportError as error:
        raise InputError(
            f"align needs {error.name}: pip install 'murmuration-rlhf[align]'"
        ) from None
    trainer, config = {
        "rloo": (RLOOTrainer, RLOOConfig),
        "grpo": (GRPOTrainer, GRPOConfig),
    }[method]
    if not all(hasattr(trainer, name) for name in _OURS):
        raise InputError(
            "this version of trl does what is ours in another way than is known here: "
            "pip install 'murmuration-rlhf[align]' takes one that fits"
        )
    return trainer, config


def train_policy(
    base: LanguageBase,
    prompts: Sequence[str],
    reward: Scores,
    steps: Steps,
    sampling: Sampling,
    *,
    seed: int,
    folder: Path,
    on_step: Callable[[int], bool],
    every: int,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Train the LoRA layers of ``base`` in place.

    Args:
        base: with ``train="lora"`` and a causal task.
        prompts: public ones.
        reward: of answers to them, finite.
        steps: of the optimization.
        sampling: of answers.
        seed: of prompts' order and of answers.
        folder: for checkpoints; training continues from an existing one.
        on_step: called every ``every`` steps and after the last, with the number of steps done,
            before a checkpoint is written; training ends if it returns True.
        every: also how often a checkpoint is written.
        progress: called after each step, with the number of steps done.

    Raises:
        InputError: TRL is not installed, there are fewer prompts than a step takes, or a step is
            not finite.
    """
    if len(prompts) < steps.prompts:  # of which TRL would make no step, and no word
        raise InputError(
            f"{len(prompts):,} prompts are fewer than the {steps.prompts:,} of a "
            "step: give more, or lower --batch-size"
        )
    trainer_class, config_class = trainer_of(steps.method)
    import datasets
    import peft
    from transformers import PrinterCallback, TrainerCallback

    texts, likelihoods = base.texts, AnswerLikelihoods(base, sampling.temperature)

    def without_dropout() -> None:
        # Not all of it is in modules, which TRL would turn off. What is computed again going back
        # wants a network that trains.
        if not base.settings.checkpointing:
            base.model.eval()

    class OurTrainer(trainer_class):  # type: ignore[misc, valid-type]
        def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict]:
            likelihoods.forget()  # what was written in the step before
            without_dropout()
            return texts.openings(prompts, sampling.max_new_tokens), None, {}

        def _generate_single_turn(
            self, prompt_ids: list[list[int]], *given: Any, **named: Any
        ) -> Any:
            if steps.vllm:
                return super()._generate_single_turn(prompt_ids, *given, **named)
            trains, done = base.model.training, self.state.global_step
            answers = likelihoods.written(prompt_ids, sampling, (seed, 1, 0, done))
            base.model.train(trains)
            return answers if steps.method == "rloo" else (answers, None)

        def _get_per_token_logps_and_entropies(
            self,
            model: Any,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor,
            logits_to_keep: int,
            batch_size: int | None = None,
            **_: Any,
        ) -> tuple[torch.Tensor, torch.Tensor, None]:
            """As TRL's: (R, K), zero beyond an answer's end. Entropies are not used, and returned
            as zero.
            """
            without_dropout()
            there_RL = attention_mask.bool()
            log_RK = torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device)
            for at in range(0, len(input_ids), batch_size or len(input_ids)):
                part = slice(at, at + (batch_size or len(input_ids)))
                both = (slice(None, -logits_to_keep), slice(-logits_to_keep, None))
                rows = [
                    [ids_L[there_L].tolist() for ids_L, there_L in zip(
                        input_ids[part, side], there_RL[part, side], strict=True)]
                    for side in both
                ]  # fmt: skip
                own_RK = likelihoods(*rows)
                log_RK[part, : own_RK.shape[1]] = own_RK
            return log_RK, torch.zeros_like(log_RK), None

        def _save_checkpoint(self, *given: Any) -> None:
            with writing(folder):
                super()._save_checkpoint(*given)

    def rewards(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        answers = [_read(texts, ids) for ids in completion_ids]
        return reward(prompts, answers).tolist()

    last = last_checkpoint(folder)

    class AfterSteps(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):  # type: ignore[override]
            if last is None:
                return
            # Of two adapters, ours and TRL's copy of where it began, transformers brings the copy
            # back alone.
            weights = peft.utils.load_peft_weights(last, device=str(base.device))
            peft.set_peft_model_state_dict(base.model, weights, adapter_name="default")

        def on_log(self, args, state, control, logs=None, **kwargs):  # type: ignore[override]
            length = (logs or {}).get("grad_norm")
            if length is not None and not math.isfinite(float(length)):
                raise InputError("a step of the policy is not finite: lower --learning-rate")

        def on_step_end(self, args, state, control, **kwargs):  # type: ignore[override]
            done = state.global_step
            progress(done)
            if done % every == 0 or done == steps.steps:
                base.model.eval()
                control.should_training_stop = on_step(done) or control.should_training_stop
                control.should_save = True
                base.model.train()
            return control

    network: Any = base.model
    network.generation_config.eos_token_id = texts.ends or None
    for parameter in base.trained:
        parameter.requires_grad_(True)
    ordered = _in_order(list(prompts), steps, seed)
    longest = max(map(len, texts.openings(ordered, sampling.max_new_tokens)))
    together = answers_together(
        steps.batch, longest + sampling.max_new_tokens, sampling.max_new_tokens, base
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, about each other
        config = config_class(
            **configuration(base, steps, sampling, seed, folder=folder, together=together)
        )
        try:
            trainer = OurTrainer(
                model=base.model,
                reward_funcs=rewards,
                args=config,
                train_dataset=datasets.Dataset.from_dict({"prompt": ordered}),
                processing_class=base.tokenizer,
                callbacks=[AfterSteps()],
            )
        except (ImportError, OSError) as error:  # not installed; no server there
            if not steps.vllm:
                raise
            raise InputError(f"--vllm {steps.vllm}: {error}") from None
        trainer.remove_callback(PrinterCallback)
        try:
            trainer.train(resume_from_checkpoint=last)
        except NotFiniteError:
            raise InputError("the policy is not finite: lower --learning-rate") from None
        finally:
            for parameter in base.trained:
                parameter.requires_grad_(False)
                parameter.grad = None
            base.model.eval()
    if "ref" in network.peft_config:
        network.delete_adapter("ref")


def configuration(
    base: LanguageBase, steps: Steps, sampling: Sampling, seed: int, *, folder: Path, together: int
) -> dict[str, Any]:
    """The arguments of TRL's configurations.

    Args:
        base: the policy.
        steps: of the optimization.
        sampling: of answers.
        seed: of answers.
        folder: for checkpoints.
        together: answers that go through the network at a time; divides ``steps.batch``.
    """
    return {
        "output_dir": str(folder),
        "max_steps": steps.steps,
        "per_device_train_batch_size": together,
        "gradient_accumulation_steps": steps.batch // together,
        "num_generations": steps.answers,
        "shuffle_dataset": False,
        "max_completion_length": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "beta": steps.beta,
        "learning_rate": steps.rate,
        "optim": steps.optimizer,
        "lr_scheduler_type": "linear",
        "save_strategy": "no",
        "logging_strategy": "steps",
        "logging_steps": 1,
        "gradient_checkpointing": base.settings.checkpointing,
        "disable_dropout": True,  # as everywhere here; states that are kept have none either
        "bf16": False,
        "seed": seed,
        "use_cpu": base.device.type == "cpu",
        "dataloader_pin_memory": False,
        "save_total_limit": 1,
        "report_to": [],
        "disable_tqdm": True,
        **steps.written_by,
    }


def answers_together(batch: int, tokens: int, new_tokens: int, base: LanguageBase) -> int:
    """The number of a step's answers that go through the network at a time: a divisor of ``batch``.

    Their gradients are added up, so a step is the same except for rounding. What they need at a
    time follows from their states, of which each layer that is gone back through keeps some tens,
    and from the numbers of all words for each of their tokens.

    Args:
        batch: answers of a step.
        tokens: the most of a prompt with its answer.
        new_tokens: the most of an answer.
        base: the policy.
    """
    network: Any = base.model
    config, layers = network.config, trained_layers(network, base.settings.layers, "--base")
    trained = config.num_hidden_layers if layers is None else len(layers)
    states = tokens * config.hidden_size * trained
    # Going back, the numbers of words are there some four times.
    most = max(1, min(_STATES // states, base.most_logits // (2 * new_tokens * base.words)))
    return max(each for each in range(1, batch + 1) if batch % each == 0 and each <= most)


def last_checkpoint(folder: Path) -> str | None:
    """The last checkpoint in a folder that was written to its end; None if there is none.

    ``trainer_state.json`` is written last, and the former checkpoint removed after that.
    """
    result = {}
    for state in folder.glob("checkpoint-*/trainer_state.json"):
        step = re.fullmatch(r"checkpoint-(\d+)", state.parent.name)
        try:
            json.loads(state.read_bytes())
        except ValueError:
            continue
        if step:
            result[int(step[1])] = str(state.parent)
    return result[max(result)] if result else None


def _in_order(prompts: list[str], steps: Steps, seed: int) -> list[str]:
    """The prompts of all steps: passes over all of them, each in another order.

    Written down here, since a trainer that goes on in a second pass shuffles as in its first.
    """
    generator, needed = np.random.default_rng([seed, 2]), steps.steps * steps.batch // steps.answers
    passes = -(-needed // len(prompts))
    order = np.concatenate([generator.permutation(len(prompts)) for _ in range(passes)])
    return [prompts[place] for place in order[:needed].tolist()]


def _read(texts: Any, ids: Sequence[int]) -> str:
    """An answer's text, as `generation.Writer` reads it."""
    ends = set(texts.ends)
    end = next((at for at, token in enumerate(ids) if token in ends), len(ids))
    return texts.tokenizer.decode(ids[:end], clean_up_tokenization_spaces=False).strip()
