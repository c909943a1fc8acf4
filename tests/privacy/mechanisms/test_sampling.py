import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import (
    RARELY,
    AllocationSampler,
    Block,
    Blocks,
    CyclicSampler,
    PoissonSampler,
    TruncatedSampler,
)


def draws(probability: float, users: int, seed: int = 0):
    sampler, source = PoissonSampler(probability), Randomness(seed)
    return lambda round_: sampler.draw(names(users), source, round_)


def names(users: int) -> np.ndarray:
    """Close to each other, which a coin must not see."""
    return np.arange(users, dtype=np.uint64)


@pytest.mark.parametrize("probability", [0.02, 0.2, 0.5, 0.9])
def test_every_user_has_an_independent_coin(checks: SimpleNamespace, probability: float) -> None:
    checks.poisson_cohorts(draws(probability, 60), users=60, probability=probability, rounds=3_000)


def test_the_check_rejects_a_cohort_of_fixed_size(checks: SimpleNamespace) -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(AssertionError, match="covariance"):
        checks.poisson_cohorts(
            lambda _: generator.choice(60, 12, replace=False),
            users=60,
            probability=0.2,
            rounds=3_000,
        )


@pytest.mark.parametrize("claimed", [0.2 * 0.93, 0.2 * 1.07])
def test_the_check_rejects_another_probability(checks: SimpleNamespace, claimed: float) -> None:
    with pytest.raises(AssertionError):
        checks.poisson_cohorts(draws(0.2, 60), users=60, probability=claimed, rounds=3_000)


def test_cohort_sizes_of_a_real_plan_are_binomial(checks: SimpleNamespace) -> None:
    draw = draws(540 / 2717, 2717, seed=3)
    sizes = np.array([len(draw(round_)) for round_ in range(2_000)])
    checks.binomial_sizes(sizes, 2717, 540 / 2717)
    with pytest.raises(AssertionError):
        checks.binomial_sizes(np.full(2_000, 540), 2717, 540 / 2717)


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.01, 0.333, 0.334, 0.7])
def test_every_user_has_an_independent_coin_at_length(
    checks: SimpleNamespace, probability: float
) -> None:
    checks.poisson_cohorts(
        draws(probability, 200, seed=1), users=200, probability=probability, rounds=60_000
    )


@given(
    st.integers(0, 400),
    st.floats(0.0, 1.0, exclude_min=True, allow_subnormal=True),
    st.integers(0, 2**32),
)
def test_any_cohort_is_ascending_distinct_and_in_range(
    users: int, probability: float, seed: int
) -> None:
    cohort = PoissonSampler(probability).draw(names(users), Randomness(seed), 1)
    assert cohort.dtype == np.int64
    assert cohort.ndim == 1
    assert (np.diff(cohort) > 0).all()
    assert ((cohort >= 0) & (cohort < users)).all()


@given(st.integers(0, 5_000))
def test_probability_one_takes_everybody(users: int) -> None:
    cohort = PoissonSampler(1.0).draw(names(users), Randomness(0), 1)
    assert cohort.tolist() == list(range(users))


@pytest.mark.parametrize("probability", [0.3, 0.999999, 1.0])
def test_a_single_user_is_flipped_for(probability: float) -> None:
    draw = draws(probability, 1)
    hits = sum(len(draw(round_)) for round_ in range(2_000))
    if probability == 1.0:
        assert hits == 2_000
    else:
        assert stats.binomtest(hits, 2_000, probability).pvalue > 1e-6


def test_nobody_is_drawn_from_nobody() -> None:
    for probability in (1e-9, 0.5, 1.0):
        assert draws(probability, 0)(1).tolist() == []


@pytest.mark.parametrize("probability", [5e-324, 1e-300, 1e-18])
def test_a_tiny_probability_neither_overflows_nor_includes(probability: float) -> None:
    for round_ in range(200):
        assert len(draws(probability, 1_000)(round_)) == 0


