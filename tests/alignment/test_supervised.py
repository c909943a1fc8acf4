"""Learning demonstrations: what is learnt, in which steps, and what goes on after a kill."""

import math

import numpy as np
import pytest
from language_models import ROUNDING, assert_equal_but_for_roundings, noted_gradients

from murmuration.alignment import supervised
from murmuration.alignment.supervised import Supervised, supervise
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.likelihood import SavedLikelihood

pytest.importorskip("peft")

ROWS = [
    ("what now ?", "save it"),
    ("loan ?", "put some aside first"),
    ("bet ?", "keep the old one"),
]


@pytest.fixture
def base(language_model):
    return LanguageBase(
        BaseSettings(str(language_model("llama")), task="sft", rank=4, targets="all-linear")
    )


def likelihood(base):
    prompts, answers = map(list, zip(*ROWS, strict=True))
    scores = SavedLikelihood(base.model, base.texts).score(prompts, answers)
    return -scores.sum() / sum(
        len(answer.split()) + 1 for answer in answers
    )  # ends are learnt, too


def test_answers_and_their_ends_become_likelier(base, tmp_path):
    before, told = likelihood(base), []
    how = Supervised("x", epochs=30, batch=2, rate=0.3)
    theta_D, loss = supervise(
        base, ROWS, how, 0, tmp_path / "state", progress=lambda *at: told.append(at)
    )
    after = likelihood(base)
    assert after < before / 3
    assert loss == pytest.approx(after, rel=0.5)
    assert told == [(step + 1, 60) for step in range(60)]
    np.testing.assert_allclose(base.theta(), theta_D, atol=1e-4)


def test_the_loss_is_the_mean_over_the_answers_tokens(base, tmp_path):
    before = likelihood(base)
    how = Supervised("x", batch=3, rate=1e-9)
    assert supervise(base, ROWS, how, 0, tmp_path / "state")[1] == pytest.approx(before, rel=1e-4)


def gradients(base, how, state, monkeypatch):
    """Return each step's gradient, and the last pass's loss."""
    with monkeypatch.context() as patch:
        noted = noted_gradients(patch, supervised)
        return noted, supervise(base, ROWS, how, 0, state)[1]


def test_what_is_computed_at_a_time_does_not_matter(base, tmp_path, monkeypatch):
    how = Supervised("x", epochs=3, batch=3)
    whole, loss = gradients(base, how, tmp_path / "one", monkeypatch)
    base.batch_tokens = 1
    parts, again = gradients(base, how, tmp_path / "other", monkeypatch)
    assert_equal_but_for_roundings(parts, whole)
    assert again == pytest.approx(loss, rel=ROUNDING)


def test_the_last_layer_alone_learns_from_states_that_are_kept(
    language_model, tmp_path, monkeypatch
):
    """The same as through all layers, which are gone through once for each text."""
    path, how = str(language_model("llama")), Supervised("x", epochs=20, batch=3)
    last = LanguageBase(BaseSettings(path, task="sft", rank=4, layers="last:1"))
    calls = []
    below = last.model.get_base_model().model.layers[0].mlp
    below.register_forward_hook(lambda *_: calls.append(1))
    once, loss = gradients(last, how, tmp_path / "kept", monkeypatch)
    assert 0 < len(calls) < 10
    last.lower = None
    plain, again = gradients(last, how, tmp_path / "plain", monkeypatch)
    assert len(calls) > 20
    assert_equal_but_for_roundings(once, plain)
    assert again == pytest.approx(loss, rel=ROUNDING)


def test_killed_after_a_pass_it_comes_to_the_same(base, tmp_path):
    how = Supervised("x", epochs=4, batch=2)
    whole, loss = supervise(base, ROWS, how, 1, tmp_path / "whole")

    def killed(done, of):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervise(base, ROWS, how, 1, tmp_path / "parts", progress=killed)
    told = []
    parts, again = supervise(
        base, ROWS, how, 1, tmp_path / "parts", progress=lambda *at: told.append(at[0])
    )
    assert told == [5, 6, 7, 8]
    np.testing.assert_allclose(parts, whole, atol=1e-5)
    assert again == pytest.approx(loss)


def test_an_answer_that_does_not_fit_is_named(base, tmp_path):
    with pytest.raises(InputError, match="--sft x: row 2: a response of"):
        supervise(base, [ROWS[0], ("a", "save " * 400)], Supervised("x"), 0, tmp_path / "state")


def test_a_step_that_is_not_finite_is_told(base, tmp_path):
    with pytest.raises(InputError, match="--sft-learning-rate"):
        supervise(base, ROWS, Supervised("x", epochs=3, batch=1, rate=1e30), 0, tmp_path / "state")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": 0}, "--sft-epochs"),
        ({"batch": 0}, "--sft-batch-size"),
        ({"rate": math.inf}, "--sft-learning-rate"),
    ],
)
def test_values_out_of_range(given, said):
    with pytest.raises(InputError, match=said):
        Supervised("x", **given)
