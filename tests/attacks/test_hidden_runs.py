"""Runs that ``ledger --all-runs`` must not overlook: the sum would be less than what they cost."""

import os

import pytest

from murmuration.api.ledgers import all_runs
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import PureDp
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.terms import RunTerms
from murmuration.privacy.adjacency import Adjacency


def run(folder, epsilon):
    folder.mkdir(parents=True)
    with Ledger(
        folder / "ledger.jsonl",
        adjacency=Adjacency.ZERO_OUT,
        delta=1e-5,
        budget=None,
        terms=RunTerms(caveats=frozenset()),
    ) as ledger:
        ledger.charge(PureDp(epsilon), round_=1, covers="something")


def test_a_run_behind_a_link_counts_once(tmp_path):
    """Before: folders that were linked in were not looked into."""
    run(tmp_path / "runs" / "a", 1.0)
    run(tmp_path / "disk" / "b", 2.0)
    (tmp_path / "runs" / "b").symlink_to(tmp_path / "disk" / "b")
    (tmp_path / "runs" / "again").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "round").symlink_to(tmp_path / "runs")
    found = all_runs(tmp_path / "runs")
    assert len(found.runs) == 2
    assert found.promise.epsilon == pytest.approx(3.0, rel=1e-3)


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path, monkeypatch):
    """Before: it was left out without a word."""
    run(tmp_path / "a", 1.0)
    run(tmp_path / "b", 2.0)
    listed = os.scandir

    def refused(path):
        if str(path) == str(tmp_path / "b"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match=r"b cannot be read: Permission denied"):
        all_runs(tmp_path)
