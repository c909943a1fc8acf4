"""AUP as published: each line of the algorithm, phases, halting, and what is charged."""

import math

import numpy as np
import pytest

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import ParallelEvent, PoissonGaussian, PureDp
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.aup.published import (
    FINDINGS,
    FIXED_SIZE,
    AupPublished,
    PublishedPlan,
    concentration_score,
    distances,
    keep_probabilities,
)
from murmuration.strategies.aup.schedule import Phase, doubling
from murmuration.strategies.base import Participants
from murmuration.strategies.protocol.messages import RegistryEntry
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.steps.optimizers import PhasedSgd

ADD = Adjacency.ADD_REMOVE
TWO = (Phase(50, 25, 4, 0.5, 1.0), Phase(100, 25, 6, 0.5, 1.0))


def plan(phases=TWO, **changes):
    fields = {"epsilon": 3.0, "delta": 1e-5, "adjacency": ADD}
    fields["noise_multipliers"] = (2.0,) * len(phases)
    return PublishedPlan(phases=phases, **{**fields, **changes})


@pytest.fixture
def world(make_filter_world, make_examples):
    """A function: a world of 60 users in one phase; everybody is near to everybody."""

    def make(*, phases=1, users=60, cohort=30, rounds=8, radius=50.0, scale=1.0, **changes):
        sizes = doubling(users, phases)
        made = tuple(
            Phase(size, min(cohort, size), rounds * size // sum(sizes), 0.5, radius)
            for size in sizes
        )
        run = {name: changes.pop(name) for name in ("nodes", "seed", "budget") if name in changes}
        examples = make_examples([3] * users, scale=scale)
        # A large epsilon, so that the test's noise is small beside a small cohort.
        fields = {"epsilon": 40.0, "noise_multipliers": (1e-4,) * phases, **changes}
        return make_filter_world(
            examples,
            AupPublished,
            plan(made, **fields),
            PhasedSgd(made, np.zeros(5, dtype=np.float32)),
            **run,
        )

    return make


# The plan


def test_a_plan_is_algorithm_2_line_by_line():
    made = plan()
    test = made.test(2)
    assert (test.threshold, test.epsilon, test.sensitivity) == (20.0, 1.5, 1.0)
    assert (test.threshold_scale, test.query_scale) == (2 / 1.5, 4 / 1.5)
    variance = 8 * 1.0**2 * math.log(math.exp(3.0) * 6 / 1e-5) * 2.0**2 / 25**2
    assert made.std(2) ** 2 == pytest.approx(variance)
    assert made.event(2) == PoissonGaussian(0.25, 2.0)
    assert [made.place(t) for t in (1, 4, 5, 10)] == [(1, 1), (1, 4), (2, 1), (2, 6)]
    with pytest.raises(ValueError, match="after the last phase"):
        made.place(11)


def test_noise_is_calibrated_at_half_of_epsilon_and_delta():
    made = PublishedPlan.for_epsilon(1.0, phases=TWO, delta=1e-5, adjacency=ADD)
    for number, phase in enumerate(TWO, start=1):
        cost = accountant.epsilon([(made.event(number), phase.rounds)], adjacency=ADD, delta=5e-6)
        assert 0.999 * 0.5 < cost <= 0.5
    claimed = accountant.epsilon(made.charges.items(), adjacency=ADD, delta=1e-5)
    assert 0.8 < claimed <= 1.0


def test_phases_are_charged_as_parts_and_one_phase_plainly():
    assert plan().charges == {
        ParallelEvent(1, PureDp(1.5)): 1,
        ParallelEvent(1, PoissonGaussian(0.5, 2.0)): 4,
        ParallelEvent(2, PureDp(1.5)): 1,
        ParallelEvent(2, PoissonGaussian(0.25, 2.0)): 6,
    }
    assert plan(TWO[:1]).charges == {PureDp(1.5): 1, PoissonGaussian(0.5, 2.0): 4}


@pytest.mark.parametrize(
    ("phases", "changes", "message"),
    [
        ((), {}, "noise multiplier of its own"),
        (TWO, {"noise_multipliers": (1.0,)}, "noise multiplier of its own"),
        ((Phase(50, 60, 4, 0.5, 1.0),), {}, "--cohort 60 is more"),
        ((Phase(50, 25, 4, 0.0, 1.0),), {}, "rate of a phase"),
        ((Phase(50, 25, 4, 0.5, math.nan),), {}, "radius of a phase"),
        (TWO, {"noise_multipliers": (0.0, 1.0)}, "noise multiplier must be"),
        (TWO, {"epsilon": -1.0}, "pure epsilon"),
        (TWO, {"as_run": True}, "there is one phase"),
    ],
)
def test_impossible_plans_cannot_be_built(phases, changes, message):
    with pytest.raises(ValueError, match=message):
        plan(phases, **changes)


def test_noise_limits_the_step_sizes_of_each_phase():
    rates = [phase.rate for phase in plan().noise_limited().phases]
    for rate, phase, number in zip(rates, TWO, (1, 2), strict=True):
        assert rate * plan().std(number) * math.sqrt(phase.rounds) == pytest.approx(0.25)
    assert plan(noise_multipliers=(1e-6, 1e-6)).noise_limited().phases == TWO


# The rounds


def test_only_the_users_of_a_phase_are_asked_and_they_are_never_shared(world):
    made = world(phases=2, users=200, cohort=20, rounds=9).strategy
    asked = [set(made.sample_cohort(round_).tolist()) for round_ in range(1, 10)]
    first, second = set().union(*asked[:3]), set().union(*asked[3:])
    assert first and second and not first & second
    assert len(first | second) < 180  # a quarter of all are in no phase
    sizes = [len(one) for one in asked[3:]]
    assert len(set(sizes)) > 1  # coins, not a draw of ñ


def test_as_run_exactly_so_many_of_all_users_are_asked_each_as_often(
    make_filter_world, make_examples
):
    phases = (Phase(60, 20, 200, 0.5, 50.0),)
    made = make_filter_world(
        make_examples([3] * 60),
        AupPublished,
        plan(phases, epsilon=40.0, noise_multipliers=(1e-4,), as_run=True),
        PhasedSgd(phases, np.zeros(5, dtype=np.float32)),
    ).strategy
    rounds = [made.sample_cohort(round_).tolist() for round_ in range(1, 201)]
    assert {len(set(one)) for one in rounds} == {20}
    asked_N = np.bincount(np.concatenate(rounds), minlength=60)
    # 200 draws of a third: 66.7 expected, standard deviation 6.7.
    assert len(asked_N) == 60 and asked_N.min() > 66.7 - 30 and asked_N.max() < 66.7 + 30
    assert made.sample_cohort(1).tolist() == rounds[0]
    assert FIXED_SIZE in made.notes()


def test_who_comes_or_goes_moves_nobody_into_another_phase(world):
    """A later registry has other users, in another order: names decide, not places in line."""
    made = world(phases=2, users=200, cohort=100, rounds=30).strategy
    keys_N = made.participants.registry.keys_N
    came = np.random.default_rng(5).integers(2**64, size=150, dtype=np.uint64)
    later_N = np.concatenate([came, keys_N[::-1][:120]])
    later = Participants.all(Registry.of({7: RegistryEntry(-1, later_N, None)}))
    asked = {1: set(), 2: set()}
    for participants in (made.participants, later):
        made.participants = participants
        for round_ in range(1, 31):
            named = participants.registry.keys_N[made.sample_cohort(round_)].tolist()
            asked[made.plan.place(round_)[0]] |= set(named)
    assert not asked[1] & asked[2]
    assert asked[2] & set(came.tolist()) and asked[2] - set(came.tolist())
    assert max(asked[1]) < 2**63 <= min(asked[2])  # the halves of ``phase_of``


def test_where_all_agree_it_is_the_mean_of_the_cohort(world, monkeypatch):
    made = world(rounds=2)
    seen = []
    real = made.strategy.gradient

    def gradient(round_, totals):
        seen.append(totals)
        return real(round_, totals)

    monkeypatch.setattr(made.strategy, "gradient", gradient)
    released = made.run(2)
    for totals, gradient_D in zip(seen, released, strict=True):
        rows_SD = totals["stack"][totals["present"] == 1]
        np.testing.assert_allclose(gradient_D, rows_SD.mean(axis=0), atol=0.2)


def test_noise_has_the_published_length(world, checks):
    made = world(scale=0.0, noise_multipliers=(1.0,))
    for gradient_D in made.run(6):
        checks.released_noise(gradient_D, made.strategy.plan.std(1))
    assert made.ledger.spent() == {PureDp(20.0): 1, made.strategy.plan.event(1): 6}


def test_a_crowd_that_does_not_agree_halts_it_and_what_was_planned_is_charged(world):
    made = world(radius=1e-6)
    released = made.run(8)
    assert released == []
    assert "stopped before round 1: the concentration test said no" in made.strategy.stopped
    assert made.ledger.spent() == made.strategy.plan.charges
    assert not made.strategy.optimizer.result_D.any()


def test_a_halted_phase_goes_over_to_the_next(world):
    made = world(phases=2, users=200, cohort=25, rounds=9, radius=1e-6)
    made.run(9)
    assert made.strategy.stopped.startswith("stopped before round 4")
    assert made.ledger.spent() == made.strategy.plan.charges
    assert [line["cohort"] for line in made.log][1:3] == [0, 0]  # nobody is asked in vain


def test_far_clusters_are_kept_by_coins(world):
    made = world(cohort=30)
    phase = made.strategy.plan.phases[0]
    near_SS = np.kron(np.eye(2, dtype=bool), np.ones((18, 18), dtype=bool))
    names_S = np.arange(36, dtype=np.uint64)
    coins = made.strategy._coins
    kept = np.array([coins(near_SS, names_S, phase, round_) for round_ in range(300)])
    turned = coins(near_SS, names_S[::-1], phase, 7)
    assert turned.tolist() == coins(near_SS, names_S, phase, 7)[::-1].tolist()
    expected = 6 * (18 / 30 - 0.5)
    assert abs(kept.mean() - expected) < 5 * math.sqrt(expected * (1 - expected) / kept.size)
    assert (kept[:, :18].any(axis=1) & kept[:, 18:].any(axis=1)).mean() > 0.9


def test_users_may_be_on_any_nodes(world):
    found = []
    for nodes in (1, 2, 9):
        made = world(nodes=nodes, radius=2.0, noise_multipliers=(0.01,))
        made.run(8)
        found.append(made.strategy.optimizer.result_D)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], atol=1e-6)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_resumed_phase_pays_for_another_test_and_rounds_that_were_lost(world, lost):
    made = world()
    made.run(3)
    state = {name: value.copy() for name, value in made.strategy.state().items()}
    made.run(3 + lost)
    again = world()
    again.strategy.restore(state)
    again.strategy.rounds_done, again.strategy.ledger = 3, made.ledger
    again.run(8)
    plan, spent = made.strategy.plan, made.ledger.spent()
    (number, _) = plan.place(3 + 1)
    assert spent[plan.test(number).event] >= 2
    assert sum(c.covers == "filtered mean, as published" for c in made.ledger.charges) == 8 + lost


