"""A checkpoint comes back as it was saved, or is refused in one line."""

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.chained_record import Head
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.server.record import checkpoints
from murmuration.server.record.checkpoints import (
    PLACE,
    Checkpoint,
    InBackground,
    _pieces,
    load,
    save,
)
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol.users import Registry

pytestmark = pytest.mark.settings(epsilon=0.5, rounds=5, cohort=10, seed=-1)

STATE = {
    "theta": np.linspace(0, 1, 5),
    "averaged": np.array([3]),
    "empty": np.zeros((0, 2)),
    "halted": np.array([True]),
    "step": np.array([2.0], dtype=np.float32),
    "columns": np.arange(6.0).reshape(2, 3).T,
}
CHECKPOINT = Checkpoint(7, STATE, Head(9, "ab" * 32))


def same(found):
    assert (found.round, found.head) == (CHECKPOINT.round, CHECKPOINT.head)
    assert set(found.state) == set(STATE)
    for name, value in STATE.items():
        np.testing.assert_array_equal(found.state[name], value)
        assert found.state[name].dtype == value.dtype


def test_round_trip(tmp_path):
    assert load(tmp_path) is None
    (tmp_path / PLACE).parent.mkdir()
    save(tmp_path, CHECKPOINT)
    same(load(tmp_path))


def test_what_is_private_lies_apart_and_goes_when_it_is_no_longer_needed(tmp_path):
    (tmp_path / PLACE).parent.mkdir()
    secret, private = {"private/key": np.arange(4, dtype=np.uint8)}, tmp_path / "private"
    private.mkdir()
    for round_, state in ((7, STATE | secret), (8, STATE | secret), (9, STATE)):
        save(tmp_path, replace(CHECKPOINT, round=round_, state=state))
        assert set(load(tmp_path).state) == set(state)
        assert not any("key" in name for name in load_file(tmp_path / PLACE))
        left = [path.name for path in private.iterdir()]
        assert left == ([f"state-{round_:06d}.safetensors"] if "private/key" in state else [])


def test_a_file_as_others_write_it_and_without_copies(tmp_path):
    from safetensors.numpy import load_file

    (tmp_path / PLACE).parent.mkdir()
    save(tmp_path, CHECKPOINT)
    found = load_file(tmp_path / PLACE)
    for name, value in STATE.items():
        np.testing.assert_array_equal(found[name], value)
    pieces = [np.frombuffer(piece, np.uint8) for piece in _pieces(STATE)]
    assert any(np.shares_memory(piece, STATE["theta"]) for piece in pieces)
    with pytest.raises(KeyError):
        list(_pieces({"words": np.array(["a"])}))


