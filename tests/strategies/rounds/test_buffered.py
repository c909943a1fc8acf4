"""Rounds with buffered noise: groups take turns by no coins, and one charge is for all of them."""

from dataclasses import replace

import numpy as np
import pytest
from failing import gone_on, rounds_of_users, state_of, watched_worlds

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import BufferedGaussian, BufferedLater, PoissonGaussian
from murmuration.privacy.accounting.ledger import NotRepeated
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.mechanisms.sampling import CyclicSampler
from murmuration.strategies.base import PRIVATE
from murmuration.strategies.dp_fedavg import DpFedAvg, FedAvgPlan
from murmuration.strategies.uls import Uls

USERS, ROUNDS, APART = 60, 10, 3
FACTOR = BufferedToeplitz.scaled(np.array([0.6, 0.2]), np.array([0.7, 0.3]), ROUNDS, APART)
FIRST, LATER = BufferedGaussian(ROUNDS, APART, 1.5), BufferedLater(ROUNDS, APART, 1.5)


@pytest.fixture
def world(make_world, make_examples):
    """A function: a world of three groups, on the ledger of another if one is given."""
    return watched_worlds(make_world, make_examples, Uls, APART, factor=FACTOR)


def far_apart(rounds_by_user):
    """Nobody was in two rounds that are nearer than the noise is for; AssertionError if not."""
    for rounds in rounds_by_user.values():
        assert min(np.diff(rounds), default=APART) >= APART, "a user was in rounds too near"
        assert len(rounds) <= FACTOR.participations


def charged(world):
    return [(charge.round, charge.event) for charge in world.ledger.charges]


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("strategy", [Uls, DpFedAvg])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_everybody_of_a_group_is_in_its_rounds_and_the_first_pays(world, seed, strategy, adjacency):
    kind = {"kind": FedAvgPlan} if strategy is DpFedAvg else {}
    made = world(seed=seed, strategy=strategy, adjacency=adjacency, **kind)
    made.run(ROUNDS)
    rounds = rounds_of_users(made)
    far_apart(rounds)
    assert len(rounds) == USERS
    assert {tuple(of_user) for of_user in rounds.values()} == {(1, 4, 7, 10), (2, 5, 8), (3, 6, 9)}
    assert charged(made) == [(1, FIRST), *((t, LATER) for t in range(2, ROUNDS + 1))]
    assert made.ledger.spent() == made.strategy.plan.charges
    terms = {"adjacency": adjacency, "delta": 1e-5}
    whole_run = accountant.epsilon([(PoissonGaussian(1.0, 1.5), 1)], **terms)
    assert made.ledger.epsilon() == pytest.approx(whole_run, rel=1e-7)


class EverybodysTurn(Uls):
    """Charges as for groups, and asks users of all of them by coins."""

    def sample_cohort(self, round_):
        coins, names_N = self.plan.coins, self.participants.registry.keys_N
        return coins.draw(names_N, self.source, round_)


class AnotherDivision(Uls):
    """Divides users anew in each cycle."""

    def sample_cohort(self, round_):
        names_N = self.participants.registry.keys_N + np.uint64((round_ - 1) // APART)
        return CyclicSampler(1 / APART, APART).draw(names_N, self.source, round_)


@pytest.mark.parametrize("fault", [EverybodysTurn, AnotherDivision])
def test_the_check_catches_those_who_ask_others(world, fault):
    made = world(strategy=fault)
    made.run(ROUNDS)
    with pytest.raises(AssertionError, match="too near"):
        far_apart(rounds_of_users(made))


@pytest.mark.parametrize("seed", [None, 7])
def test_who_goes_on_has_the_noise_of_the_rounds_before(world, seed):
    made = world(seed=seed)
    made.run(4)
    state = state_of(made)
    again = gone_on(world, made, 4, state, seed=seed)
    again.run(ROUNDS)
    far_apart(rounds_of_users(made, again))
    secret = {PRIVATE + name for name in ("noise before", "noise ledger", "noise factor")}
    assert {name for name in state if name.startswith(PRIVATE)} == secret
    assert state[PRIVATE + "noise before"].shape == (2, 50)  # as many as there are buffers
    assert charged(again) == [(1, FIRST), *((t, LATER) for t in range(2, ROUNDS + 1))]
    assert not any(name.startswith(PRIVATE) for name in again.strategy.state())


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
        examples,
        cohort=8,
        rounds=ROUNDS,
        factor=FACTOR,
        noise_multiplier=1.7,
        optimizer={"rate": 1e-9},
    )
    noise_TD = np.array(made.run(7))
    row_T = FACTOR.row_T(7)
    fresh_TD = np.array([row_T[: t + 1][::-1] @ noise_TD[: t + 1] for t in range(7)])
    for fresh_D in fresh_TD:
        checks.released_noise(fresh_D, 1.7 / 8)
        with pytest.raises(AssertionError, match="promised scale"):
            checks.released_noise(fresh_D, 2 / 3 * 1.7 / 8)


@pytest.mark.parametrize("seed", [None, 7])
def test_who_comes_later_changes_nobodys_group(world, seed):
    made = world(seed=seed)
    strategy, everybody = made.strategy, made.strategy.participants
    groups = []
    for train in (everybody.train, everybody.train[::2]):
        strategy.participants = replace(everybody, train=train)
        groups.append(strategy.sample_cohort(1))
    assert np.array_equal(groups[1], [user for user in groups[0] if user in everybody.train[::2]])
