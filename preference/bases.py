"""What a reward is learnt on, by its description: features with a linear head, or a language model.

One description (a JSON-able dictionary with its `kind`) travels to nodes and into saved models,
and decides on both sides what judgements are turned into.
"""

from collections.abc import Mapping
from typing import Any

from preference.examples import PairExamples, pair_examples
from preference.features import FeatureMap, feature_map
from preference.judgements import Judgements
from preference.language_base import KIND, LanguageBase, language_base
from preference.token_examples import TokenExamples, token_examples

Base = FeatureMap | LanguageBase
Examples = PairExamples | TokenExamples


def base_of(config: Mapping[str, Any]) -> Base:
    """The feature map or language model that a config describes.

    Raises:
        InputError: an unknown kind or argument, or a model that cannot be loaded.
    """
    return language_base(config) if config.get("kind") == KIND else feature_map(config)


def examples_of(judgements: Judgements, base: Base) -> Examples:
    """Judgements as what gradients are computed from.

    Raises:
        InputError: features are not finite, or a text does not fit (names the row).
    """
    if isinstance(base, LanguageBase):
        return token_examples(judgements, base)
    return pair_examples(judgements, base)
