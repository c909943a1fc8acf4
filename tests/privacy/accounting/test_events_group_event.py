"""Rounds for group privacy: accounted together, and apart from everything else."""

import math

import pytest

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.composition import composition
from murmuration.privacy.accounting.events import GroupGaussian, PoissonGaussian, PureDp
from murmuration.privacy.accounting.group_privacy import group_epsilon
from murmuration.privacy.adjacency import Adjacency

TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-6, "interval": 1e-3}


def test_epsilon_is_that_of_the_conversion():
    event = GroupGaussian(2.0, 3, 0.05)
    found = accountant.epsilon([(event, 40)], **TERMS)
    example = [(PoissonGaussian(0.05, 2.0), 40)]
    assert found == group_epsilon(example, group_size=3, **TERMS)
    assert found > 3 * accountant.epsilon(example, **TERMS)


def test_two_kinds_of_rounds_with_one_group_size_are_converted_together():
    charges = [(GroupGaussian(2.0, 3, 0.05), 20), (GroupGaussian(3.0, 3, 0.1), 20)]
    together = accountant.epsilon(charges, **TERMS)
    assert together < sum(accountant.epsilon([charge], **TERMS) for charge in charges)


def test_with_anything_else_epsilons_add_up_and_delta_is_shared():
    grouped, other = (GroupGaussian(2.0, 3, 0.05), 20), (PoissonGaussian(0.1, 2.0), 10)
    half = {**TERMS, "delta": 5e-7}
    expected = accountant.epsilon([grouped], **half) + accountant.epsilon([other], **half)
    assert accountant.epsilon([grouped, other], **TERMS) == pytest.approx(expected, rel=1e-12)
    with_pure = accountant.epsilon([grouped, (PureDp(0.25), 1)], **TERMS)
    assert with_pure == pytest.approx(accountant.epsilon([grouped], **half) + 0.25, abs=2e-3)
    sizes = [(GroupGaussian(2.0, 2, 0.05), 20), grouped]
    apart = sum(accountant.epsilon([charge], **half) for charge in sizes)
    assert accountant.epsilon(sizes, **TERMS) == pytest.approx(apart, rel=1e-12)


def test_never_as_a_single_rounds_loss():
    with pytest.raises(ValueError, match="converts all rounds together"):
        composition([(GroupGaussian(2.0, 3, 0.05), 4)], adjacency=Adjacency.ADD_REMOVE)


def test_a_diverging_conversion_is_infinite():
    assert math.isinf(accountant.epsilon([(GroupGaussian(2.0, 200, 0.5), 500)], **TERMS))


def test_ledgers_can_read_it():
    event = GroupGaussian(2.0, 3, 0.05)
    assert events.from_json(events.to_json(event)) == event


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((0.0, 3, 0.1), "noise multiplier"),
        ((math.nan, 3, 0.1), "noise multiplier"),
        ((1.0, 0, 0.1), "group size"),
        ((1.0, 2.5, 0.1), "group size"),
        ((1.0, 2, 0.0), "probability"),
        ((1.0, 2, 1.1), "probability"),
    ],
)
def test_fields_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        GroupGaussian(*fields)
