"""Label moments: the promise, the node half, the noise, and that what comes out is right."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import LabelClip
from murmuration.research.reproductions.btl import Population, without_labels
from murmuration.research.theory.analytic_gaussian import calibrate_noise
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.solved import label_moment
from murmuration.strategies.solved.label_moment import LabelMoment, LabelMomentPlan
from murmuration.strategies.solved.moment_solver import MomentSolver
from murmuration.strategies.steps.optimizers import SolvedModel

LABELS = Adjacency.REPLACE_LABELS
PLAN = {"users": 40, "rounds": 1, "delta": 1e-5, "adjacency": LABELS}


def plan(**changes):
    return LabelMomentPlan(**{**PLAN, "noise_multiplier": 3.0, **changes})


# The promise


def test_plan_binds_everything():
    made = plan(rounds=2, clip=LabelClip(0.4))
    assert made.mechanism.event == PoissonGaussian(1.0, 3.0)
    assert made.charges == {PoissonGaussian(1.0, 3.0): 2}
    assert made.std == pytest.approx(1.2)
    assert made.mechanism.clip.sensitivity(LABELS) == pytest.approx(2 * 0.4)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_noise_is_that_of_the_analytic_gaussian_of_sensitivity_two_clip_norms(epsilon, rounds):
    made = LabelMomentPlan.for_epsilon(epsilon, **{**PLAN, "rounds": rounds})
    exact = 2.0 * math.sqrt(rounds) * calibrate_noise(epsilon, 1e-5)
    assert exact <= made.noise_multiplier < exact * 1.001
    assert 0.999 * epsilon < made.epsilon() <= epsilon


def test_a_third_round_is_refused():
    with pytest.raises(ValueError, match="--rounds must be 1 or 2"):
        plan(rounds=3)


# The node half


def moments(examples, theta_D=None, users_S=None, clip=1.0, **parameters):
    users = len(examples.counts_U)
    users_S = np.arange(users) if users_S is None else np.asarray(users_S)
    theta_D = np.zeros(examples.dimension) if theta_D is None else np.asarray(theta_D)
    work = TrainRequest(
        {"theta": theta_D.astype(np.float32)}, {"clip-norm": clip, **parameters}, users_S
    )
    return label_moment.client_update(examples, work, np.empty(0), None)["sum"]  # type: ignore[arg-type]


def labelled(make_examples, counts, y, seed=0):
    examples = make_examples(counts, seed=seed)
    return replace(examples, y_R=torch.as_tensor(y, dtype=torch.float32))


def test_against_a_loop(make_examples):
    """Each user's mean of x·(y − σ), over its root mean square, clipped."""
    examples, theta_D = make_examples([1, 4, 2]), np.array([0.2, -0.1, 0.3, 0.0, 0.5])
    x, y, edges = examples.x_RD.double().numpy(), examples.y_R.double().numpy(), [0, 1, 5, 7]
    p = 1 / (1 + np.exp(-x @ theta_D))
    expected = np.zeros(5)
    for first, last in itertools.pairwise(edges):
        rows = slice(first, last)
        moment = ((y - p)[rows, None] * x[rows]).mean(axis=0)
        squares = (p * (1 - p))[rows] * (x[rows] ** 2).sum(axis=1)
        moment /= math.sqrt(squares.sum()) / (last - first)
        expected += moment * min(1.0, 0.9 / np.linalg.norm(moment))
    np.testing.assert_allclose(moments(examples, theta_D, clip=0.9), expected, rtol=1e-5)


