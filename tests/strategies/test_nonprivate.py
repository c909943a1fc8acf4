"""The non-private twin: exact averages, and a ledger that says so."""

import math

import numpy as np
import pytest
import torch

from murmuration.privacy.accounting.events import Unprotected
from murmuration.strategies.nonprivate import NonPrivate, NonPrivatePlan, client_update_exactly


class Twin(NonPrivate):
    """Takes a ULS plan's sizes, so that it fits where ULS does."""

    def __init__(self, plan, ledger, **arguments):
        sizes = plan.users, plan.cohort, plan.rounds, plan.group_size
        super().__init__(NonPrivatePlan(*sizes), ledger, **arguments)


def test_exact_mean_over_the_nominal_cohort(make_world, make_examples, oracle):
    counts = [1, 3, 9, 2]
    examples = make_examples(counts, scale=10.0)
    world = make_world(examples, strategy=Twin, cohort=4, nodes=2)
    (released,) = world.run(1)
    edges = np.cumsum([0, *counts])
    means = [oracle(examples, np.zeros(5), torch.arange(*edges[u : u + 2])) for u in range(4)]
    np.testing.assert_allclose(released, torch.stack(means).mean(0).numpy(), rtol=1e-5)


def test_denominator_is_fixed(make_world, checks):
    world = make_world(
        checks.gather(*[checks.like_everybody(2)] * 30),
        strategy=Twin,
        cohort=9,
        optimizer={"rate": 1e-9},
    )
    checks.fixed_denominator(world)


def test_ledger_says_that_nothing_is_promised(make_world, make_examples):
    world = make_world(make_examples([1, 2, 3]), strategy=Twin)
    world.run(2)
    assert world.ledger.spent() == {Unprotected(): 2}
    assert math.isinf(world.ledger.epsilon())


def test_nonprivate_survives_nan(checks):
    broken = torch.full((2, 4), torch.nan)
    rows = checks.like_everybody(2)
    found = checks.ask(client_update_exactly, checks.gather(rows, broken))
    np.testing.assert_array_equal(found, checks.ask(client_update_exactly, checks.gather(rows)))


def test_admits_what_is_finite(make_world, make_examples):
    strategy = make_world(make_examples([1, 2]), strategy=Twin).strategy
    assert strategy.is_valid({"sum": np.full(3, 1e30)}, 1)
    assert not strategy.is_valid({"sum": np.array([1.0, np.nan])}, 1)


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="--cohort 5 is more than the 4 users"):
        NonPrivatePlan(4, 5, 1)
