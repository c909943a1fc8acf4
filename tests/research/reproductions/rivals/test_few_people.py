"""Who is trained on, where it begins, along what, and whose means and intervals are printed."""

import numpy as np
import pytest

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.research.reproductions.entry import where
from murmuration.research.reproductions.rivals import few_people
from murmuration.research.reproductions.rivals.few_people import (
    LENGTH,
    PUBLIC,
    RUNS,
    ZERO,
    Plan,
    compared,
    miniature,
    of_people,
    principal_directions,
)
from murmuration.sims.population.population import Population

WAYS = ((ZERO, 0), (ZERO, 16), (PUBLIC, 0), (PUBLIC, 16), (LENGTH, 0))
SMALL = Plan(("hashing:40",), (10, 20), (2.0,), WAYS, (1.0, 3.0), (0.1, 1.0), seeds=2, rounds=3)


@pytest.fixture(scope="module")
def crowd():
    everybody = Judgements.from_rows(Population(users=90, median_judgements=4).rows("train"))
    return tuple(everybody.select(range(*ends)) for ends in ((0, 40), (40, 60), (60, 90)))


@pytest.fixture(scope="module")
def comparison(crowd, tmp_path_factory):
    path = tmp_path_factory.mktemp("few") / RUNS
    return compared(*crowd, path, SMALL), path


def test_each_way_has_a_row_for_each_number_of_people(comparison):
    rows = [row for row in comparison[0].rows if row["people"]]
    assert len(rows) == len(WAYS) * 2
    for row in rows:
        assert row["low"] <= row["by_user"] <= row["high"]
    assert {row["start"] for row in where(comparison[0].rows, people=0)} == {PUBLIC, LENGTH}


def test_a_finished_comparison_trains_nobody_again(crowd, comparison, monkeypatch):
    def trained(*_):
        raise AssertionError

    monkeypatch.setattr(few_people._Features, "_trained", trained)
    assert compared(*crowd, comparison[1], SMALL).rows == comparison[0].rows


def test_nobody_chooses_a_step_and_is_trained_on(crowd, tmp_path):
    cell = few_people._Features("hashing:40", *crowd, SMALL, few_people.Runs(tmp_path / RUNS, {}))
    people = few_people.pair_examples(crowd[0], cell._phi)
    parts = [row for part in (cell._pool, cell._validation) for row in part.x_RD.tolist()]
    assert sorted(parts) == sorted(people.x_RD.tolist())
    assert len(cell._pool.counts_U) + len(cell._validation.counts_U) == len(people.counts_U)


def test_differences_are_of_the_same_judgements(comparison):
    rows, differences = comparison[0].rows, comparison[0].extra["differences"]
    alone = where(rows, people=0, start=LENGTH)[0]
    for row in where(differences, less=f"{LENGTH} alone"):
        keys = {name: row[name] for name in ("people", "epsilon", "start", "directions")}
        (own,) = where(rows, **keys)
        assert row["by_user"] == pytest.approx(own["by_user"] - alone["by_user"])


def test_remarks_say_what_each_start_is_worth(comparison):
    rows, remarks = comparison[0].rows, comparison[0].remarks
    assert len(remarks) == 2 * 2 * 2  # people, starts, and what they are compared to
    share = {
        start: where(rows, people=10, start=start, directions=0)[0]["by_user"]
        for start in (ZERO, LENGTH)
    }
    gain = f"from {LENGTH}, less {ZERO}: {100 * (share[LENGTH] - share[ZERO]):+.1f} "
    assert [gain in line for line in remarks if " 10 people" in line].count(True) == 1


def test_principal_directions_hold_the_axes_and_then_where_responses_differ():
    generator = np.random.default_rng(3)
    spread_D = np.array([0.1, 5.0, 0.2, 3.0, 0.05, 1.0])
    rows_ND = generator.normal(size=(4000, 6)) * spread_D
    axes_FD = np.array([[0.0, 0, 0, 0, 7, 0], [0, 0, 2, 0, 7, 0]])
    basis_DK = principal_directions(axes_FD, rows_ND, 4)
    np.testing.assert_allclose(basis_DK.T @ basis_DK, np.eye(4), atol=1e-6)
    np.testing.assert_allclose(axes_FD @ basis_DK @ basis_DK.T, axes_FD, atol=1e-5)
    np.testing.assert_allclose(np.abs(basis_DK[[1, 3], [2, 3]]), 1.0, atol=0.02)
    assert principal_directions(axes_FD, rows_ND, 99).shape == (6, 6)


def test_rounds_that_move_nothing_leave_the_start(crowd, tmp_path):
    still = Plan(("hashing:40",), (10,), (2.0,), WAYS, (1e-9,), (0.1,), seeds=1, rounds=2)
    rows = compared(*crowd, tmp_path / RUNS, still).rows
    alone = where(rows, people=0, start=PUBLIC)[0]
    for row in where(rows, people=10, start=PUBLIC):
        assert row["by_user"] == alone["by_user"]


def test_more_people_than_there_are_is_an_error(crowd, tmp_path):
    plan = Plan(("hashing:40",), (1000,), (2.0,), WAYS[:1], (1.0,), (0.1,), seeds=1, rounds=2)
    with pytest.raises(InputError, match="fewer than 1000"):
        compared(*crowd, tmp_path / RUNS, plan)


def test_it_needs_people_or_is_a_miniature(tmp_path):
    with pytest.raises(InputError):
        of_people(tmp_path, tmp_path / "out")
    quick = miniature()
    assert np.isfinite([row["by_user"] for row in quick.rows]).all()
    assert quick.plot is not None
