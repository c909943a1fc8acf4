"""What suits a crowd of a given size."""

import pytest

from murmuration.planning import advice
from murmuration.preference.data.rows import InputError


@pytest.mark.parametrize(
    ("people", "epsilon", "name"),
    [(100, 8.0, "minilm"), (500, 3.0, "minilm"), (1000, 3.0, "minilm"), (2700, 1.0, "minilm"),
     (2700, 3.0, "hashing"), (2700, 8.0, "hashing"), (50_000, 1.0, "hashing")],
)  # fmt: skip
def test_an_encoder_for_few_people_and_small_budgets(people, epsilon, name):
    """As it was measured."""
    assert advice.features_for(people, epsilon).name == name


def test_more_people_or_budget_never_ask_for_an_encoder_again():
    names = [advice.features_for(people, 1.0).name for people in range(100, 30_000, 100)]
    assert names == sorted(names, reverse=True) and len(set(names)) == 2


@pytest.mark.parametrize("users", [1, 9, 171, 10_000, 10_001, 2_345_678])
def test_delta_is_well_below_one_over_users(users):
    delta = advice.delta_for(users)
    assert delta <= min(1e-5, 0.1 / users)
    assert delta == 1e-5 or delta * 10 > 0.1 / users  # not smaller than it need be


def test_round_figures():
    found = [advice.round_figure(users) for users in (0, 1, 99, 137, 1742, 45_678)]
    assert found == [1, 1, 100, 140, 1700, 46_000]


def test_a_small_number_is_rounded_too():
    assert [advice.round_figure(users) for users in (4, 8, 11, 28, 81)] == [5, 10, 10, 30, 80]


def test_features_work_where_they_can_be_loaded(monkeypatch):
    assert advice.works("hashing") and advice.works("hashing:64")
    assert not advice.works("./no-such-folder")

    def not_there(config):
        raise InputError("no weights")

    monkeypatch.setattr("murmuration.preference.features.hashing.feature_map", not_there)
    assert not advice.works("hashing")
    monkeypatch.undo()
    monkeypatch.setattr("murmuration.preference.language.checkpoint.has_minilm", lambda: False)
    assert not advice.works("minilm")


@pytest.mark.parametrize(("words", "rate"), [(10, 182), (25, 98), (60, 44), (150, 20)])
def test_encoding_takes_what_was_measured(words, rate):
    """docs/research/benchmarks.md, Encoders."""
    assert 1000 / 60 / advice.encoding_minutes(1000, words) == pytest.approx(rate, rel=0.15)
