"""An accountant behind Flower's interface: never optimistic, tighter than Flower's, on disk."""

import dataclasses
import json
import math

import pytest
from dp_accounting import dp_event, pld
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from scipy import stats

from murmuration.api.pld_accountant import PldAccountant
from murmuration.privacy.accounting.ledger import BudgetExceeded, LedgerError

DELTA = 1e-5
PEOPLE = 1000
#: Noise multiplier, rounds, clients asked in each.
SETTINGS = [
    (1.0, 1, 100), (1.0, 10, 100), (2.0, 50, 200), (4.0, 100, 50), (8.0, 200, 500),
    (10.0, 1000, 100), (0.7, 3, 1000), (20.0, 500, 20), (5.0, 5, 5), (3.0, 300, 300),
]  # fmt: skip


def config(sampling=SamplingMethod.NO_AMPLIFICATION, **changes):
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    return dataclasses.replace(PrivacyConfig(DELTA, PEOPLE, relation, sampling), **changes)


def release(noise=4.0, asked=100, people=PEOPLE):
    return GaussianPrivacyEvent(noise, asked, people)


def exact(noise, rounds):
    """ε of Gaussian releases at δ, from their closed form (Balle and Wang 2018)."""
    mu = math.sqrt(rounds) / noise

    def delta(epsilon):
        first = stats.norm.cdf(mu / 2 - epsilon / mu)
        return first - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)

    low, high = 0.0, 500.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > DELTA else (low, middle)
    return high


@pytest.mark.parametrize(("noise", "rounds", "asked"), SETTINGS)
def test_epsilon_is_never_optimistic_and_below_flowers(noise, rounds, asked):
    ours, theirs = PldAccountant(config()), RdpAccountant(config())
    for one in (ours, theirs):
        one.compose(release(noise, asked), rounds)
    found = ours.get_epsilon(DELTA)
    assert exact(noise, rounds) <= found <= exact(noise, rounds) + 1e-3 * max(1.0, found)
    assert found < theirs.get_epsilon(DELTA)
    assert ours.get_delta(found) == pytest.approx(DELTA, rel=0.01)
    assert ours.get_privacy_spent().epsilon == found


def test_what_is_sampled_is_amplified_as_dp_accounting_has_it():
    ours = PldAccountant(config(SamplingMethod.POISSON))
    ours.compose(release(1.5, asked=50), 100)
    oracle = pld.PLDAccountant()
    oracle.compose(dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(1.5)), 100)
    assert ours.get_epsilon(DELTA) == pytest.approx(oracle.get_epsilon(DELTA), rel=1e-3)


def test_releases_add_up_whatever_their_order():
    first, second = PldAccountant(config()), PldAccountant(config())
    first.compose(release(2.0))
    first.compose(release(5.0), 3)
    for noise in (5.0, 5.0, 2.0, 5.0):
        second.compose(release(noise))
    assert first.num_releases == second.num_releases == 4
    assert first.get_epsilon(DELTA) == second.get_epsilon(DELTA)


def test_a_budget_is_looked_ahead():
    """The last release that fits is found, and nothing was composed by asking."""
    accountant = PldAccountant(config(max_epsilon=1.0))
    done = 0
    while not accountant.would_exceed(release()):
        accountant.compose(release())
        done += 1
    assert exact(4.0, done) <= 1.0 < exact(4.0, done + 1) + 1e-3
    assert accountant.num_releases == done
    assert not accountant.would_exceed(release(), max_epsilon=2.0)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (lambda one: one.compose(release(people=999)), "population_size is 999"),
        (lambda one: one.compose(release(), 0), "positive whole number"),
        (lambda one: one.compose(release(), True), "positive whole number"),
        (lambda one: one.would_exceed(release()), "max_epsilon"),
        (lambda one: one.would_exceed(release(), math.nan), "max_epsilon"),
        (lambda one: one.get_epsilon(0.0), "delta"),
        (lambda one: one.get_delta(math.nan), "epsilon"),
        (lambda one: one.load_state_dict({}), "another backend"),
        (lambda one: one.load_state_dict({**one.state_dict(), "compositions": [[{}, 1]]}), "dam"),
        (lambda one: one.load_state_dict({**one.state_dict(), "compositions": 7}), "damaged"),
    ],
)
def test_what_has_no_meaning_is_refused(what, why):
    accountant = PldAccountant(config())
    with pytest.raises(ValueError, match=why):
        what(accountant)
    assert accountant.num_releases == 0


def test_sampling_without_a_bound_of_ours_is_refused():
    relation = NeighboringRelation.REPLACE_ONE
    with pytest.raises(ValueError, match="no-amplification"):
        PldAccountant(PrivacyConfig(DELTA, PEOPLE, relation, SamplingMethod.WITHOUT_REPLACEMENT))


def test_a_state_goes_through_json_and_is_not_taken_back():
    accountant = PldAccountant(config())
    accountant.compose(release(), 5)
    kept = json.loads(json.dumps(accountant.state_dict()))
    other = PldAccountant(config())
    other.load_state_dict(kept)
    assert other.get_privacy_spent() == accountant.get_privacy_spent()
    kept["compositions"] *= 2  # an event that stands there twice counts twice
    other.load_state_dict(kept)
    assert other.num_releases == 10
    accountant.compose(release(), 6)
    with pytest.raises(ValueError, match="older"):
        accountant.load_state_dict(kept)
    with pytest.raises(ValueError, match="another"):
        PldAccountant(config(target_delta=1e-6)).load_state_dict(kept)
    assert accountant.num_releases == 11


def test_a_ledger_remembers_across_restarts_and_refuses_what_was_rolled_back(tmp_path):
    file = tmp_path / "ledger.jsonl"
    first = PldAccountant(config(max_epsilon=3.0), ledger=file)
    first.compose(release(), 4)
    old = file.read_bytes()
    first.compose(release())
    state, spent = first.state_dict(), first.get_privacy_spent()
    first.close()

    again = PldAccountant(config(max_epsilon=3.0), ledger=file)
    assert again.get_privacy_spent() == spent  # without any state
    again.load_state_dict(state)
    assert again.get_privacy_spent() == spent
    again.close()

    file.write_bytes(old)
    with pytest.raises(LedgerError):
        PldAccountant(config(max_epsilon=3.0), ledger=file)
    other = PldAccountant(config(max_epsilon=3.0), ledger=tmp_path / "another.jsonl")
    with pytest.raises(ValueError, match="lacks releases"):
        other.load_state_dict(state)
    other.close()


def test_a_ledger_stops_at_the_budget(tmp_path):
    accountant = PldAccountant(config(max_epsilon=1.0), ledger=tmp_path / "ledger.jsonl")
    with pytest.raises(BudgetExceeded):
        accountant.compose(release(), 100)
    assert accountant.get_epsilon(DELTA) <= 1.0
    accountant.close()