@given(st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=60), st.data())
def test_who_else_is_drawn_does_not_change(drawn_from: set[int], data: st.DataObject) -> None:
    """When a user comes, goes or moves, in whatever order the others stand."""
    everybody = np.array(data.draw(st.permutations(sorted(drawn_from))), dtype=np.uint64)
    one, sampler, source = int(everybody[0]), PoissonSampler(0.4), Randomness(5)

    def drawn(names_N: np.ndarray) -> set[int]:
        return set(names_N[sampler.draw(names_N, source, 3)].tolist())

    assert drawn(everybody) - {one} == drawn(everybody[1:])
    assert drawn(everybody) == drawn(everybody[::-1].copy())


def test_without_a_seed_every_draw_has_coins_of_its_own() -> None:
    sampler, source = PoissonSampler(0.5), Randomness(None)
    found = {tuple(sampler.draw(names(100), source, 1).tolist()) for _ in range(5)}
    assert len(found) == 5


def test_without_a_seed_coins_are_independent(checks: SimpleNamespace) -> None:
    sampler, source = PoissonSampler(0.2), Randomness(None)
    checks.poisson_cohorts(
        lambda round_: sampler.draw(names(60), source, round_),
        users=60,
        probability=0.2,
        rounds=3_000,
    )


def test_a_seeded_round_is_drawn_the_same_again_and_others_are_not() -> None:
    cohort = draws(0.2, 500)(7)
    assert np.array_equal(cohort, draws(0.2, 500)(7))
    assert not np.array_equal(cohort, draws(0.2, 500)(8))
    assert not np.array_equal(cohort, draws(0.2, 500, seed=1)(7))


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.0000001, float("nan"), float("inf")])
def test_a_probability_out_of_range_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match=r"sampling probability must be in \(0, 1\]"):
        PoissonSampler(probability)


@pytest.mark.parametrize("rounds", [1, 3, 7])
@pytest.mark.parametrize("seed", [None, 5])
def test_everybody_is_in_one_round_of_a_block(rounds: int, seed: int | None) -> None:
    names_N = np.arange(20_000, dtype=np.uint64)
    block = AllocationSampler(rounds).begin(Randomness(seed), 1)
    drawn = [block.draw(names_N, round_) for round_ in range(1, rounds + 1)]
    assert sorted(np.concatenate(drawn)) == list(range(20_000))
    expected, spread = 20_000 / rounds, 6 * np.sqrt(20_000 / rounds)
    assert all(abs(len(cohort) - expected) <= spread for cohort in drawn)
    assert not block.holds(0)
    assert not block.holds(rounds + 1)


def test_blocks_are_drawn_independently() -> None:
    names_N, sampler = np.arange(40_000, dtype=np.uint64), AllocationSampler(4)
    for source, at in ((Randomness(None), (1, 1)), (Randomness(3), (1, 5))):
        one, two = (sampler.begin(source, round_) for round_ in at)
        both = np.intersect1d(one.draw(names_N, one.first), two.draw(names_N, two.first))
        assert abs(len(both) - 2_500) <= 6 * 50


def test_a_users_round_does_not_depend_on_others() -> None:
    names_N = np.arange(100, dtype=np.uint64)
    block = AllocationSampler(4).begin(Randomness(3), 5)
    assert block == AllocationSampler(4).begin(Randomness(3), 5)
    few = block.draw(names_N[:50], 6)
    assert np.array_equal(few, [n for n in block.draw(names_N, 6) if n < 50])
    assert "key" not in repr(block)


@pytest.mark.parametrize(
    ("users", "cohort", "rounds"), [(100, 20, 5), (102, 20, 5), (104, 21, 5), (7, 7, 1), (9, 1, 9)]
)
def test_blocks_of_as_many_rounds_as_a_cohort_takes(users: int, cohort: int, rounds: int) -> None:
    sampler = AllocationSampler.for_cohort(users, cohort)
    assert sampler == AllocationSampler(rounds)
    assert abs(users * sampler.probability - cohort) < 1.0


@pytest.mark.parametrize("users", [99, 2_700])
def test_every_cohort_makes_whole_blocks_or_is_told_which_do(users: int) -> None:
    for cohort in range(1, users + 1):
        try:
            sampler = AllocationSampler.for_cohort(users, cohort)
        except ValueError as error:
            near = [
                int(text.replace(",", ""))
                for text in re.findall(r"--cohort ([\d,]+) \(", str(error))
            ]
            assert len(near) == 2
            assert near[0] < cohort < near[1]
            for other in near:
                AllocationSampler.for_cohort(users, other)
        else:
            assert abs(users * sampler.probability - cohort) < 1.0


