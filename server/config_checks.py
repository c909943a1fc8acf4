"""Which settings no run could use, and the one line that says so.

Values of single options first, then options that have no meaning together.
"""

import math
from typing import TYPE_CHECKING

from murmuration.preference.data.judgements import InputError
from murmuration.preference.data.loading import TASKS
from murmuration.preference.language.base_model import TRAINED
from murmuration.preference.models import MODELS, preference_model
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import LEAST_SHARE
from murmuration.strategies import noise, support
from murmuration.strategies.optimizers import KINDS
from murmuration.strategies.protocol import secure_rounds
from murmuration.strategies.settings import (
    ADAPTATIONS,
    CALIBRATIONS,
    ESTIMATORS,
    FEW_ROUNDS,
    LABEL_WEIGHTS,
    LEVELS,
    SCHEDULES,
    SGD_STEPS,
    STRATEGIES,
    VARIANTS,
)

if TYPE_CHECKING:
    from murmuration.server.config import RunConfig

#: Options about steps and sampling, which have no meaning there.
_ABOUT_STEPS = ("--learning-rate", "--optimizer", "--group-size", "--batch-users")
#: Options about a language model.
_WITH_BASE = (
    "--train",
    "--lora-rank",
    "--lora-targets",
    "--max-tokens",
    "--batch-tokens",
    "--user-memory",
)
_ONLY_FOR = {
    "--sampling-probability": ("els", "group"),
    "--normalized": ("uls", "dp-fedavg", "els", "group"),
    "--local-steps": ("dp-fedavg",),
    "--local-rate": ("dp-fedavg",),
    "--phases": ("aup",),
    "--quantile": ("adaptive", "aup"),
    "--ridge": ("label-moment", "objective-perturbation", "local-label"),
    "--ball": ("label-moment", "objective-perturbation", "local-label"),
    "--estimator": ("local-label",),
    "--level": ("local-label",),
    "--label-weights": ("local-label",),
    "--sgd-steps": ("local-label",),
    "--label-cap": ("local-label",),
    "--label-delta": ("local-label",),
    "--sum-zero": ("local-label",),
    "--calibration": ("objective-perturbation",),
    "--retain": ("uls", "dp-fedavg", "adaptive", "aup", "nonprivate"),
}


def check(config: "RunConfig") -> None:
    """InputError, naming the option, unless a run could be made of these settings."""
    _check_values(config)
    for option, strategies in _ONLY_FOR.items():
        if _value(config, option) and config.strategy not in strategies:
            raise InputError(
                f"{option} is for --strategy {' and '.join(strategies)}, not {config.strategy}"
            )
    for option in _WITH_BASE if not config.base else ():
        if _value(config, option):
            raise InputError(f"{option} is about a language model: name one with --base")
    if config.user_memory and not config.batch_users:
        raise InputError(
            "--user-memory is for --batch-users: else a node keeps the gradient of one user"
        )
    for option in ("--heldout-epsilon", "--exact-heldout"):
        if _value(config, option) and config.test:
            raise InputError(f"{option} is about users held out, and --test holds out nobody")
    if config.heldout_epsilon and config.exact_heldout:
        raise InputError("--exact-heldout adds no noise: leave out --heldout-epsilon")
    _check_task(config)
    if few := FEW_ROUNDS.get(config.strategy):
        _check_few(config, few)
    if config.refresh and not config.users:
        raise InputError(
            "--refresh lets users come and go; state their nominal number with --users, which "
            "fixes the sampling probability for the whole run"
        )
    if config.accept_ledger_loss:
        _check_loss(config)
    schema = config.schema
    if config.task == "reward":
        preference_model(config.model, schema.kind, schema.responses - 1)
    try:
        support.check(config.strategy, Adjacency(config.adjacency))
        noise.check(config)
        if config.secure_aggregation:
            secure_rounds.check(config.strategy, config.variant, Adjacency(config.adjacency))
    except ValueError as error:
        raise InputError(str(error)) from None


