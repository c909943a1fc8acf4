"""Two accountants about one training: where they agree, where one is not asked, what is whose."""

import json
import sys
from dataclasses import replace

import pytest

from murmuration.privacy.accounting import accountant, recompute, second_opinion
from murmuration.privacy.accounting.events import (
    BufferedGaussian,
    BufferedLater,
    DiscretizedGaussian,
    GroupGaussian,
    HoldOut,
    MixtureGaussian,
    ParallelEvent,
    PoissonGaussian,
    PureChoice,
    PureDp,
    RandomizedLabels,
    Unprotected,
)
from murmuration.privacy.accounting.second_opinion import of_run
from murmuration.privacy.adjacency import Adjacency

ADD, DELTA = Adjacency.ADD_REMOVE, 1e-5
ULS = (PoissonGaussian(0.2, 4.0), 200)
COINS = HoldOut(0.2, 1.5).charges.items()


@pytest.mark.parametrize(
    ("run", "adjacency"),
    [
        ([ULS], ADD),
        ([ULS], Adjacency.ZERO_OUT),
        ([ULS], Adjacency.REPLACE),
        ([(PoissonGaussian(1.0, 4.0), 2)], Adjacency.REPLACE_LABELS),
        ([(MixtureGaussian(20.0, 4, 0.05), 100)], ADD),
        ([ULS, (PureDp(0.1), 5)], ADD),
        ([(PoissonGaussian(0.01, 30.0), 1000)], ADD),  # on a finer grid
        (
            [
                (ParallelEvent(0, DiscretizedGaussian(ULS[0], 9, 24)), 20),
                (ParallelEvent(1, ULS[0]), 40),
            ],
            ADD,
        ),
        ([(GroupGaussian(20.0, 4, 0.05), 100)], ADD),
    ],
)
def test_both_agree_about_the_training(run, adjacency):
    found = of_run(run, adjacency=adjacency, delta=DELTA)
    assert found.ours is not None and found.ours > 0.0
    assert found.difference is not None and found.difference < 1e-6
    assert (found.why, found.warning) == ("", None)
    assert found.library.startswith("dp-accounting 0.6")


def test_training_alone_is_told_beside_rules_for_the_rest():
    """A hold-out makes the whole cost less than its training; a choice more."""
    for more, sign in ((COINS, 1), ([(PureChoice(0.4), 1)], -1)):
        found = of_run([ULS, *more], adjacency=ADD, delta=DELTA)
        whole = accountant.epsilon([ULS, *more], adjacency=ADD, delta=DELTA)
        assert found.ours == accountant.epsilon([ULS], adjacency=ADD, delta=DELTA)
        assert (found.ours - whole) * sign > 0.05
        assert len(found.by_our_rules) == 1


@pytest.mark.parametrize(
    ("run", "adjacency", "why"),
    [
        ([(RandomizedLabels(0.3), 1)], Adjacency.REPLACE_LABELS, "nothing of this run"),
        ([(Unprotected(), 1)], ADD, "nothing of this run"),
        ([], ADD, "nothing of this run"),
        (
            [(ParallelEvent(0, DiscretizedGaussian(MixtureGaussian(200.0, 33, 0.01), 9, 24)), 2)],
            ADD,
            "groups of 33",
        ),
        ([(PoissonGaussian(1.0, 0.08), 1)], ADD, "epsilon is over 100"),
    ],
)
def test_where_it_is_not_asked_it_says_why(run, adjacency, why, monkeypatch):
    monkeypatch.setattr(recompute, "epsilon", None)
    found = of_run(run, adjacency=adjacency, delta=DELTA)
    assert found.why.startswith(why)
    assert (found.theirs, found.difference, found.warning) == (None, None, None)
    json.dumps(found.to_json(), allow_nan=False)


def test_groups_of_any_size_are_asked_about_where_that_is_wanted(monkeypatch):
    monkeypatch.setattr(recompute, "epsilon", lambda *_, **__: 0.25)
    run = [(MixtureGaussian(40.0, 33, 0.01), 2)]
    assert of_run(run, adjacency=ADD, delta=DELTA, most_group=33).theirs == 0.25


def test_a_run_ends_where_it_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    found = of_run([ULS], adjacency=ADD, delta=DELTA)
    assert found.theirs is None
    assert found.why.startswith("it could not be asked: ")


@pytest.mark.parametrize("error", [TypeError, IndexError, MemoryError])
def test_a_run_ends_whatever_the_library_raises(error, monkeypatch):
    """As of mixtures whose tail it does not find, where it adds None to a number."""

    def fails(*_, **__):
        raise error("unsupported operand")

    monkeypatch.setattr(recompute, "epsilon", fails)
    found = of_run([ULS], adjacency=ADD, delta=DELTA)
    assert (found.theirs, found.why) == (None, "it could not be asked: unsupported operand")
    assert found.ours is not None


@pytest.mark.parametrize("fault", [-1.1e-4, 1.1e-4])
def test_a_disagreement_is_a_warning(fault, monkeypatch):
    exact = recompute.epsilon
    monkeypatch.setattr(recompute, "epsilon", lambda *a, **k: exact(*a, **k) + fault)
    found = of_run([ULS], adjacency=ADD, delta=DELTA)
    assert found.warning is not None
    assert "TWO ACCOUNTANTS DISAGREE" in found.warning and "ledger FOLDER --events" in found.warning
    assert found.to_json()["difference"] == pytest.approx(abs(fault), rel=1e-3)
    near = replace(found, theirs=found.ours + 0.9e-4)
    assert near.warning is None


def test_what_is_written_names_the_events_and_both_figures(tmp_path):
    written = second_opinion.write_events(tmp_path, [ULS, *COINS], adjacency=ADD, delta=DELTA)
    data = json.loads(written[0].read_text())
    assert {charge["event"]["kind"] for charge in data["charges"]} == {
        "poisson-gaussian",
        "hold-out",
    }
    assert data["epsilon"] == accountant.epsilon([ULS, *COINS], adjacency=ADD, delta=DELTA)
    assert data["training_epsilon"] == accountant.epsilon([ULS], adjacency=ADD, delta=DELTA)
    assert recompute.main(str(written[0])) == 0
    unprotected = [(Unprotected(), 1)]
    written = second_opinion.write_events(tmp_path, unprotected, adjacency=ADD, delta=DELTA)
    assert json.loads(written[0].read_text())["epsilon"] is None
    assert recompute.main(str(written[0])) == 0


@pytest.mark.parametrize(("later", "code"), [(2, 0), (3, 1)])
def test_releases_that_nothing_paid_for_are_told(tmp_path, capsys, later, code):
    charges = [(BufferedGaussian(3, 2, 4.0), 1), (BufferedLater(3, 2, 4.0), later)]
    written = second_opinion.write_events(tmp_path, charges, adjacency=ADD, delta=DELTA)
    assert recompute.main(str(written[0])) == code
    assert ("releases_that_nothing_paid_for" in capsys.readouterr().out) == bool(code)
