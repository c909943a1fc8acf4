"""Runs in a runtime: interrupted, resumed, with skipped rows, from Python."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_prompts
from murmuration.preference.reward import RewardModel
from murmuration.sims.runtimes import execute as execution
from murmuration.sims.runtimes.execute import execute
from murmuration.sims.runtimes.shown_prompts import PLACE, shown
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")

SMALL = ["--epsilon", 0.5, "--delta", 1e-3, "--rounds", 3, "--cohort", 10]


def crash_at(monkeypatch, round_):
    from murmuration.server.record.run_directory import RunDirectory

    class Killed(BaseException):
        pass

    real = RunDirectory.save_checkpoint

    def save_checkpoint(self, done, state):
        if done == round_:
            raise Killed
        real(self, done, state)

    monkeypatch.setattr(RunDirectory, "save_checkpoint", save_checkpoint)
    return Killed


@pytest.mark.parametrize("users_per_node", [None, 7])
def test_resume_needs_no_other_option(cli, crowd, tmp_path, monkeypatch, users_per_node):
    """Not even the grouping of users."""
    nodes = [] if users_per_node is None else ["--users-per-node", users_per_node]
    common = ["run", "--data", crowd, *SMALL, "--seed", 3, *nodes, "--json"]
    _, stdout, _ = cli(*common, "--out", tmp_path / "whole")
    whole = json.loads(stdout.splitlines()[-1])
    with monkeypatch.context() as patched:
        killed = crash_at(patched, 3)
        with pytest.raises(killed):
            cli(*common, "--out", tmp_path / "run")
    code, stdout, _ = cli("run", "--resume", "--out", tmp_path / "run", "--json")
    assert code == 0
    result = json.loads(stdout.splitlines()[-1])
    # The last round was charged and lost, and the budget has no more.
    assert result["rounds"] == 2 and "over the budget" in result["stopped"]
    for name in ("epsilon", "noise_multiplier", "seeded"):
        assert result[name] == whole[name]
    kept = json.loads((tmp_path / "run" / "private" / "nodes.json").read_text())
    assert kept == {"nodes": 1 if users_per_node is None else -(-50 // users_per_node)}
    # The promise, coins of the hold-out, each round once, and the figures.
    assert (tmp_path / "run" / "ledger.jsonl").read_text().count("\n") == 1 + 1 + 3 + 1


def test_what_users_were_shown_is_noted_privately(cli, crowd, tmp_path, monkeypatch):
    """At the end, also of a run that was killed just before; in no file that is for release."""
    out, prompts = tmp_path / "run", list(load_prompts(crowd))
    common = ["run", "--data", crowd, *SMALL, "--seed", 3, "--out", out]
    with monkeypatch.context() as patched:
        killed = crash_at(patched, 3)
        with pytest.raises(killed):
            cli(*common)
    assert not (out / PLACE).exists()
    assert cli("run", "--resume", "--out", out)[0] == 0
    assert shown(out, [*prompts, "never shown"]) == [*range(len(prompts))]
    kept = json.loads((out / PLACE).read_text())
    for path in out.rglob("*"):
        if path.is_file() and path != out / PLACE:
            text = path.read_bytes()
            assert not any(secret.encode() in text for secret in (kept["key"], *kept["hashes"]))
    assert PLACE.parts[0] == "private"
    (out / PLACE).unlink()  # killed when all but this was done
    assert cli("run", "--resume", "--out", out)[0] == 0
    assert shown(out, prompts[:1]) == [0]


def test_of_users_own_texts_there_are_no_prompts(cli, crowd_texts, language_model, tmp_path):
    options = ["--task", "text", "--base", language_model("gpt2"), "--lora-rank", 2, "--seed", 3]
    out = tmp_path / "run"
    assert cli("run", "--data", crowd_texts, *SMALL, *options, "--out", out)[0] == 0
    assert shown(out, ["What now?"]) == []


def test_a_finished_run_is_resumed_without_its_data(cli, make_rows, write_rows, tmp_path):
    data, out = write_rows(make_rows([3] * 20)), tmp_path / "run"
    first = cli("run", "--data", data, *SMALL, "--seed", 3, "--out", out, "--json")[1]
    Path(data).unlink()
    again = cli("run", "--resume", "--out", out, "--json")[1]
    assert json.loads(again.splitlines()[-1]) == json.loads(first.splitlines()[-1])


def test_rows_set_aside_are_mentioned(cli, write_rows, make_rows, tmp_path):
    data = write_rows([*make_rows([2] * 20), {"user_id": "x"}])
    common = ["run", "--data", data, *SMALL, "--seed", 3]
    assert cli(*common, "--out", tmp_path / "a")[0] == 2
    code, _, lines = cli(*common, "--on-bad-rows", "skip", "--out", tmp_path / "b")
    assert code == 0
    assert "1 skipped row, the first: " in "".join(lines)
    assert ":41: no column" in "".join(lines)


@pytest.fixture
def single_ratings(make_rows, write_rows):
    """A file as for KTO: of each pair a rating of either response."""
    rows = []
    for row in make_rows([3] * 30):
        for side, label in (("chosen", True), ("rejected", False)):
            shown = {"prompt": row["prompt"], "completion": row[side], "label": label}
            rows.append({"user_id": row["user_id"], **shown})
    return write_rows(rows, "kto.jsonl")


#: Of a result: folders, and times, which may be any number.
_OF_THE_MACHINE = ("out", "seconds_training", "users_per_second")


def test_single_ratings_are_learnt_from_as_pairs(cli, single_ratings, tmp_path):
    code, _, lines = cli(
        "run", "--data", single_ratings, *SMALL, "--seed", 3, "--out", tmp_path / "r"
    )
    assert code == 0, lines
    said = "".join(lines)
    assert "180 single ratings make " in said
    result = json.loads((tmp_path / "r" / "result.json").read_text(encoding="utf-8"))
    told = {name: value for name, value in result.items() if name not in _OF_THE_MACHINE}
    assert {*result} > {*told} and "single rating" not in str(told)
    assert not re.search(r"(?<![\w.])180(?![\w])", str(told))


@pytest.mark.parametrize("strategy", ["uls", "dp-fedavg", "adaptive", "aup"])
def test_thumbs_are_learnt_from_each_by_itself(cli, single_ratings, tmp_path, strategy):
    others = tmp_path / "others.jsonl"
    rows = map(json.loads, Path(single_ratings).read_text(encoding="utf-8").splitlines())
    others.write_text(
        "".join(json.dumps({**row, "user_id": f"test-{row['user_id']}"}) + "\n" for row in rows)
    )
    options = ["--test", others, "--strategy", strategy, "--seed", 3]
    out = tmp_path / "r"
    for how in (["--model", "thumbs"], ["--kind", "thumbs"]):
        code, shown, lines = cli(
            "run", "--data", single_ratings, *SMALL, *options, *how, "--out", out / how[0]
        )
        assert code == 0, lines
        assert "of pairs of a user's thumbs up and down" in " ".join(shown.split())
    results = [
        json.loads((out / how / "result.json").read_text(encoding="utf-8"))
        for how in ("--model", "--kind")
    ]
    assert results[0]["heldout_accuracy"] == results[1]["heldout_accuracy"] > 0.0
    assert results[0]["heldout_chance"] == 0.5
    card = (out / "--model" / "model" / "README.md").read_text(encoding="utf-8")
    assert "a user liked and one that the same user did not" in " ".join(card.split())


def test_thumbs_of_held_out_users_and_by_a_frozen_language_model(
    cli, single_ratings, language_model, tmp_path
):
    options = ["--model", "thumbs", "--base", language_model("gpt2"), "--train", "head"]
    options += ["--epsilon", 200]  # the last one counts
    code, _, lines = cli(
        "run", "--data", single_ratings, *SMALL, *options, "--seed", 3, "--out", tmp_path / "r"
    )
    assert code == 0, lines
    result = json.loads((tmp_path / "r" / "result.json").read_text(encoding="utf-8"))
    assert 0.0 <= result["heldout_accuracy"] <= 1.0


def test_thumbs_are_computed_alike_on_any_number_of_nodes(cli, single_ratings, tmp_path):
    found = []
    for each in (1, 30):
        options = ["--model", "thumbs", "--seed", 3, "--users-per-node", each]
        out = tmp_path / str(each)
        code = cli("run", "--data", single_ratings, *SMALL, *options, "--out", out)[0]
        assert code == 0
        found.append(RewardModel.load(out / "model").theta_D)
    assert np.abs(found[0]).max() > 0
    np.testing.assert_allclose(found[0], found[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("strategy", ["uls", "local-label"])
def test_pairs_of_ratings_would_tell_labels_that_are_all_that_is_protected(
    cli, single_ratings, tmp_path, strategy
):
    options = ["--strategy", strategy, "--adjacency", "replace-labels", "--epsilon", 3, "--seed", 3]
    code, _, lines = cli("run", "--data", single_ratings, *options, "--out", tmp_path / "r")
    assert code == 2
    assert "which pairs ratings make tells what they were" in "".join(lines)


@pytest.mark.parametrize("strategy", ["uls", "local-label"])
def test_a_rating_among_pairs_is_its_users_bad_row_where_labels_alone_are_protected(
    cli, write_rows, make_rows, tmp_path, strategy
):
    rating = {"user_id": "rater", "prompt": "What now?", "completion": "Save it.", "label": True}
    options = ["--strategy", strategy, "--adjacency", "replace-labels", "--epsilon", 3, "--seed", 3]
    options += ["--rounds", 2] if strategy == "uls" else []
    pairs = make_rows([2] * 20)
    weights = []
    for name, rows in (("a", pairs), ("b", [*pairs, rating])):
        out, data = tmp_path / name, write_rows(rows, f"{name}.jsonl")
        common = ["run", "--data", data, *options, "--users", 20, "--out", out]
        if rows != pairs:
            code, _, lines = cli(*common)
            assert code == 2 and "b.jsonl:41: " in "".join(lines) and not out.exists()
        assert cli(*common, "--on-bad-rows", "skip")[0] == 0
        weights.append(RewardModel.load(out / "model").theta_D)
    if strategy == "local-label":  # of which coins are the user's own
        np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize("begun", [False, True])
def test_an_interrupt_says_how_to_go_on(cli, monkeypatch, crowd, tmp_path, begun):
    out = tmp_path / "my run"

    def interrupted(*_, **__):
        if begun:
            out.mkdir()
            (out / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(execution, "run_local", interrupted)
    code, _, lines = cli("run", "--data", crowd, "--out", out)
    assert code == 130
    advice = f"; continue with: murmuration run --resume --out '{out}'" if begun else ""
    assert lines[-1] == f"interrupted{advice}"
    assert len(lines) == 1


def test_execute_from_python(crowd, tmp_path):
    config = RunConfig(
        data=crowd, epsilon=0.5, delta=1e-3, rounds=3, cohort=10, seed=3, out=str(tmp_path / "run")
    )
    assert execute(config, users_per_node=10)["rounds"] == 3
    assert json.loads((tmp_path / "run" / "private" / "nodes.json").read_text()) == {"nodes": 5}
    with pytest.raises(InputError, match="holds a run already"):
        execute(config)


def test_what_suits_so_few_users_is_said_before_anything_is_spent(crowd, tmp_path, monkeypatch):
    notes, asked = [], []

    def advice(users, epsilon):
        asked.append((users, epsilon))
        return "begin there"

    def stopped(*_, **__):
        assert [note.text for note in notes] == ["begin there"]
        raise KeyboardInterrupt

    monkeypatch.setattr(execution, "run_local", stopped)
    config = RunConfig(data=str(crowd), rounds=3, cohort=10, epsilon=2.0, out=str(tmp_path / "r"))
    for start in ("", "length"):
        with pytest.raises(KeyboardInterrupt):
            execute(replace(config, start=start), quiet=True, on_note=notes.append, advice=advice)
    assert len(asked) == len(notes) == 1  # whoever begins somewhere is told nothing


def test_a_taken_folder_is_refused_before_anything_is_read_or_said(cli, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("kept")
    missing = tmp_path / "no-such-file.jsonl"
    code, stdout, lines = cli("run", "--data", missing, *SMALL, "--out", tmp_path / "taken")
    assert (code, stdout) == (2, "") and len(lines) == 1
    assert "is not empty" in lines[0]
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["mine.txt"]


def test_how_fast_an_encoder_read_is_said_once(cli, crowd, tmp_path, language_model):
    """And nothing of it where no encoder reads."""
    common = ["run", "--data", crowd, *SMALL, "--seed", 3]
    encoder = ["--features", language_model("bert")]
    code, _, stderr = cli(*common, *encoder, "--out", tmp_path / "run")
    said = [line for line in stderr if line.startswith("operator only: features: ")]
    assert code == 0 and len(said) == 1
    count = int(re.search("features: ([0-9]+) texts read in ", said[0])[1])
    rows = [json.loads(line) for line in Path(crowd).read_text().splitlines()]
    texts = {(row["prompt"], row[side]) for row in rows for side in ("chosen", "rejected")}
    assert 0 < count <= len(texts)  # each once; the small encoder knows few words apart
    assert "features: " not in "".join(cli(*common, "--out", tmp_path / "hashing")[2])
