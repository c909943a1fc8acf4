"""A round that was charged and lost: drawn and charged again, with nothing of the first draw."""

from itertools import combinations

import numpy as np
import pytest
from failing import Watched, on_the_ledger_of

from murmuration.privacy.accounting.events import ParallelEvent
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.els import Els, ElsPlan
from murmuration.strategies.protocol import messages

BANDS = {"factor": Banded((0.8, 0.5)), "cohort": 6}


@pytest.fixture
def world(make_world, make_examples):
    """A function: a world on the ledger of another if one is given; it lost all that is there."""

    def make(after=None, **how):
        made = make_world(make_examples([2] * 24, dimension=4000), wrap=Watched, **how)
        return made if after is None else on_the_ledger_of(after, made)

    return make


def cohorts(world):
    """By round, the names that were asked."""
    result = {}
    for message in world.grid.sent:
        if message.metadata.message_type == "train":
            names_S = messages.UserSelection.of(message.content).names_S
            result.setdefault(int(message.metadata.group_id), set()).update(names_S.tolist())
    return [result[round_] for round_ in sorted(result)]


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("plan", [{"cohort": 6}, BANDS])
def test_it_is_another_release_with_coins_and_noise_of_its_own(world, seed, plan):
    plan = {**plan, "noise_multiplier": 50.0}  # the sums hardly matter
    first = world(seed=seed, **plan)
    worlds, released = [first], [first.run(3)]
    once = first.ledger.epsilon()
    for _ in range(2):
        worlds.append(world(worlds[-1], seed=seed, **plan))
        released.append(worlds[-1].run(3))
    charges = worlds[-1].ledger.charges
    assert [(c.round, c.attempt) for c in charges] == [
        (round_, attempt) for attempt in range(3) for round_ in (1, 2, 3)
    ]
    assert worlds[-1].ledger.epsilon() > 1.2 * once
    for one, other in combinations(range(3), 2):
        assert cohorts(worlds[one]) != cohorts(worlds[other])
        for one_D, other_D in zip(released[one], released[other], strict=True):
            # The same noise would give almost 1.
            assert abs(np.corrcoef(one_D, other_D)[0, 1]) < 0.2
    if "factor" in plan:  # and still each of its group
        of_group = [c.event.part for c in charges if isinstance(c.event, ParallelEvent)]
        assert of_group == [0, 1, 0] * 3


def test_rounds_that_follow_are_those_that_the_seed_gives(world):
    """Only what was drawn before is drawn otherwise."""
    whole, lost = world(seed=0), world(seed=0)
    whole.run(3)
    lost.run(1)
    again = world(lost, seed=0)
    again.run(3)
    assert cohorts(again)[0] != cohorts(whole)[0]
    assert cohorts(again)[1:] == cohorts(whole)[1:]


def test_never_beyond_the_budget(world):
    first = world()
    plan = first.strategy.plan
    first.run(2)
    again = world(first)
    again.ledger.budget = plan.epsilon()
    again.ledger.clear(plan.charges)
    again.run(plan.rounds)
    assert again.strategy.rounds_done == plan.rounds - 2
    assert "over the budget" in again.strategy.stopped
    assert again.ledger.epsilon() <= plan.epsilon() * (1 + 1e-9)


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
