"""Rounds with noise that is shared between them: groups take turns, whatever happens to the run."""

from dataclasses import replace

import numpy as np
import pytest
from failing import gone_on, rounds_of_users, state_of, watched_worlds

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    BufferedGaussian,
    BufferedLater,
    ParallelEvent,
    PoissonGaussian,
)
from murmuration.privacy.accounting.ledger import LedgerError
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.strategies.base import PRIVATE
from murmuration.strategies.dp_fedavg import DpFedAvg, FedAvgPlan
from murmuration.strategies.uls import Uls

USERS, ROUNDS, APART = 60, 10, 3
BANDED = Banded((0.8, 0.5, 0.3))
BUFFERED = BufferedToeplitz.scaled(np.array([0.6, 0.2]), np.array([0.7, 0.3]), ROUNDS, APART)
#: Of each factor, how many users there are for one in a round.
FACTORS = {"banded": (BANDED, 5), "buffered": (BUFFERED, APART)}
EVENT = BandedGaussian(3, 0.6000000000000001, 1.5)
FIRST, LATER = BufferedGaussian(ROUNDS, APART, 1.5), BufferedLater(ROUNDS, APART, 1.5)


@pytest.fixture
def banded(make_world, make_examples):
    """A function: a world of three bands, on the ledger of another if one is given."""
    return watched_worlds(make_world, make_examples, Uls, 5, factor=BANDED)


@pytest.fixture
def buffered(make_world, make_examples):
    """The same, of three groups whose noise has buffers."""
    return watched_worlds(make_world, make_examples, Uls, APART, factor=BUFFERED)


@pytest.fixture(params=FACTORS)
def world(request):
    """Each of the two."""
    return request.getfixturevalue(request.param)


def take_turns(*worlds):
    """Fail unless whoever was in a round was in others three apart only."""
    rounds = rounds_of_users(*worlds).values()
    groups = [{(round_ - 1) % APART for round_ in of_user} for of_user in rounds]
    assert all(len(of_user) == 1 for of_user in groups), "a user was in two groups' rounds"
    assert set().union(*groups) == {0, 1, 2}


def parts(world):
    return [(charge.round, charge.event.part) for charge in world.ledger.charges]


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("strategy", [Uls, DpFedAvg])
def test_groups_take_turns_and_each_round_is_charged_to_its_group(banded, seed, strategy):
    kind = {"kind": FedAvgPlan} if strategy is DpFedAvg else {}
    made = banded(seed=seed, strategy=strategy, **kind)
    made.run(10)
    take_turns(made)
    assert parts(made) == [(round_, (round_ - 1) % 3) for round_ in range(1, 11)]
    planned = {ParallelEvent(0, EVENT): 4, ParallelEvent(1, EVENT): 3, ParallelEvent(2, EVENT): 3}
    assert made.ledger.spent() == made.strategy.plan.charges == planned
    assert made.ledger.epsilon() == pytest.approx(made.strategy.plan.epsilon(), rel=1e-9)


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("strategy", [Uls, DpFedAvg])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_everybody_of_a_group_is_in_its_rounds_and_the_first_pays(
    buffered, seed, strategy, adjacency
):
    kind = {"kind": FedAvgPlan} if strategy is DpFedAvg else {}
    made = buffered(seed=seed, strategy=strategy, adjacency=adjacency, **kind)
    made.run(ROUNDS)
    rounds = rounds_of_users(made)
    assert len(rounds) == USERS
    assert {tuple(of_user) for of_user in rounds.values()} == {(1, 4, 7, 10), (2, 5, 8), (3, 6, 9)}
    charged = [(charge.round, charge.event) for charge in made.ledger.charges]
    assert charged == [(1, FIRST), *((t, LATER) for t in range(2, ROUNDS + 1))]
    assert made.ledger.spent() == made.strategy.plan.charges
    terms = {"adjacency": adjacency, "delta": 1e-5}
    whole_run = accountant.epsilon([(PoissonGaussian(1.0, 1.5), 1)], **terms)
    assert made.ledger.epsilon() == pytest.approx(whole_run, rel=1e-7)


