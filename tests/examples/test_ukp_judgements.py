"""examples/ukp_judgements.py, on a tiny corpus of the same layout."""

import json
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from murmuration.preference.data.loading import load_judgements

SCRIPT = Path(__file__).parents[2] / "examples" / "ukp_judgements.py"
WORKERS = [f"A{number}" for number in range(60)]


def xml(title, stance, pairs, other_stance=None):
    """A file of the corpus: each pair is two texts and a list of workers' values."""
    parts = ['<?xml version="1.0"?>\n<list>']
    for first, second, values in pairs:
        assignments = "".join(
            f"<mTurkAssignment><turkID>{worker}</turkID><value>{value}</value>"
            "<reason>why</reason></mTurkAssignment>"
            for worker, value in values
        )
        parts.append(
            f"<annotatedArgumentPair><id>1_2</id><arg1><stance>{stance}</stance>"
            f"<text>{escape(first)}</text></arg1><arg2><stance>{other_stance or stance}</stance>"
            f"<text>{escape(second)}</text></arg2><debateMetaData><title>{title}</title>"
            f"</debateMetaData><mTurkAssignments>{assignments}</mTurkAssignments>"
            "</annotatedArgumentPair>"
        )
    return "".join([*parts, "</list>"])


def values(start):
    return [(worker, ("a1", "a2", "equal")[(k + start) % 3]) for k, worker in enumerate(WORKERS)]


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "clone" / "data" / "UKPConvArg1-full-XML"
    folder.mkdir(parents=True)
    tea = [("It is\n  warm & dry.", "It <wakes> you.", values(0)), ("same", "same ", values(1))]
    (folder / "tea-or-coffee_tea.xml").write_text(xml("Tea or Coffee?", "Tea", tea))
    pe = [("Health.", "Fun.", values(2))]
    name = "should-physical-education-be-mandatory-in-schools_no-.xml"
    (folder / name).write_text(xml("Sports?", "No!", pe))
    strict = tmp_path / "clone" / "data" / "UKPConvArg1Strict-XML"
    strict.mkdir()
    (strict / "tea-or-coffee_tea.xml").write_text("not read")
    return tmp_path / "clone"


def run(*options):
    command = [sys.executable, str(SCRIPT), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows_of(folder):
    return {
        file.stem: [json.loads(line) for line in file.read_text().splitlines()]
        for file in folder.iterdir()
    }


def group(worker):
    place = int(sha256(worker.encode()).hexdigest(), 16) % 10
    return "test" if place == 0 else "gold" if place in (1, 2) else "train"


def test_each_worker_is_in_one_group(clone, tmp_path):
    done = run(clone, "--out", tmp_path / "ukp")
    assert done.returncode == 0, done.stderr
    files = rows_of(tmp_path / "ukp")
    counts = {name: sum(group(worker) == name for worker in WORKERS) for name in files}
    counts["unseen"] = counts["test"]
    assert min(counts.values()) > 0
    assert {name: len(rows) for name, rows in files.items()} == counts
    users = {name: {row["user_id"] for row in rows} for name, rows in files.items()}
    assert users["unseen"] == users["test"]
    assert len(users["train"] | users["test"] | users["gold"]) == len(WORKERS)
    assert not any(worker in str(files) for worker in WORKERS)
    seen = {row["prompt"] for name in ("train", "test", "gold") for row in files[name]}
    assert seen == {"Tea or Coffee? Argue: Tea"}
    assert {row["prompt"] for row in files["unseen"]} == {"Sports? Argue: No!"}
    assert "left out: 60 judgements of equal texts" in done.stdout
    for name in files:  # and the product reads them
        assert load_judgements(str(tmp_path / "ukp" / f"{name}.jsonl"))


def test_what_was_judged_is_what_stands_there(clone, tmp_path):
    assert run(clone, "--out", tmp_path / "ukp").returncode == 0
    rows = [
        row for name, part in rows_of(tmp_path / "ukp").items() if name != "unseen" for row in part
    ]
    one, two = "It is warm & dry.", "It <wakes> you."
    wanted = {"a1": (one, two), "a2": (two, one), "equal": (one, two, True)}
    judged = sorted((row["chosen"], row["rejected"], *([True] * ("tie" in row))) for row in rows)
    assert judged == sorted(wanted[value] for _, value in values(0))


def test_a_zip_gives_the_same_files(clone, tmp_path):
    with zipfile.ZipFile(tmp_path / "repo.zip", "w") as archive:
        for file in clone.rglob("*.xml"):
            archive.write(file, Path("repo-master") / file.relative_to(clone))
    assert run(clone, "--out", tmp_path / "a").returncode == 0
    assert run(tmp_path / "repo.zip", "--out", tmp_path / "b").returncode == 0
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<list><annotatedArgumentPair>", "no element found"),
        (xml("T", "s", [("a", "b", [("A1", "a3")])]), "worker or value is missing"),
        (xml("T", "s", [("a", "b", [("", "a1")])]), "worker or value is missing"),
        (xml("T", "s", [("a", "b", [])], other_stance="t"), "no title, or two stances"),
    ],
)
def test_another_layout_is_refused(clone, tmp_path, content, words):
    (clone / "data" / "UKPConvArg1-full-XML" / "tea-or-coffee_tea.xml").write_text(content)
    done = run(clone, "--out", tmp_path / "ukp")
    assert done.returncode == 1
    assert words in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "ukp").exists()


def test_what_is_no_corpus_is_refused(clone, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.zip").write_text("no zip")
    for source, words in (
        ("empty", "is it the authors' repository"),
        ("x.zip", "not a zip"),
        ("no", "no"),
    ):
        done = run(tmp_path / source, "--out", tmp_path / "ukp")
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert words in done.stderr
    assert "is there already" in run(clone, "--out", tmp_path / "empty").stderr
