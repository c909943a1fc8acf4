import math

import pytest
from by_dp_accounting import loss_of
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from murmuration.privacy.accounting import accountant, recompute
from murmuration.privacy.accounting import events as charged_events
from murmuration.privacy.accounting.composition import composed_epsilon, composition
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    MixtureGaussian,
    ParallelEvent,
    PoissonGaussian,
    PureChoice,
    PureDp,
    Unprotected,
    by_part,
)
from murmuration.privacy.accounting.ledger import BudgetExceeded, LedgerOfPart
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut

TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-6, "interval": 2e-3}

events = st.one_of(
    st.builds(MixtureGaussian, st.floats(2.0, 9.0), st.integers(1, 9), st.floats(0.01, 0.3)),
    st.builds(PoissonGaussian, st.floats(0.01, 0.5), st.floats(2.0, 9.0)),
    st.builds(PureDp, st.floats(0.01, 0.5)),
)


@settings(max_examples=15, phases=[Phase.generate])
@given(events, events, st.integers(1, 20), st.integers(1, 5))
def test_events_of_any_kind_compose_in_any_order(first, second, times, more):
    both = composed_epsilon([(first, times), (second, more)], **TERMS)
    swapped = composed_epsilon([(second, more), (first, times)], **TERMS)
    assert swapped == pytest.approx(both, rel=1e-6, abs=1e-9)
    split = composed_epsilon([(first, 1), (second, more), (first, times - 1)], **TERMS)
    assert split == pytest.approx(both, rel=1e-4, abs=1e-6)
    half = {**TERMS, "delta": 5e-7}
    parts = [composed_epsilon([part], **half) for part in ((first, times), (second, more))]
    assert both <= sum(parts) + 1e-6  # basic composition
    alone = [composed_epsilon([part], **TERMS) for part in ((first, times), (second, more))]
    assert both >= max(alone) - 1e-6


def test_twice_t_rounds_are_t_rounds_twice():
    event = MixtureGaussian(3.0, 6, 0.05)
    whole = composed_epsilon([(event, 80)], **TERMS)
    halves = composed_epsilon([(event, 40), (event, 40)], **TERMS)
    assert halves == pytest.approx(whole, rel=1e-6)


def test_nothing_released_has_no_loss_and_an_unprotected_release_every():
    assert composition([], adjacency=Adjacency.REPLACE) is None
    assert composition([(Unprotected(), 0)], adjacency=Adjacency.REPLACE) is None
    assert composed_epsilon([(PureDp(1.0), 0)], **TERMS) == 0.0
    mixed = [(PureDp(1.0), 2), (Unprotected(), 3), (PoissonGaussian(0.1, 4.0), 1)]
    assert composed_epsilon(mixed, **TERMS) == math.inf


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.parametrize(("probability", "noise"), [(1e-9, 1.0), (1e-6, 1.0), (1e-6, 1e3)])
def test_the_grid_is_never_finer_than_rounding_allows(adjacency, probability, noise):
    event, rounds = PoissonGaussian(probability, noise), 100_000
    total = composition([(event, rounds)], adjacency=adjacency)
    assert total is not None
    found = total.epsilon(1e-9)
    # The standard deviation of the loss, from its variance in one round.
    swap = adjacency.vectors_changed == 2
    spread = math.expm1(noise**-2) + (-math.expm1(-(noise**-2)) if swap else 0.0)
    std = probability * math.sqrt(spread * (2 if swap else 1) * rounds)
    assert 0.0 <= found <= 20.0 * std


@pytest.mark.parametrize(
    ("probability", "interval"), [(0.05, 1e-3), (0.5, 1e-3), (0.9, 1e-3), (0.5, 1e-4)]
)
@pytest.mark.parametrize("noise", [0.7945, 3.0])
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-8])
def test_a_single_release_is_certified_where_its_loss_ends(probability, noise, delta, interval):
    """Of a user who is added the loss is bounded, and much of its mass lies in the last cells."""
    event = PoissonGaussian(probability, noise)
    found = composed_epsilon(
        [(event, 1)], adjacency=Adjacency.ADD_REMOVE, delta=delta, interval=interval
    )
    alone = loss_of(event, Adjacency.ADD_REMOVE, interval).get_epsilon_for_delta(delta)
    assert alone - 1e-9 <= found <= alone + 1e-6


GAUSSIAN, PURE = PoissonGaussian(0.1, 4.0), PureDp(0.3)


