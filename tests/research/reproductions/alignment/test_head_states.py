"""Which states a reward reads: pooled as plain transformers have them, and compared fairly."""

import numpy as np
import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.loading import load_causal
from murmuration.preference.language.tokens import TextTokens
from murmuration.research.reproductions.alignment import head_states
from murmuration.research.reproductions.alignment.head_states import (
    FORMS,
    Table,
    formed,
    pooled_states,
)

PAIRS = [
    ("what now ?", "save it"),
    ("loan ?", "spend it or keep the old one , save it"),
    ("loan ?", ""),
]


def test_states_are_those_of_each_text_alone(language_model):
    path = str(language_model("llama"))
    states, layers = pooled_states(path, PAIRS, (1, 2, 99))
    assert layers == [1, 2]
    tokenizer, model = load_causal(path)
    texts = TextTokens(tokenizer, 64)
    for at, pair in enumerate(PAIRS):
        whole = texts.whole(*([one] for one in pair))[0]
        ids = tokenizer(whole, add_special_tokens=not texts.chat)["input_ids"]
        with torch.no_grad():
            body = model.base_model
            behind = body(torch.tensor([ids]), output_hidden_states=True).hidden_states
        for layer, states_LD in ((1, body.norm(behind[1])[0]), (2, behind[2][0])):
            for pooling, state_D in (("mean", states_LD.mean(0)), ("last", states_LD[-1])):
                there_D = states[layer, pooling][at]
                np.testing.assert_allclose(there_D, state_D.detach(), atol=2e-5)


def test_forms_of_states():
    generator = np.random.default_rng(0)
    mixed_DD = generator.standard_normal((6, 6))
    states_TD = generator.standard_normal((500, 6)) @ mixed_DD + 9.0
    hashed_TD = np.eye(3)[generator.integers(0, 3, 500)]
    by = {form: formed(states_TD, form, 400, 450, hashed_TD) for form in FORMS}
    np.testing.assert_allclose(by["as they are"] * np.sqrt(6), states_TD)
    for form in FORMS[1:]:
        np.testing.assert_allclose(np.linalg.norm(by[form], axis=1), 1.0)
    away_TD = states_TD - states_TD[:400].mean(0)
    cosine_T = (by["centred"] * away_TD).sum(1) / np.linalg.norm(away_TD, axis=1)
    np.testing.assert_allclose(cosine_T, 1.0)
    np.testing.assert_allclose(by["with hashed words"][:, 6:] * np.sqrt(2), hashed_TD)

    def roundness(form):
        values_D = np.linalg.eigvalsh(np.cov(by[form].T))
        return values_D[0] / values_D[-1]

    assert roundness("whitened") > 2 * roundness("centred")


def test_only_public_texts_decide_how_a_text_is_read():
    """Who judged what moves no other text's features: centre and covariance are of public ones."""
    generator = np.random.default_rng(1)
    states_TD, hashed_TD = generator.standard_normal((20, 4)), np.ones((20, 1))
    changed_TD = states_TD.copy()
    changed_TD[-1] += 100.0
    for form in FORMS:
        before_TD = formed(states_TD, form, 5, 10, hashed_TD)
        np.testing.assert_array_equal(
            before_TD[:-1], formed(changed_TD, form, 5, 10, hashed_TD)[:-1]
        )


def test_a_table_has_each_pair_of_prompt_and_response():
    table = Table({("a", "x"): 0, ("b", "x"): 1}, np.array([[1.0], [2.0]]))
    assert table(["b", "a"], ["x", "x"]).tolist() == [[2.0], [1.0]]
    assert table.dimension == 1 and table.uses_prompt


def test_the_best_layer_is_named():
    rows = [
        {
            "layer": layer,
            "pooling": "mean",
            "form": "centred",
            "epsilon": epsilon,
            "accuracy_mean": a,
        }
        for layer, a in ((6, 0.6), (18, 0.7), (30, 0.65))
        for epsilon in (3.0, None)
    ]
    private, free = head_states.remarks(rows)
    assert "at ε = 3: layer 18, mean, centred, 70.0%" in private
    assert "without privacy: layer 18" in free and "1 ways are within a point" in free
    panels = head_states.plot(rows).axes
    assert [axes.get_title() for axes in panels] == ["ε = 3", "no privacy"]


def test_people_are_needed():
    with pytest.raises(InputError, match="--data, a file of judgements"):
        head_states.head_states(quick=False)


@pytest.mark.slow
def test_the_quick_form():
    rows = head_states.head_states(quick=True).rows
    assert len(rows) == 2 * 2 * 4 * 2
    assert all(0.3 < row["accuracy_mean"] < 0.95 for row in rows)
