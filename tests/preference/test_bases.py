"""From a description to what gradients are computed from."""

import pytest

from murmuration.preference.bases import base_of
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.language.examples import TokenExamples
from murmuration.preference.linear.examples import PairExamples


def test_features_make_differences(make_rows):
    base = base_of(HashingFeatures(dimension=7).to_config())
    found = base.examples(Judgements.from_rows(make_rows([2])))
    assert isinstance(found, PairExamples)
    assert found.dimension == 7


def test_a_language_model_makes_tokens(make_rows, language_model):
    base = base_of({"kind": "language-model", "path": language_model("gpt2"), "rank": 2})
    found = base.examples(Judgements.from_rows(make_rows([2])))
    assert isinstance(found, TokenExamples)
    assert found.dimension == base.dimension


def test_an_unknown_kind():
    with pytest.raises(InputError, match="kind 'x'"):
        base_of({"kind": "x"})
