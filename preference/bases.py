"""What is learnt on, by its description: features with a linear head, or a language model.

One description (a JSON-able dictionary with its `kind`) travels to nodes and into saved models,
and decides on both sides what users' judgements or texts are turned into.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.features.hashing import FeatureMap, feature_map
from murmuration.preference.language.base_model import KIND, LanguageBase, language_base
from murmuration.preference.language.batch_size import fitting_batch
from murmuration.preference.language.examples import (
    LanguageExamples,
    TokenExamples,
    token_examples,
)
from murmuration.preference.language.next_tokens import NextTokens, own_texts, responses
from murmuration.preference.language.policies import PolicyExamples, policy_examples
from murmuration.preference.language.policy_class import KIND as CLASS
from murmuration.preference.language.policy_class import (
    ClassExamples,
    PolicyClass,
    class_examples,
    policy_class,
)
from murmuration.preference.language.reference_cache import References
from murmuration.preference.language.tokens import Tokens
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.preference.models import PreferenceModel
from murmuration.preference.reward import Accuracy, accuracy_of

_TRIAL_TOKENS = 48  # of the longest text on which gradients are compared

_OF_JUDGEMENTS = {"reward": token_examples, "sft": responses, "policy": policy_examples}

Base = FeatureMap | LanguageBase | PolicyClass
Examples = PairExamples | TokenExamples | NextTokens | ClassExamples


def base_of(config: Mapping[str, Any], weights: bool = True) -> Base:
    """The feature map, language model or class of policies that a config describes.

    Without ``weights`` a language model that is trained has names, shapes and tokens alone, and so
    has a class of policies.

    Raises:
        InputError: an unknown kind or argument, or a model that cannot be loaded.
    """
    if config.get("kind") == CLASS:
        return policy_class(config, weights)
    return language_base(config, weights) if config.get("kind") == KIND else feature_map(config)


def examples_of(data: Data, base: Base, left_out: LeftOut | None = None) -> Examples:
    """Users' data as what gradients are computed from.

    With ``left_out`` it takes what cannot be used: rows whose features are not finite, or whose
    texts do not fit. Their users stay.

    Raises:
        InputError: they are not of the kind that the base's task reads; or something cannot be used
            (names the row) and there is nothing to take it.
    """
    task = base.settings.task if isinstance(base, LanguageBase | PolicyClass) else "reward"
    if isinstance(data, UserTexts) != (task == "text"):
        there = "texts" if isinstance(data, UserTexts) else "judgements"
        raise InputError(f"--task {task} is not for users' {there}")
    if isinstance(data, UserTexts):
        assert isinstance(base, LanguageBase)  # or the task would be another
        return own_texts(data, base, left_out)
    if isinstance(base, PolicyClass):
        return class_examples(data, base, left_out)
    if not isinstance(base, LanguageBase):
        return pair_examples(data, base, left_out)
    return _OF_JUDGEMENTS[task](data, base, left_out)


def accuracy_at(theta_D: np.ndarray, examples: Examples) -> Accuracy:
    """How a model does on examples: `preference.reward.accuracy_of`, or `NextTokens.accuracy`."""
    if isinstance(examples, NextTokens):
        return examples.accuracy(torch.from_numpy(np.array(theta_D, dtype=np.float32)))
    return accuracy_of(theta_D, examples)


def largest_examples(base: Base, schema: Schema, users: int, each: int) -> Examples:
    """Made-up users with ``each`` judgements (or texts), all different, as large as any can be.

    They depend on public limits only: what is tried out on them tells of nobody.
    """
    rows = users * each
    start_U = np.arange(0, rows + 1, each)
    if not isinstance(base, LanguageBase):
        width = schema.responses - 1
        x_RD = torch.randn(rows * width, base.dimension, generator=torch.Generator().manual_seed(0))
        y_R = torch.ones(rows * width)
        return PairExamples(x_RD, y_R, torch.from_numpy(start_U), width, kind=schema.kind)
    # A word is a token at least. Of what is too long the front is cut off, or another window made.
    long = "word " * base.settings.max_tokens
    names = tuple(str(user) for user in range(users))
    texts = [f"{long}{row}" for row in range(rows)]
    if base.settings.task == "text":
        return examples_of(UserTexts(names, start_U, texts), base)
    responses = [tuple(f"{place}" for place in range(schema.responses)) for _ in range(rows)]
    y_R = np.ones(rows, dtype=np.float32)
    judgements = Judgements(
        names,
        start_U,
        texts,
        responses,
        y_R,
        kind=schema.kind,
        most_responses=schema.responses,
    )
    examples = examples_of(judgements, base)
    if isinstance(examples, PolicyExamples):  # whose reference is tried out with the rest
        return replace(examples, kept=References())
    return examples


def trial_examples(base: LanguageBase, schema: Schema) -> LanguageExamples:
    """Two made-up users of a language model with two examples each, of random tokens.

    All texts are of different lengths, those of one example, too.
    """
    users, each = 2, 2
    width = 1 if base.settings.task == "text" else schema.responses
    text_JK = np.arange(users * each * width).reshape(users * each, width)
    longest = max(2, min(base.texts.limit, _TRIAL_TOKENS))
    generator = np.random.default_rng(0)
    lengths_T = generator.permutation(np.linspace(2, longest, text_JK.size).astype(np.int64))
    words = np.delete(np.arange(len(base.tokenizer)), base.tokenizer.pad_token_id)
    tokens = Tokens(
        ids=torch.from_numpy(generator.choice(words, int(lengths_T.sum()))),
        start_T=np.concatenate([[0], np.cumsum(lengths_T)]),
        second_T=lengths_T // 2,
        cut=0,
    )
    start_U = torch.arange(users + 1) * each
    if base.settings.task != "reward":
        return NextTokens(base, tokens, text_JK, start_U)
    y_R = torch.ones(users * each * (width - 1))
    return TokenExamples(base, tokens, text_JK, start_U, y_R, kind=schema.kind)


def in_fitting_batches(base: LanguageBase, schema: Schema, model: PreferenceModel) -> LanguageBase:
    """The base at as many tokens at a time as fit here, measured, where nobody said how many.

    Raises:
        InputError: not even one or two texts do.
    """
    if base.settings.batch_tokens:
        return base
    small, large = (longest_examples(base, schema, most) for most in (1, 2))
    return base.in_batches(fitting_batch(small, large, model))


def largest_batch(base: LanguageBase, schema: Schema, group_size: int = 0) -> LanguageExamples:
    """One made-up user whose examples fill a batch, as far as ``group_size`` lets them (0: any)."""
    texts = 1 if base.settings.task == "text" else schema.responses
    filling = max(1, base.batch_tokens // (texts * base.texts.limit))
    return longest_examples(base, schema, min(filling, group_size or filling))


def longest_examples(base: LanguageBase, schema: Schema, most: int) -> LanguageExamples:
    """One made-up user with so many examples, all as long as they can be."""
    examples = largest_examples(base, schema, 1, most)
    assert isinstance(examples, LanguageExamples)  # of a language model there are no others
    if base.settings.task == "text":  # of which a long one makes several examples
        return replace(examples, text_JK=examples.text_JK[:most], start_U=torch.tensor([0, most]))
    return examples
