"""Rounds to which users are allocated: each in one of each block, whatever happens to the run."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from failing import gone_on, state_of, watched_worlds

from murmuration.privacy.accounting.allocation import AllocatedGaussian, AllocatedLater
from murmuration.privacy.accounting.ledger import Ledger, NotRepeated
from murmuration.privacy.mechanisms.sampling import AllocationSampler, PoissonSampler
from murmuration.strategies.base import PRIVATE
from murmuration.strategies.dp_fedavg import DpFedAvg, FedAvgPlan
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.uls import Uls

USERS, BLOCK = 60, 4
FIRST, LATER = AllocatedGaussian(BLOCK, 1.5), AllocatedLater(BLOCK, 1.5)
LAST = AllocatedGaussian(BLOCK, 1.5, 2)  # of ten rounds


@pytest.fixture
def world(make_world, make_examples):
    """A function: a world of blocks of four rounds, on the ledger of another if one is given."""
    return watched_worlds(make_world, make_examples, Uls, BLOCK, allocated=True)


def rounds_of_users(*worlds):
    """By round the names of the users that were asked, in the order of asking."""
    result = Counter()
    for world in worlds:
        for message in world.grid.sent:
            if message.metadata.message_type == "train":
                names = messages.UserSelection.of(message.content).names_S
                result.update((int(message.metadata.group_id), int(name)) for name in names)
    return result


def once_in_each_block(requests, users, *, first=1, rounds=BLOCK):
    """Everybody was asked once in these rounds; AssertionError if not."""
    names = Counter()
    for (round_, name), times in requests.items():
        if first <= round_ < first + rounds:
            names[name] += times
    assert set(names.values()) == {1}, "a user was in two rounds"
    assert len(names) == users, "a user was in none"


def kinds(world):
    return [(c.round, isinstance(c.event, AllocatedGaussian)) for c in world.ledger.charges]


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("strategy", [Uls, DpFedAvg])
def test_everybody_is_in_one_round_of_each_block(world, seed, strategy):
    kind = {"kind": FedAvgPlan} if strategy is DpFedAvg else {}
    made = world(seed=seed, strategy=strategy, **kind)
    made.run(10)
    for first in (1, 5):
        once_in_each_block(rounds_of_users(made), USERS, first=first)
    assert kinds(made) == [(round_, round_ in (1, 5, 9)) for round_ in range(1, 11)]
    assert made.ledger.spent() == made.strategy.plan.charges == {FIRST: 2, LAST: 1, LATER: 7}
    assert made.ledger.epsilon() == pytest.approx(made.strategy.plan.epsilon(), rel=1e-9)


class Poisson(Uls):
    """Charges for an allocation, and tosses coins."""

    def sample_cohort(self, round_):
        coins = PoissonSampler(1.0 / BLOCK)
        return coins.draw(self.participants.registry.keys_N, self.source, round_)


class InTwo(Uls):
    """Charges for an allocation, and asks those of the next round, too."""

    def sample_cohort(self, round_):
        block, names_N = self._block(round_, self.blocks), self.participants.registry.keys_N
        after = block.first + (round_ + 1 - block.first) % BLOCK
        return np.union1d(super().sample_cohort(round_), block.draw(names_N, after))


class BegunAgain(Uls):
    """Forgets the block between rounds, and charges as if it had not."""

    def sample_cohort(self, round_):
        block = AllocationSampler(BLOCK).begin(self.source, 1 + (round_ - 1) // BLOCK * BLOCK)
        return block.draw(self.participants.registry.keys_N, round_)


@pytest.mark.parametrize("fault", [Poisson, InTwo, BegunAgain])
def test_the_check_catches_those_who_draw_otherwise(world, fault):
    made = world(strategy=fault)
    made.run(4)
    with pytest.raises(AssertionError, match="a user was in"):
        once_in_each_block(rounds_of_users(made), USERS)


@pytest.mark.parametrize("seed", [None, 7])
def test_who_goes_on_with_a_block_asks_the_rest_of_it(world, seed):
    made = world(seed=seed)
    made.run(2)
    state = state_of(made)
    again = gone_on(world, made, 2, state, seed=seed)
    again.run(8)
    together = rounds_of_users(made, again)
    for first in (1, 5):
        once_in_each_block(together, USERS, first=first)
    assert kinds(again) == [(round_, round_ in (1, 5)) for round_ in range(1, 9)]
    assert [name for name in state if "block" in name] == [PRIVATE + "block", PRIVATE + "block key"]


def test_a_key_is_kept_no_longer_than_its_block(world):
    made = world()
    keys = []
    for rounds in range(1, 11):
        made.run(rounds)
        keys.append(made.strategy.state().get(PRIVATE + "block key"))
    assert [key is None for key in keys] == [r in (4, 8, 10) for r in range(1, 11)]
    assert len({key.tobytes() for key in keys if key is not None}) == 3


def test_who_lost_the_key_begins_and_pays_for_another_block(world):
    made = world()
    made.run(2)
    again = gone_on(world, made, 2, None)
    again.run(6)
    once_in_each_block(rounds_of_users(again), USERS, first=3)
    assert kinds(again) == [(1, True), (2, False), (3, True), *((r, False) for r in (4, 5, 6))]


def test_a_round_that_was_charged_is_no_more_released_in_its_block(world):
    """A crash after the charge: nobody knows what was released, so the block is over."""
    made = world()
    made.run(2)
    state = state_of(made)
    made.run(3)
    again = gone_on(world, made, 2, state)
    again.run(3)
    assert kinds(again) == [(1, True), (2, False), (3, False), (3, True)]
    key = state[PRIVATE + "block key"].tobytes()
    assert again.strategy.blocks.running.key != key


def test_a_checkpoint_that_is_brought_back_goes_on_in_no_other_block(world):
    """A block of another key may have begun with the same round: the ledger's last is not ours."""
    made = world()
    made.run(1)
    state = state_of(made)
    made.run(2)
    other = gone_on(world, made, 0, None)  # as if there were no checkpoint
    other.run(1)
    again = gone_on(world, other, 1, state)
    again.run(2)
    assert kinds(again) == [(1, True), (2, False), (1, True), (2, True)]