def epsilon(*charges):
    return accountant.epsilon(charges, adjacency=Adjacency.ADD_REMOVE, delta=1e-5, interval=1e-3)


def test_parts_cost_as_much_as_the_dearest():
    alone = {n: epsilon((GAUSSIAN, n)) for n in (50, 200)}
    assert alone[50] < alone[200]
    assert (
        epsilon((ParallelEvent(1, GAUSSIAN), 50), (ParallelEvent(2, GAUSSIAN), 200)) == alone[200]
    )
    assert (
        epsilon((ParallelEvent(1, GAUSSIAN), 200), (ParallelEvent(2, GAUSSIAN), 50)) == alone[200]
    )


def test_one_part_composes_and_what_is_about_everybody_counts_for_each():
    together = epsilon((GAUSSIAN, 200), (PURE, 1))
    assert epsilon((ParallelEvent(3, GAUSSIAN), 200), (ParallelEvent(3, PURE), 1)) == together
    assert (
        epsilon((ParallelEvent(1, GAUSSIAN), 200), (ParallelEvent(2, GAUSSIAN), 50), (PURE, 1))
        == together
    )
    assert together > epsilon((GAUSSIAN, 200))


@pytest.mark.parametrize("others", [[], [(ParallelEvent(1, GAUSSIAN), 1)]])
@pytest.mark.parametrize("held", [{}, HoldOut(0.2, 0.1).charges])
def test_a_choice_in_a_part_is_added_to_the_rest_as_anywhere(others, held):
    choice = PureChoice(0.5)
    inside = [(ParallelEvent(0, choice), 4), (ParallelEvent(0, GAUSSIAN), 50), *others]
    outside = [(choice, 4), (GAUSSIAN, 50)]
    assert epsilon(*inside, *held.items()) == epsilon(*outside, *held.items())


def test_without_parts_nothing_changes():
    assert by_part([(GAUSSIAN, 2), (PURE, 1)]) == [[(GAUSSIAN, 2), (PURE, 1)]]
    assert by_part([]) == [[]]


def test_groups_of_two_divisions_are_not_matched_by_their_numbers():
    """Whoever is in group 1 of 2 may be in group 0 of 3: the dearest of both is what one pays."""
    two, three = BandedGaussian(2, 0.3, 8.0), BandedGaussian(3, 0.4, 8.0)
    charges = [
        (ParallelEvent(0, two), 1), (ParallelEvent(1, two), 4),
        (ParallelEvent(0, three), 4), (ParallelEvent(1, three), 1), (GAUSSIAN, 1),
    ]  # fmt: skip
    exposed = [(two, 4), (three, 4), (GAUSSIAN, 1)]
    assert {frozenset(part) for part in by_part(charges)} >= {frozenset(exposed)}
    terms = {"adjacency": TERMS["adjacency"], "delta": TERMS["delta"]}
    cost = accountant.epsilon(charges, **terms)
    assert cost == pytest.approx(accountant.epsilon(exposed, **terms), rel=1e-9)
    stated = [(charged_events.to_json(event), times) for event, times in charges]
    theirs = recompute.epsilon(stated, **{**TERMS, "interval": 1e-4})
    assert theirs == pytest.approx(cost, abs=1e-4)


def test_round_trip():
    assert charged_events.from_json(
        charged_events.to_json(ParallelEvent(2, GAUSSIAN))
    ) == ParallelEvent(2, GAUSSIAN)
    with pytest.raises(ValueError, match="on-part"):
        charged_events.from_json({"kind": "on-part"})


def test_a_ledger_of_a_part_charges_for_it(checks, tmp_path):
    with checks.promise(tmp_path / "l", budget=0.5) as ledger:
        for part in (1, 2):
            mine = LedgerOfPart(ledger, part)
            assert mine.adjacency is ledger.adjacency
            mine.charge(PURE, round_=1, covers="test")
        assert ledger.spent() == {ParallelEvent(1, PURE): 1, ParallelEvent(2, PURE): 1}
        assert ledger.epsilon() == pytest.approx(0.3, abs=1e-3)
        with pytest.raises(BudgetExceeded):
            LedgerOfPart(ledger, 2).charge(PURE, round_=2, covers="test")
    with checks.promise(tmp_path / "l", budget=0.5) as ledger:
        assert ledger.spent() == {ParallelEvent(1, PURE): 1, ParallelEvent(2, PURE): 1}
