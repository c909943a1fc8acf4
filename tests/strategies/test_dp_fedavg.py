"""DP-FedAvg: local steps against autograd, one step against ULS, and everything ULS must pass."""

from pathlib import Path

import numpy as np
import pytest
import torch

from murmuration.client.app import app as client_app
from murmuration.preference.linear.gradients import windows
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.events import HoldOut, PoissonGaussian
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import dp_fedavg, uls
from murmuration.strategies.config import RunConfig
from murmuration.strategies.dp_fedavg import DEFAULT_LOCAL, DpFedAvg, FedAvgPlan, default_clip
from murmuration.strategies.uls import UlsPlan

COUNTS = [1, 30, 3, 1, 8, 60, 2]
FEDAVG = {"strategy": DpFedAvg, "kind": FedAvgPlan}


def ask(checks, examples, *, steps=4, rate=1.0, **more):
    local = {"local-steps": steps, "local-rate": rate}
    return checks.ask(dp_fedavg.client_update, examples, **local, **more)


def half(steps=4, rate=0.5):
    """The node half with local steps filled in, for checks that know those of ULS."""

    def client_update(examples, work, keys_S, source):
        local = {"local-steps": steps, "local-rate": rate}
        asked = type(work)(work.arrays, {**work.parameters, **local}, work.users_S)
        return dp_fedavg.client_update(examples, asked, keys_S, source)

    return client_update


# The node half


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("norm", [0.05, 30.0])
def test_equal_to_gradient_descent_of_each_user_alone(make_examples, oracle, checks, steps, norm):
    examples, theta_D = make_examples(COUNTS), np.array([0.3, -1.0, 0.2, 0.0, 2.0], np.float32)
    found = ask(
        checks,
        examples,
        steps=steps,
        rate=0.7,
        theta_D=theta_D,
        group_size=8,
        **{"clip-norm": norm},
    )
    keys_S = np.arange(7, dtype=np.uint64) * np.uint64(7919)
    words_S = Randomness(0).user_words("window", 1, keys_S)
    rows_K, taken_S = windows(examples.start_U, np.arange(7), 8, words_S)
    total_D = torch.zeros(5, dtype=torch.float64)
    for rows in rows_K.split(taken_S.tolist()):
        local_D = torch.tensor(theta_D, dtype=torch.float64)
        for _ in range(steps):
            local_D = local_D - 0.7 * oracle(examples, local_D, rows)
        way_D = torch.tensor(theta_D, dtype=torch.float64) - local_D
        total_D += way_D * min(1.0, norm / max(float(way_D.norm()), 1e-30))
    np.testing.assert_allclose(found, total_D.numpy(), rtol=2e-5, atol=2e-6 * min(norm, 1.0))


@pytest.mark.parametrize("rate", [1.0, 0.25, 4.0])
def test_one_local_step_is_uls(make_examples, checks, rate):
    """Bit for bit at rates that are powers of two, which scale without rounding."""
    examples, theta_D = make_examples(COUNTS), np.linspace(-1, 1, 5)
    one = ask(checks, examples, steps=1, rate=rate, theta_D=theta_D, **{"clip-norm": 0.25 * rate})
    other = checks.ask(uls.client_update, examples, theta_D=theta_D, **{"clip-norm": 0.25})
    np.testing.assert_array_equal(one, rate * other)


def test_more_steps_lead_further_and_elsewhere(make_examples, checks):
    examples = make_examples(COUNTS)
    ways = [ask(checks, examples, steps=steps, **{"clip-norm": 1e6}) for steps in (1, 4, 16)]
    lengths = [float(np.linalg.norm(way)) for way in ways]
    assert lengths == sorted(lengths)
    cosine = ways[0] @ ways[2] / (lengths[0] * lengths[2])
    assert 0 < cosine < 0.999


def test_one_vote_each(checks):
    checks.one_vote_each(half())


@pytest.mark.parametrize(
    ("local", "message"),
    [((0, 1.0), "--local-steps"), ((2, 0.0), "--local-rate"), ((2, np.inf), "--local-rate")],
)
def test_local_steps_are_checked(local, message):
    with pytest.raises(ValueError, match=message):
        LocalSteps(*local)


# The whole


def test_plan_costs_what_uls_costs():
    sizes = {"users": 100, "cohort": 20, "rounds": 4, "delta": 1e-3}
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE):
        terms = {**sizes, "adjacency": adjacency, "clip": UserClip(0.3)}
        plan = FedAvgPlan.for_epsilon(0.5, **terms, local=LocalSteps(3, 0.5))
        assert plan.charges == UlsPlan.for_epsilon(0.5, **terms).charges
        assert plan.charges == {PoissonGaussian(0.2, plan.noise_multiplier): 4}
    assert default_clip(LocalSteps(1, 1.0)) == uls.DEFAULT_CLIP
    assert default_clip(DEFAULT_LOCAL) == pytest.approx(0.4)


def test_golden_trajectory(make_world, make_examples):
    world = make_world(
        make_examples([1, 3, 9, 2, 12, 40]), **FEDAVG, clip=UserClip(0.4), group_size=8, seed=5
    )
    world.run(5)
    np.testing.assert_allclose(world.strategy.optimizer.theta_D, GOLDEN, atol=1e-5)


GOLDEN = [-0.274131, -0.022477, -0.21883, 0.065134, 0.133509]


# DP-FedAvg, and the options that every user-level strategy shares, from settings to a run.


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


@pytest.mark.usefixtures("quick_runs")
def test_defaults(run):
    result, theta_D = run(strategy="dp-fedavg")
    assert result["clip_norm"] == pytest.approx(0.4)
    assert result["gradients"] == 4 * 10 * 4
    assert 0.4995 < result["epsilon"] <= 0.5
    spent = {c.event for c in read_charges(Path(result["out"]) / "ledger.jsonl")}
    rounds = PoissonGaussian(0.25, result["noise_multiplier"])
    assert spent == {rounds, HoldOut(0.2), HoldOut(0.2, 0.25)}
    assert np.abs(theta_D).max() > 0


@pytest.mark.usefixtures("quick_runs")
def test_options_reach_the_nodes(run):
    result, _ = run(strategy="dp-fedavg", local_steps=2, local_rate=0.5, group_size=3)
    assert result["clip_norm"] == pytest.approx(0.1 * 2 * 0.5)
