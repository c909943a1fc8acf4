"""``smollm2`` names the packaged model in every command that takes a base."""

import json

import pytest

pytest.importorskip("gguf")
pytest.importorskip("trl")
from stand_ins.gguf_file import package_gguf

from murmuration.preference.gguf import SMOLLM2, converted, origin_of

pytestmark = pytest.mark.usefixtures("quick_runs", "packaged")

SHORT = ("--max-new-tokens", 5, "--seed", 4)
FEW = (
    *("--steps", 1, "--batch-size", 4, "--evaluate-every", 1, "--evaluate-on", 4),
    *("--lora-rank", 2, "--lora-targets", "all-linear"),
)


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURATION_CACHE", str(tmp_path / "cache"))
    package_gguf(tmp_path, monkeypatch)


@pytest.fixture
def prompts(write_rows):
    return write_rows([{"prompt": f"abba {more}?"} for more in "abcdefgh"], "prompts.jsonl")


@pytest.fixture
def trained(cli, crowd, tmp_path):
    """A function: the folder of a model, by options of its run."""

    def make(*options):
        common = ("--data", crowd, "--rounds", 1, "--cohort", 10, "--seed", 1, "--delta", 1e-3)
        code, _, lines = cli("run", *common, *options, "--out", tmp_path / "run", "--epsilon", 2)
        assert code == 0, lines
        return tmp_path / "run" / "model"

    return make


def origin(text):
    digest = origin_of(converted(SMOLLM2))["sha256"]
    return f"SHA-256 {digest}" in text and "apache-2.0" in text


@pytest.mark.parametrize("train", ["head", "lora"])
def test_run_score_and_export(cli, trained, tmp_path, train):
    model, out = trained("--base", SMOLLM2, "--train", train), tmp_path / "passed-on"
    card = (model / "README.md").read_text()
    assert origin(card) and "`smollm2`" in card and str(tmp_path) not in card
    answers = ("--prompt", "abba?", "--response", "cab", "--response", "bad")
    code, stdout, lines = cli("score", model, *answers, "--json")
    assert (code, lines) == (0, [])
    scores = json.loads(stdout)["scores"]
    code, _, lines = cli("export", model, "--out", out, "--license", "mit")
    assert (code, lines) == (0, [])
    assert origin((out / "README.md").read_text())
    assert json.loads(cli("score", out, *answers, "--json")[1])["scores"] == scores


def test_respond_and_winrate(cli, trained, prompts, tmp_path):
    code, _, lines = cli(
        "respond", SMOLLM2, "--prompts", prompts, "--out", tmp_path / "said.jsonl", *SHORT
    )
    assert (code, lines) == (0, [])
    code, stdout, lines = cli(
        "winrate", SMOLLM2, "--against", tmp_path / "said.jsonl", "--prompts", prompts,
        "--judge", trained(), *SHORT, "--json",
    )  # fmt: skip
    assert (code, lines) == (0, [])
    assert json.loads(stdout)


def test_align(cli, trained, prompts, tmp_path):
    reward, out = trained(), tmp_path / "policy"
    code, _, lines = cli(
        "align", "--reward", reward, "--base", SMOLLM2, "--prompts", prompts, "--out", out,
        *SHORT, *FEW,
    )  # fmt: skip
    assert code == 0, lines
    card = (out / "model" / "README.md").read_text()
    assert origin(card) and "base_model" not in card and str(tmp_path) not in card
    code, _, lines = cli(
        "respond", out / "model", "--prompts", prompts, "--out", tmp_path / "said.jsonl", *SHORT
    )
    assert (code, lines) == (0, [])
