"""What a chain of runs costs, and what happens to a base whose cost is not known."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.client.app import app as client_app
from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.reward import load_reward
from murmuration.server.config import RunConfig
from murmuration.server.lineage import Trained, composed, lineage_of
from murmuration.server.training import train
from murmuration.sims.runtimes.local import LocalGrid

pytestmark = pytest.mark.usefixtures("quick_runs")


def trained(population="", epsilon=1.0, disjoint=False, adjacency="add-remove", delta=1e-5):
    return Trained(f"1:{population}{epsilon}", epsilon, delta, adjacency, population, disjoint)


def sums(*runs):
    return [(row["populations"], row["epsilon"], row["runs"]) for row in composed(runs)]


def test_the_same_population_adds_up():
    runs = [trained("a", 1.0), trained("a", 2.0), trained("a", 0.5)]
    assert sums(*runs) == [(["a"], 3.5, 3)]
    assert composed(runs)[0]["delta"] == pytest.approx(3e-5, rel=1e-12)


def test_who_is_not_declared_may_be_anybody():
    assert sums(trained(), trained()) == [([], 2.0, 2)]
    assert sums(trained("a"), trained()) == [(["a"], 2.0, 2)]
    assert sums(trained(), trained("a")) == [(["a"], 2.0, 2)]


def test_another_population_stands_apart_only_where_declared_disjoint():
    assert sums(trained("a"), trained("b", 2.0, disjoint=True)) == [
        (["a"], 1.0, 1),
        (["b"], 2.0, 1),
    ]
    assert sums(trained("a"), trained("b", 2.0)) == [
        (["a"], 1.0, 1), (["b"], 2.0, 1), (["a", "b"], 3.0, 2),
    ]  # fmt: skip
    # A third run on one of two that are disjoint counts there alone; on nobody named, in both.
    apart = trained("a"), trained("b", 2.0, disjoint=True)
    assert sums(*apart, trained("a", 4.0)) == [(["b"], 2.0, 1), (["a"], 5.0, 2)]
    assert (["a", "b"], 7.0, 3) in sums(*apart, trained("", 4.0))


@pytest.mark.parametrize(
    ("other", "why"),
    [(trained(adjacency="replace"), "adjacencies differ"), (trained(epsilon=None), "nothing")],
)
def test_where_there_is_no_figure(other, why):
    row = composed([trained(), other])[0]
    assert row["epsilon"] is None
    assert why in row["why"]


@pytest.fixture
def config(tmp_path, crowd, crowd_test, language_model):
    """Settings of a small LoRA run."""
    return RunConfig(
        data=crowd, test=crowd_test, base=language_model("gpt2"), lora_rank=2, epsilon=2.0,
        delta=1e-3, rounds=2, cohort=10, group_size=2, learning_rate=0.05, seed=3,
        out=str(tmp_path / "run"),
    )  # fmt: skip


def run(config):
    return train(config, LocalGrid(client_app, 1, config.to_run_config()))


def following(config, name="second", **changes):
    return replace(config, base=config.out + "/model", out=config.out + name, **changes)


@pytest.mark.parametrize("part", ["lora", "full", "head"])
def test_a_run_on_a_run(config, part):
    first = run(config)
    assert first["lineage"] is None
    then = following(config, train=part, lora_rank=2 if part == "lora" else 0, epsilon=1.0)
    second = run(then)
    row = second["lineage"]["composed"][0]
    assert row["epsilon"] == pytest.approx(first["epsilon"] + second["epsilon"], rel=1e-12)
    assert row["delta"] == 2e-3
    assert [entry["ledger_head"] for entry in second["lineage"]["runs"]] == [
        first["ledger_head"], second["ledger_head"],
    ]  # fmt: skip
    card = (Path(then.out) / "model" / "README.md").read_text()
    assert "THE BASE WAS TRAINED ON USERS, TOO" in card
    (shown,) = re.findall(r"whoever was trained on, epsilon = (\S+) and delta = 0\.002", card)
    assert 0 <= float(shown) - row["epsilon"] <= 1e-4
    assert any("was merged into the weights" in text for text in second["warnings"])
    shutil.rmtree(config.out)
    scores = load_reward(Path(then.out) / "model").score(
        ["What now?"] * 2, ["Save it.", "Bet on it."]
    )
    assert scores[0] != scores[1]
    assert len(lineage_of(following(then)).runs) == 2


def test_an_unknown_base_of_ours_is_refused(config, tmp_path):
    run(config)
    model, then = Path(config.out) / "model", following(config)

    def refused(match):
        with pytest.raises(InputError, match=match):
            run(then)
        assert not Path(then.out).exists()

    whole = {file.name: file.read_bytes() for file in model.iterdir()}
    (model / "ledger-1.jsonl").unlink()
    refused(r"not known: ledger-1\.jsonl is missing; say what it cost with --base-privacy")
    lines = whole["ledger-1.jsonl"].splitlines(keepends=True)
    (model / "ledger-1.jsonl").write_bytes(b"".join(lines[:-1]))
    refused("was rolled back|not known")
    (model / "ledger-1.jsonl").write_bytes(whole["ledger-1.jsonl"])
    about = json.loads(whole["privacy.json"])
    about["runs"][0]["epsilon"] /= 2
    (model / "privacy.json").write_text(json.dumps(about))
    refused("comes to epsilon")
    (model / "privacy.json").unlink()
    refused(r"not known: .*privacy\.json")
    (model / "murmuration.json").unlink()  # the card still says whose it is
    refused(r"not known: .*privacy\.json")
    public = replace(then, base_privacy="public")
    assert lineage_of(public).public
    assert "declared public" in lineage_of(public).sentences()[0]
    ledger = Path(config.out) / "ledger.jsonl"
    (found,) = lineage_of(replace(then, base_privacy=str(ledger))).runs
    result = json.loads((Path(config.out) / "result.json").read_text())
    assert (found.epsilon, found.ledger_head) == (result["epsilon"], result["ledger_head"])
    with pytest.raises(InputError, match=r"--base-privacy .*nowhere"):
        lineage_of(replace(then, base_privacy=str(tmp_path / "nowhere")))


def test_a_ledger_that_is_named_leaves_no_other_run_out(config):
    first = run(config)
    middle = following(config, epsilon=1.0)
    second = run(middle)
    model, last = Path(middle.out) / "model", following(middle, "third")
    both = first["epsilon"] + second["epsilon"]
    (model / "ledger-1.jsonl").unlink()
    own = replace(last, base_privacy=str(Path(middle.out) / "ledger.jsonl"))
    with pytest.raises(InputError, match=r"ledger-1\.jsonl is missing"):
        lineage_of(own)
    every = ",".join(str(Path(c.out) / "ledger.jsonl") for c in (config, middle))
    found = lineage_of(replace(last, base_privacy=every))
    assert sum(one.epsilon for one in found.runs) == both
    # What is given is counted, whatever the folder says of itself, and each run once.
    (model / "ledger-1.jsonl").write_bytes((Path(config.out) / "ledger.jsonl").read_bytes())
    assert lineage_of(own).runs == found.runs
    assert lineage_of(last).runs == found.runs
    (model / "privacy.json").unlink()
    assert sum(one.epsilon for one in lineage_of(replace(last, base_privacy=every)).runs) == both


def test_disjoint_populations_are_said_to_be_so(config):
    run(replace(config, population="a"))
    said = run(following(config, population="b", disjoint=True))["warnings"][0]
    assert "for the population 'a', epsilon" in said
    assert "for the population 'b', epsilon" in said
    assert said.endswith("Nobody is in two of these populations, as was declared.")


def test_a_base_of_others_has_none(config):
    assert lineage_of(config).runs == ()
    assert lineage_of(replace(config, base="", lora_rank=0)).runs == ()


def test_settings_that_belong_together(config):
    with pytest.raises(InputError, match="--disjoint is about a population"):
        replace(config, disjoint=True)
    with pytest.raises(InputError, match="--base-privacy is about a language model"):
        RunConfig(base_privacy="public")
