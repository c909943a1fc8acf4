import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmuration.privacy.accounting.events import PureDp
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.above_threshold import AboveThreshold
from murmuration.privacy.mechanisms.randomness import Randomness

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE


def made(epsilon=0.5, sensitivity=1.0, adjacency=ADD, **changes):
    return AboveThreshold(80.0, epsilon, sensitivity, adjacency, **changes)


def opened(checks, path, mechanism=None, seed=0, round_=1):
    with checks.promise(path) as ledger:
        return (mechanism or made()).open(
            round_=round_, covers="test", ledger=ledger, source=Randomness(seed)
        )


def test_the_scales_are_those_of_algorithm_3():
    assert made(0.5).threshold_scale == 2 / 0.5
    assert made(0.5).query_scale == 4 / 0.5
    assert made(0.5, monotone=True).query_scale == 2 / 0.5
    assert made(0.5, 3.0).threshold_scale == 3 * 2 / 0.5
    assert made(0.5, 3.0).query_scale == 3 * 4 / 0.5
    assert made(0.5).event == PureDp(0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "pure epsilon must be"),
        ({"sensitivity": 0.0}, "sensitivity must be positive"),
        ({"sensitivity": math.inf}, "sensitivity must be positive"),
        ({"adjacency": REPLACE, "monotone": True}, "not monotone"),
        ({"adjacency": Adjacency.REPLACE_LABELS, "monotone": True}, "not monotone"),
    ],
)
def test_what_is_not_a_mechanism_cannot_be_made(changes, message):
    with pytest.raises(ValueError, match=message):
        made(**changes)


def test_the_published_test_certifies_as_little_as_is_said_of_it():
    # The fixed points of the design notes: epsilon/2 at epsilon = 1 and 8; delta = 1e-5.
    for epsilon, sensitivity, expected in ((1, 1, 89), (1, 2, 178), (8, 1, 11), (8, 2, 22)):
        found = made(epsilon / 2, float(sensitivity)).margin(1e-5)
        assert abs(found - expected) < 0.5


@pytest.mark.parametrize("monotone", [False, True])
def test_margin_is_the_tail_of_both_noises_together(monotone):
    mechanism = made(1.0, monotone=monotone)
    generator = np.random.default_rng(0)
    gap = generator.laplace(0, mechanism.threshold_scale, 400_000)
    gap += generator.laplace(0, mechanism.query_scale, 400_000)
    for failure in (0.2, 0.01):
        found = float((gap >= mechanism.margin(failure)).mean())
        assert abs(found - failure) < 5 * math.sqrt(failure / 400_000)
    assert mechanism.passing(0.0) == pytest.approx(0.5)
    assert mechanism.passing(mechanism.margin(1e-12)) == pytest.approx(1e-12, rel=1e-6)
    with pytest.raises(ValueError, match="failure probability"):
        mechanism.margin(0.0)


def test_noise_has_the_scales_that_are_charged():
    thresholds, answers = [], []
    free = SimpleNamespace(adjacency=ADD, charge=lambda *_, **__: SimpleNamespace(attempt=0))
    for seed in range(600):
        found = made().open(round_=seed, covers="t", ledger=free, source=Randomness(seed))
        thresholds.append((80.0 - found._noisy_threshold) / made().threshold_scale)
        answers.append(found.ask(found._noisy_threshold - 8.0, 1))
    assert stats.kstest(thresholds, "laplace").pvalue > 1e-6
    for factor in (0.5, 2.0):
        assert stats.kstest(np.array(thresholds) * factor, "laplace").pvalue < 1e-6
    # One query scale below: passes with probability exp(-1)/2.
    expected = math.exp(-1) / 2
    assert abs(np.mean(answers) - expected) < 5 * math.sqrt(expected * (1 - expected) / 600)


def test_it_ends_with_the_first_no_and_is_charged_once(checks, tmp_path):
    with checks.promise(tmp_path / "l") as ledger:
        series = made().open(round_=1, covers="test", ledger=ledger, source=Randomness(3))
        assert all(series.ask(1e6, index) for index in range(50))
        assert not series.ask(-1e6, 50)
        assert series.halted
        with pytest.raises(ValueError, match="has been spent"):
            series.ask(1e6, 51)
        assert ledger.spent() == {PureDp(0.5): 1}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_query_that_is_not_finite_is_refused(checks, tmp_path, bad):
    with pytest.raises(ValueError, match="not finite"):
        opened(checks, tmp_path / "l").ask(bad, 1)


