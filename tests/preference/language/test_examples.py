"""What is the same of all examples in tokens: chunks, batches, choices of users, the first look."""

import numpy as np
import pytest
import torch

from murmuration.preference.bases import examples_of
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.language.base_model import BaseSettings, LanguageBase
from murmuration.preference.models import preference_model

BTL = preference_model("btl")


@pytest.fixture
def made(language_model, make_rows):
    def make(task="sft", train="full", counts=(3, 1, 2), **settings):
        base = LanguageBase(BaseSettings(language_model("gpt2"), train, task=task, **settings))
        return examples_of(Judgements.from_rows(make_rows(list(counts))), base)

    return make


@pytest.mark.parametrize("task", ["reward", "sft"])
def test_some_users_are_those_users(made, task):
    examples = made(task)
    chosen = examples.select(np.array([2, 0]))
    assert type(chosen) is type(examples)
    assert chosen.counts_U.tolist() == [2, 3]
    np.testing.assert_array_equal(
        chosen.text_JK, np.concatenate([examples.text_JK[4:], examples.text_JK[:3]])
    )
    assert examples.select(np.array([], dtype=np.int64)).counts_U.tolist() == []


def test_what_is_used_outside_its_layer_is_found_before_the_first_round(made):
    examples = made()
    examples.check(BTL)
    network = examples.base.model
    forward = network.forward

    def elsewhere(**inputs):
        out = forward(**inputs)
        out.logits = out.logits + network.transformer.ln_f.weight.sum() * out.logits.tanh()
        return out

    network.forward = elsewhere
    with pytest.raises(InputError, match=r"'transformer.ln_f.weight' is used outside its own"):
        examples.check(BTL)
    network.forward = forward
    examples.check(BTL)
    assert not any(p.requires_grad or p.grad is not None for p in examples.base.trained)


def test_a_node_without_users_has_nothing_to_look_at(made):
    examples = made().select(np.array([], dtype=np.int64))
    examples.check(BTL)
    none = torch.zeros(0, dtype=torch.int64)
    found = examples.sum_over_users(
        torch.zeros(examples.dimension), none, none, lambda g: g.sum(0), BTL
    )
    assert not found.any()
