"""The chained record: nothing that happens to its files makes it shorter unnoticed."""

import contextlib
import gc
import itertools
import json
import os
import subprocess
import sys
import threading
import weakref
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting import chained_record
from murmuration.privacy.accounting.chained_record import (
    ChainedRecord,
    Head,
    NoRecord,
    OtherRecord,
    RecordDamaged,
    RecordInUse,
    head_path,
    read,
)

FIRST = {"kind": "test"}
REFUSALS = (RecordDamaged, NoRecord)


def fill(path, lines, mark="line"):
    """A record of so many lines; its payloads."""
    record = ChainedRecord(path, FIRST)
    for number in range(2, lines + 1):
        record.append({mark: number})
    record.close()
    return list(read(path).lines)


def opened(path):
    record = ChainedRecord(path, FIRST)
    record.close()
    return list(record.contents.lines)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.jsonl"


def test_lines_have_their_index_and_the_hash_of_the_line_before(path):
    record = ChainedRecord(path, FIRST)
    head = record.append({"a": "ü\n"})
    assert record.head == head == read(path).head
    lines = path.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[0]) == {"index": 1, "before": "0" * 64, **FIRST}
    assert json.loads(lines[1]) == {"index": 2, "before": sha256(lines[0]).hexdigest(), "a": "ü\n"}
    assert head == Head(2, sha256(lines[1]).hexdigest())
    assert Head.parse(str(head)) == head
    assert record.contents.lines == (FIRST,)
    assert read(path).lines == (FIRST, {"a": "ü\n"})


@pytest.mark.parametrize(
    "text", ["", "7", "7:ab", "x:" + "0" * 64, "1:" + "g" * 64, "-1:" + "0" * 64]
)
def test_what_is_no_head(text):
    with pytest.raises(ValueError, match=r"head|hexadecimal"):
        Head.parse(text)


def test_every_head_it_had_is_on_the_chain_and_no_other(path):
    record = ChainedRecord(path, FIRST)
    heads = [record.head, *(record.append({"n": n}) for n in range(5))]
    assert all(read(path).on_chain(head) for head in heads)
    assert not read(path).on_chain(Head(3, heads[3].hash))
    assert not read(path).on_chain(Head(99, heads[3].hash))


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_both_files_have_the_mode_that_was_asked_for(path, mode):
    ChainedRecord(path, FIRST, mode=mode).close()
    for file in (path, head_path(path)):
        assert file.stat().st_mode & 0o777 == mode


def test_another_first_line_is_refused_and_nothing_changed(path):
    fill(path, 3)
    path.write_bytes(path.read_bytes() + b'{"torn')
    before = path.read_bytes(), head_path(path).read_bytes()
    with pytest.raises(OtherRecord) as caught:
        ChainedRecord(path, {"kind": "other"})
    assert caught.value.found == FIRST
    assert (path.read_bytes(), head_path(path).read_bytes()) == before


def test_what_was_there_before_must_be_there(path):
    with pytest.raises(RecordDamaged, match="was deleted, and its head with it"):
        ChainedRecord(path, FIRST, begun=True)
    assert not path.exists()
    fill(path, 2)
    ChainedRecord(path, FIRST, begun=True).close()


@pytest.mark.parametrize("raw", [b'{"ledger": 1}\n', b'{"ledger": 1}\n{"round": 1}\n', b"notes\n"])
def test_other_files_are_named(path, raw):
    path.write_bytes(raw)
    with pytest.raises(NoRecord, match="something else"):
        ChainedRecord(path, FIRST)
    assert path.read_bytes() == raw
    assert not head_path(path).exists()


def test_one_writer_at_a_time_and_readers_beside(path):
    first = ChainedRecord(path, FIRST)
    with pytest.raises(RecordInUse):
        ChainedRecord(path, FIRST)
    first.append({"n": 2})
    assert len(read(path).lines) == 2
    first.close()
    assert len(opened(path)) == 2


