"""Ledgers of others: runs that ``ledger --all-runs`` must not overlook, since the sum would be less
than what they cost, and charges that nobody can add up."""

import os

import pytest

from murmuration.api.ledgers import all_runs, verify
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import composition
from murmuration.privacy.accounting.events import ParallelEvent, PureDp
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.accounting.terms import RunTerms
from murmuration.privacy.adjacency import Adjacency


def run(folder, *events):
    folder.mkdir(parents=True)
    with Ledger(
        folder / "ledger.jsonl",
        adjacency=Adjacency.ZERO_OUT,
        delta=1e-5,
        budget=None,
        terms=RunTerms(caveats=frozenset()),
    ) as ledger:
        for event in events:
            ledger.charge(event, round_=1, covers="something")


def test_a_run_behind_a_link_counts_once(tmp_path):
    """Before: folders that were linked in were not looked into."""
    run(tmp_path / "runs" / "a", PureDp(1.0))
    run(tmp_path / "disk" / "b", PureDp(2.0))
    (tmp_path / "runs" / "b").symlink_to(tmp_path / "disk" / "b")
    (tmp_path / "runs" / "again").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "round").symlink_to(tmp_path / "runs")
    ledgers = all_runs(tmp_path / "runs")
    assert len(ledgers.runs) == 2
    assert ledgers.promise.epsilon == pytest.approx(3.0, rel=1e-3)


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path, monkeypatch):
    """Before: it was left out without a word."""
    run(tmp_path / "a", PureDp(1.0))
    run(tmp_path / "b", PureDp(2.0))
    listed = os.scandir

    def refused(path):
        if str(path) == str(tmp_path / "b"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match=r"b cannot be read: Permission denied"):
        all_runs(tmp_path)


def test_charges_that_nobody_can_add_up_are_one_line(tmp_path):
    """Before: a traceback."""
    run(tmp_path / "a", MixtureGaussian(0.01, 10**6, 0.5))
    report = verify(tmp_path / "a")
    assert not report["whole"]
    assert "cannot be composed" in report["wrong"][0]
    with pytest.raises(InputError, match="cannot be composed"):
        all_runs(tmp_path)


@pytest.mark.parametrize(
    "events",
    [
        [MixtureGaussian(1000.0, 100_000, 0.5)],
        [MixtureGaussian(1.0, 10**9, 0.5)],
        [MixtureGaussian(1.0, 1000 + more, 0.5) for more in range(4)],
        [PureDp(1.0 + more / 1000.0) for more in range(400)],
        [ParallelEvent(part, PureDp(1.0 + part / 1000.0)) for part in range(400)],
    ],
    ids=["numbers of examples", "examples", "several", "kinds", "parts"],
)
def test_charges_that_take_minutes_are_refused_before_any_is_computed(
    events, tmp_path, monkeypatch
):
    """Before: the command was busy for minutes, or took all memory."""

    def computed(*_):
        raise AssertionError("it was computed")

    monkeypatch.setattr(composition, "_masses", computed)
    run(tmp_path / "a", *events)
    report = verify(tmp_path / "a")
    assert "would take minutes" in report["wrong"][0]
    with pytest.raises(InputError, match="would take minutes"):
        all_runs(tmp_path)
