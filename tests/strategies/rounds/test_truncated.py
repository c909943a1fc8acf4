"""Rounds of at most so many users, and that who is held out does not change the others' cohort."""

from dataclasses import replace

import numpy as np
import pytest

from murmuration.privacy.accounting.mixture import TruncatedGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.sampling import PoissonSampler, TruncatedSampler
from murmuration.strategies.dp_fedavg import DpFedAvg, FedAvgPlan
from murmuration.strategies.uls import Uls

USERS, COHORT, MOST = 60, 12, 13


@pytest.fixture
def world(make_world, make_examples):
    """A function: a world of rounds with a cap that a third of all cohorts exceed."""

    def make(*, seed=None, strategy=Uls, **plan):
        settings = {"cohort": COHORT, "max_cohort": MOST, "adjacency": Adjacency.ZERO_OUT}
        settings |= {"noise_multiplier": 1.5, "rounds": 10, **plan}
        return make_world(
            make_examples([2] * USERS, dimension=5), seed=seed, strategy=strategy, **settings
        )

    return make


def cohorts(made, rounds=200):
    return [made.strategy.sample_cohort(round_) for round_ in range(1, rounds + 1)]


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("strategy", [Uls, DpFedAvg])
def test_no_round_has_more(world, seed, strategy):
    kind = {"kind": FedAvgPlan} if strategy is DpFedAvg else {}
    made = world(seed=seed, strategy=strategy, **kind)
    sizes = [len(cohort) for cohort in cohorts(made)]
    assert max(sizes) == MOST
    assert np.mean(sizes) == pytest.approx(10.5, abs=1)  # of twelve: large ones are tossed again
    made.run(10)
    event = TruncatedGaussian(COHORT / USERS, 1.5, MOST)
    assert made.ledger.spent() == made.strategy.plan.charges == {event: 10}
    assert made.ledger.epsilon() == pytest.approx(made.strategy.plan.epsilon(), rel=1e-9)


def of_others(made, user, *, is_held_out):
    """Cohorts without a user, who is trained on or held out."""
    strategy = made.strategy
    people = strategy.participants
    everybody = np.union1d(people.train, people.held_out)
    held_out = (
        np.union1d(everybody[:15], user) if is_held_out else np.setdiff1d(everybody[:15], user)
    )
    train = np.setdiff1d(everybody, held_out)
    strategy.participants = replace(people, train=train, held_out=held_out, share=0.25)
    return [set(cohort.tolist()) - {user} for cohort in cohorts(made)]


class OnlyTheTrained(Uls):
    """Those who are held out toss no coins."""

    def sample_cohort(self, round_):
        train, names_N = self.participants.train, self.participants.registry.keys_N
        return train[self.sampler.draw(names_N[train], self.source, round_)]


@pytest.mark.parametrize("user", [3, 40])
def test_whether_somebody_is_held_out_shows_in_no_cohort_of_others(world, user):
    """Bit for bit; which what a hold-out saves rests on."""
    pair = [of_others(world(seed=7), user, is_held_out=held) for held in (True, False)]
    assert pair[0] == pair[1]
    fault = [
        of_others(world(seed=7, strategy=OnlyTheTrained), user, is_held_out=held)
        for held in (True, False)
    ]
    assert fault[0] != fault[1]


def test_nobody_who_is_held_out_is_asked(world):
    made = world(seed=7)
    of_others(made, 3, is_held_out=True)
    held_out = made.strategy.participants.held_out
    assert not set(held_out.tolist()) & {user for cohort in cohorts(made) for user in cohort}


class Capless(Uls):
    """Charges for a cap, and has none."""

    def sample_cohort(self, round_):
        coins = PoissonSampler(COHORT / USERS)
        return coins.draw(self.participants.registry.keys_N, self.source, round_)


def test_the_check_catches_those_without_a_cap(world):
    made = world(seed=7, strategy=Capless)
    assert max(len(cohort) for cohort in cohorts(made)) > MOST


def test_a_seeded_round_is_drawn_alike_again(world):
    one, other = (cohorts(world(seed=7), 30) for _ in range(2))
    assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))
    fresh, fresher = (cohorts(world(), 30) for _ in range(2))
    assert not all(np.array_equal(*pair) for pair in zip(fresh, fresher, strict=True))


def test_a_list_that_grows_beyond_its_cap_ends_the_run_with_what_it_learnt(world):
    """The list is public, and so is that hardly any cohort of it is small enough."""
    made = world(seed=7)
    made.run(3)
    learnt_D, strategy = made.strategy.optimizer.theta_D.copy(), made.strategy
    strategy.sampler = TruncatedSampler(0.9, MOST)  # as of four times as many users
    made.run(10)
    assert "stopped before round 4: none of 1,000 cohorts of 60 users" in str(strategy.stopped)
    assert strategy.rounds_done == 3 and sum(made.ledger.spent().values()) == 3
    np.testing.assert_array_equal(strategy.optimizer.theta_D, learnt_D)
