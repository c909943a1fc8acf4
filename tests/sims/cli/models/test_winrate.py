"""``murmuration winrate``: two models' answers by the truth."""

import json

import pytest

from murmuration.sims.population.population import Population
from murmuration.sims.population.tiny_language_model import TinyBase, build

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    for seed in (0, 1):
        shape = TinyBase(width=16, layers=1, heads=2, epochs=1, batch=8, rate=1e-2, seed=seed)
        build(folder / f"b{seed}", shape, Population().texts("train", 20))
    return folder / "b0", folder / "b1"


FEW = ("--prompts", 40, "--max-new-tokens", 30)


def test_json(cli, bases):
    code, stdout, lines = cli(
        "winrate", bases[0], "--against", bases[1], *FEW, "--topics", "unseen", "--json"
    )
    assert (code, lines) == (0, [])
    found = json.loads(stdout)
    assert (found["prompts"], found["topics"]) == (40, "unseen")
    assert [model["model"] for model in found["models"]] == [*map(str, bases)]
    for model in found["models"]:  # that have hardly learnt anything
        assert model["unreadable"][0] == 1
        assert model["reward"] == [None] * 3
        assert sum(model["why_not"].values()) == 40
        assert 0 < model["words"] <= 30
    assert found["win_rate"][0] == 0.5


def test_table(cli, bases):
    code, stdout, _ = cli("winrate", bases[0], "--against", bases[0], *FEW)
    assert code == 0
    assert "100.0% (91.2% to 100.0%)" in stdout
    assert f"{bases[0]} wins 50.0%" in " ".join(stdout.split())


def test_each_model_has_draws_of_its_own(cli, bases):
    _, stdout, _ = cli("winrate", bases[0], "--against", bases[0], *FEW, "--json")
    one, other = (model["words"] for model in json.loads(stdout)["models"])
    assert one != other
    _, again, _ = cli("winrate", bases[0], "--against", bases[0], *FEW, "--json")
    assert again == stdout


def test_what_writes_nothing(cli, bases, language_model):
    code, stdout, lines = cli("winrate", bases[0], "--against", language_model("bert"), *FEW)
    assert (code, stdout) == (2, "")
    assert "no causal language model" in " ".join(lines)
