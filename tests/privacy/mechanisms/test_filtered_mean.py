import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from murmuration.privacy.accounting.events import TestedGaussian
from murmuration.privacy.accounting.ledger import BudgetExceeded
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.filtered_mean import FilteredMean, mean_movement
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler

D = 5_000
AGREEING = np.zeros((200, D)) + 0.25


def made(**changes):
    fields = {
        "sampler": PoissonSampler(0.2),
        "radius": 0.5,
        "least_weight": 50.0,
        "noise_multiplier": 2.0,
        "test_share": 0.2,
        "failure": 1e-7,
        "adjacency": Adjacency.ADD_REMOVE,
    }
    return FilteredMean(**{**fields, **changes})


@pytest.fixture
def ledger(checks, tmp_path):
    with checks.promise(tmp_path / "ledger") as ledger:
        yield ledger


def release(ledger, rows_SD=AGREEING, *, round_=1, seed=0, **changes):
    return made(**changes).release(
        rows_SD, round_=round_, covers="mean", ledger=ledger, source=Randomness(seed)
    )


def test_test_and_mean_together_are_as_noisy_as_is_charged():
    for share in (0.01, 0.2, 0.9):
        mechanism = made(test_share=share)
        weight_shift = 2.0 / mechanism.test_std
        mean_shift = (4 * 0.5 / 50.0) / mechanism.std
        assert mean_shift * mechanism.std < mean_movement(0.5, 50.0)  # which counts rounding
        assert math.hypot(weight_shift, mean_shift) == pytest.approx(1 / 2.0)
        assert (weight_shift * 2.0) ** 2 == pytest.approx(share)
    assert made().event == TestedGaussian(0.2, 2.0, 1e-7)


def test_the_bar_leaves_room_for_neighbours_of_light_cohorts():
    mechanism = made()
    passing = stats.norm.sf(mechanism.bar - (50.0 + 4.0), scale=mechanism.test_std)
    assert passing == pytest.approx(1e-7)


def test_the_noise_on_the_mean_is_that_of_the_plan_not_more_not_less(checks, ledger):
    noise_D = release(ledger) - 0.25
    checks.gaussian_noise(noise_D, made().std)
    for factor in (0.95, 1.05):
        with pytest.raises(AssertionError, match="noise scale"):
            checks.gaussian_noise(noise_D, made().std * factor)


def test_the_noise_on_the_weight_is_that_of_the_plan():
    # A cohort whose weight lies one standard deviation above the bar passes five times in six.
    mechanism = made(least_weight=2.0)
    users = round(mechanism.bar + mechanism.test_std)
    expected = stats.norm.cdf((users - mechanism.bar) / mechanism.test_std)
    free = SimpleNamespace(
        adjacency=Adjacency.ADD_REMOVE, charge=lambda *_, **__: SimpleNamespace(attempt=0)
    )
    passed = sum(
        release(free, np.zeros((users, 1)), seed=seed, least_weight=2.0) is not None
        for seed in range(300)
    )
    assert abs(passed - 300 * expected) < 5 * math.sqrt(300 * expected * (1 - expected))
    assert 0.75 < expected < 0.9


def test_nothing_is_released_where_too_few_agree_and_it_is_charged(ledger):
    scattered = np.arange(200.0)[:, None] * np.ones((1, 4))
    few = np.zeros((10, 4))
    nobody = np.zeros((0, 4))
    halves = np.repeat([[0.0], [9.0]], 100, axis=0)
    for round_, rows_SD in enumerate((scattered, few, nobody, halves), start=1):
        assert release(ledger, rows_SD, round_=round_) is None
    assert sum(ledger.spent().values()) == 4


def test_outliers_do_not_reach_the_mean(ledger):
    rows_SD = np.vstack([AGREEING, np.full((20, D), 1e9)])
    assert np.abs(release(ledger, rows_SD) - 0.25).max() < 10 * made().std


@pytest.mark.parametrize("bad", [1e13, 1e150, 1e308, math.nan, math.inf])
def test_vectors_too_long_to_be_added_up_are_not_there(ledger, bad):
    """However many agree on them: rounding at their length would exceed the noise."""
    alone_D = release(ledger, AGREEING[:199])
    one = np.vstack([AGREEING[:199], np.full((1, D), bad)])
    assert np.array_equal(release(ledger, one), alone_D)  # an exact replay
    assert len(ledger.charges) == 1
    assert release(ledger, np.full((200, 3), bad), round_=2) is None


def test_an_exact_replay_is_one_release_and_other_data_is_refused(checks, ledger):
    first_D = release(ledger)
    assert np.array_equal(release(ledger), first_D)
    assert len(ledger.charges) == 1
    fewer = AGREEING[:-1]  # the same mean of another weight
    for changes in ({"rows_SD": AGREEING + 1.0}, {"rows_SD": fewer}, {"seed": 1}):
        checks.does_not_repeat(lambda changes=changes: release(ledger, **changes), ledger)
    # The same draw at two scales would give the mean away.
    for changes in ({"radius": 1.0}, {"test_share": 0.3}, {"least_weight": 40.0}):
        checks.does_not_repeat(lambda changes=changes: release(ledger, **changes), ledger)
    for _ in range(2):
        other_D = release(ledger, AGREEING + 1.0, seed=None)
        checks.unrelated(first_D - 0.25, other_D - 1.25)
    assert [charge.attempt for charge in ledger.charges] == [0, 1, 2]
    assert np.array_equal(release(ledger), first_D)


def test_the_charge_is_on_disk_before_any_noise_exists(checks, tmp_path, monkeypatch):
    def run(ledger, drawing):
        monkeypatch.setattr(Randomness, "stream", lambda *_: drawing())
        return release(ledger, seed=None)

    checks.charged_before_it_exists(run, tmp_path)


def test_nothing_is_drawn_when_budget_or_relation_refuses(checks, tmp_path, monkeypatch):
    drawn = []
    with checks.promise(tmp_path / "l", budget=0.01) as ledger:
        monkeypatch.setattr(Randomness, "stream", lambda *name: drawn.append(name))
        with pytest.raises(BudgetExceeded):
            release(ledger, seed=None)
        with pytest.raises(ValueError, match="ledger is for add-remove"):
            release(ledger, seed=None, adjacency=Adjacency.REPLACE)
    assert drawn == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"radius": 0.0}, "radius must be"),
        ({"radius": math.nan}, "radius must be"),
        ({"radius": 1e-200}, "radius must be"),
        ({"radius": 1e200}, "radius must be"),
        ({"least_weight": 1.9}, "at least 2"),
        ({"test_share": 0.0}, "share must be"),
        ({"test_share": 1.0}, "share must be"),
        ({"failure": 0.0}, "failure probability"),
        ({"noise_multiplier": 0.0}, "noise multiplier"),
    ],
)
def test_impossible_mechanisms_cannot_be_made(changes, message):
    with pytest.raises(ValueError, match=message):
        made(**changes)


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        made().radius = 9.0
