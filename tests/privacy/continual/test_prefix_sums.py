"""Releases of a sum that grows: noise, cost, and what must not be released."""

import hashlib

import numpy as np
import pytest

from murmuration.privacy.accounting.events import ContinuedSum, PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger, read_account
from murmuration.privacy.accounting.ledger_lines import NotRepeated
from murmuration.privacy.accounting.terms import Caveat
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.auditing import scratch_ledger
from murmuration.privacy.continual.prefix_sums import PrefixSums
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.sampling import PoissonSampler

ADJACENCY = Adjacency.ADD_REMOVE


def mechanism(releases=4, sigma=2.0, norm=1.5, probability=1.0, **more):
    whole = GaussianSum(PoissonSampler(probability), UserClip(norm), sigma, ADJACENCY, **more)
    return PrefixSums(whole, releases)


def keys(number, board=0):
    return [hashlib.sha256(f"{board} {n}".encode()).digest() for n in range(number)]


def released(sums, ledger, made=None, **changes):
    """All releases, one after the other, of these sums of single periods."""
    made = made or mechanism(len(sums))
    before, result = np.zeros_like(sums[0]), []
    for number, sum_D in enumerate(sums, start=1):
        arguments = {
            "release": number,
            "label": "sum",
            "ledger": ledger,
            "keys": keys(number),
            "seeded": False,
            **changes,
        }
        before = made.release(sum_D, before, **arguments)
        result.append(before)
    return result


def test_noise_of_releases_is_shared_as_the_factor_says(checks):
    """Two-sided: the covariance of the noise is std² R Rᵀ, neither more nor less."""
    zero_D = np.zeros(100_000)
    made = mechanism()
    with scratch_ledger(ADJACENCY) as ledger:
        noise_WD = np.stack(released([zero_D] * 4, ledger, made)) / made.whole.std
    root_WW = made.root.matrix_WW
    np.testing.assert_allclose(np.cov(noise_WD), root_WW @ root_WW.T, atol=0.03)
    for number in range(1, 5):
        assert made.std(number) == pytest.approx(
            made.whole.std * noise_WD[number - 1].std(), rel=0.02
        )


def test_releases_are_prefix_sums():
    sums = [np.arange(3.0) * number for number in range(1, 5)]
    with scratch_ledger(ADJACENCY) as ledger:
        nearly = released(sums, ledger, mechanism(4, sigma=1e-9))
    for number in range(4):
        np.testing.assert_allclose(nearly[number], sum(sums[: number + 1]), atol=1e-7)


def test_all_releases_cost_what_one_does(tmp_path):
    made = mechanism(releases=52)
    one = PoissonGaussian(1.0, 2.0)
    assert made.charges == {one: 1, ContinuedSum(2.0, 52): 51}
    promise = {"adjacency": ADJACENCY, "delta": 1e-5, "budget": None}
    with Ledger(tmp_path / "one", **promise) as single:
        single.charge(one, round_=1, covers="sum")
        least = single.epsilon()
    with Ledger(tmp_path / "all", **promise) as ledger:
        released([np.zeros(2)] * 52, ledger, made)
        assert [charge.round for charge in ledger.charges] == list(range(1, 53))
        assert least <= ledger.epsilon() < least * 1.0001
    # Noise that is kept is from the operating system: nobody's seed knows it.
    assert Caveat.SEEDED not in read_account(tmp_path / "all")[0].terms.caveats


def test_one_release_is_charged_as_any_gaussian_sum():
    made = mechanism(releases=1)
    assert made.charges == {made.whole.event: 1} and made.std(1) == made.whole.std


def test_the_same_again_is_the_same_and_costs_nothing():
    sums = [np.ones(3), np.arange(3.0)]
    with scratch_ledger(ADJACENCY) as ledger:
        first = released(sums, ledger)
        again = released(sums, ledger)
        assert len(ledger.charges) == 2
    assert [each.tolist() for each in first] == [each.tolist() for each in again]


@pytest.mark.parametrize("number", [1, 2])
def test_the_same_noise_is_never_on_another_sum(number):
    sums = [np.ones(3), np.ones(3)]
    with scratch_ledger(ADJACENCY) as ledger:
        released(sums, ledger)
        sums[number - 1] = np.array([1.0, 1.0, 2.0])
        with pytest.raises(NotRepeated):
            released(sums, ledger)
        assert len(ledger.charges) == 2


@pytest.mark.parametrize("seeded", [False, True])
def test_copies_of_a_run_that_have_one_key_and_other_sums_have_other_noise(seeded):
    """Their ledgers know nothing of each other, and the same noise would tell the difference."""
    difference = np.array([0.0, 0.0, 5.0])
    copies = []
    for second in (np.ones(3), np.ones(3) + difference):
        with scratch_ledger(ADJACENCY) as ledger:
            copies.append(released([np.ones(3), second], ledger, seeded=seeded))
    assert copies[0][0].tolist() == copies[1][0].tolist()
    apart = copies[1][1] - copies[0][1] - difference
    assert (abs(apart) > 1e-6).all()


def test_no_release_is_left_out():
    with scratch_ledger(ADJACENCY) as ledger:
        released([np.ones(2)], ledger, mechanism(4))
        with pytest.raises(ValueError, match="release 3 without those before"):
            mechanism(4).release(
                np.ones(2),
                np.zeros(2),
                release=3,
                label="sum",
                ledger=ledger,
                keys=keys(3),
                seeded=False,
            )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"release": 2, "keys": keys(2)}, "release 2 without the first"),
        ({"release": 5, "keys": keys(5)}, "release 5 of 4"),
        ({"release": 0, "keys": []}, "release 0 of 4"),
        ({"keys": keys(2)}, "release 1 of 4, with 2 keys"),
    ],
)
def test_what_is_not_released(changes, message):
    with scratch_ledger(ADJACENCY) as ledger:
        with pytest.raises(ValueError, match=message):
            released([np.ones(3)], ledger, mechanism(), **changes)
        assert not ledger.charges


def test_what_is_not_finite():
    with scratch_ledger(ADJACENCY) as ledger:
        with pytest.raises(ValueError, match="not finite"):
            released([np.array([np.nan, 0.0])], ledger, mechanism())
        assert not ledger.charges


def test_another_adjacency():
    with scratch_ledger(Adjacency.REPLACE) as ledger, pytest.raises(ValueError, match="is for"):
        released([np.ones(2)], ledger, mechanism())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probability": 0.5}, "not of a sample"),
        ({"discrete": DiscreteNoise(3)}, "not on a grid"),
    ],
)
def test_what_no_releases_can_be_made_by(changes, message):
    with pytest.raises(ValueError, match=message):
        mechanism(**changes)
