"""Corrupted labels of pairs about money: what is drawn, what is compared, what rows say."""

import contextlib

import numpy as np
import pytest
from scipy import stats

from murmuration.research.reproductions.policies import finance_ctl_ltc as finance
from murmuration.research.reproductions.policies.written import Won
from murmuration.sims.population.reading import read, topic_of
from murmuration.sims.population.topics import MONEY_TOPICS


def test_the_better_response_is_the_cautious_one_on_a_question_about_money():
    pairs = finance.finance_pairs(200, 3)
    assert 70 < pairs.first_J.sum() < 130
    for prompt, shown, first in zip(pairs.prompts, pairs.responses, pairs.first_J, strict=True):
        topic = topic_of(prompt)
        assert topic in MONEY_TOPICS
        better, worse = (read(topic, text).axes for text in (shown if first else shown[::-1]))
        assert better[0] < 0 < worse[0]


def test_prompts_and_pairs_are_drawn_apart_and_by_seed():
    assert finance.finance_pairs(50, 1).prompts == finance.finance_pairs(50, 1).prompts
    assert finance.finance_pairs(50, 1).prompts != finance.finance_pairs(50, 2).prompts
    asked = finance.finance_prompts(50, 1)
    assert asked == finance.finance_prompts(50, 1)
    assert len(set(asked)) > 25
    assert not set(asked) & set(finance.finance_pairs(finance.PAIRS, 1).prompts)


def test_four_policies_of_a_seed_have_the_same_pairs_and_coins(monkeypatch):
    told = []

    class Contest:
        def __init__(self, path, pairs, prompts, weights, seed):
            assert (path, len(prompts), weights, seed) == ("base", 7, (-1.0, 0.0, 0.0), 4)
            self.pairs = pairs

        def won(self, loss, stated_J, flip, step):
            assert step == {"chipo": 0.1, "square-chipo": 0.05}[loss]
            told.append((loss, stated_J, flip))
            return Won(0.5, 0.0)

    monkeypatch.setattr(finance, "Contest", Contest)
    won = finance.one_seed(("base", 4, 4000, 7, {"χPO": 0.1, "Square-χPO": 0.05}))
    assert [*won] == [*finance.PUBLISHED]
    truth_J = finance.finance_pairs(4000, 4).first_J
    (_, ctl_J, flip), (_, also_ctl_J, _), (_, ltc_J, _), (_, also_ltc_J, _) = told
    assert [name for name, _, _ in told] == ["chipo", "square-chipo"] * 2
    np.testing.assert_array_equal(ltc_J, also_ltc_J)
    assert flip == pytest.approx(1 / (1 + np.exp(0.5)))
    np.testing.assert_array_equal(ctl_J, also_ctl_J)
    assert (ctl_J == ltc_J).mean() > 0.85  # where no corruption hit, by the same coins
    # Appendix E's mask: set to one before or after it is flipped.
    coin = 1 / (1 + np.exp(0.5))
    assert (ctl_J != truth_J).mean() == pytest.approx(0.1 * (1 - coin) + 0.9 * coin, abs=0.03)
    assert (ltc_J != truth_J).mean() == pytest.approx(0.1 + 0.9 * coin, abs=0.03)


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    shift = {("CTL", "χPO"): 0.10, ("CTL", "Square-χPO"): 0.10, ("LTC", "χPO"): 0.05,
             ("LTC", "Square-χPO"): 0.0}  # fmt: skip
    found = []
    for _ in range(20):
        common = generator.normal(0.5, 0.05)
        found.append(
            {cell: Won(common + up + generator.normal(0, 0.005), 0.1) for cell, up in shift.items()}
        )
    return finance.table(found, {"χPO": 0.1, "Square-χPO": 0.05}), found


def test_each_loss_has_the_step_that_wins_most_on_other_seeds():
    trials = [("base", seed, 9, 9, dict.fromkeys(finance.LOSSES, step))
              for step in (0.1, 0.3) for seed in (1, 2)]  # fmt: skip
    wins = {"χPO": (0.5, 0.5, 0.6, 0.5), "Square-χPO": (0.6, 0.6, 0.9, 0.1)}
    tried = [
        {(setting, loss): Won(wins[loss][place], 0.0)
         for setting in finance.SETTINGS for loss in finance.LOSSES}
        for place in range(4)
    ]  # fmt: skip
    rows = finance.tuning(trials, tried)
    chosen = {row["loss"]: row["step"] for row in rows if row["chosen"]}
    assert chosen == {"χPO": 0.3, "Square-χPO": 0.1}
    assert len(rows) == 4 and rows[1]["tuned_win_rate"] == pytest.approx(0.55)


def test_steps_are_chosen_on_seeds_that_are_not_judged(monkeypatch):
    tasks = []

    def one_seed(task):
        tasks.append(task)
        return {cell: Won(0.5, 0.0) for cell in finance.PUBLISHED}

    monkeypatch.setattr(finance, "in_processes", lambda _, tasks: map(one_seed, tasks))
    monkeypatch.setattr(finance, "reference", lambda texts: contextlib.nullcontext("base"))
    rows = finance.finance_ctl_ltc(seeds=4, tuning_seeds=2)
    tuned = {task[1] for task in tasks[: 2 * len(finance.STEPS)]}
    judged = {task[1] for task in tasks[2 * len(finance.STEPS) :]}
    assert len(tuned) == 2 and len(judged) == 4 and not tuned & judged
    assert sum("tuned_win_rate" in row for row in rows) == 2 * len(finance.STEPS)


def test_differences_are_paired(rows):
    rows, found = rows
    apart = [each["CTL", "χPO"].wins - each["LTC", "χPO"].wins for each in found]
    interval = stats.ttest_1samp(apart, 0.0).confidence_interval(0.95)
    (row,) = [r for r in rows if r.get("difference") == "χPO, CTL − χPO, LTC"]
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    assert row["value"] == pytest.approx(np.mean(apart))
    assert row["published"] == pytest.approx(0.044)


def test_the_rule(rows):
    rows, _ = rows
    assert [finance.verdict(row) for row in rows if "difference" in row] == [
        "agrees", "agrees", "is undecided", "disagrees",
    ]  # fmt: skip
