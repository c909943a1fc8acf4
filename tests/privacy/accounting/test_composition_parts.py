import pytest

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.composition import by_part
from murmuration.privacy.accounting.events import ParallelEvent, PoissonGaussian, PureChoice, PureDp
from murmuration.privacy.accounting.ledger import BudgetExceeded, LedgerOfPart
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut

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


def test_round_trip():
    assert events.from_json(events.to_json(ParallelEvent(2, GAUSSIAN))) == ParallelEvent(
        2, GAUSSIAN
    )
    with pytest.raises(ValueError, match="on-part"):
        events.from_json({"kind": "on-part"})


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
