"""Bytes of deleted rows leave the file and its log, whoever has it open."""

import sqlite3
import time
from datetime import UTC, datetime

import pytest
from flwr.app import ConfigRecord
from flwr.common.constant import SubStatus
from flwr.proto.message_pb2 import ObjectTree
from superlink import served, superlink

from murmuration.deploy.guard import server_state
from murmuration.deploy.guard.server_state import erase_finished, erase_leftovers

__all__ = ["served", "superlink"]

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


def begin_with_a_sum(superlink):
    """A run, and the SuperLink's state with what a node sent in it."""
    run, record = superlink.begin_run(), ConfigRecord({"sum": SECRET})
    store = superlink.state.object_store
    store.preregister(run, ObjectTree(object_id=record.object_id))
    store.put(record.object_id, record.deflate())
    assert SECRET in bytes_of(superlink.database)
    return run


@pytest.mark.parametrize("end", ["completed", "failed", "stopped"])
def test_a_superlink_erases_what_a_run_left_whoever_is_there(superlink, end):
    """No command waits for it, and nobody asks for the run after its end."""
    run = begin_with_a_sum(superlink)
    time.sleep(2 * server_state._LOOKS)
    assert SECRET in bytes_of(superlink.database)  # of a run that goes on
    sub_status = {"completed": SubStatus.COMPLETED, "failed": SubStatus.FAILED}.get(end)
    if sub_status is None:
        superlink.state.stop_run(run)
    else:
        superlink.state.finish_task(superlink.task_of(run), sub_status, "")
    deadline = time.monotonic() + 30
    while SECRET in bytes_of(superlink.database):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_serverapp_that_was_killed_has_ended_its_run(superlink, monkeypatch):
    """It is not heard of any more; that is noticed though nobody asks."""
    begin_with_a_sum(superlink)
    ahead = time.time() + 3600
    monkeypatch.setattr("flwr.supercore.corestate.sql_corestate.now", lambda: _moment(ahead))
    deadline = time.monotonic() + 30
    while SECRET in bytes_of(superlink.database):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _moment(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def test_runs_are_tried_again_while_the_superlink_writes(superlink, monkeypatch):
    monkeypatch.setattr(server_state, "erase_leftovers", lambda database: False)
    run = superlink.begin_run()
    superlink.state.finish_task(superlink.task_of(run), SubStatus.FAILED, "")
    assert erase_finished(superlink.state, superlink.database, set()) == set()
    monkeypatch.setattr(server_state, "erase_leftovers", lambda database: True)
    over = erase_finished(superlink.state, superlink.database, set())
    assert run in over
    assert erase_finished(superlink.state, superlink.database, over) == set()