def _check_loss(config: "RunConfig") -> None:
    """Whether a run could go on without all of its ledger."""
    if not config.resume:
        raise InputError("--accept-ledger-loss is for a run that is continued with --resume")
    if config.seed >= 0:
        raise InputError(
            "--accept-ledger-loss is for runs without --seed: a seeded one would draw the same "
            "coins and noise again, and only its ledger could tell that it meets the same sums; "
            "repeat it from the start in another --out"
        )


def _value(config: "RunConfig", option: str) -> object:
    return getattr(config, option[2:].replace("-", "_"))


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _check_values(config: "RunConfig") -> None:
    """Each option by itself."""
    checks = [
        (config.strategy in STRATEGIES, "--strategy", f"one of {', '.join(STRATEGIES)}"),
        (config.model in MODELS, "--model", f"one of {', '.join(MODELS)}"),
        (_positive(config.epsilon), "--epsilon", "a positive number"),
        (
            0.0 <= config.delta < 1.0,
            "--delta",
            "between 0 and 1, well below 1 / users, or n^-1.1",
        ),
        (config.adjacency in set(Adjacency), "--adjacency", f"one of {', '.join(Adjacency)}"),
        (config.rounds >= 1, "--rounds", "at least 1"),
        (config.cohort >= 1, "--cohort", "at least 1"),
        (config.users >= 0, "--users", "a positive number"),
        (config.clip == 0 or _positive(config.clip), "--clip", "a positive number"),
        (config.group_size >= 0, "--group-size", "at least 1"),
        (LEAST_SHARE <= config.heldout < 1.0, "--heldout", "a share from 0.0005 to below 1"),
        (
            0.0 <= config.heldout_epsilon <= config.epsilon,
            "--heldout-epsilon",
            "a positive number, at most --epsilon",
        ),
        (config.on_bad_rows in ("refuse", "skip"), "--on-bad-rows", "refuse or skip"),
        (config.optimizer in ("", *KINDS), "--optimizer", f"one of {', '.join(KINDS)}"),
        (config.retain >= 0, "--retain", "at least 1"),
        (
            0.0 <= config.sampling_probability <= 1.0,
            "--sampling-probability",
            "between 0 and 1",
        ),
        (config.variant in VARIANTS, "--variant", f"one of {', '.join(VARIANTS)}"),
        (config.phases >= 0, "--phases", "at least 1"),
        (config.schedule in SCHEDULES, "--schedule", f"one of {', '.join(SCHEDULES)}"),
        (config.local_steps >= 0, "--local-steps", "at least 1"),
        (
            config.local_rate == 0 or _positive(config.local_rate),
            "--local-rate",
            "a positive number",
        ),
        (config.ridge == 0 or _positive(config.ridge), "--ridge", "a positive number"),
        (config.ball == 0 or _positive(config.ball), "--ball", "a positive number"),
        (config.estimator in ("", *ESTIMATORS), "--estimator", f"one of {', '.join(ESTIMATORS)}"),
        (config.level in ("", *LEVELS), "--level", "user or item"),
        (config.label_cap >= 0, "--label-cap", "at least 1"),
        (
            0.0 <= config.label_delta <= (config.delta or config.label_delta),
            "--label-delta",
            "between 0 and --delta, which it is part of",
        ),
        (
            config.label_weights in ("", *LABEL_WEIGHTS),
            "--label-weights",
            f"one of {', '.join(LABEL_WEIGHTS)}",
        ),
        (config.sgd_steps in ("", *SGD_STEPS), "--sgd-steps", f"one of {', '.join(SGD_STEPS)}"),
        (
            config.calibration in ("", *CALIBRATIONS),
            "--calibration",
            f"one of {', '.join(CALIBRATIONS)}",
        ),
        (config.adaptation in ADAPTATIONS, "--adaptation", f"one of {', '.join(ADAPTATIONS)}"),
        (0.0 <= config.quantile < 1.0, "--quantile", "between 0 and 1"),
        (
            config.learning_rate == 0 or _positive(config.learning_rate),
            "--learning-rate",
            "a positive number",
        ),
        (0.0 <= config.momentum < 1.0, "--momentum", "at least 0 and below 1"),
        (0.0 <= config.warmup <= 1.0, "--warmup", "a share of the rounds, 0 to 1"),
        (0.0 <= config.averaging <= 1.0, "--averaging", "a share of the rounds, 0 to 1"),
        (config.seed >= -1, "--seed", "a non-negative integer, or left out"),
        (
            config.honest_nodes == 0 or config.honest_nodes >= 2,
            "--honest-nodes",
            "at least 2",
        ),
        (config.noise in ("", *noise.NOISES), "--noise", f"one of {', '.join(noise.NOISES)}"),
        (
            config.timeout == 0 or _positive(config.timeout),
            "--timeout",
            "a positive number of seconds",
        ),
        (
            0.0 <= config.least_nodes < 1.0
            or (config.least_nodes > 0.0 and config.least_nodes % 1.0 == 0.0),
            "--least-nodes",
            "a number of nodes, or a share of them below 1",
        ),
        (config.refresh >= 0, "--refresh", "at least 0"),
        (config.task in TASKS, "--task", f"one of {', '.join(TASKS)}"),
        (config.train in ("", *TRAINED), "--train", f"one of {', '.join(TRAINED)}"),
        (config.lora_rank >= 0, "--lora-rank", "at least 1"),
        (config.max_tokens >= 0, "--max-tokens", "at least 1"),
        (config.batch_tokens >= 0, "--batch-tokens", "at least 1"),
        (config.user_memory >= 0, "--user-memory", "at least 1"),
    ]
    for good, option, expected in checks:
        if not good:
            raise InputError(f"{option} must be {expected}; got {_value(config, option)!r}")


