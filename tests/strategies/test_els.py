"""ELS: coins, retained subsets, the clip of each judgement, noise, the whole against oracles."""

import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from local_runs import run
from scipy import stats

from murmuration.preference.data.errors import InputError
from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.linear.gradients import windows
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import GroupGaussian, PureChoice, PureDp
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger, read_charges
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import ExampleClip, UserClip
from murmuration.privacy.mechanisms.coins import bernoulli
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.median import GRID
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies import els, sums
from murmuration.strategies.els import (
    MEDIAN_SHARE,
    Els,
    ElsPlan,
    Group,
    GroupPlan,
    retained,
    same_compute,
)

pytestmark = pytest.mark.settings(strategy="els", epsilon=0.5, rounds=4, cohort=2, users=40)

PLAN = {
    "users": 100,
    "group_size": 4,
    "probability": 0.1,
    "rounds": 8,
    "delta": 1e-4,
    "adjacency": Adjacency.ADD_REMOVE,
    "clip": ExampleClip(0.3),
}
ELS = {"strategy": Els, "kind": ElsPlan, "clip": ExampleClip(1.0)}
COUNTS = [1, 30, 3, 1, 8, 60, 2]
GOLDEN = [-0.034903, -0.025781, -0.000274, 0.002905, 0.037849]


def ask(checks, examples, *, probability=1.0, **more):
    return checks.ask(els.client_update, examples, probability=probability, **more)


# The plan


def test_plan_binds_everything():
    plan = ElsPlan(**PLAN, noise_multiplier=1.5)
    assert plan.mechanism.event == MixtureGaussian(1.5, 4, 0.1)
    assert plan.mechanism.std == pytest.approx(0.45)
    assert plan.divisor == pytest.approx(40)
    assert plan.noise == pytest.approx(0.45 / 40)
    assert plan.charges == {MixtureGaussian(1.5, 4, 0.1): 8}


@pytest.mark.parametrize("chosen_at", [0.0, 0.025])
def test_for_epsilon_meets_its_target_from_below(chosen_at):
    plan = ElsPlan.for_epsilon(0.5, **PLAN, chosen_at=chosen_at)
    assert 0.999 * 0.5 < plan.epsilon() <= 0.5
    # What the ledger makes of it is less: it composes loss distributions.
    composed = accountant.epsilon(plan.charges.items(), adjacency=plan.adjacency, delta=plan.delta)
    assert composed <= 0.5
    assert (PureChoice(0.025) in plan.charges) == (chosen_at > 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_size": 0}, "--group-size must be at least 1"),
        ({"probability": 0.0}, "probability must be"),
        ({"probability": 1.1}, "probability must be"),
    ],
)
def test_impossible_plans_cannot_be_built(changes, message):
    with pytest.raises(ValueError, match=message):
        ElsPlan(**{**PLAN, "noise_multiplier": 1.0, **changes})
    with pytest.raises(ValueError, match=message):
        ElsPlan.for_epsilon(1.0, **{**PLAN, **changes})


def test_cohort_stands_for_the_same_compute():
    probability = same_compute(50, 1000, 8)
    assert probability * 1000 * 8 == pytest.approx(50 * sums.DEFAULT_GROUP_SIZE)
    assert same_compute(900, 1000, 2) == 1.0


# Coins


def coins(rounds, users, places, probability, seed):
    """Whose coins came up: (rounds, users, places)."""
    keys_K = np.repeat(np.arange(users, dtype=np.uint64) * np.uint64(7919), places)
    places_K = np.tile(np.arange(places), users)
    source = Randomness(seed)
    return np.array(
        [
            bernoulli(source.example_words("example", t, keys_K, places_K), probability)
            for t in range(rounds)
        ]
    ).reshape(rounds, users, places)


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("probability", [0.01, 0.3, 0.9])
def test_coins_are_independent_across_users_examples_and_rounds(seed, probability):
    coins_TUK = coins(60, 40, 25, probability, seed).astype(np.float64)
    spread = np.sqrt(probability * (1 - probability))
    score_TUK = (coins_TUK - probability) / spread
    for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        # Sums along any axes have the variance of independent coins: not more, not less.
        size = np.prod([score_TUK.shape[axis] for axis in axes])
        z = score_TUK.sum(axis=axes) / np.sqrt(size)
        came_up = coins_TUK.sum(axis=axes)
        tails = (
            stats.binom.cdf(came_up, size, probability),
            stats.binom.sf(came_up - 1, size, probability),
        )
        assert min(tail.min() for tail in tails) > 1e-7
        if z.size > 20:
            # 60,000 coins: the variance of z.size sums, with the coins' own kurtosis.
            kurtosis = 2 + (1 / spread**2 - 6) / size
            error = np.sqrt(max(kurtosis, 0.01) / z.size)
            assert abs(float((z**2).mean()) - 1) < 6 * error
    for axis in range(3):
        first, second = np.moveaxis(score_TUK, axis, 0)[:-1], np.moveaxis(score_TUK, axis, 0)[1:]
        assert abs(float((first * second).mean())) < 6 / np.sqrt(first.size)