def test_nothing_is_drawn_when_the_budget_or_the_relation_refuses(checks, tmp_path, monkeypatch):
    drawn = []
    with checks.promise(tmp_path / "l", budget=0.4) as ledger:
        monkeypatch.setattr(Randomness, "stream", lambda *name: drawn.append(name))
        with pytest.raises(BudgetExceeded):
            made(0.5).open(round_=1, covers="t", ledger=ledger, source=Randomness(None))
        with pytest.raises(ValueError, match="ledger is for add-remove"):
            made(0.1, adjacency=REPLACE).open(
                round_=1, covers="t", ledger=ledger, source=Randomness(None)
            )
        assert ledger.charges == []
    assert drawn == []


def test_the_charge_is_on_disk_before_the_threshold_is_drawn(checks, tmp_path, monkeypatch):
    def run(ledger, drawing):
        monkeypatch.setattr(Randomness, "stream", lambda *_: drawing())
        return made().open(round_=1, covers="t", ledger=ledger, source=Randomness(None))

    checks.charged_before_it_exists(run, tmp_path)


@pytest.mark.parametrize("seed", [0, None])
def test_a_new_process_opens_and_pays_for_a_new_threshold(checks, tmp_path, seed):
    found = []
    for charged in (1, 2):
        with checks.promise(tmp_path / "l") as ledger:
            series = made().open(round_=1, covers="t", ledger=ledger, source=Randomness(seed))
            found.append(series._noisy_threshold)
            assert len(ledger.charges) == charged
    assert found[0] != found[1]


def test_query_noise_is_never_reused_for_another_value(checks, tmp_path):
    # In a simulation that is repeated on other data, one draw at two values would cancel out.
    mechanism = made(0.01)
    noises = {value: [] for value in (10.0, 20.0)}
    for value, found in noises.items():

        class Spy(Randomness):
            def stream(self, purpose, *index, found=found):
                generator = super().stream(purpose, *index)
                if purpose.startswith("query"):
                    found.append(super().stream(purpose, *index).random())
                return generator

        with checks.promise(tmp_path / f"{value}") as ledger:
            series = mechanism.open(round_=1, covers="t", ledger=ledger, source=Spy(0))
            for index in range(3):
                if not series.halted:
                    series.ask(value, index)
    assert not set(noises[10.0]) & set(noises[20.0])
    assert len(set(noises[10.0])) == len(noises[10.0])


def answers(mechanism, values, length):
    """The probability of each answer: passing k times and then no, or ``length`` times; by grid."""
    a, b = mechanism.threshold_scale, mechanism.query_scale
    grid = np.linspace(-60 * a, 60 * a, 40_001)
    weight = stats.laplace.pdf(grid, scale=a)
    weight /= weight.sum()
    passing = np.ones_like(grid)
    found = []
    for value in values[:length]:
        above = stats.laplace.sf((mechanism.threshold - grid) - value, scale=b)
        found.append(float(weight @ (passing * (1 - above))))
        passing *= above
    return np.array([*found, float(weight @ passing)])


@given(
    st.lists(st.tuples(st.floats(-4, 4), st.floats(-1, 1)), min_size=1, max_size=4),
    st.floats(0.2, 3.0),
    st.booleans(),
)
def test_answers_are_pure_dp_for_any_queries_of_the_sensitivity(queries, epsilon, monotone):
    mechanism = AboveThreshold(0.0, epsilon, 1.0, ADD, monotone)
    first = [value for value, _ in queries]
    second = [value + (abs(move) if monotone else move) for value, move in queries]
    p, q = (answers(mechanism, values, len(queries)) for values in (first, second))
    assert np.abs(np.log(p) - np.log(q)).max() <= epsilon + 1e-3


def test_queries_of_twice_the_sensitivity_break_it():
    # The published score: made for 1, moves by 2. Many queries barely pass, then one fails.
    mechanism = AboveThreshold(0.0, 0.5, 1.0, ADD)
    for move, cost in ((1.0, 1.0), (2.0, 2.0)):
        p = answers(mechanism, [-30.0] * 40 + [60.0], 41)
        q = answers(mechanism, [-30.0 - move] * 40 + [60.0 + move], 41)
        assert 0.75 * cost * 0.5 < math.log(p[40] / q[40]) <= cost * 0.5 + 1e-3


def test_series_of_one_name_in_different_rounds_share_no_noise(tmp_path):
    """Seeded, with the same answers to the same questions: each series has coins of its own."""
    series, ended = AboveThreshold(0.0, 1.0, 1.0, Adjacency.ADD_REMOVE), []
    with Ledger(
        tmp_path / "ledger.jsonl", adjacency=series.adjacency, delta=1e-5, budget=None
    ) as ledger:
        for round_ in range(400):
            opened = series.open(round_=round_, covers="test", ledger=ledger, source=Randomness(0))
            ended.append(next((k for k in range(8) if not opened.ask(0.0, k)), 8))
    # With shared coins only the noise of the threshold would differ, and few ends be seen.
    assert len(set(ended)) == 9