@pytest.mark.parametrize("seed", [None, 7])
def test_who_goes_on_has_the_noise_of_the_rounds_before(world, seed):
    made = world(seed=seed)
    made.run(4)
    state = state_of(made)
    again = gone_on(world, made, 4, state, seed=seed)
    again.run(ROUNDS)
    take_turns(made, again)
    secret = {PRIVATE + name for name in ("noise before", "noise ledger", "noise factor")}
    assert {name for name in state if name.startswith(PRIVATE)} == secret
    assert state[PRIVATE + "noise before"].shape == (2, 50)  # of two bands, or buffers
    assert [charge.round for charge in again.ledger.charges] == [*range(1, ROUNDS + 1)]
    assert again.ledger.spent() == again.strategy.plan.charges


def test_a_resumed_simulation_is_an_uninterrupted_one_bit_for_bit(world):
    whole = world(seed=7)
    released = whole.run(6)
    made = world(seed=7)
    made.run(2)
    again = gone_on(world, made, 2, state_of(made), seed=7)
    for one_D, other_D in zip(again.run(6), released[2:], strict=True):
        np.testing.assert_array_equal(one_D, other_D)
    assert len(again.ledger.charges) == 6


@pytest.mark.parametrize("seed", [None, 7])
def test_a_round_that_is_run_again_is_charged_again_and_shares_no_noise(banded, seed):
    made = banded(seed=seed)
    made.run(3)
    state = state_of(made)
    made.run(4)
    again = gone_on(banded, made, 3, state, seed=seed)
    again.run(4)
    assert parts(again) == [(1, 0), (2, 1), (3, 2), (4, 0), (4, 0)]
    assert len(again.strategy.memory.state()["noise before"]) == 1  # that of the round alone
    assert again.strategy.memory.rounds == 1
    strategy = again.strategy  # and as long as in a first round
    first = strategy.plan.mechanism.std / strategy.plan.cohort * BANDED.row_norm(1) * np.sqrt(50)
    assert strategy.figures()["noise_norm"].value == pytest.approx(first)


def test_another_noise_is_refused_before_anybody_is_asked(banded):
    made = banded()
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
    made = make_world(examples, cohort=6, factor=BANDED, optimizer={"rate": 1e-9})
    lengths = []
    for round_ in range(1, 5):
        (noise_D,) = made.run(round_)
        lengths.append(made.strategy.figures()["noise_norm"].value)
        assert np.linalg.norm(noise_D) == pytest.approx(lengths[-1], rel=0.06)
    assert lengths == sorted(set(lengths))
    assert make_world(examples).strategy.figures() == {}


def test_nothing_is_kept_after_the_last_round(banded):
    made = banded(rounds=4)
    for rounds in range(1, 5):
        made.run(rounds)
        secrets = [name for name in made.strategy.state() if name.startswith(PRIVATE)]
        assert bool(secrets) == (rounds < 4)


@pytest.mark.parametrize("kind", FACTORS)
def test_noise_of_every_round_is_as_promised(make_world, make_examples, checks, kind):
    """Everybody calls ties: what is released is noise alone; C times it is of the plan's scale."""
    examples = make_examples([1, 2, 3] * 10, dimension=4000)
    examples.y_R.fill_(0.5)
    factor, size = FACTORS[kind]
    cohort, still = 30 // size, {"optimizer": {"rate": 1e-9}}
    made = make_world(examples, cohort=cohort, factor=factor, noise_multiplier=1.7, **still)
    noise_TD = np.array(made.run(7))
    row_T = factor.row_T(7)
    for t in range(7):
        fresh_D = row_T[: t + 1][::-1] @ noise_TD[: t + 1]
        checks.released_noise(fresh_D, 1.7 / cohort)
        with pytest.raises(AssertionError, match="promised scale"):
            checks.released_noise(fresh_D, 2 / 3 * 1.7 / cohort)


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