# The node half


def expected_sum(examples, theta_D, group_size, norm, probability, oracle, seed=0, round_=1):
    """By autograd, judgement by judgement."""
    source, users = Randomness(seed), len(examples.counts_U)
    keys_S = np.arange(users, dtype=np.uint64) * np.uint64(7919)
    words_S = source.user_words("retain", 0, keys_S)
    rows_K, taken_S = windows(examples.start_U, np.arange(users), group_size, words_S)
    total_D = torch.zeros(examples.dimension, dtype=torch.float64)
    for user, rows in enumerate(rows_K.split(taken_S.tolist())):
        for row in rows.tolist():
            place = row - int(examples.start_U[user])
            word = source.example_words("example", round_, keys_S[[user]], np.array([place]))
            if not bernoulli(word, probability)[0]:
                continue
            gradient_D = oracle(examples, theta_D, torch.tensor([row]))
            total_D += gradient_D * min(1.0, norm / max(float(gradient_D.norm()), 1e-30))
    return total_D.numpy()


@pytest.mark.parametrize("norm", [0.05, 0.5, 30.0])
@pytest.mark.parametrize(("group_size", "probability"), [(1, 1.0), (8, 0.4), (500, 0.1)])
def test_equal_to_autograd(make_examples, oracle, checks, norm, group_size, probability):
    examples, theta_D = make_examples(COUNTS), np.array([0.3, -1.0, 0.2, 0.0, 2.0], np.float32)
    how = {"group_size": group_size, "probability": probability, "clip-norm": norm}
    found = ask(checks, examples, theta_D=theta_D, **how)
    expected = expected_sum(examples, theta_D, group_size, norm, probability, oracle)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5 * min(norm, 1.0))


def test_g_votes_each(checks):
    """However many judgements a user has, they move the sum by at most G clip norms."""
    light, heavy = checks.like_everybody(1), -checks.like_everybody(1000)
    for group_size in (1, 16):
        crowd = checks.gather(light, heavy, light)
        everyone = ask(checks, crowd, group_size=group_size).astype(float)
        for user, most in enumerate((1, group_size, 1)):
            others = [u for u in range(3) if u != user]
            rest = ask(checks, crowd, users_S=others, group_size=group_size)
            moved = float(np.linalg.norm(everyone - rest))
            assert moved <= most * (1 + 1e-6), f"moved the sum by {moved:.1f}, not {most}"
            assert moved >= most * (1 - 1e-4), f"was cut to {moved:.2f} of {most}"


def test_each_within_the_norm(checks):
    """Of one user's two opposite judgements, a long and a short one, both are clipped alike."""
    long, short = checks.like_everybody(1), -0.5 * checks.like_everybody(1)
    found = ask(checks, checks.gather(torch.cat([long, short])))
    assert np.linalg.norm(found) < 1e-5


@pytest.mark.parametrize("seed", [0, 1, None])
def test_no_more_than_g_judgements_of_a_user_are_ever_seen(checks, seed):
    """Also without a seed, where every other draw is fresh: nodes do not have to remember."""
    counts, group_size = 40, 5
    examples = checks.gather(torch.eye(counts), torch.zeros(1, counts))
    seen = np.zeros(counts, dtype=bool)
    for round_ in range(1, 30):
        how = {"group_size": group_size, "round": round_, "seed": seed}
        seen |= ask(checks, examples, probability=0.5, **how) != 0
    assert seen.sum() == group_size


def test_a_judgement_that_is_not_finite_counts_as_zero(make_examples, checks):
    examples = make_examples([3, 4])
    broken = dataclasses.replace(examples, x_RD=examples.x_RD.clone())
    broken.x_RD[4, 2] = torch.nan
    zeroed = dataclasses.replace(examples, x_RD=examples.x_RD.clone())
    zeroed.x_RD[4] = 0.0
    np.testing.assert_allclose(ask(checks, broken), ask(checks, zeroed), atol=1e-7)