NOTHING: tuple[int, frozenset[int]] = (0, frozenset())


def going(blocks: Blocks, source: Randomness, rounds: range) -> list[Block]:
    """Runs these rounds on a ledger that charges each; the block of each."""
    result, (number, left) = [], NOTHING
    for round_ in rounds:
        block = blocks.at(round_, source, (number, left))
        assert blocks.at(round_, source, (number, left)) is block  # once drawn, until released
        if block.first == round_:
            number, left = number + 1, frozenset(range(round_ + 1, round_ + block.rounds))
        left -= {round_}
        blocks.done()
        result.append(block)
    return result


@pytest.mark.parametrize("seed", [None, 5])
def test_blocks_follow_each_other(seed: int | None) -> None:
    blocks = going(Blocks(AllocationSampler(3)), Randomness(seed), range(1, 9))
    assert [block.first for block in blocks] == [1, 1, 1, 4, 4, 4, 7, 7]
    assert len({block.key for block in blocks}) == 3


@pytest.mark.parametrize("seed", [None, 5])
def test_who_goes_on_with_a_block_draws_the_same(seed: int | None) -> None:
    source, begun = Randomness(seed), Blocks(AllocationSampler(3))
    *_, block = going(begun, source, range(1, 6))
    again = Blocks(begun.sampler)
    again.restore(begun.state(6))
    assert again.at(6, source, (2, frozenset({6}))) == block
    assert begun.state(7) == {}  # the block is over, and its key is for nothing more


@pytest.mark.parametrize(
    "last",
    [
        NOTHING,  # the ledger has lost it
        (1, frozenset({6})),  # has an earlier one last
        (2, frozenset()),  # the round was charged, and may be known; or not paid for
        (3, frozenset({7, 8})),  # another block was begun with it
        (3, frozenset({6, 7})),  # or before it, perhaps with the same round as this one
    ],
)
def test_nobody_is_in_two_rounds_that_were_paid_for_as_one(
    last: tuple[int, frozenset[int]],
) -> None:
    """A block that was paid for otherwise than in its own rounds is over: another begins."""
    begun = Blocks(AllocationSampler(3))
    *_, block = going(begun, Randomness(None), range(1, 6))
    again = Blocks(begun.sampler)
    again.restore(begun.state(6))
    other = again.at(6, Randomness(None), last)
    assert other.first == 6
    assert other.key != block.key


def test_a_round_is_not_drawn_twice_for_one_charge() -> None:
    blocks = Blocks(AllocationSampler(3))
    first = blocks.at(1, Randomness(None), NOTHING)
    blocks.done()
    second = blocks.at(1, Randomness(None), (1, frozenset({2, 3})))
    assert second.key != first.key
    assert second.first == 1  # it pays for itself


# Cohorts with a cap


@pytest.mark.parametrize(("probability", "most"), [(0.4, 2), (0.5, 5), (0.3, 1)])
def test_coins_are_tossed_until_few_enough_come_up(
    checks: SimpleNamespace, probability: float, most: int
) -> None:
    sampler, source = TruncatedSampler(probability, most), Randomness(4)
    checks.truncated_cohorts(
        lambda round_: sampler.draw(names(5), source, round_),
        users=5,
        probability=probability,
        most=most,
        rounds=6_000,
    )


def test_the_check_of_caps_rejects_another_probability(checks: SimpleNamespace) -> None:
    sampler, source = TruncatedSampler(0.4 * 1.05, 2), Randomness(4)
    with pytest.raises(AssertionError, match="sets"):
        checks.truncated_cohorts(
            lambda round_: sampler.draw(names(5), source, round_),
            users=5,
            probability=0.4,
            most=2,
            rounds=20_000,
        )


def test_a_cap_that_nothing_exceeds_changes_no_cohort() -> None:
    coins, capped = PoissonSampler(0.2), TruncatedSampler(0.2, 60)
    for round_ in range(20):
        drawn = [each.draw(names(60), Randomness(1), round_) for each in (coins, capped)]
        np.testing.assert_array_equal(*drawn)


