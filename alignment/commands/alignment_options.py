"""Options of ``murmuration align`` whose defaults and types are those of the library's settings."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import click
from typer import Option

from murmuration.alignment.align import Alignment
from murmuration.alignment.commands.sampling import MAX_NEW_TOKENS, TEMPERATURE, TOP_P
from murmuration.alignment.reinforce import METHODS, OPTIMIZERS, Steps
from murmuration.alignment.rewards import LENGTHS, Guards
from murmuration.alignment.supervised import Supervised
from murmuration.cli.options import GENERATIONS, WRITING, help_of, meaning
from murmuration.preference.language.generation import Sampling

#: What is a value of its own in the library; other options are its keywords themselves.
_VALUES = {
    "supervised": Supervised(),
    "steps": Steps(),
    "guards": Guards(),
    "sampling": Sampling(),
}
_OWN, _BETWEEN = Alignment(reward="", base="", prompts=""), "__"


def _of(*names: str, **declared: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return names, declared


#: By panel: for each field its option; ``steps__batch`` is the field ``batch`` of ``steps``.
_OPTIONS = {
    "Demonstrations first": {
        "supervised__source": _of(
            "--sft",
            help="Public demonstrations to learn first: a file (or other source) with `prompt` and "
            "`response` (or `completion`) in each row, or `messages`.",
            show_default=False,
        ),
        "sft_privacy": _of(
            help="As --reward-privacy, for rows of --sft that models of private runs wrote."
        ),
        "supervised__epochs": _of("--sft-epochs", help="Passes over the demonstrations."),
        "supervised__batch": _of("--sft-batch-size", help="Demonstrations in a step."),
        "supervised__rate": _of(
            "--sft-learning-rate", help="Largest learning rate for demonstrations."
        ),
    },
    "Training": {
        "steps__method": _of(
            "--method", help="Policy-gradient method.", click_type=click.Choice(METHODS)
        ),
        "steps__steps": _of("--steps", help="Training steps."),
        "steps__batch": _of("--batch-size", help="Batch size of a step. In answers."),
        "steps__answers": _of("--num-generations", help=GENERATIONS),
        "steps__rate": _of(
            "--learning-rate", help=f"{meaning('learning_rate')} Of the LoRA layers."
        ),
        "steps__beta": _of("--kl-coef", help="Penalty for each nat of KL divergence."),
        "steps__optimizer": _of(
            "--optimizer", help="Optimizer.", click_type=click.Choice(OPTIMIZERS)
        ),
        "steps__vllm": _of(
            "--vllm",
            help="Who writes a step's answers, on GPUs: `colocate` (vLLM beside the policy), or a "
            "vLLM server's address, to which TRL sends weights. \\[default: the policy itself]",
            show_default=False,
        ),
    },
    "Guards against gaming the reward": {
        "guards__clip": _of(
            "--clip-rewards/--no-clip-rewards",
            help="Clip rewards to the range of the reference's answers.",
        ),
        "guards__length": _of(
            "--length-control",
            help="`penalise`: subtract for answers longer than the reference's. `match`: subtract "
            "what length alone explains.",
            click_type=click.Choice(LENGTHS),
        ),
        "guards__length_penalty": _of(
            "--length-penalty", help="`penalise`: subtracted for each doubling."
        ),
        "kl_budget": _of(help="KL divergence, in nats, at which training ends; 0: no limit."),
    },
    "How it is evaluated": {
        "truth": _of(
            help="A true reward to compare with: `population`, another reward model's folder, or "
            "`none`. \\[default: population, of its own prompts]",
            show_default=False,
        ),
        "evaluate_every": _of(help="Steps between evaluations."),
        "evaluate_on": _of(help="Prompts held out for evaluation."),
    },
    WRITING: {
        "sampling__temperature": _of("--temperature", help=TEMPERATURE),
        "sampling__top_p": _of("--top-p", help=TOP_P),
        "sampling__max_new_tokens": _of("--max-new-tokens", help=MAX_NEW_TOKENS),
    },
    "What is trained": {
        name: _of(help=help_of(name))
        for name in ("lora_rank", "lora_targets", "lora_layers", "max_tokens")
    },
}


def alignment_parameters() -> list[inspect.Parameter]:
    """A command's parameters for these options, ordered by their panels."""
    return [
        _parameter(name, names, {"rich_help_panel": panel, **declared})
        for panel, options in _OPTIONS.items()
        for name, (names, declared) in options.items()
    ]


def alignment_keywords(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as keywords of the library's ``align``."""
    keywords = {name: value for name, value in given.items() if _BETWEEN not in name}
    for name, default in _VALUES.items():
        prefix = name + _BETWEEN
        fields = {key.removeprefix(prefix): given[key] for key in given if key.startswith(prefix)}
        keywords[name] = type(default)(**fields)
    return keywords


def _parameter(name: str, names: tuple[str, ...], declared: Mapping[str, Any]) -> inspect.Parameter:
    value, _, field = name.rpartition(_BETWEEN)
    default = getattr(_VALUES.get(value, _OWN), field, "")
    kind = Annotated[type(default), Option(*names, **declared)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
