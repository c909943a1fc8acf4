"""DP-FedAvg, and the options that every user-level strategy shares, from settings to a run."""

from pathlib import Path

import numpy as np
import pytest

from murmuration.client.app import app as client_app
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.events import HoldOut, PoissonGaussian
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.fixture
def run(tmp_path, crowd):
    """A function: a small run on about 40 of 50 users; its result and weights."""

    def make(**changes):
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        config = RunConfig(
            data=crowd, epsilon=0.5, delta=1e-3, rounds=4, cohort=10, users=40, seed=3
        )
        config = config.changed(out=str(out), **changes)
        result = run_training(config, LocalGrid(client_app, 1, config.to_run_config()))
        return result, RewardModel.load(out / "model").theta_D

    return make


def test_defaults(run):
    result, theta_D = run(strategy="dp-fedavg")
    assert result["clip_norm"] == pytest.approx(0.4)
    assert result["gradients"] == 4 * 10 * 4
    assert 0.4995 < result["epsilon"] <= 0.5
    spent = {c.event for c in read_charges(Path(result["out"]) / "ledger.jsonl")}
    rounds = PoissonGaussian(0.25, result["noise_multiplier"])
    assert spent == {rounds, HoldOut(0.2), HoldOut(0.2, 0.25)}
    assert "4 gradient steps of length 1 " in result["account"]
    assert np.abs(theta_D).max() > 0


def test_one_local_step_is_uls(run):
    _, one_D = run(strategy="dp-fedavg", local_steps=1, clip_norm=0.1)
    _, other_D = run(strategy="uls", clip_norm=0.1)
    np.testing.assert_allclose(one_D, other_D, atol=1e-6)


def test_options_reach_the_nodes(run):
    result, _ = run(strategy="dp-fedavg", local_steps=2, local_rate=0.5, group_size=3)
    assert result["clip_norm"] == pytest.approx(0.1 * 2 * 0.5)
    assert "2 gradient steps of length 0.5 on at most 3 " in result["account"]


@pytest.mark.parametrize("strategy", ["uls", "dp-fedavg", "els", "group"])
def test_normalized_clipping_changes_the_unit_of_the_rate_alone(run, strategy):
    """De et al. 2022: the same steps, at a rate that does not depend on the clip norm."""
    more = {"group_size": 2} if strategy in ("els", "group") else {}
    one, one_D = run(strategy=strategy, clip_norm=0.05, **more)
    other, other_D = run(strategy=strategy, clip_norm=0.05, normalized=True, **more)
    np.testing.assert_allclose(one_D, other_D, rtol=1e-4, atol=1e-7)
    assert other["learning_rate"] == pytest.approx(one["learning_rate"] * 0.05)
    _, given_D = run(strategy=strategy, clip_norm=0.05, learning_rate=20.0, **more)
    _, scaled_D = run(strategy=strategy, clip_norm=0.05, normalized=True, learning_rate=1.0, **more)
    np.testing.assert_allclose(given_D, scaled_D, rtol=1e-4, atol=1e-7)


def test_delta_by_the_number_of_users(run):
    result, _ = run(delta=0.0)
    assert result["delta"] == pytest.approx(40**-1.1)
    assert not any("not below 1 / users" in warning for warning in result["warnings"])


def test_adafactor(run):
    result, theta_D = run(optimizer="adafactor")
    assert 0 < result["learning_rate"] <= 4**-0.5
    assert np.abs(theta_D).max() > 0


def test_retained_judgements(run):
    _, one_D = run(retain=1)
    _, other_D = run()
    assert np.abs(one_D - other_D).max() > 1e-6
