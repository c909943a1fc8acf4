"""Models by their configs: the one place that names the kinds of models.

Other rooms bring more, by kind and task (`privacy.plugins`).

One description (a JSON-able dictionary with its `kind`) travels to nodes and into saved models,
and decides on both sides what users' judgements or texts are turned into.
"""

from collections.abc import Mapping
from typing import Any

from murmuration.preference.data.errors import InputError
from murmuration.preference.kinds.language_head import LanguageHeadModel
from murmuration.preference.kinds.language_reward import LanguageRewardModel
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.kinds.model import Model
from murmuration.preference.kinds.next_token import ResponsesModel, TextsModel
from murmuration.preference.kinds.policy import PolicyModel
from murmuration.privacy.plugins import brought

#: By a description's kind and task: what loads it.
KINDS = {
    ("hashing", "reward"): LinearModel,
    ("encoder", "reward"): LinearModel,
    ("language-states", "reward"): LinearModel,
    ("language-head", "reward"): LanguageHeadModel,
    ("language-model", "reward"): LanguageRewardModel,
    ("language-model", "text"): TextsModel,
    ("language-model", "sft"): ResponsesModel,
    ("language-model", "policy"): PolicyModel,
}


def base_of(config: Mapping[str, Any], weights: bool = True) -> Model:
    """The model that a config describes.

    Args:
        config: as of `Model.to_config`.
        weights: False for names, shapes and tokens alone of language models.

    Raises:
        InputError: an unknown kind or argument, or a model that cannot be loaded.
    """
    kind, task = str(config.get("kind")), str(config.get("task", "reward"))
    if brings := brought("murmuration.models").get(f"{kind} {task}"):
        return brings.load().load(config, weights)
    if (kind, task) not in KINDS:
        known = ", ".join(dict.fromkeys(name for name, its in KINDS if its == task))
        raise InputError(f"nothing of kind {kind!r} learns --task {task}: known kinds are {known}")
    return KINDS[kind, task].load(config, weights)
