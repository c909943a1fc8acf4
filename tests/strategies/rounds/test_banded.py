"""Rounds with noise in bands: groups take turns, whatever happens to the run."""

from dataclasses import replace

import numpy as np
import pytest
from failing import gone_on, rounds_of_users, state_of, watched_worlds

from murmuration.privacy.accounting.events import BandedGaussian, ParallelEvent
from murmuration.privacy.accounting.ledger import LedgerError, NotRepeated
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.mechanisms.sampling import CyclicSampler
from murmuration.strategies.base import PRIVATE
from murmuration.strategies.dp_fedavg import DpFedAvg, FedAvgPlan
from murmuration.strategies.uls import Uls

USERS, FACTOR = 60, Banded((0.8, 0.5, 0.3))
EVENT = BandedGaussian(3, 0.6000000000000001, 1.5)


@pytest.fixture
def world(make_world, make_examples):
    """A function: a world of three bands, on the ledger of another if one is given."""
    return watched_worlds(make_world, make_examples, Uls, 5, factor=FACTOR)


def take_turns(rounds_by_user):
    """Whoever was in a round was in others three apart only; AssertionError if not."""
    groups = {user: {(r - 1) % 3 for r in rounds} for user, rounds in rounds_by_user.items()}
    assert all(len(of_user) == 1 for of_user in groups.values()), "a user was in two groups' rounds"
    assert {min(of_user) for of_user in groups.values()} == {0, 1, 2}


def parts(world):
    return [(charge.round, charge.event.part) for charge in world.ledger.charges]


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("strategy", [Uls, DpFedAvg])
def test_groups_take_turns_and_each_round_is_charged_to_its_group(world, seed, strategy):
    kind = {"kind": FedAvgPlan} if strategy is DpFedAvg else {}
    made = world(seed=seed, strategy=strategy, **kind)
    made.run(10)
    take_turns(rounds_of_users(made))
    assert parts(made) == [(round_, (round_ - 1) % 3) for round_ in range(1, 11)]
    planned = {ParallelEvent(0, EVENT): 4, ParallelEvent(1, EVENT): 3, ParallelEvent(2, EVENT): 3}
    assert made.ledger.spent() == made.strategy.plan.charges == planned
    assert made.ledger.epsilon() == pytest.approx(made.strategy.plan.epsilon(), rel=1e-9)


class EverybodysTurn(Uls):
    """Charges as for groups, and asks users of all of them."""

    def sample_cohort(self, round_):
        coins, names_N = self.plan.coins, self.participants.registry.keys_N
        return coins.draw(names_N, self.source, round_)