def test_flipping_labels_attains_two_clip_norms_and_never_exceeds_them(make_examples):
    """One judgement: exactly 2C. Many: at most, however they are flipped."""
    single = labelled(make_examples, [1], [1.0])
    other = replace(single, y_R=torch.zeros(1))
    for clip in (0.5, 1.0):
        moved = np.linalg.norm(moments(single, clip=clip) - moments(other, clip=clip))
        assert moved == pytest.approx(2 * clip, rel=1e-5)
        assert moved <= 2 * clip
    generator = np.random.default_rng(0)
    examples = make_examples([6, 3, 9], scale=5.0)
    theta_D = 0.3 * generator.standard_normal(5)
    one = slice(6, 9)
    for _ in range(50):
        first, second = examples.y_R.clone(), examples.y_R.clone()
        for y_R in (first, second):
            y_R[one] = torch.from_numpy(generator.choice([0.0, 0.5, 1.0], 3)).float()
        moved = moments(replace(examples, y_R=first), theta_D) - moments(
            replace(examples, y_R=second), theta_D
        )
        assert np.linalg.norm(moved) <= 2.0


def test_the_side_that_is_listed_first_means_nothing(make_examples):
    examples, theta_D = make_examples([3, 5, 1]), np.array([0.2, -0.1, 0.3, 0.0, 0.5])
    turned = replace(examples, x_RD=-examples.x_RD, y_R=1.0 - examples.y_R)
    np.testing.assert_allclose(moments(examples, theta_D), moments(turned, theta_D), rtol=1e-5)


def test_no_user_is_worth_more_than_a_clip_norm(make_examples):
    examples = make_examples([1000, 1, 1], scale=100.0)
    for user in range(3):
        assert np.linalg.norm(moments(examples, users_S=[user], clip=0.7)) <= 0.7
    nothing = replace(make_examples([2]), x_RD=torch.zeros(2, 5))
    assert not moments(nothing).any()


