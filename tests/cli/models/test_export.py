"""``murmuration export``: what it prints and writes."""

import json

import numpy as np
import pytest

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel


@pytest.fixture
def folder(cli, crowd, crowd_test, tmp_path, quick_runs):
    """A run's."""
    code, *_ = cli(
        "run", "--data", crowd, "--test", crowd_test, "--epsilon", 2, "--delta", 1e-3,
        "--rounds", 2, "--cohort", 10, "--seed", 3, "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 0
    return tmp_path / "run"


def test_files_are_listed(cli, folder, tmp_path):
    (folder / "model" / "mine.txt").write_text("mine")
    code, stdout, lines = cli("export", folder, "--out", tmp_path / "out", "--license", "mit")
    assert (code, lines) == (0, [])
    assert "README.md" in stdout and "privacy.json" in stdout
    assert "not shared: mine.txt" in stdout
    assert stdout.strip().endswith(f"written to {tmp_path / 'out'}")
    assert "license: mit\n" in (tmp_path / "out" / "README.md").read_text()


def test_json(cli, folder, tmp_path):
    code, stdout, _ = cli("export", folder / "model", "--out", tmp_path / "out", "--json")
    told = json.loads(stdout)
    assert code == 0 and told["left_out"] == []
    assert told["files"] == {
        file.name: file.stat().st_size for file in (tmp_path / "out").iterdir()
    }


def test_what_cannot_be_exported_is_one_line(refusal, folder, tmp_path):
    for options, why in (
        ([folder, "--out", folder], "already exists"),
        ([folder, "--out", tmp_path / "out", "--merge"], "holds no adapter"),
        ([tmp_path, "--out", tmp_path / "out"], "neither a model"),
        ([folder], "--push"),
    ):
        assert why in refusal("export", *options)


@pytest.fixture
def public(tmp_path):
    """A model whose data were public, so that there is nothing to tell of users."""
    RewardModel(np.ones(9), HashingFeatures(dimension=9)).save(tmp_path / "model", "# A card")
    return tmp_path / "model"


PUBLIC = ("--privacy", "public")


@pytest.fixture
def hub(monkeypatch):
    pytest.importorskip("huggingface_hub")
    from stand_ins.hub import hub

    with hub(monkeypatch) as there:
        yield there


# What huggingface_hub uses says this of itself.
WARNS = pytest.mark.filterwarnings("ignore:Use 'content=<...>'")


@WARNS
def test_only_what_is_exported_is_sent(cli, public, hub):
    from stand_ins.hub import TOKEN

    (public / "judgements.jsonl").write_text("{}")
    (public / "private").mkdir()
    code, stdout, lines = cli(
        "export", public, "--push", "ada/taste", *PUBLIC, "--private", "--revision", "v1", "--json"
    )
    assert code == 0
    answer = json.loads(stdout)
    assert answer["push"]["sent"] and answer["push"]["url"].endswith("c" * 40)
    assert answer["push"]["revision"] == "v1" and "out" not in answer
    sent = hub.files["ada/taste", "v1"]
    assert set(sent) == {"README.md", "config.json", "model.safetensors", "privacy.json"}
    assert set(sent) == set(answer["files"])
    assert json.loads(sent["privacy.json"])["stated"] == ["declared public"]
    assert hub.made["ada/taste"]["visibility"] == "private"
    assert set(answer["left_out"]) == {"judgements.jsonl", "private"}
    assert TOKEN not in stdout + " ".join(lines)


@WARNS
def test_a_dry_run_needs_no_hub(cli, public, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    code, stdout, _ = cli("export", public, "--push", "ada/taste", *PUBLIC, "--dry-run")
    assert code == 0 and "nothing was sent to ada/taste" in stdout
    assert "model.safetensors" in stdout


@WARNS
def test_nothing_is_sent_of_which_nobody_knows_what_it_cost(cli, public, hub):
    code, _, lines = cli("export", public, "--push", "ada/taste")
    assert code == 2 and "what that cost them is not known" in lines[-1]
    assert hub.requests == []


@WARNS
def test_a_refusal_is_one_line_with_what_to_do(cli, public, hub):
    hub.refuses = 403
    code, stdout, lines = cli("export", public, "--push", "ada/taste", *PUBLIC)
    assert (code, stdout) == (2, "")
    assert "ada/taste: cannot be sent: the token may not write there (403)" in lines[-1]
