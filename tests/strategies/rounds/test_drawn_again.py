"""A seeded round that does not repeat to the last digit: drawn and charged again, never reused."""

from dataclasses import replace

import numpy as np
import pytest
from failing import on_the_ledger_of

from murmuration.privacy.accounting.ledger import NotRepeated
from murmuration.privacy.accounting.ledger_lines import draw_of
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.aup.threshold import AupThreshold
from murmuration.strategies.els import Els, ElsPlan
from murmuration.strategies.uls import Uls


class Elsewhere(Uls):
    """On a machine whose sums differ in a last digit."""

    def gradient(self, round_, totals):
        sum_D = totals["sum"].copy()
        sum_D[0] += self.plan.clip.step
        return super().gradient(round_, {**totals, "sum": sum_D})


class Refusing(Elsewhere):
    draws_again = False


@pytest.fixture
def simulated(make_world, make_examples):
    """A function: a world whose nodes are all there are."""

    def make(strategy=Uls):
        made = make_world(make_examples([2] * 12, dimension=200), strategy=strategy)
        there = made.strategy.participants
        entries = {node: replace(entry, places=1) for node, entry in there.registry.entries.items()}
        registry = replace(there.registry, entries=entries)
        made.strategy.participants = replace(there, registry=registry)
        assert registry.simulated
        return made

    return make


@pytest.fixture
def world(simulated):
    return simulated()


def cohorts(world):
    return [line["cohort"] for line in world.log if "cohort" in line]


def test_it_is_another_release_with_coins_and_noise_of_its_own(world, simulated):
    first = world.run(3)
    once = world.ledger.epsilon()
    again = on_the_ledger_of(world, simulated(Elsewhere))
    second = again.run(3)
    charges = again.ledger.charges
    assert [(c.round, draw_of(c.replay), c.attempt) for c in charges] == [
        *((round_, 0, 0) for round_ in (1, 2, 3)), *((round_, 1, 1) for round_ in (1, 2, 3)),
    ]  # fmt: skip
    assert again.ledger.epsilon() > 1.2 * once
    assert [line["round"] for line in again.log if "not repeated" in line] == [1, 2, 3]
    # Each round was asked twice, with coins that have nothing to do with each other.
    assert cohorts(again)[::2] == cohorts(world)
    for one, other in zip(first, second, strict=True):
        correlation = np.corrcoef(one, other)[0, 1]
        assert abs(correlation) < 0.5  # the same noise would give almost 1
    assert again.strategy.source == Randomness(0)


def test_what_was_drawn_again_repeats(world, simulated):
    world.run(2)
    second = on_the_ledger_of(world, simulated(Elsewhere))
    released = second.run(2)
    third = on_the_ledger_of(second, simulated(Elsewhere))
    for one, other in zip(third.run(2), released, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(third.ledger.charges) == 4


def test_a_machine_that_never_repeats_pays_each_time(world, simulated):
    class Never(Elsewhere):
        times = 0

        def gradient(self, round_, totals):
            type(self).times += 1
            sum_D = totals["sum"] + self.plan.clip.step * self.times
            return super().gradient(round_, {**totals, "sum": sum_D})

    world.run(1)
    for paid in (2, 3, 4):
        world = on_the_ledger_of(world, simulated(Never))
        world.run(1)
        assert [draw_of(c.replay) for c in world.ledger.charges] == [*range(paid)]
    assert len({c.replay for c in world.ledger.charges}) == 4


def test_never_beyond_the_budget(world, simulated):
    plan = world.strategy.plan
    world.run(2)
    again = on_the_ledger_of(world, simulated(Elsewhere))
    again.ledger.budget = plan.epsilon()
    again.ledger.clear(plan.charges)
    again.run(plan.rounds)
    assert again.strategy.rounds_done == plan.rounds - 2
    assert "over the budget" in again.strategy.stopped
    assert again.ledger.epsilon() <= plan.epsilon() * (1 + 1e-9)


def test_where_a_round_is_not_a_draw_by_itself_it_is_refused(world, simulated):
    world.run(1)
    again = on_the_ledger_of(world, simulated(Refusing))
    with pytest.raises(NotRepeated, match="repeats exactly"):
        again.run(1)
    assert len(again.ledger.charges) == 1
    assert not AupThreshold.draws_again


def test_in_a_deployment_it_is_refused(make_world, make_examples):
    world = make_world(make_examples([2] * 12), strategy=Elsewhere)
    world.strategy.plan.mechanism.release(
        np.zeros(5), round_=1, covers="gradient sum", ledger=world.ledger, source=Randomness(0)
    )
    with pytest.raises(NotRepeated, match="repeats exactly"):
        world.run(1)


def test_coins_of_examples_at_nodes_are_drawn_again_too(make_world, make_examples):
    world = make_world(
        make_examples([8] * 6), strategy=Els, kind=ElsPlan, probability=0.5, group_size=8,
        clip=ExampleClip(1.0),
    )  # fmt: skip
    assert "draw" not in world.strategy.asked_with(1)
    world.strategy.source = world.strategy.source.again(2)
    assert world.strategy.asked_with(1)["draw"] == 2


def test_no_draw_has_the_keys_of_another():
    source = Randomness(3)
    keys = {source.again(draw).key("noise", round_) for draw in range(3) for round_ in range(5)}
    assert len(keys) == 15
    assert source.again(0) == source
    words = [source.again(draw).user_words("x", 1, np.arange(9)) for draw in (0, 1)]
    assert not np.array_equal(*words)
    assert not Randomness(None).again(4).seeded
