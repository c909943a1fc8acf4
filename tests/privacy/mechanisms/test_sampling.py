import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import (
    CyclicSampler,
    PoissonSampler,
    whole_groups,
)


def draws(probability, users, seed=0):
    sampler, source = PoissonSampler(probability), Randomness(seed)
    return lambda round_: sampler.draw(names(users), source, round_)


def names(users):
    """Close to each other, which a coin must not see."""
    return np.arange(users, dtype=np.uint64)


@pytest.mark.parametrize("probability", [0.02, 0.2, 0.5, 0.9])
def test_every_user_has_an_independent_coin(checks, probability):
    checks.poisson_cohorts(draws(probability, 60), users=60, probability=probability, rounds=3_000)


def test_the_check_rejects_a_cohort_of_fixed_size(checks):
    generator = np.random.default_rng(0)
    with pytest.raises(AssertionError, match="covariance"):
        checks.poisson_cohorts(
            lambda _: generator.choice(60, 12, replace=False),
            users=60,
            probability=0.2,
            rounds=3_000,
        )


@pytest.mark.parametrize("claimed", [0.2 * 0.93, 0.2 * 1.07])
def test_the_check_rejects_another_probability(checks, claimed):
    with pytest.raises(AssertionError):
        checks.poisson_cohorts(draws(0.2, 60), users=60, probability=claimed, rounds=3_000)


def test_cohort_sizes_of_a_real_plan_are_binomial(checks):
    draw = draws(540 / 2717, 2717, seed=3)
    sizes = np.array([len(draw(round_)) for round_ in range(2_000)])
    checks.binomial_sizes(sizes, 2717, 540 / 2717)
    with pytest.raises(AssertionError):
        checks.binomial_sizes(np.full(2_000, 540), 2717, 540 / 2717)


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.01, 0.333, 0.334, 0.7])
def test_every_user_has_an_independent_coin_at_length(checks, probability):
    checks.poisson_cohorts(
        draws(probability, 200, seed=1), users=200, probability=probability, rounds=60_000
    )


@given(
    st.integers(0, 400),
    st.floats(0.0, 1.0, exclude_min=True, allow_subnormal=True),
    st.integers(0, 2**32),
)
def test_any_cohort_is_ascending_distinct_and_in_range(users, probability, seed):
    cohort = PoissonSampler(probability).draw(names(users), Randomness(seed), 1)
    assert cohort.dtype == np.int64
    assert cohort.ndim == 1
    assert (np.diff(cohort) > 0).all()
    assert ((cohort >= 0) & (cohort < users)).all()


@given(st.integers(0, 5_000))
def test_probability_one_takes_everybody(users):
    cohort = PoissonSampler(1.0).draw(names(users), Randomness(0), 1)
    assert cohort.tolist() == list(range(users))


@pytest.mark.parametrize("probability", [0.3, 0.999999, 1.0])
def test_a_single_user_is_flipped_for(probability):
    draw = draws(probability, 1)
    hits = sum(len(draw(round_)) for round_ in range(2_000))
    if probability == 1.0:
        assert hits == 2_000
    else:
        assert stats.binomtest(hits, 2_000, probability).pvalue > 1e-6


def test_nobody_is_drawn_from_nobody():
    for probability in (1e-9, 0.5, 1.0):
        assert draws(probability, 0)(1).tolist() == []


@pytest.mark.parametrize("probability", [5e-324, 1e-300, 1e-18])
def test_a_tiny_probability_neither_overflows_nor_includes(probability):
    for round_ in range(200):
        assert len(draws(probability, 1_000)(round_)) == 0


@given(st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=60), st.data())
def test_who_else_is_drawn_does_not_change(drawn_from, data):
    """When a user comes, goes or moves, in whatever order the others stand."""
    everybody = np.array(data.draw(st.permutations(sorted(drawn_from))), dtype=np.uint64)
    one, sampler, source = int(everybody[0]), PoissonSampler(0.4), Randomness(5)

    def drawn(names_N):
        return set(names_N[sampler.draw(names_N, source, 3)].tolist())

    assert drawn(everybody) - {one} == drawn(everybody[1:])
    assert drawn(everybody) == drawn(everybody[::-1].copy())


def test_without_a_seed_every_draw_has_coins_of_its_own():
    sampler, source = PoissonSampler(0.5), Randomness(None)
    found = {tuple(sampler.draw(names(100), source, 1).tolist()) for _ in range(5)}
    assert len(found) == 5


