"""examples/extensions: a package with one of each, installed from outside, on the command line."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from packages import EXTENSIONS, pip_install

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where pip has installed the package."""
    return pip_install(EXTENSIONS, tmp_path_factory.mktemp("extensions"))


#: Of a child process: command lines by stdin, one after the other, as if each were a process.
COMMANDS = """
import contextlib, io, json, sys
from murmuration.cli.main import main

for line in sys.stdin:
    sys.argv, code, out, err = ["murmuration", *json.loads(line)], 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


@contextmanager
def process(*path):
    """A child process that has these folders on its path, and runs commands."""
    child = subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        yield child
        child.stdin.close()


@pytest.fixture(scope="module")
def murmuration(site):
    """A function: what a command prints where the package is installed."""
    with process(site, ROOT) as child:

        def call(*words):
            child.stdin.write(json.dumps([str(word) for word in words]) + "\n")
            child.stdin.flush()
            ended, out, err = json.loads(child.stdout.readline())
            assert ended == 0, err
            return out

        yield call


@pytest.fixture
def elsewhere(cli):
    """A function: what a command prints in this process, where the package is not installed."""

    def call(*words, code):
        ended, out, lines = cli(*words)
        assert ended == code, lines
        return "\n".join([out, *lines])

    return call


@pytest.fixture(scope="module")
def tsv(crowd, tmp_path_factory):
    """The crowd's judgements, separated by tabs."""
    rows = [json.loads(line) for line in Path(crowd).read_text(encoding="utf-8").splitlines()]
    columns = ("user_id", "prompt", "chosen", "rejected")
    lines = ["\t".join(str(row[name]) for name in columns) for row in rows if not row.get("tie")]
    path = tmp_path_factory.mktemp("tsv") / "crowd.tsv"
    path.write_text("\n".join(["\t".join(columns), *lines]) + "\n", encoding="utf-8")
    return path


def test_a_format(murmuration, elsewhere, tmp_path):
    row = {"customer": "c", "ticket": "Tea?", "answer1": "No.", "answer2": "Gladly."}
    path = tmp_path / "tickets.jsonl"
    path.write_text(json.dumps(row | {"solved_by": 2}) + "\n", encoding="utf-8")
    words = ("data", path, "--format", "tickets")
    assert "1 judgement by 1 user" in murmuration(*words)
    assert "--format must be one of" in elsewhere(*words, code=2)


def test_a_run_with_reader_loss_event_and_strategy(murmuration, elsewhere, tsv, tmp_path):
    out = tmp_path / "run"
    terms = ("--epsilon", 8, "--delta", 1e-3, "--rounds", 3, "--cohort", 20, "--seed", 0)
    mine = ("--data", tsv, "--model", "cauchy", "--strategy", "laplace-uls")
    said = murmuration("run", *mine, *terms, "--features", "hashing:64", "--out", out, "--json")
    result = json.loads(said)
    assert (result["model"], result["strategy"], result["rounds"]) == ("cauchy", "laplace-uls", 3)
    assert 7.5 < result["epsilon"] <= 8.0
    charged = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]
    kinds = [line["event"]["kind"] for line in charged if "event" in line]
    assert kinds.count("sampled-pure") == 3
    rules = result["second_opinion"]["by_our_rules"]
    assert "sampled-pure: by a rule of the package that brings it" in rules
    assert json.loads((out / "model" / "config.json").read_text())["model"] == "cauchy"
    assert "sampled-pure" in murmuration("ledger", out)
    without = elsewhere("ledger", out, code=1)
    assert "unknown event kind 'sampled-pure'" in without and "Traceback" not in without


def test_who_wins_by_the_judge(murmuration, elsewhere, tmp_path):
    for name, response in (("short", "put it aside"), ("long", "put it aside and wait a while")):
        lines = [json.dumps({"prompt": f"what now {k}?", "response": response}) for k in range(5)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("winrate", tmp_path / "short.jsonl", "--against", tmp_path / "long.jsonl")
    result = json.loads(murmuration(*words, "--judge", "shorter", "--json"))
    assert result["judge"]["name"] == "shorter"
    assert result["models"][0]["wins"] == 5
    without = elsewhere(*words, "--judge", "shorter", code=2)
    assert "--judge" in without and "Traceback" not in without


def test_a_policy_by_the_loss(murmuration, crowd, language_model, tmp_path):
    words = ("run", "--data", crowd, "--task", "policy", "--base", language_model("gpt2"))
    terms = ("--lora-rank", 2, "--epsilon", 8, "--delta", 1e-3, "--rounds", 2, "--cohort", 10)
    more = ("--group-size", 2, "--loss", "hinge", "--seed", 0, "--json", "--out", tmp_path / "run")
    result = json.loads(murmuration(*words, *terms, *more))
    assert result["features"]["loss"] == "hinge" and result["rounds"] == 2