@given(data=st.data())
def test_a_flipped_bit_or_a_cut_is_noticed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    path = folder / PLACE
    path.parent.mkdir()
    save(folder, CHECKPOINT)
    raw = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw = raw[:place]
    else:
        raw[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    try:
        found = load(folder)
    except InputError as error:
        assert "is damaged" in str(error)
        assert "\n" not in str(error)
    else:
        same(found)  # a bit that means nothing, such as of padding


@pytest.mark.parametrize("raw", [b"", b"x", b"\x00" * 100, b"\xff" * 1000])
def test_what_is_no_checkpoint(tmp_path, raw):
    (tmp_path / PLACE).parent.mkdir()
    (tmp_path / PLACE).write_bytes(raw)
    with pytest.raises(InputError, match=r"state\.safetensors is damaged .*remove it"):
        load(tmp_path)


def test_one_without_a_checksum_is_refused(tmp_path):
    from safetensors.numpy import save as plain

    (tmp_path / PLACE).parent.mkdir()
    (tmp_path / PLACE).write_bytes(plain({"round": np.array([7]), **STATE}))
    with pytest.raises(InputError, match=r"is damaged .*sha256"):
        load(tmp_path)


# A checkpoint is written while the next round is computed, and a crash loses no more for it.


PATIENCE = 30.0  # seconds for another thread, which takes milliseconds


class Watch:
    """What happens in a run, in order; ``held`` is when the writing of a round may go on."""

    def __init__(self, monkeypatch):
        self.seen, self.held = [], {}
        self._changed = threading.Condition()
        save, charge = RunDirectory.save_checkpoint, Ledger.charge

        def save_checkpoint(folder, round_, state):
            with self._changed:
                assert self._changed.wait_for(
                    lambda: self.held.get(round_, self.seen[0]) in self.seen, PATIENCE
                )
            save(folder, round_, state)
            self.note(("saved", round_))

        def charged(ledger, *arguments, **more):
            self.note(("charged", more["round_"]))
            return charge(ledger, *arguments, **more)

        monkeypatch.setattr(RunDirectory, "save_checkpoint", save_checkpoint)
        monkeypatch.setattr(Ledger, "charge", charged)

    def note(self, event):
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def run(self, config, push=None):
        watch = self

        class Grid(LocalGrid):
            def push_messages(self, messages):
                messages = list(messages)
                if messages and messages[0].metadata.message_type == "train":
                    round_ = int(messages[0].metadata.group_id)
                    watch.note(("asked", round_))
                    if push:
                        push(round_)
                return super().push_messages(messages)

        return run_training(config, Grid(client_app, 1, config.to_run_config()))

    def before(self, first, second):
        return self.seen.index(first) < self.seen.index(second)


def weights(out):
    return load_file(f"{out}/model/model.safetensors")["theta_D"]


def charged(out):
    lines = Path(out, "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines[1:]]
    return [line["round"] for line in found if 1 <= line["round"] <= 5]


@pytest.mark.usefixtures("quick_runs")
def test_the_next_round_is_asked_meanwhile_and_charged_afterwards(config, monkeypatch):
    watch = Watch(monkeypatch)
    watch.held = {round_: ("asked", round_ + 1) for round_ in (1, 2, 3, 4)}  # else it never ends
    assert watch.run(config)["rounds"] == 5
    for round_ in (1, 2, 3, 4):
        assert watch.before(("asked", round_ + 1), ("saved", round_))
        assert watch.before(("saved", round_), ("charged", round_ + 1))
    assert [event for event in watch.seen if event[0] == "saved"] == [
        ("saved", round_) for round_ in (1, 2, 3, 4, 5)
    ]


@pytest.mark.usefixtures("quick_runs")
def test_where_owners_keep_count_the_next_round_is_asked_afterwards(config, monkeypatch):
    """They would be asked for two rounds again, and answer none of them again under masks."""
    watch = Watch(monkeypatch)
    monkeypatch.setattr(Registry, "simulated", property(lambda _: False))
    watch.run(config)
    for round_ in (1, 2, 3, 4):
        assert watch.before(("saved", round_), ("asked", round_ + 1))


class Snapshots:
    """Copies of a run's folder, as a kill would leave it at each step of writing a checkpoint."""

    def __init__(self, config, monkeypatch, to):
        self.folder, self.to, self.found = Path(config.out), to, []
        for owner, name in ((os, "open"), (os, "fsync"), (Path, "replace")):
            monkeypatch.setattr(owner, name, self._watched(getattr(owner, name)))

    def _watched(self, step):
        def watched(*arguments, **more):
            self._copy()
            result = step(*arguments, **more)
            self._copy()
            return result

        return watched

    def _copy(self):
        if threading.current_thread().name.startswith("checkpoint"):
            with pytest.MonkeyPatch.context() as quiet:
                quiet.setattr(threading.current_thread(), "name", "copying")
                copy = self.to / str(len(self.found))
                shutil.copytree(self.folder, copy)
                self.found.append(copy)


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("seed", [3, -1])
def test_killed_at_any_step_of_writing(config, monkeypatch, tmp_path, seed):
    config = replace(config, seed=seed)
    with monkeypatch.context() as patched:
        watch = Watch(patched)
        watch.held = {round_: ("asked", round_ + 1) for round_ in (1, 2, 3, 4)}
        snapshots = Snapshots(config, patched, tmp_path)
        watch.run(config)
    assert len(snapshots.found) >= 5 * (4 if seed >= 0 else 8)
    rounds = []
    for copy in snapshots.found:
        kept = checkpoints.load(copy)  # whole, whichever it is
        rounds.append(kept.round if kept else 0)
        assert 0 <= max(charged(copy)) - rounds[-1] <= 1  # one round is charged again at most
    assert rounds == sorted(rounds)
    assert {*rounds} == {0, 1, 2, 3, 4, 5}
    middle = [copy for copy in snapshots.found if max(charged(copy)) == 3]
    for copy in middle:
        kept = checkpoints.load(copy).round
        result = run_training(
            again := replace(config, out=str(copy), resume=True),
            LocalGrid(client_app, 1, again.to_run_config()),
        )
        assert result["epsilon"] <= 0.5
        # A round that is lost is run again, with fresh coins, and the budget has no more.
        assert charged(copy) == ([1, 2, 3, 3, 4] if kept == 2 else [1, 2, 3, 4, 5])
        assert result["rounds"] == (4 if kept == 2 else 5)
        if seed >= 0 and kept == 3:
            np.testing.assert_array_equal(weights(copy), weights(config.out))
    assert {checkpoints.load(copy).round for copy in middle} == {4, 5}


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_whatever_ends_a_run_waits_for_what_is_being_written(config, monkeypatch, error):
    watch = Watch(monkeypatch)
    watch.held = {2: ("asked", 3)}

    def push(round_):
        if round_ == 3:
            raise error

    with pytest.raises(error):
        watch.run(config, push)
    assert checkpoints.load(Path(config.out)).round == 2


@pytest.mark.usefixtures("quick_runs")
def test_one_at_a_time_and_an_error_is_raised_whoever_asks():
    begun, go = threading.Event(), threading.Event()
    with InBackground() as saving:
        saving.wait()  # for nothing
        saving.begin(lambda: (begun.set(), go.wait(PATIENCE))[0])
        assert begun.wait(PATIENCE)
        threading.Timer(0.05, go.set).start()
        saving.begin(lambda: None)
        assert go.is_set()
    failing = InBackground()
    failing.begin(lambda: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing.wait()
    with pytest.raises(ZeroDivisionError):
        failing.__exit__()