def test_one_that_is_forgotten_waits_for_nothing_and_can_be_opened(path, monkeypatch):
    # The collector may run in a thread that holds what the end of another waits for.
    on_disk = threading.Event()
    real = os.fdatasync
    record = ChainedRecord(path, FIRST)
    monkeypatch.setattr(os, "fdatasync", lambda file: (on_disk.wait(60), real(file))[1])
    record.append({"n": 1})
    record.cycle = record  # only the collector ends it
    gone = weakref.ref(record)
    del record
    collecting = threading.Thread(target=gc.collect, daemon=True)
    collecting.start()
    collecting.join(20)
    waited = collecting.is_alive()
    on_disk.set()
    collecting.join()
    assert not waited
    assert gone() is None
    assert opened(path) == [FIRST, {"n": 1}]


def test_it_can_be_read_while_another_process_writes(path):
    code = (
        "import sys; from pathlib import Path; "
        "from murmuration.privacy.accounting.chained_record import ChainedRecord\n"
        "record = ChainedRecord(Path(sys.argv[1]), {'kind': 'test'})\n"
        "for n in range(400): record.append({'n': n})\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)])
    found = [0]
    try:
        while writer.poll() is None:
            if path.exists() and head_path(path).exists():
                found.append(len(read(path).lines))
    finally:
        writer.kill()
        writer.wait()
    assert writer.returncode == 0
    assert found == sorted(found)
    assert len(read(path).lines) == 401


# What happens to the files.


def truncated(size):
    def edit(file):
        raw = file.read_bytes()
        file.write_bytes(raw[: size % (len(raw) + 1)])

    return edit


def flipped(bit):
    def edit(file):
        raw = bytearray(file.read_bytes())
        if raw:
            raw[bit // 8 % len(raw)] ^= 1 << bit % 8
        file.write_bytes(raw)

    return edit


def swapped(one, other):
    def edit(file):
        lines = file.read_bytes().splitlines(keepends=True)
        if lines:
            i, j = one % len(lines), other % len(lines)
            lines[i], lines[j] = lines[j], lines[i]
        file.write_bytes(b"".join(lines))

    return edit


def without(place):
    def edit(file):
        lines = file.read_bytes().splitlines(keepends=True)
        place_in = place % len(lines) if lines else 0
        file.write_bytes(b"".join(lines[:place_in] + lines[place_in + 1 :]))

    return edit


def replaced(data):
    return lambda file: file.write_bytes(data) and None


def older_head(lines):
    """The head as it was after so many lines."""

    def edit(path):
        older = path.with_name("older")
        fill(older, lines)
        head_path(path).write_bytes(head_path(older).read_bytes())

    return edit


def deleted(file):
    file.unlink()


DAMAGE = st.one_of(
    st.just(deleted),
    st.just(replaced(b"")),
    st.integers(0, 10**6).map(truncated),
    st.integers(0, 10**6).map(flipped),
    st.builds(swapped, st.integers(0, 20), st.integers(0, 20)),
    st.integers(0, 20).map(without),
    st.binary(max_size=600).map(replaced),
)


def shows_at_least(path, lines):
    """The record is refused, or has all these lines."""
    try:
        found = opened(path)
    except REFUSALS:
        return
    assert found[: len(lines)] == lines, "the record has become another one, and nobody noticed"


@given(
    lines=st.integers(1, 6),
    on_record=st.lists(DAMAGE, max_size=2),
    on_head=st.lists(DAMAGE, max_size=2),
)
def test_whatever_is_done_to_the_files_it_is_refused_or_whole(
    tmp_path_factory, lines, on_record, on_head
):
    """Damage to either file or both. Both deleted at once is the older state of both: see below."""
    path = tmp_path_factory.mktemp("record") / "record.jsonl"
    written = fill(path, lines)
    for file, edits in ((path, on_record), (head_path(path), on_head)):
        for edit in edits:
            if file.exists():
                edit(file)
    if not head_path(path).exists() and (not path.exists() or not path.stat().st_size):
        with pytest.raises(REFUSALS):
            ChainedRecord(path, FIRST, begun=True)
        return
    shows_at_least(path, written)


@given(data=st.data(), older=st.integers(0, 5), more=st.integers(1, 5))
def test_an_older_copy_of_either_file_is_refused(tmp_path_factory, data, older, more):
    path = tmp_path_factory.mktemp("record") / "record.jsonl"
    fill(path, 1)
    record = ChainedRecord(path, FIRST)
    copies = [(path.read_bytes(), head_path(path).read_bytes())]
    for number in range(older + more):
        record.append({"n": number})
        copies.append((path.read_bytes(), head_path(path).read_bytes()))
    record.close()
    if data.draw(st.booleans()):
        path.write_bytes(copies[older][0])
    else:
        head_path(path).write_bytes(copies[older][1])
    written = [FIRST, *({"n": n} for n in range(older + more))]
    shows_at_least(path, written)
    if more > 1:
        with pytest.raises(RecordDamaged, match="rolled back"):
            ChainedRecord(path, FIRST)


def test_a_cut_is_not_taken_for_a_crash_because_the_head_is_damaged_too(path):
    """Only a crash after a line was written tears a slot: the line must be there."""
    fill(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    flipped(40)(head_path(path))  # the slot of line 4; the other one says 3
    with pytest.raises(RecordDamaged, match="rolled back or damaged"):
        ChainedRecord(path, FIRST)


@pytest.mark.parametrize("which", ["record", "head"])
@pytest.mark.parametrize("lines", [2, 4, 6])
def test_another_records_file_is_refused(tmp_path, which, lines):
    path, other = tmp_path / "record", tmp_path / "other"
    fill(path, 4)
    fill(other, lines, mark="other")
    wanted = (path, other) if which == "record" else (head_path(path), head_path(other))
    wanted[0].write_bytes(wanted[1].read_bytes())
    with pytest.raises(RecordDamaged):
        ChainedRecord(path, FIRST)


def test_both_files_rolled_back_at_once_look_like_then(path):
    """The limit, stated in docs/explanation/accounting.md: a head kept elsewhere shows it."""
    fill(path, 3)
    older = path.read_bytes(), head_path(path).read_bytes()
    record = ChainedRecord(path, FIRST)
    kept = record.append({"n": 4})
    record.close()
    path.write_bytes(older[0])
    head_path(path).write_bytes(older[1])
    assert len(opened(path)) == 3
    assert not read(path).on_chain(kept)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "record.jsonl was deleted"),
        (lambda path: path.write_bytes(b""), "record.jsonl was emptied"),
        (truncated(300), "record.jsonl was cut or rolled back: 2 lines are left of 5"),
        (lambda path: head_path(path).unlink(), "record.jsonl.head was deleted"),
        (lambda path: flipped(0)(head_path(path)), "was edited or damaged|rolled back or damaged"),
        (replaced(b"[" * 50_000 + b"\n"), "record.jsonl"),
        (older_head(3), "record.jsonl.head was rolled back or damaged: it covers 3 lines of 5"),
        (swapped(1, 3), "record.jsonl:2: this was line 4: lines were removed, added or moved"),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b'"line": 3', b'"line": 8')),
            "record.jsonl:3: edited after it was written",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b'"line": 5', b'"line": 8')),
            "record.jsonl:5: edited after it was written",
        ),
    ],
)  # fmt: skip
def test_what_happened_is_said_by_name(path, damage, said):
    fill(path, 5)
    damage(path)
    files = {file: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(REFUSALS, match=said):
        ChainedRecord(path, FIRST)
    with pytest.raises((*REFUSALS, FileNotFoundError)):
        read(path)
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == files, "left as it was"


# Crashes.


class Crash(BaseException):
    """The process, or the machine, ends here."""


class Disk:
    """Counts what is done to files; ends it at one step, whole or halfway through a write.

    ``synced`` is what of each file would be left if the power failed.
    """

    def __init__(self, patched, crash_at, halfway):
        self.step, self.crash_at, self.halfway = 0, crash_at, halfway
        self.synced = {}
        self.real = {name: getattr(os, name) for name in ("write", "pwrite", "fsync", "fdatasync")}
        patched.setattr(os, "write", lambda fd, data: self.put("write", fd, data))
        patched.setattr(os, "pwrite", lambda fd, data, at: self.put("pwrite", fd, data, at))
        patched.setattr(os, "fsync", lambda fd: self.sync("fsync", fd))
        patched.setattr(os, "fdatasync", lambda fd: self.sync("fdatasync", fd))

    def put(self, name, fd, data, *at):
        self.step += 1
        if self.step == self.crash_at:
            if self.halfway:
                self.real[name](fd, data[: len(data) // 2], *at)
            raise Crash
        return self.real[name](fd, data, *at)

    def sync(self, name, fd):
        self.step += 1
        if self.step == self.crash_at:
            raise Crash
        self.real[name](fd)
        file = Path(f"/proc/self/fd/{fd}").readlink()
        if file.is_file():
            self.synced[str(file)] = file.read_bytes()


def crashes(path, act):
    """``act()``, ended at each of its steps in turn; the files as they were before each time."""
    files = [path, head_path(path)]
    before = {file: file.read_bytes() for file in files if file.exists()}
    for halfway in (False, True):
        for step in itertools.count(1):
            for file in files:
                file.unlink(missing_ok=True)
            for file, raw in before.items():
                file.write_bytes(raw)
            with pytest.MonkeyPatch.context() as patched:
                disk = Disk(patched, step, halfway)
                disk.synced = {str(file): raw for file, raw in before.items()}
                try:
                    act()
                except Crash:
                    pass
                else:
                    break
            yield disk, halfway


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_a_crash_anywhere_in_an_append_leaves_what_was_acknowledged(path, lines):
    """After a kill, and after a loss of power that keeps or loses what was not flushed yet."""
    fill(path, lines)
    acknowledged = []

    def append_twice():
        acknowledged[:] = [lines]
        with contextlib.closing(ChainedRecord(path, FIRST)) as record:
            for number in (1, 2):
                record.append({"n": number})
                acknowledged.append(lines + number)

    steps = 0
    for disk, _ in crashes(path, append_twice):
        steps += 1
        files = [str(path), str(head_path(path))]
        left = {file: Path(file).read_bytes() for file in files}
        for lost in itertools.product([False, True], repeat=2):
            for file, power in zip(files, lost, strict=True):
                Path(file).write_bytes(disk.synced[file] if power else left[file])
            for _again in range(2):
                found = opened(path)
                assert acknowledged[-1] <= len(found) <= acknowledged[-1] + 1
        ChainedRecord(path, FIRST).append({"goes": "on"})
        assert opened(path)[-1] == {"goes": "on"}
    assert steps > 10


def test_a_crash_while_it_is_made_leaves_nothing_in_the_way(path):
    for _ in crashes(path, lambda: ChainedRecord(path, FIRST).close()):
        assert opened(path) == [FIRST]


def test_a_crash_while_it_recovers_is_recovered_from(path):
    lines = fill(path, 4)
    raw, head = path.read_bytes(), head_path(path).read_bytes()
    with contextlib.closing(ChainedRecord(path, FIRST)) as record:
        record.append({"n": 5})
    whole = path.read_bytes()
    for ahead in (raw + whole[len(raw) : -9], whole):  # torn; one line that the head does not cover
        path.write_bytes(ahead)
        head_path(path).write_bytes(head)
        for _ in crashes(path, lambda: ChainedRecord(path, FIRST).close()):
            assert opened(path)[:4] == lines


@pytest.mark.parametrize(
    ("step", "acknowledged"), [("write", 0), ("fsync", 0), ("pwrite", 0), ("fdatasync", 1)]
)
def test_after_an_error_nothing_more_is_written(path, monkeypatch, step, acknowledged):
    """That a head did not reach the disk shows when the next line is to be written."""
    record = ChainedRecord(path, FIRST)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, full)
        for number in range(acknowledged):
            record.append({"acknowledged": number})
        with pytest.raises(OSError, match=r"No space left on device: .*record\.jsonl"):
            record.append({"n": 2})
    assert record.closed
    with pytest.raises(OSError, match="open it again"):
        record.append({"n": 2})
    assert opened(path)[: 1 + acknowledged] == [
        FIRST,
        *({"acknowledged": number} for number in range(acknowledged)),
    ]


def test_a_line_that_the_disk_takes_only_in_part_is_an_error(path, monkeypatch):
    record = ChainedRecord(path, FIRST)
    real = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
        with pytest.raises(OSError, match="not written in full"):
            record.append({"n": 2})
    assert opened(path) == [FIRST]


def test_a_file_of_slots(path):
    fill(path, 3)
    raw = head_path(path).read_bytes()
    assert len(raw) == 2 * chained_record._SLOT
    assert [int(line.split()[0]) for line in raw.splitlines()] == [2, 3]