def test_a_simulation_repeats_bit_for_bit_at_no_cost(world):
    whole = world(seed=7)
    released = whole.run(6)
    made = world(seed=7)
    made.run(2)
    state = state_of(made)
    made.run(6)
    again = gone_on(world, made, 2, state, seed=7)
    for one_D, other_D in zip(again.run(6), released[2:], strict=True):
        np.testing.assert_array_equal(one_D, other_D)
    assert len(again.ledger.charges) == 6


def test_a_simulation_that_does_not_repeat_is_refused_within_a_block(world):
    """Other coins for one of its rounds would be another draw of all of it."""

    class Elsewhere(Uls):
        def gradient(self, round_, totals):
            return super().gradient(round_, {"sum": totals["sum"] + self.plan.clip.step})

    def simulated(made):
        there = made.strategy.participants
        entries = {node: replace(entry, places=3) for node, entry in there.registry.entries.items()}
        registry = replace(there.registry, entries=entries)
        made.strategy.participants = replace(there, registry=registry)
        return made

    made = simulated(world(seed=7))
    made.run(3)
    again = simulated(world(made, seed=7, strategy=Elsewhere))
    assert not again.strategy.draws_again
    with pytest.raises(NotRepeated):
        again.run(3)
    assert len(again.ledger.charges) == 3
    assert simulated(world(seed=7, allocated=False)).strategy.draws_again


def test_a_run_that_ends_within_a_block_has_paid_for_all_of_it(world):
    made = world(fails={"train": ()})
    made.run(2)
    assert made.ledger.spent() == {FIRST: 1, LATER: 1}
    made.grid.fails = {"train": range(100)}  # from now on nobody answers
    with pytest.raises(RunAborted):
        made.run(10)
    assert kinds(made) == [(1, True), (2, False), (3, False)]
    again = gone_on(world, made, 3, state_of(made))
    again.run(4)
    together = rounds_of_users(made, again)
    once_in_each_block(together, USERS)  # of round 3 everybody was left out
    assert made.ledger.path == again.ledger.path
    assert kinds(again)[3:] == [(4, False)]


def test_a_budget_stops_before_a_block_and_not_within_one(world):
    made = world()
    cost = made.strategy.plan.epsilon()
    made.ledger.close()
    with Ledger(
        made.ledger.path.with_suffix(".2"), adjacency=made.ledger.adjacency, delta=1e-5,
        budget=cost * (1 + 1e-9),
    ) as ledger:  # fmt: skip
        made.strategy.ledger = made.ledger = ledger
        ledger.clear(made.strategy.plan.charges)
        made.run(1)
        made.strategy.blocks.running = None  # and the others of its block are lost
        made.run(10)
        assert made.strategy.stopped is not None
        assert "stopped before round 6" in made.strategy.stopped
        assert ledger.spent() == {FIRST: 2, LATER: 3}


def test_a_block_that_is_begun_late_pays_for_the_rounds_that_are_left(world):
    made = world()
    made.run(7)
    again = gone_on(world, made, 7, None)
    again.run(10)
    assert [c.event for c in again.ledger.charges[7:]] == [
        AllocatedGaussian(BLOCK, 1.5, 3), LATER, LATER,
    ]  # fmt: skip


def test_noise_of_every_round_is_as_promised(make_world, make_examples, checks):
    """Everybody calls ties: what is released is noise alone, two-sided of the plan's scale."""
    examples = make_examples([1, 2, 3] * 8, dimension=4000)
    examples.y_R.fill_(0.5)
    made = make_world(
        examples, cohort=6, allocated=True, noise_multiplier=1.7, optimizer={"rate": 1e-9}
    )
    for released in made.run(6):
        checks.released_noise(released, 1.7 / 6)
        with pytest.raises(AssertionError, match="promised scale"):
            checks.released_noise(released, 2 / 3 * 1.7 / 6)


@pytest.mark.parametrize("seed", [None, 7])
def test_who_comes_later_changes_nobodys_round(world, seed):
    """A user's round is a function of their name: others may come and go within a block."""
    made = world(seed=seed)
    strategy = made.strategy
    everybody = strategy.participants
    cohorts = []
    for train in (everybody.train, everybody.train[::2]):
        strategy.participants = replace(everybody, train=train)
        cohorts.append(strategy.sample_cohort(1))
    assert np.array_equal(cohorts[1], [user for user in cohorts[0] if user in everybody.train[::2]])
