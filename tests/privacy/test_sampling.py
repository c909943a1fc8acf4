from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privacy.randomness import Randomness
from privacy.sampling import PoissonSampler


def draws(probability: float, users: int, seed: int = 0):
    sampler, source = PoissonSampler(probability), Randomness(seed)
    return lambda round_: sampler.draw(users, source.stream("cohort", round_))


@pytest.mark.parametrize("probability", [0.02, 0.2, 0.5, 0.9])
def test_every_user_has_an_independent_coin(checks: SimpleNamespace, probability: float) -> None:
    checks.poisson_cohorts(draws(probability, 60), users=60, probability=probability, rounds=3_000)


def test_the_check_rejects_a_cohort_of_fixed_size(checks: SimpleNamespace) -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(AssertionError, match="covariance"):
        checks.poisson_cohorts(
            lambda _: generator.choice(60, 12, replace=False),
            users=60,
            probability=0.2,
            rounds=3_000,
        )


@pytest.mark.parametrize("claimed", [0.2 * 0.93, 0.2 * 1.07])
def test_the_check_rejects_another_probability(checks: SimpleNamespace, claimed: float) -> None:
    with pytest.raises(AssertionError):
        checks.poisson_cohorts(draws(0.2, 60), users=60, probability=claimed, rounds=3_000)


def test_cohort_sizes_of_a_real_plan_are_binomial(checks: SimpleNamespace) -> None:
    draw = draws(540 / 2717, 2717, seed=3)
    sizes = np.array([len(draw(round_)) for round_ in range(2_000)])
    checks.binomial_sizes(sizes, 2717, 540 / 2717)
    with pytest.raises(AssertionError):
        checks.binomial_sizes(np.full(2_000, 540), 2717, 540 / 2717)


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.01, 0.333, 0.334, 0.7])
def test_every_user_has_an_independent_coin_at_length(
    checks: SimpleNamespace, probability: float
) -> None:
    # Around 1/3 the generator changes its method for geometric draws.
    checks.poisson_cohorts(
        draws(probability, 200, seed=1), users=200, probability=probability, rounds=60_000
    )


@given(
    st.integers(0, 400),
    st.floats(0.0, 1.0, exclude_min=True, allow_subnormal=True),
    st.integers(0, 2**32),
)
def test_any_cohort_is_ascending_distinct_and_in_range(
    users: int, probability: float, seed: int
) -> None:
    cohort = PoissonSampler(probability).draw(users, np.random.default_rng(seed))
    assert cohort.dtype == np.int64
    assert cohort.ndim == 1
    assert (np.diff(cohort) > 0).all()
    assert ((cohort >= 0) & (cohort < users)).all()


@given(st.integers(0, 5_000))
def test_probability_one_takes_everybody(users: int) -> None:
    cohort = PoissonSampler(1.0).draw(users, np.random.default_rng(0))
    assert cohort.tolist() == list(range(users))


@pytest.mark.parametrize("probability", [0.3, 0.999999, 1.0])
def test_a_single_user_is_flipped_for(probability: float) -> None:
    draw = draws(probability, 1)
    hits = sum(len(draw(round_)) for round_ in range(2_000))
    if probability == 1.0:
        assert hits == 2_000
    else:
        assert stats.binomtest(hits, 2_000, probability).pvalue > 1e-6


def test_nobody_is_drawn_from_nobody() -> None:
    for probability in (1e-9, 0.5, 1.0):
        assert draws(probability, 0)(1).tolist() == []


@pytest.mark.parametrize("probability", [5e-324, 1e-300, 1e-18])
def test_a_tiny_probability_neither_overflows_nor_includes(probability: float) -> None:
    for round_ in range(200):
        assert len(draws(probability, 1_000)(round_)) == 0


def test_work_grows_with_the_cohort_and_not_with_the_users() -> None:
    users = 10**12  # a coin for each would take days
    places = np.concatenate([draws(1e-9, users)(round_) for round_ in range(20)])
    assert abs(len(places) - 20_000) < 5 * 20_000**0.5
    assert stats.kstest(places / users, "uniform").pvalue > 1e-6


def test_a_seeded_round_is_drawn_the_same_again_and_others_are_not() -> None:
    cohort = draws(0.2, 500)(7)
    assert np.array_equal(cohort, draws(0.2, 500)(7))
    assert not np.array_equal(cohort, draws(0.2, 500)(8))
    assert not np.array_equal(cohort, draws(0.2, 500, seed=1)(7))


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.0000001, float("nan"), float("inf")])
def test_a_probability_out_of_range_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match=r"sampling probability must be in \(0, 1\]"):
        PoissonSampler(probability)
