"""``murmuration push``: what is sent to a hub, and what is not."""

import json

import numpy as np
import pytest

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel

pytest.importorskip("huggingface_hub")
from stand_ins.hub import TOKEN, hub

# What huggingface_hub uses says this of itself.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>'")


@pytest.fixture
def folder(tmp_path):
    """A model whose data were public, so that there is nothing to tell of users."""
    RewardModel(np.ones(9), HashingFeatures(dimension=9)).save(tmp_path / "model", "# A card")
    return tmp_path / "model"


PUBLIC = ("--privacy", "public")


def test_only_what_is_exported_is_sent(cli, folder, monkeypatch):
    (folder / "judgements.jsonl").write_text("{}")
    with hub(monkeypatch) as there:
        code, stdout, lines = cli(
            "push", folder, "ada/taste", *PUBLIC, "--private", "--revision", "v1", "--json"
        )
    assert code == 0
    told = json.loads(stdout)
    assert told["sent"] and told["url"].endswith("c" * 40) and told["revision"] == "v1"
    sent = there.files["ada/taste", "v1"]
    assert set(sent) == {"README.md", "config.json", "model.safetensors", "privacy.json"}
    assert set(sent) == set(told["files"])
    assert json.loads(sent["privacy.json"])["stated"] == ["declared public"]
    assert there.made["ada/taste"]["visibility"] == "private"
    assert any("not shared: judgements.jsonl" in line for line in lines)
    assert TOKEN not in stdout + " ".join(lines)


@pytest.mark.parametrize("name", ["private", "ledger.jsonl", "checkpoint"])
def test_a_folder_with_what_is_not_for_release_is_refused(cli, folder, monkeypatch, name):
    (folder / name).mkdir()
    with hub(monkeypatch) as there:
        code, stdout, lines = cli("push", folder, "ada/taste", *PUBLIC)
        assert (code, stdout, len(lines)) == (2, "", 1)
        assert f"holds {name}" in lines[0]
        assert there.requests == []


def test_a_dry_run_needs_no_hub(cli, folder, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    code, stdout, lines = cli("push", folder, "ada/taste", *PUBLIC, "--dry-run")
    assert code == 0 and "nothing was sent to ada/taste" in stdout
    assert any("model.safetensors" in line for line in lines)


def test_nothing_is_sent_of_which_nobody_knows_what_it_cost(cli, folder, monkeypatch):
    with hub(monkeypatch) as there:
        code, _, lines = cli("push", folder, "ada/taste")
        assert code == 2 and "what that cost them is not known" in lines[-1]
        assert there.requests == []


def test_a_refusal_is_one_line_with_what_to_do(cli, folder, monkeypatch):
    with hub(monkeypatch) as there:
        there.refuses = 403
        code, stdout, lines = cli("push", folder, "ada/taste", *PUBLIC)
    assert (code, stdout) == (2, "")
    assert "ada/taste: cannot be sent: the token may not write there (403)" in lines[-1]
