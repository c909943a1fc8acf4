"""Figures 9 and 10 of Charles et al. 2024: heavy tails, equal rounds, regrets and the rule."""

import numpy as np
import pytest

from murmuration.research.reproductions.uls import median_rule, personal
from murmuration.research.reproductions.uls.median_rule import MEDIAN, Sizes, Users
from murmuration.strategies.settings.own import ElsSettings

SMALL = Sizes(users=60, test_users=40, dimension=3, rounds=6, batch=50)
TRUTH_D = np.array([2.0, 0.0, 0.0])


def test_users_have_a_heavy_tail_about_the_median():
    users = Users.draw(0, 4000, 0.0, TRUTH_D, 128)
    assert abs(np.median(users.counts_U) - MEDIAN) <= 1
    assert users.counts_U.max() > 10 * MEDIAN and users.counts_U.min() == 1
    assert len(users.x_JD) == users.counts_U.sum() == len(users.examples().y_R)


def test_loss_counts_users_alike():
    two = Users(np.array([[1.0], [1.0], [1.0], [-1.0]]), np.array([3, 1]))
    theta_D = np.array([1.0])
    expected = (np.log1p(np.exp(-1.0)) + np.log1p(np.exp(1.0))) / 2
    assert two.loss(theta_D) == pytest.approx(expected)


def test_a_round_has_as_many_judgements_at_every_group_size():
    users = Users.draw(0, 2000, 0.0, TRUTH_D, 128)
    for group_size in median_rule.GROUP_SIZES:
        config = median_rule.settings(3.0, group_size, Sizes(), users.counts_U)
        number = np.minimum(users.counts_U, group_size).sum()
        share = config.of(ElsSettings).sampling_probability
        assert share * number == pytest.approx(1600)
        assert config.group_size == group_size


def test_rows_have_regrets_against_the_best_and_the_rule_is_applied(monkeypatch):
    monkeypatch.setattr(personal, "CLIPS", (1.0,))
    monkeypatch.setattr(personal, "RATES", (1.0, 0.5))
    rows = median_rule.median_rule(
        sizes=SMALL, group_sizes=(1, MEDIAN), deviations=(0.0,), epsilons=(8.0,), seeds=2
    )
    one, median, verdict = rows
    assert min(one["regret_mean"], median["regret_mean"]) == 0.0
    worst = max(one["loss_mean"], median["loss_mean"]) - min(one["loss_mean"], median["loss_mean"])
    assert verdict["worst_regret_mean"] == pytest.approx(worst)
    assert verdict["median_regret_mean"] == pytest.approx(median["regret_mean"])
    assert verdict["median_regret_interval"] == pytest.approx(median["regret_interval"])
    assert {verdict["best"], verdict["worst"]} == {1, MEDIAN}


@pytest.mark.parametrize(
    ("own", "verdict"),
    [
        ([0.0, 0.1, 0.0], "agrees"),  # of the worst's regret, a fifth of which is 0.2
        ([0.5, 0.6, 0.5], "DOES NOT AGREE"),
        ([0.0, 0.0, 0.5], "cannot be told"),
    ],
)
def test_the_rule_looks_at_the_interval(monkeypatch, own, verdict):
    losses = [{(1.0, 4): 1.0, (1.0, MEDIAN): 1.0 + each, (1.0, 1): 2.0} for each in own]
    monkeypatch.setattr(median_rule, "in_processes", lambda *given: iter(losses))
    rows = median_rule.median_rule(
        group_sizes=(1, 4, MEDIAN), deviations=(0.0,), epsilons=(1.0,), seeds=3
    )
    assert (rows[-1]["best"], rows[-1]["worst"], rows[-1]["verdict"]) == (4, 1, verdict)
    (words,) = median_rule.remarks(rows)
    assert f"the worst, 1, 1.0000 ± 0.0000: {verdict}" in words


def test_one_seed_has_no_interval(monkeypatch):
    monkeypatch.setattr(
        median_rule, "in_processes", lambda *given: iter([{(1.0, 1): 1.0, (1.0, MEDIAN): 0.5}])
    )
    rows = median_rule.median_rule(
        group_sizes=(1, MEDIAN), deviations=(0.0,), epsilons=(1.0,), seeds=1
    )
    assert rows[-1]["verdict"] == "cannot be told"
    assert "±" not in median_rule.remarks(rows)[0]
