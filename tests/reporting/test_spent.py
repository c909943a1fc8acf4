"""What an attacker may reach: against the region of (epsilon, delta), and at its ends."""

import math

import pytest
from closed_forms import found_at_most

from murmuration.reporting.spent import sure_at_most


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("f", [0.001, 0.01, 0.5])
def test_randomized_response_reaches_it_where_it_can(epsilon, f):
    told = math.exp(epsilon) / (1 + math.exp(epsilon))  # the point (1 - told, told) is reached
    assert found_at_most(epsilon, 0.0, 1 - told) == pytest.approx(told)
    assert f <= found_at_most(epsilon, 1e-5, f) <= 1


def test_by_the_table_of_attacks():
    assert found_at_most(1.0, 1e-5, 0.01) == pytest.approx(0.0272, abs=1e-4)
    assert found_at_most(8.0, 1e-5, 0.01) > 0.999
    assert found_at_most(math.inf, 1e-5, 0.01) == 1.0


def test_odds_grow_by_e_to_the_epsilon():
    assert sure_at_most(0.0, 0.3) == pytest.approx(0.3)
    assert sure_at_most(1.0) == pytest.approx(math.e / (1 + math.e))
    assert sure_at_most(math.inf) == sure_at_most(1000.0) == 1.0
