import math

import numpy as np
import pytest

from murmuration.strategies.aup.schedule import doubling, phase_of, theorem_4


def test_doubling_is_algorithm_1():
    assert doubling(1000, 1) == [500]
    assert doubling(1000, 3) == [125, 250, 500]
    for phases in (0, 11):
        with pytest.raises(ValueError, match="phases"):
            doubling(1000, phases)


@pytest.mark.parametrize("phases", [1, 2, 4])
def test_everybody_has_one_phase_by_a_coin_of_their_own(phases):
    keys_N = np.random.default_rng(0).integers(0, 2**64, size=40_000, dtype=np.uint64)
    found = phase_of(keys_N, phases)
    shares = [2.0**-phases, *(2.0 ** -(phases + 1 - i) for i in range(1, phases + 1))]
    for phase, share in enumerate(shares):
        count = int((found == phase).sum())
        assert abs(count - 40_000 * share) < 5 * math.sqrt(40_000 * share * (1 - share))
    assert found.max() == phases
    np.testing.assert_array_equal(phase_of(keys_N[:7], phases), found[:7])  # nobody else matters


def test_extreme_names():
    names = np.array([0, 2**62, 2**63, 2**64 - 1], dtype=np.uint64)
    assert phase_of(names, 2).tolist() == [0, 1, 2, 2]


def test_theorem_4():
    n, m, d, epsilon, delta = 2500, 10, 32, 3.0, 1e-5
    phases = theorem_4(
        n, m, d, epsilon=epsilon, delta=delta, rounds=200, lipschitz=1.5, norm_bound=2.0
    )
    assert len(phases) == math.ceil(math.log2(math.log2(m * n))) == 4
    assert [p.users for p in phases] == [156, 312, 625, 1250]
    assert sum(p.rounds for p in phases) == 200
    assert phases[3].rounds > 3 * phases[2].rounds > 9 * phases[1].rounds
    for p in phases:
        assert p.cohort == p.users
        radius = math.log(p.users * d * m * math.exp(epsilon) * p.rounds / delta) * 4 * 1.5
        assert p.radius == pytest.approx(radius / math.sqrt(m))
        log_squared = math.log(m * p.users * d / delta) ** 2
        steps = (
            math.sqrt(m) * p.users * epsilon / (p.rounds * math.sqrt(d * log_squared)),
            p.rounds**-0.75,
            math.sqrt(p.users * m) / p.rounds,
        )
        assert p.rate == pytest.approx(2.0 / (4 * 1.5) * min(steps))


def test_each_phase_needs_a_round():
    terms = {"epsilon": 3.0, "delta": 1e-5, "lipschitz": 1.0, "norm_bound": 2.0}
    with pytest.raises(ValueError, match="--rounds 3 is less than one round for each of 4 phases"):
        theorem_4(2500, 10, 32, rounds=3, **terms)