def test_without_a_seed_coins_are_independent(checks):
    sampler, source = PoissonSampler(0.2), Randomness(None)
    checks.poisson_cohorts(
        lambda round_: sampler.draw(names(60), source, round_),
        users=60,
        probability=0.2,
        rounds=3_000,
    )


def test_a_seeded_round_is_drawn_the_same_again_and_others_are_not():
    cohort = draws(0.2, 500)(7)
    assert np.array_equal(cohort, draws(0.2, 500)(7))
    assert not np.array_equal(cohort, draws(0.2, 500)(8))
    assert not np.array_equal(cohort, draws(0.2, 500, seed=1)(7))


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.0000001, float("nan"), float("inf")])
def test_a_probability_out_of_range_is_refused(probability):
    with pytest.raises(ValueError, match=r"sampling probability must be in \(0, 1\]"):
        PoissonSampler(probability)


# Groups that take turns


def test_groups_take_turns_and_each_user_is_in_one(checks):
    """Cohorts of a group are those of coins, and the groups nearly as large as each other."""
    names_N, sampler = np.arange(6_000, dtype=np.uint64), CyclicSampler(0.1, 4)
    seen = [set(), set(), set(), set()]
    for round_ in range(1, 81):
        cohort = sampler.draw(names_N, Randomness(3), round_)
        assert np.all(np.diff(cohort) > 0)
        seen[(round_ - 1) % 4].update(cohort.tolist())
    assert sum(map(len, seen)) == len(set().union(*seen)) > 5_990
    for of_group in seen:
        checks.near_zero((len(of_group) - 1_500) / math.sqrt(6_000 * 3 / 16), "size of a group")
    mine = np.array(sorted(seen[2]), dtype=np.uint64)
    checks.poisson_cohorts(
        lambda turn: sampler.draw(mine, Randomness(5), 3 + 4 * turn),
        users=len(mine),
        probability=0.4,
        rounds=300,
    )


@pytest.mark.parametrize("seed", [None, 4])
def test_a_group_depends_on_a_name_alone(seed):
    """Whoever else is there, in whatever order, in this process or another."""
    names_N, sampler = np.arange(900, dtype=np.uint64), CyclicSampler(1 / 3, 3)
    groups = [set(sampler.draw(names_N, Randomness(seed), r).tolist()) for r in (1, 2, 3)]
    few_N = names_N[::-7]
    for round_, group in zip((1, 2, 3), groups, strict=True):
        drawn = few_N[sampler.draw(few_N, Randomness(seed), round_ + 30)]
        assert set(drawn.tolist()) == group & set(few_N.tolist())


@pytest.mark.parametrize(
    ("share", "groups", "message"),
    [
        (0.4, 3, "lower --cohort, or raise --users"),
        (0.01, 0, "at least one group"),
        (0.01, True, "at least one group"),
        (0.0, 2, "sampling probability"),
    ],
)
def test_turns_that_cannot_be_are_refused(share, groups, message):
    with pytest.raises(ValueError, match=message):
        CyclicSampler(share, groups)


def test_a_whole_group_is_asked_where_all_turns_are_needed():
    assert CyclicSampler(0.2, 5).of_group.probability == 1.0
    assert CyclicSampler(1 / 3, 3).of_group.probability == 1.0


@pytest.mark.parametrize(
    ("users", "cohort", "groups"), [(100, 20, 5), (102, 20, 5), (104, 21, 5), (7, 7, 1), (9, 1, 9)]
)
def test_as_many_groups_as_a_cohort_takes(users, cohort, groups):
    assert whole_groups(users, cohort) == groups
    assert abs(users / groups - cohort) < 1.0


@pytest.mark.parametrize("users", [99, 2_700])
def test_every_cohort_makes_whole_groups_or_is_told_which_do(users):
    for cohort in range(1, users + 1):
        try:
            groups = whole_groups(users, cohort)
        except ValueError as error:
            near = [
                int(text.replace(",", ""))
                for text in re.findall(r"--cohort ([\d,]+) \(", str(error))
            ]
            assert len(near) == 2
            assert near[0] < cohort < near[1]
            for other in near:
                whole_groups(users, other)
        else:
            assert abs(users / groups - cohort) < 1.0
