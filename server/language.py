"""What a run's settings say about a language model, and how such a model is stepped."""

from typing import Any

from preference.features import parse_features
from preference.judgements import InputError
from preference.language_base import KIND, BaseSettings
from preference.language_head import KIND as HEAD
from preference.language_loading import resolve_base
from server.choices import FEW_ROUNDS
from server.config import RunConfig

#: Adam's step by what is trained. θ starts at zero and is measured in the parameters' own units,
#: so features' scale says nothing about it; at these rates a hundred rounds of noise alone move a
#: reward little.
RATES = {"lora": 1e-2, "full": 1e-3}


def base_config(config: RunConfig) -> dict[str, Any]:
    """The description of what is learnt on, for `preference.bases.base_of`.

    Raises:
        InputError: settings that do not go together, or a folder that is not there.
    """
    given = {
        "train": config.train,
        "rank": config.lora_rank,
        "targets": config.lora_targets,
        "max_tokens": config.max_tokens,
        "batch_tokens": config.batch_tokens,
        "memory": config.user_memory,
        "task": config.task,
        "as_published": config.as_published,
    }
    if not config.base:
        return parse_features(config.features)
    if config.features != "hashing":
        raise InputError("--features are for a linear head: leave them out, or --base")
    chosen = {name: value for name, value in given.items() if value}
    settings = BaseSettings(path=resolve_base(config.base), **chosen)
    if settings.train == "head":
        shaping = ("path", "max_tokens", "batch_tokens")
        return {"kind": HEAD, **{name: getattr(settings, name) for name in shaping}}
    if config.strategy in FEW_ROUNDS:
        raise InputError(
            f"--strategy {config.strategy} solves for a linear head: with --base, --train head"
        )
    return {"kind": KIND, **vars(settings)}


def trains_layers(config: RunConfig) -> bool:
    """Whether more than a linear head is trained."""
    return bool(config.base) and config.train != "head"