def _check_task(config: "RunConfig") -> None:
    """Refuse what has no meaning for what is learnt."""
    task = config.task
    if config.as_published and task != "sft":
        raise InputError("--as-published is about --task sft: which responses it learns from")
    if task == "reward":
        return
    if not config.base:
        raise InputError(f"--task {task} trains a language model: name one with --base")
    if config.train == "head":
        raise InputError(
            f"--task {task} has no head of its own to train: use --train lora (the default) or full"
        )
    if task == "text" and (config.kind != "pairs" or config.responses or config.labels != "true"):
        raise InputError(
            "--kind, --responses and --labels are about judgements; --task text reads none"
        )
    if config.strategy in FEW_ROUNDS:
        raise InputError(
            f"--strategy {config.strategy} learns a reward from labels: for --task {task} use uls, "
            "or another that takes steps"
        )
    if config.model != "btl":
        raise InputError(
            f"--model {config.model} is a model of preferences, and --task {task} has none to "
            "model; leave it out"
        )
    if config.adjacency == Adjacency.REPLACE_LABELS and not config.as_published:
        raise InputError(
            f"--adjacency replace-labels: --task {task} looks at no label, so nothing is released "
            "about one, and noise would protect nothing; protect what people wrote: add-remove, "
            "zero-out or replace"
        )


def _check_few(config: "RunConfig", few: tuple[int, ...]) -> None:
    """Refuse what has no meaning where the model is solved for."""
    if config.rounds not in few:
        raise InputError(
            f"--strategy {config.strategy} solves for the model in {' or '.join(map(str, few))} "
            f"rounds, not {config.rounds}; leave out --rounds, or set it to {few[0]}"
        )
    if config.refresh:
        raise InputError(
            f"--refresh has no meaning for --strategy {config.strategy}, whose users are fixed "
            "when it starts; leave it out"
        )
    for option in _ABOUT_STEPS:
        if _value(config, option):
            raise InputError(
                f"{option} has no meaning for --strategy {config.strategy}, which solves for the "
                "model from all judgements at once; leave it out"
            )
