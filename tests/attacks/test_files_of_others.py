"""Files of others: runs that ``ledger --all-runs`` must not overlook, since the sum would be less
than what they cost; charges that nobody can add up; what is no file at all.

A pipe, a device or a socket where a file is expected is refused in a line. Before: whoever read a
pipe waited for ever, and an endless device filled the memory.
"""

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from murmuration.api.ledgers import all_runs, verify
from murmuration.api.run import Run
from murmuration.client.agent.policy import Policy
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.language.loading import contents_of, load_causal
from murmuration.preference.language.reward import read_about
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting import composition
from murmuration.privacy.accounting.events import ParallelEvent, PureDp
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.accounting.terms import RunTerms
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.regular_files import check_folder, open_regular, read_regular
from murmuration.server.record.lineage import lineage_of
from murmuration.strategies.config import read_settings


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


@pytest.fixture
def nobody_waits():
    def waited(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.usefixtures("nobody_waits")
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.json", RewardModel.load),
        ("weights.safetensors", RewardModel.load),
        ("config.json", contents_of),
        ("tokenizer.json", load_causal),
        ("adapter_config.json", contents_of),
        ("murmuration.json", lambda folder: read_about(Path(folder))),
        ("privacy.json", lambda folder: lineage_of("--base", folder, "")),
        ("result.json", Run.load),
        ("policy.toml", lambda folder: Policy.load(Path(folder) / "policy.toml")),
        ("run.toml", lambda folder: read_settings(Path(folder) / "run.toml")),
        ("some.jsonl", lambda folder: load_judgements(f"{folder}/some.jsonl")),
        ("some.parquet", lambda folder: load_judgements(f"{folder}/some.parquet")),
    ],
)
def test_a_pipe_in_a_files_place(name, read, tmp_path, language_model):
    folder = tmp_path / "theirs"
    shutil.copytree(language_model("llama"), folder)
    pipe(folder / name)
    with pytest.raises(InputError, match="not a regular file"):
        read(str(folder))


@pytest.mark.usefixtures("nobody_waits")
@pytest.mark.parametrize("name", ["ledger.jsonl", "ledger.jsonl.head", "result.json"])
def test_a_pipe_in_a_runs_folder(name, tmp_path):
    run(tmp_path / "run", PureDp(1.0))
    pipe(tmp_path / "run" / name)
    for read in (verify, all_runs):
        with pytest.raises(InputError, match="not a regular file"):
            read(tmp_path / "run")


def test_files_and_links_to_them_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"read")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "folder").mkdir()
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "link") == b"read"
    with open_regular(tmp_path / "file") as file:
        assert file.read(2) == b"re"
    check_folder(tmp_path)


@pytest.mark.usefixtures("nobody_waits")
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "device", "socket", "folder"])
def test_what_is_no_file_is_refused_at_once(kind, tmp_path):
    place, listening = tmp_path / "in" / "place", socket.socket(socket.AF_UNIX)
    place.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link to a pipe":
        os.mkfifo(tmp_path / "pipe")
        place.symlink_to(tmp_path / "pipe")
    elif kind == "device":
        place.symlink_to("/dev/zero")
    elif kind == "socket":
        listening.bind(str(place))
    else:
        place.mkdir()
    with listening, pytest.raises(OSError, match=r"."):
        read_regular(place)
    if kind != "folder":
        with pytest.raises(OSError, match="not a regular file"):
            check_folder(place.parent)
