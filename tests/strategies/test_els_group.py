"""The group-privacy baseline: ELS with the noise of a black-box conversion."""

import re

import numpy as np
import pytest

from murmuration.privacy.accounting.events import GroupGaussian, PoissonGaussian
from murmuration.privacy.accounting.group_privacy import group_epsilon
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.strategies.els import Els, ElsPlan, Group, GroupPlan, check

PLAN = {
    "users": 100,
    "group_size": 3,
    "probability": 0.1,
    "rounds": 4,
    "delta": 1e-4,
    "adjacency": Adjacency.ADD_REMOVE,
    "clip": ExampleClip(0.3),
}
GROUP = {"strategy": Group, "kind": GroupPlan, "clip": ExampleClip(1.0)}


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_for_epsilon_meets_its_target_from_below(adjacency):
    plan = GroupPlan.for_epsilon(0.5, **{**PLAN, "adjacency": adjacency})
    assert 0.99 * 0.5 < plan.epsilon() <= 0.5
    example = [(PoissonGaussian(0.1, plan.noise_multiplier), 4)]
    terms = {"adjacency": adjacency, "delta": 1e-4}
    assert plan.epsilon() == group_epsilon(example, group_size=3, **terms)
    assert plan.charges == {GroupGaussian(plan.noise_multiplier, 3, 0.1): 4}


def test_needs_more_noise_than_els_and_as_much_for_one_judgement():
    group, els = GroupPlan.for_epsilon(0.5, **PLAN), ElsPlan.for_epsilon(0.5, **PLAN)
    assert group.noise_multiplier > els.noise_multiplier
    one = {**PLAN, "group_size": 1}
    assert GroupPlan.for_epsilon(0.5, **one).noise_multiplier == pytest.approx(
        ElsPlan.for_epsilon(0.5, **one).noise_multiplier, rel=1e-3
    )


def test_a_diverging_conversion_is_refused_with_the_largest_group_that_works():
    plan = GroupPlan(**{**PLAN, "group_size": 2000}, noise_multiplier=9.0)
    with pytest.raises(ValueError, match=r"certifies nothing for 2000 .* --strategy els") as caught:
        check(plan)
    found = re.search(r"largest --group-size that works here is (\d+)", str(caught.value))
    assert found
    works = int(found[1])
    check(GroupPlan(**{**PLAN, "group_size": works}, noise_multiplier=9.0))
    with pytest.raises(ValueError, match="certifies nothing"):
        check(GroupPlan(**{**PLAN, "group_size": works + 1}, noise_multiplier=9.0))


def test_a_target_that_no_noise_meets_is_refused_too():
    fields = {**PLAN, "group_size": 5000, "rounds": 2000, "delta": 1e-9}
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


def test_noise_of_users_who_have_nothing_to_say(make_world, make_examples, checks):
    examples = make_examples([1, 2, 3] * 10, dimension=4000)
    examples.y_R.fill_(0.5)
    terms = {"group_size": 3, "probability": 0.5, "noise_multiplier": 1.7}
    world = make_world(examples, **GROUP, **terms, adjacency=Adjacency.REPLACE)
    (released,) = world.run(1)
    checks.released_noise(released, 1.7 / (0.5 * 3 * 30))


def test_any_users_per_node(make_world, make_examples):
    examples = make_examples([1, 3, 9, 2, 12] * 10)
    found = []
    for nodes in (1, 7, 50):
        world = make_world(examples, **GROUP, nodes=nodes, group_size=4, probability=0.4, seed=2)
        world.run(4)
        found.append(world.strategy.optimizer.theta_D)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], atol=1e-6)