class AnotherDivision(Uls):
    """Divides users anew in each cycle."""

    def sample_cohort(self, round_):
        names_N = self.participants.registry.keys_N + np.uint64((round_ - 1) // 3)
        return CyclicSampler(0.2, 3).draw(names_N, self.source, round_)


@pytest.mark.parametrize("fault", [EverybodysTurn, AnotherDivision])
def test_the_check_catches_those_who_ask_others(world, fault):
    made = world(strategy=fault)
    made.run(10)
    with pytest.raises(AssertionError, match="two groups"):
        take_turns(rounds_of_users(made))


@pytest.mark.parametrize("seed", [None, 7])
def test_who_goes_on_has_the_noise_of_the_rounds_before(world, seed):
    made = world(seed=seed)
    made.run(2)
    state = state_of(made)
    again = gone_on(world, made, 2, state, seed=seed)
    again.run(8)
    take_turns(rounds_of_users(made, again))
    secret = {PRIVATE + name for name in ("noise before", "noise ledger", "noise factor")}
    assert {name for name in state if name.startswith(PRIVATE)} == secret
    assert state[PRIVATE + "noise before"].shape == (2, 50)
    assert parts(again) == [(round_, (round_ - 1) % 3) for round_ in range(1, 9)]


def test_a_resumed_simulation_is_an_uninterrupted_one_bit_for_bit(world):
    whole = world(seed=7)
    released = whole.run(6)
    for ahead in (2, 6):  # the ledger is as far as the checkpoint, or further
        made = world(seed=7)
        made.run(2)
        state = state_of(made)
        if ahead > 2:
            made.run(ahead)
        again = gone_on(world, made, 2, state, seed=7)
        for one_D, other_D in zip(again.run(6), released[2:], strict=True):
            np.testing.assert_array_equal(one_D, other_D)
        assert len(again.ledger.charges) == 6


def test_a_round_that_is_run_again_is_charged_again_and_shares_no_noise(world):
    made = world()
    made.run(3)
    state = state_of(made)
    made.run(4)
    again = gone_on(world, made, 3, state)
    again.run(4)
    assert parts(again) == [(1, 0), (2, 1), (3, 2), (4, 0), (4, 0)]
    assert len(again.strategy.memory.state()["noise before"]) == 1  # that of the round alone
    assert again.strategy.memory.rounds == 1
    strategy = again.strategy  # and as long as in a first round
    first = strategy.plan.mechanism.std / strategy.plan.cohort * FACTOR.row_norm(1) * np.sqrt(50)
    assert strategy.figures()["noise_norm"].value == pytest.approx(first)


def test_another_noise_is_refused_before_anybody_is_asked(world):
    made = world()
    made.run(2)
    strategy, sent = made.strategy, len(made.grid.sent)
    terms = {
        name: getattr(strategy, name)
        for name in ("participants", "optimizer", "source", "features", "log")
    }
    Uls(strategy.plan, made.ledger, **terms)
    other = replace(strategy.plan, noise_multiplier=1.6)
    with pytest.raises(LedgerError, match="a run may not change its noise"):
        Uls(other, made.ledger, **terms)
    assert (len(made.grid.sent), len(made.ledger.charges)) == (sent, 2)


def test_the_length_of_the_noise_is_that_of_the_round(make_world, make_examples):
    examples = make_examples([1, 2, 3] * 8, dimension=4000)
    examples.y_R.fill_(0.5)
    made = make_world(examples, cohort=6, factor=FACTOR, optimizer={"rate": 1e-9})
    lengths = []
    for round_ in range(1, 5):
        (noise_D,) = made.run(round_)
        lengths.append(made.strategy.figures()["noise_norm"].value)
        assert np.linalg.norm(noise_D) == pytest.approx(lengths[-1], rel=0.06)
    assert lengths == sorted(set(lengths))
    assert make_world(examples).strategy.figures() == {}


def test_nothing_is_kept_after_the_last_round(world):
    made = world(rounds=4)
    for rounds in range(1, 5):
        made.run(rounds)
        secrets = [name for name in made.strategy.state() if name.startswith(PRIVATE)]
        assert bool(secrets) == (rounds < 4)


def test_a_simulation_that_does_not_repeat_is_refused(world):
    class Elsewhere(Uls):
        def gradient(self, round_, totals):
            return super().gradient(round_, {"sum": totals["sum"] + self.plan.clip.step})

    made = world(seed=7)
    made.run(3)
    again = world(made, seed=7, strategy=Elsewhere)
    assert not again.strategy.draws_again
    with pytest.raises(NotRepeated):
        again.run(3)
    assert len(again.ledger.charges) == 3


def test_noise_of_every_round_is_as_promised(make_world, make_examples, checks):
    """Everybody calls ties: what is released is noise alone; C times it is of the plan's scale."""
    examples = make_examples([1, 2, 3] * 8, dimension=4000)
    examples.y_R.fill_(0.5)
    made = make_world(
        examples, cohort=6, factor=FACTOR, noise_multiplier=1.7, optimizer={"rate": 1e-9}
    )
    noise_TD = np.array(made.run(6))
    fresh_TD = np.zeros_like(noise_TD)
    for k, c in enumerate(FACTOR.coefficients):
        fresh_TD[k:] += c * noise_TD[: len(noise_TD) - k]
    for fresh_D in fresh_TD:
        checks.released_noise(fresh_D, 1.7 / 6)
        with pytest.raises(AssertionError, match="promised scale"):
            checks.released_noise(fresh_D, 2 / 3 * 1.7 / 6)


@pytest.mark.parametrize("seed", [None, 7])
def test_who_comes_later_changes_nobodys_group_nor_coins(world, seed):
    made = world(seed=seed)
    strategy, everybody = made.strategy, made.strategy.participants
    groups = []
    for train in (everybody.train, everybody.train[::2]):
        strategy.participants = replace(everybody, train=train)
        strategy.sampler = replace(strategy.sampler, probability=1 / 3)
        groups.append(strategy.sample_cohort(1))
    assert np.array_equal(groups[1], [user for user in groups[0] if user in everybody.train[::2]])