def test_it_says_what_was_found_out(world):
    assert world().strategy.notes() == list(FINDINGS)
    assert "not a guarantee" in FINDINGS[0]


def test_the_figures_in_the_findings():
    # A cohort of 101 in two far halves: score 51² + 50² over 101, threshold 4/5 of 101.
    test = plan((Phase(1000, 101, 5, 1.0, 1.0),), epsilon=1.0).test(1)
    gap = test.threshold - (51**2 + 50**2) / 101
    assert test.passing(gap) == pytest.approx(0.015, abs=0.0005)
    anybody_kept = 1 - (1 - 6 * (51 / 101 - 0.5)) ** 51
    assert anybody_kept == pytest.approx(0.785, abs=0.001)
    assert test.margin(1e-5) == pytest.approx(89, abs=0.5)


def test_golden_trajectory(world):
    made = world(nodes=3, radius=2.0, noise_multipliers=(0.01,))
    made.run(8)
    golden = [0.0049270, -0.0732392, 0.0473910, 0.0922624, 0.0026306]
    np.testing.assert_allclose(made.strategy.optimizer.result_D, golden, atol=2e-5)


# The filter


def _near(rows_SD, radius):
    return distances(rows_SD) <= radius


def test_keep_probabilities_are_those_of_line_12():
    found = keep_probabilities(np.array([10, 50, 55, 60, 66, 67, 100]), 100)
    np.testing.assert_allclose(found, [0, 0, 0.3, 0.6, 0.96, 1, 1])


def test_published_score_is_that_of_line_8_and_moves_by_nearly_two():
    rows_SD = np.array([[0.0], [0.0], [0.0], [9.0], [9.0]])
    assert concentration_score(_near(rows_SD, 1.0), 5) == pytest.approx((9 + 4) / 5)
    for size in (4, 99):
        together = np.zeros((size + 1, 1))
        moved = concentration_score(_near(together, 1.0), size) - concentration_score(
            _near(together[:-1], 1.0), size
        )
        assert moved == pytest.approx((2 * size + 1) / size)
        # One of ñ = size + 1 users is swapped: from near to all to near to none.
        swapped = together.copy()
        swapped[-1] = 9.0
        moved = concentration_score(_near(together, 1.0), size + 1) - concentration_score(
            _near(swapped, 1.0), size + 1
        )
        assert moved == pytest.approx(2 * size / (size + 1))
    assert moved > 1.9