def test_without_a_seed_every_toss_is_another() -> None:
    sampler = TruncatedSampler(0.5, 30)
    drawn = {tuple(sampler.draw(names(60), Randomness(None), 1)) for _ in range(20)}
    assert len(drawn) == 20
    assert max(map(len, drawn)) <= 30


@given(st.integers(1, 5_000), st.floats(0.001, 1.0), st.floats(0.0, 0.5))
def test_the_usual_cap_is_exceeded_by_one_cohort_in_a_million(users, share, held_out) -> None:
    cohort = max(1, int(share * users))
    most = TruncatedSampler.for_cohort(users, cohort, held_out=held_out).most
    coins = stats.binom(round(users / (1.0 - held_out)), cohort / users)
    assert coins.sf(most) <= RARELY * (1 + 1e-9)
    assert most == 1 or coins.sf(most - 1) > RARELY * (1 - 1e-9)


def test_caps_that_hardly_any_cohort_keeps_to_are_refused() -> None:
    assert TruncatedSampler.for_cohort(1_000, 100, 100) == TruncatedSampler(0.1, 100)
    with pytest.raises(ValueError, match=r"99 is below the 100 coins that come up on average: r"):
        TruncatedSampler.for_cohort(1_000, 100, 99)
    with pytest.raises(ValueError, match="125 coins that come up on average, held-out users'"):
        TruncatedSampler.for_cohort(1_000, 100, 110, 0.2)
    with pytest.raises(ValueError, match="--cohort 1,001 is more than the 1,000 users"):
        TruncatedSampler.for_cohort(1_000, 1_001)
    with pytest.raises(ValueError, match="none of 1,000 cohorts of 300 users has at most 20"):
        TruncatedSampler(0.5, 20).draw(names(300), Randomness(0), 1)


# Groups that take turns


def test_groups_take_turns_and_each_user_is_in_one(checks: SimpleNamespace) -> None:
    """Cohorts of a group are those of coins, and the groups nearly as large as each other."""
    names_N, sampler = np.arange(6_000, dtype=np.uint64), CyclicSampler(0.1, 4)
    seen: list[set[int]] = [set(), set(), set(), set()]
    for round_ in range(1, 81):
        cohort = sampler.draw(names_N, Randomness(3), round_)
        assert np.all(np.diff(cohort) > 0)
        seen[(round_ - 1) % 4].update(cohort.tolist())
    assert sum(map(len, seen)) == len(set().union(*seen)) > 5_990
    for of_group in seen:
        checks.near_zero((len(of_group) - 1_500) / math.sqrt(6_000 * 3 / 16), "size of a group")
    mine = np.array(sorted(seen[2]), dtype=np.uint64)
    checks.poisson_cohorts(
        lambda turn: sampler.draw(mine, Randomness(5), 3 + 4 * turn),
        users=len(mine),
        probability=0.4,
        rounds=300,
    )


@pytest.mark.parametrize("seed", [None, 4])
def test_a_group_depends_on_a_name_alone(seed: int | None) -> None:
    """Whoever else is there, in whatever order, in this process or another."""
    names_N, sampler = np.arange(900, dtype=np.uint64), CyclicSampler(1 / 3, 3)
    groups = [set(sampler.draw(names_N, Randomness(seed), r).tolist()) for r in (1, 2, 3)]
    few_N = names_N[::-7]
    for round_, group in zip((1, 2, 3), groups, strict=True):
        drawn = few_N[sampler.draw(few_N, Randomness(seed), round_ + 30)]
        assert set(drawn.tolist()) == group & set(few_N.tolist())


@pytest.mark.parametrize(
    ("share", "groups", "message"),
    [
        (0.4, 3, "lower --bands or --cohort, or raise --users"),
        (0.01, 0, "at least one group"),
        (0.01, True, "at least one group"),
        (0.0, 2, "sampling probability"),
    ],
)
def test_turns_that_cannot_be_are_refused(share: float, groups: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CyclicSampler(share, groups)


def test_a_whole_group_is_asked_where_all_turns_are_needed() -> None:
    assert CyclicSampler(0.2, 5).of_group.probability == 1.0
    assert CyclicSampler(1 / 3, 3).of_group.probability == 1.0