def test_the_best_of_several_is_a_moment_too(make_examples):
    """Σ over judgements of φ(best) − mean φ: what is listed second or third does not matter."""
    generator = torch.Generator().manual_seed(0)
    phi_JKD = torch.randn(4, 3, 5, generator=generator)
    start_U = torch.tensor([0, 1, 4])

    def best(order):
        shown = phi_JKD[:, order]
        x_RD = (shown[:, :1] - shown[:, 1:]).reshape(-1, 5)
        return PairExamples(x_RD, torch.ones(8), start_U, 2, kind="top-1")

    found = moments(best([0, 1, 2]), model="plackett-luce", clip=50.0)
    other = moments(best([0, 2, 1]), model="plackett-luce", clip=50.0)
    np.testing.assert_allclose(found, other, rtol=1e-5)
    pull_JD = phi_JKD[:, 0] - phi_JKD.mean(dim=1)
    spread_J = (phi_JKD - phi_JKD.mean(dim=1, keepdim=True)).square().sum(dim=2).mean(dim=1)
    expected = sum(pull_JD[a:b].sum(0) / spread_J[a:b].sum().sqrt() for a, b in ((0, 1), (1, 4)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_a_node_refuses(make_examples):
    examples = make_examples([2])
    with pytest.raises(ValueError, match="clip norm"):
        moments(examples, clip=0.0)
    with pytest.raises(InputError, match="--model thurstone"):
        moments(examples, model="thurstone")
    randomized = replace(examples, flip_J=torch.full((2,), 0.1, dtype=torch.float64))
    with pytest.raises(InputError, match="randomized already"):
        moments(randomized)


# The whole


@pytest.fixture
def make_moment_world(make_filter_world):
    """A function: label-moment over a population's nodes."""

    def make(examples, *, nodes=1, seed=0, budget=None, **changes):
        made = plan(**{"users": len(examples.counts_U), **changes})
        solver = MomentSolver(without_labels(examples))

        def strategy(plan, ledger, **arguments):
            return LabelMoment(plan, ledger, solver, **arguments)

        optimizer = SolvedModel(examples.dimension)
        return make_filter_world(
            examples, strategy, made, optimizer, nodes=nodes, seed=seed, budget=budget
        )

    return make


def start(world, rounds):
    world.strategy.start(world.grid, num_rounds=rounds)
    return world.strategy.optimizer.theta.numpy().copy()


@pytest.fixture(scope="module")
def population():
    return Population.draw(0, users=300, each=5, dimension=6)


def test_noise_on_the_sum_is_as_promised(make_moment_world, checks):
    """What is released less the exact sum: the promised length, not more and not less."""
    generator = torch.Generator().manual_seed(0)
    wide = PairExamples(
        torch.randn(40, 60, generator=generator), torch.ones(40), torch.arange(0, 41, 2)
    )
    for multiplier in (0.5, 30.0):
        world = make_moment_world(wide, noise_multiplier=multiplier, clip=LabelClip(0.6))
        start(world, 1)
        released_D = world.strategy.state()["moments"][0]
        exact_D = moments(wide, clip=0.6)
        checks.released_noise(released_D - exact_D, multiplier * 0.6)
        assert world.ledger.epsilon() == pytest.approx(
            accountant.epsilon(
                [(PoissonGaussian(1.0, multiplier), 1)], adjacency=LABELS, delta=1e-5
            )
        )


@pytest.mark.parametrize("clip", [0.05, 0.4, 0.8, 3.0])
@pytest.mark.parametrize("rounds", [1, 2])
def test_without_noise_the_model_is_found_at_any_clip_norm(
    make_moment_world, population, clip, rounds
):
    """Clipping is corrected for: the error stays that of the likeliest model."""
    world = make_moment_world(
        population.examples, noise_multiplier=1e-6, clip=LabelClip(clip), rounds=rounds
    )
    found_D = start(world, rounds)
    likeliest = population.error(population.likeliest())
    assert population.error(found_D) < 1.35 * likeliest + 0.1
    # Without the correction a clip norm of 0.05 leaves almost nothing of θ.
    assert np.linalg.norm(found_D) > 1.5


def test_one_judgement_a_user_is_the_weighted_likelihood_to_the_digit(make_moment_world):
    """Nothing is clipped unequally at θ = 0, so nothing has to be corrected."""
    crowd = Population.draw(3, users=200, each=1, dimension=3)
    world = make_moment_world(crowd.examples, noise_multiplier=1e-9)
    world.strategy.solver._ridge = 0.5
    found_D = torch.from_numpy(start(world, 1))
    x = crowd.examples.x_RD.double()
    weight = 0.8 / (0.5 * x.norm(dim=1))
    slope = (torch.sigmoid(x @ found_D) - 1.0) * weight
    np.testing.assert_allclose(slope @ x + 0.5 * found_D, 0.0, atol=2e-3)


def test_seeded_runs_repeat_and_resume(make_moment_world, population, tmp_path):
    whole = start(make_moment_world(population.examples, rounds=2), 2)
    half = make_moment_world(population.examples, rounds=2)
    start(half, 1)
    state = {name: value.copy() for name, value in half.strategy.state().items()}
    rest = make_moment_world(population.examples, rounds=2)
    rest.strategy.restore(state)
    rest.strategy.rounds_done = 1
    assert start(rest, 2).tolist() == whole.tolist()
    other = start(make_moment_world(population.examples, rounds=2, seed=1), 2)
    assert np.abs(other - whole).max() > 1e-3


def test_golden(make_moment_world):
    """A change of these numbers is a change of the algorithm."""
    crowd = Population.draw(7, users=50, each=3, dimension=3)
    world = make_moment_world(crowd.examples, rounds=2)
    np.testing.assert_allclose(start(world, 2), GOLDEN, rtol=1e-4)


GOLDEN = [0.6270774, 0.6985082, 2.3019017]


def test_both_rounds_are_charged(make_moment_world, population):
    world = make_moment_world(population.examples, rounds=2)
    start(world, 2)
    assert world.ledger.epsilon() == pytest.approx(world.strategy.plan.epsilon())
    assert world.strategy.figures()["noise_norm"].value > 0


def test_nobody_admits_what_users_cannot_send(make_moment_world, population):
    strategy = make_moment_world(population.examples).strategy
    assert strategy.is_valid({"sum": np.full(6, 0.8 / math.sqrt(6))}, 1)
    assert not strategy.is_valid({"sum": np.full(6, 0.9 / math.sqrt(6))}, 1)
    assert not strategy.is_valid({"sum": np.full(6, np.nan)}, 5)


# Strategies that solve for the model, from settings to a run and back from a crash.


BASE = {"epsilon": 3.0, "delta": 1e-3, "adjacency": "replace-labels", "seed": 3}


@pytest.fixture
def run(tmp_path, crowd, crowd_test):
    """A function: a small run on 50 users, with a public test; its result and weights."""

    def make(nodes=1, resume_in=None, **changes):
        out = resume_in or str(tmp_path / f"run-{len(list(tmp_path.iterdir()))}")
        config = RunConfig.from_run_config(
            {"data": crowd, "test": crowd_test, "out": out, **BASE, **changes}
        )
        config = replace(config, resume=resume_in is not None)
        result = run_training(config, LocalGrid(client_app, nodes, config.to_run_config()))
        return result, RewardModel.load(Path(config.out) / "model").theta_D

    return make


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize(
    ("strategy", "rounds"),
    [("label-moment", 1), ("label-moment", 2), ("objective-perturbation", 1)],
)
def test_a_run(run, strategy, rounds):
    result, theta_D = run(strategy=strategy, rounds=rounds)
    assert (result["rounds"], result["rounds_planned"], result["cohort"]) == (rounds, rounds, 50)
    assert 2.99 < result["epsilon"] <= 3.0
    spent = [c.event for c in read_charges(Path(result["out"]) / "ledger.jsonl")]
    assert spent == [PoissonGaussian(1.0, result["noise_multiplier"])] * rounds
    assert np.abs(theta_D).max() > 0
    # Communication and computation, beside those of strategies with many rounds.
    assert result["gradients"] == 50 * rounds
    assert result["bytes_per_user"] > rounds * 8 * result["dimension"]
    assert result["bytes_per_user"] < 0.05 * 200 * 8 * result["dimension"]
    assert result["learning_rate"] is None
    assert result["heldout_accuracy"] is not None
    metrics = (Path(result["out"]) / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in metrics] == list(range(1, rounds + 1))
    assert json.loads(metrics[-1])["noise_norm"] > 0
    assert json.loads(metrics[-1])["epsilon"] == pytest.approx(result["epsilon"], rel=0.01)


@pytest.mark.usefixtures("quick_runs")
def test_held_out_users_give_no_items(run, crowd):
    """Without a test file some users are held out, and are neither asked nor solved with."""
    result, _ = run(strategy="label-moment", test="")
    assert result["users"] == result["cohort"] < 50
    assert result["heldout_users"] == 50 - result["users"]


@pytest.mark.usefixtures("quick_runs")
def test_options_reach_the_solver(run):
    _, theta_D = run(strategy="objective-perturbation", ridge=1e6)
    assert np.linalg.norm(theta_D) < 1e-3
    result, _ = run(strategy="label-moment", clip_norm=0.3)
    assert result["clip_norm"] == 0.3
    result, _ = run(strategy="objective-perturbation", clip_norm=0.5)
    assert result["clip_norm"] == 0.25


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("strategy", ["label-moment", "objective-perturbation"])
def test_randomized_labels_are_refused_before_anything_is_released(run, tmp_path, strategy):
    rows = [
        {"user_id": f"u{n % 9}", "prompt": "p", "chosen": f"c {n}", "rejected": f"r {n}"}
        | {"flip_probability": 0.2}
        for n in range(36)
    ]
    told = tmp_path / "told.jsonl"
    told.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "refused"
    with pytest.raises(InputError, match=f"{strategy} takes true labels.*local-label"):
        run(strategy=strategy, rounds=1, data=str(told), labels="randomized", out=str(out))
    assert not (out / "ledger.jsonl").exists()