@pytest.mark.parametrize("kind", ["top-1", "ranking"])
@pytest.mark.parametrize("norm", [0.05, 0.5, 30.0])
@pytest.mark.parametrize("probability", [1.0, 0.4])
def test_a_judgement_over_several_responses_is_clipped_as_a_whole(
    make_best_of, model_oracle, checks, kind, norm, probability
):
    examples, theta_D = make_best_of([1, 30, 3, 8], kind=kind), np.linspace(-1, 1, 5)
    how = {"group_size": 6, "probability": probability, "clip-norm": norm}
    found = ask(checks, examples, theta_D=theta_D, model="plackett-luce", **how)
    theta_D = theta_D.astype(np.float32)
    oracle = model_oracle("plackett-luce")
    expected = expected_sum(examples, theta_D, 6, norm, probability, oracle)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6 * min(norm, 1.0))


def test_a_judgement_is_one_vote_whatever_its_rows(checks):
    """Three rows of a judgement that all pull the same way move the sum by one clip norm."""
    rows = torch.cat([checks.like_everybody(3), torch.zeros(3, 4)])
    examples = PairExamples(rows, torch.ones(6), torch.tensor([0, 1, 2]), 3, kind="top-1")
    moved = np.linalg.norm(ask(checks, examples, model="plackett-luce"))
    assert moved <= 1 + 1e-6, f"a judgement moved the sum by {moved:.1f} clip norms"
    assert moved >= 1 - 1e-4, f"a judgement was cut to {moved:.2f} clip norms"


def test_accepts_silence(checks):
    zero = torch.zeros(2, 4)
    assert not ask(checks, checks.gather(zero, zero)).any()
    assert not ask(checks, checks.gather(zero), users_S=np.empty(0, dtype=np.int64)).any()
    loud = checks.like_everybody(2)
    assert not ask(checks, checks.gather(loud), probability=1e-12).any()


# The whole


def test_noiseless_and_unclipped_is_gradient_descent_on_the_mean_judgement(
    make_world, make_examples, oracle
):
    """With p = 1 and B the number of kept judgements, which is so when every user has G."""
    examples = make_examples([6] * 5)
    world = make_world(
        examples,
        nodes=2,
        **{**ELS, "clip": ExampleClip(10.0)},  # longer than every row
        group_size=6,
        probability=1.0,
        rounds=6,
        noise_multiplier=1e-9,
        optimizer={"rate": 2.0, "momentum": 0.0, "averaging": 0.0},
    )

    def mean(theta_D):
        return oracle(examples, theta_D, torch.arange(30))

    world.descends(mean, examples, rate=2.0, rounds=6, terms=20)
    assert np.linalg.norm(world.strategy.optimizer.theta_D) > 0.3


