"""Bytes of deleted rows leave the file and its log, whoever has it open."""

import sqlite3

import pytest

from murmuration.sims.deploy import server_state
from murmuration.sims.deploy.server_state import erase_leftovers

SECRET = b"exact sum of alice" * 50


@pytest.fixture
def state(tmp_path):
    """A SuperLink's state, open as it keeps it, with a row that was there and one that is."""
    path = tmp_path / "state.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("CREATE TABLE objects (id INTEGER PRIMARY KEY, content BLOB)")
    connection.execute("INSERT INTO objects VALUES (1, ?), (2, ?)", (SECRET, b"still needed"))
    connection.execute("DELETE FROM objects WHERE id = 1")
    yield path, connection
    connection.close()


def bytes_of(path):
    return b"".join(file.read_bytes() for file in path.parent.glob("state.db*"))


def test_deleted_rows_are_erased_while_the_superlink_runs(state):
    path, connection = state
    assert SECRET in bytes_of(path)
    assert erase_leftovers(path)
    assert SECRET not in bytes_of(path)
    assert connection.execute("SELECT content FROM objects").fetchall() == [(b"still needed",)]
    connection.execute("INSERT INTO objects VALUES (3, 'x')")  # and goes on


def test_and_after_it_was_killed(state):
    path, _ = state
    copy = path.parent / "killed"
    copy.mkdir()
    for file in path.parent.glob("state.db*"):
        (copy / file.name).write_bytes(file.read_bytes())
    assert erase_leftovers(copy / "state.db")
    assert SECRET not in bytes_of(copy / "state.db")


def test_the_files_are_their_owners_alone(state):
    path, _ = state
    for file in path.parent.glob("state.db*"):
        file.chmod(0o644)
    erase_leftovers(path)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.glob("state.db*")}
    assert set(modes.values()) == {0o600}
    assert "state.db-wal" in modes


def test_a_superlink_that_writes_is_not_disturbed(state, monkeypatch):
    path, connection = state
    monkeypatch.setattr(server_state, "LOCKED", 0.1)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO objects VALUES (3, 'x')")
    assert not erase_leftovers(path, seconds=0.1)
    connection.execute("COMMIT")
    assert erase_leftovers(path)


def test_where_there_is_no_state_there_is_nothing_to_do(tmp_path):
    assert erase_leftovers(tmp_path / "state.db")
    assert not (tmp_path / "state.db").exists()