def test_els_and_uls_agree_without_noise_and_clipping_where_users_are_equal(
    make_world, make_examples
):
    """Everybody has G judgements and takes part in full: both are the mean over all judgements."""
    examples = make_examples([6] * 5)  # of rows shorter than 10: a step of the grid is 3e-8
    terms = {"rounds": 4, "noise_multiplier": 1e-9, "group_size": 6}
    of_els = {**ELS, **terms, "clip": ExampleClip(10.0), "probability": 1.0}
    of_uls = {**terms, "clip": UserClip(10.0), "cohort": 5}
    one, other = make_world(examples, **of_els), make_world(examples, **of_uls)
    for mine, theirs in zip(one.run(4), other.run(4), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
    # Not so where users differ: ULS gives each user, ELS each judgement, the same weight.
    examples = make_examples([1, 6, 6, 6, 6])
    one, other = make_world(examples, **of_els), make_world(examples, **of_uls)
    assert np.abs(one.run(1)[0] - other.run(1)[0]).max() > 1e-3


def test_everybody_is_asked_every_round(make_world, make_examples):
    world = make_world(make_examples([1] * 9), **ELS, group_size=1, probability=0.01)
    assert world.strategy.sample_cohort(1).tolist() == list(range(9))
    world.run(3)
    assert [line["cohort"] for line in world.log if "cohort" in line] == [9, 9, 9]


def test_batches_are_poisson_and_divided_by_their_nominal_size(make_world, checks):
    """With hardly any noise and judgements alike, a round's length tells how many were in: their
    number is Binomial(120, 0.3)."""
    examples = checks.gather(*[checks.like_everybody(4)] * 30)
    still = {"noise_multiplier": 1e-9, "optimizer": {"rate": 1e-9}}
    world = make_world(examples, **ELS, group_size=4, probability=0.3, **still)
    kept = [float(np.linalg.norm(g)) * world.strategy.plan.divisor for g in world.run(10)]
    assert len({round(k) for k in kept}) > 1
    assert np.allclose(kept, np.round(kept), atol=1e-3)
    score = sum((k - 36) ** 2 / (120 * 0.3 * 0.7) for k in kept)
    assert min(stats.chi2.cdf(score, 10), stats.chi2.sf(score, 10)) > 1e-4


def test_golden_trajectory(make_world, make_examples):
    world = make_world(
        make_examples([1, 3, 9, 2, 12, 40]),
        **{**ELS, "clip": ExampleClip(0.4)},
        group_size=4,
        probability=0.6,
        seed=5,
    )
    world.run(5)
    np.testing.assert_allclose(world.strategy.optimizer.theta_D, GOLDEN, atol=1e-5)


def test_what_choosing_cost_counts_against_the_budget(make_world, make_examples, tmp_path):
    plan = ElsPlan.for_epsilon(1.0, **{**PLAN, "rounds": 2}, chosen_at=0.2)
    terms = {"adjacency": plan.adjacency, "delta": plan.delta, "budget": 1.0}
    world = make_world(make_examples([1]), **ELS, group_size=1, probability=0.5).strategy
    more = {
        "participants": world.participants,
        "optimizer": world.optimizer,
        "source": world.source,
        "features": "",
        "log": print,
    }
    with Ledger(tmp_path / "l", **terms) as ledger:
        ledger.charge(PureChoice(0.2), round_=0, covers="median")
        strategy = Els(plan, ledger, **more)
        for round_ in (1, 2):
            strategy.gradient(round_, {"sum": np.zeros(5)})
        assert 0.999 < ledger.epsilon() <= 1.0
        with pytest.raises(BudgetExceeded):
            strategy.gradient(3, {"sum": np.zeros(5)})
    # What was spent otherwise was not planned for: the whole plan stays reserved.
    with Ledger(tmp_path / "other", **terms) as ledger:
        ledger.charge(PureDp(0.2), round_=0, covers="median")
        strategy = Els(plan, ledger, **more)
        with pytest.raises(BudgetExceeded):
            strategy.gradient(1, {"sum": np.zeros(5)})
        assert len(ledger.charges) == 1


# ELS and group privacy from settings to a finished run: the group size, its cost, resuming.


#: Of who is held out at ε = 0.5: the coins, and what is told.
HELD_OUT = HoldOut(0.2), HoldOut(0.2, 0.25)


def charges(result):
    return [charge.event for charge in read_charges(Path(result["out"]) / "ledger.jsonl")]


@pytest.mark.usefixtures("quick_runs")
def test_the_median_is_released_once_and_paid_for(config):
    result = run(config)
    first, coins, *rounds, figures = charges(result)
    assert (coins, figures) == HELD_OUT
    assert first == PureChoice(MEDIAN_SHARE * 0.5)
    assert result["group_size"] in GRID
    probability = els.same_compute(2, 40, result["group_size"])
    event = MixtureGaussian(result["noise_multiplier"], result["group_size"], probability)
    assert rounds == [event] * 4
    assert result["epsilon"] <= 0.5
    # What is left for the rounds is what choosing the group size has not taken, and a little more:
    # nobody is in them who is held out.
    alone = accountant.epsilon([(event, 4)], adjacency=Adjacency.ADD_REMOVE, delta=1e-3)
    assert 0.475 < alone < 0.6
    assert result["epsilon"] > 0.999 * 0.5
    kept = json.loads((Path(result["out"]) / "released.json").read_text())
    assert kept.keys() == {"group-size", "held-out figures", "check"}
    assert kept["group-size"] == result["group_size"]


@pytest.mark.usefixtures("quick_runs")
def test_a_given_group_size_costs_nothing(config):
    result = run(config.changed(group_size=3, sampling_probability=0.05))
    rounds = [MixtureGaussian(result["noise_multiplier"], 3, 0.05)] * 4
    assert charges(result) == [HELD_OUT[0], *rounds, HELD_OUT[1]]
    assert 0.4995 < result["epsilon"] <= 0.5
    assert result["gradients"] == pytest.approx(4 * 0.05 * 3 * 40 / sums.DEFAULT_GROUP_SIZE)


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("seed", [3, -1])
def test_a_resumed_run_keeps_its_group_size(config, seed, monkeypatch):
    config = replace(config, seed=seed)
    asked = els.Els.gradient

    def killed(self, round_, totals):
        if round_ == 3:
            raise KeyboardInterrupt
        return asked(self, round_, totals)

    monkeypatch.setattr(els.Els, "gradient", killed)
    with pytest.raises(KeyboardInterrupt):
        run(config)
    monkeypatch.setattr(els.Els, "gradient", asked)
    result = run(replace(config, resume=True))
    spent = charges(result)
    assert sum(isinstance(event, PureChoice) for event in spent) == 1
    assert len(set(spent) - {*HELD_OUT}) == 2
    assert (result["rounds"], result["stopped"]) == (4, None)


@pytest.mark.usefixtures("quick_runs")
def test_the_group_size_is_learnt_under_masks_too(config):
    bare = replace(config, adjacency="zero-out")
    plain = run(bare, nodes=5)
    masked = run(replace(bare, secure_aggregation=True, out=config.out + "-masked"), nodes=5)
    assert masked["group_size"] == plain["group_size"]
    assert charges(masked)[0] == PureChoice(MEDIAN_SHARE * 0.5)


@pytest.mark.usefixtures("quick_runs")
def test_too_few_nodes_for_masks_are_refused_before_the_group_size_is_paid_for(config):
    with pytest.raises(InputError, match="needs 3 nodes"):
        run(replace(config, adjacency="zero-out", secure_aggregation=True), nodes=2)
    assert not Path(config.out).exists()


@pytest.mark.usefixtures("quick_runs")
def test_group_privacy_that_diverges_is_one_line(config):
    with pytest.raises(InputError, match=r"cannot be certified for 4 releases: .* choose at least"):
        run(replace(config, strategy="group", group_size=400, epsilon=0.01, delta=1e-100))
    assert not Path(config.out).exists()


# The group-privacy baseline: ELS with the noise of a black-box conversion.


GROUP_PLAN = {
    "users": 100,
    "group_size": 3,
    "probability": 0.1,
    "rounds": 4,
    "delta": 1e-4,
    "adjacency": Adjacency.ADD_REMOVE,
    "clip": ExampleClip(0.3),
}
GROUP = {"strategy": Group, "kind": GroupPlan, "clip": ExampleClip(1.0)}


def test_a_diverging_conversion_is_refused_with_the_largest_group_that_works():
    plan = GroupPlan(**{**GROUP_PLAN, "group_size": 2000}, noise_multiplier=9.0)
    with pytest.raises(ValueError, match=r"certifies nothing for 2000 .* --strategy els") as caught:
        plan.epsilon()
    found = re.search(r"largest --group-size that works here is (\d+)", str(caught.value))
    assert found
    works = int(found[1])
    GroupPlan(**{**GROUP_PLAN, "group_size": works}, noise_multiplier=9.0).epsilon()
    with pytest.raises(ValueError, match="certifies nothing"):
        GroupPlan(**{**GROUP_PLAN, "group_size": works + 1}, noise_multiplier=9.0).epsilon()


def test_a_target_that_no_noise_meets_is_refused_too():
    fields = {**GROUP_PLAN, "group_size": 5000, "rounds": 2000, "delta": 1e-9}
    with pytest.raises(ValueError, match="certifies nothing for 5000"):
        GroupPlan.for_epsilon(0.01, **fields)


def test_runs_as_els_does(make_world, make_examples):
    examples = make_examples([1, 30, 3, 1, 8])
    terms = {"group_size": 3, "probability": 0.5, "noise_multiplier": 5.0, "seed": 3}
    one = make_world(examples, **GROUP, **terms)
    other = make_world(examples, **{**GROUP, "strategy": Els, "kind": ElsPlan}, **terms)
    for mine, theirs in zip(one.run(3), other.run(3), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert one.ledger.spent() == {GroupGaussian(5.0, 3, 0.5): 3}
    assert one.ledger.epsilon() > other.ledger.epsilon()


def test_what_is_retained_is_the_same_in_a_round_that_is_drawn_again():
    start_U, users_S = torch.tensor([0, 50, 80]), np.arange(2)
    keys_S, source = np.array([7, 8], dtype=np.uint64), Randomness(3)
    kept = [
        retained(start_U, users_S, keys_S, 4, source.again(draw))[0].tolist() for draw in range(6)
    ]
    assert kept == kept[:1] * 6
    assert kept[0] != retained(start_U, users_S, keys_S, 4, Randomness(4))[0].tolist()
