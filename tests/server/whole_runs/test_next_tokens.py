"""Runs that learn the next token: every strategy, resuming, what is said and saved, refusals."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_runs import LORA, run, theta

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.likelihood import load_scorer

pytestmark = [
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.settings(**{**LORA, "data": "crowd_texts", "test": ""}, task="text"),
]


@pytest.fixture
def of_task(config, crowd):
    """A function: the same settings for this task, on the data that it learns from."""

    def make(task, **changes):
        data = config.data if task == "text" else crowd
        return config.changed(**{"task": task, "data": data, **changes})

    return make


@pytest.mark.parametrize("task", ["text", "sft"])
@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "uls"},
        {"strategy": "uls", "train": "full", "lora_rank": 0},
        {"strategy": "els"},
        {"strategy": "group"},
        {"strategy": "dp-fedavg", "local_steps": 2, "local_rate": 0.1},
        {"strategy": "adaptive"},
        {"strategy": "aup"},
        {"strategy": "nonprivate"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_strategy(of_task, task, changes):
    config = of_task(task, heldout_epsilon=2.0, heldout=0.4, **changes)
    result = run(config)
    assert (result["task"], result["rounds"]) == (task, 2)
    assert result["epsilon"] is None or 1.5 < result["epsilon"] <= 2.0
    assert 0.0 <= result["heldout_accuracy"] <= 1.0
    assert 0.0 <= result["heldout_accuracy_by_user"] <= 1.0
    assert result["heldout_perplexity"] == pytest.approx(math.exp(result["heldout_loss"]))
    assert 0 < result["heldout_users"] < 50  # a share of the users, asked once
    assert np.abs(theta(config)).max() > 0


def test_without_noise_it_learns(config, crowd_texts):
    before = run(
        replace(config, strategy="nonprivate", rounds=1, learning_rate=1e-9, test=crowd_texts)
    )
    again = replace(config, strategy="nonprivate", rounds=12, cohort=50, test=crowd_texts)
    after = run(replace(again, out=again.out + "2"))
    assert after["heldout_loss"] < before["heldout_loss"] - 0.5
    assert after["heldout_accuracy"] > before["heldout_accuracy"]
    lines = (Path(again.out + "2") / "metrics.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in lines]
    losses = [line["heldout_loss"] for line in lines if "heldout_loss" in line]
    assert losses[-1] == pytest.approx(after["heldout_loss"])


@pytest.mark.parametrize("part", ["lora", "full"])
def test_what_is_saved_is_what_was_trained(of_task, language_model, part):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    rank = 2 if part == "lora" else 0
    config = of_task("sft", train=part, lora_rank=rank, strategy="nonprivate")
    result = run(config)
    folder = Path(config.out) / "model"
    if part == "lora":
        from peft import PeftModel

        base = AutoModelForCausalLM.from_pretrained(language_model("gpt2"))
        PeftModel.from_pretrained(base, folder)
    else:
        AutoModelForCausalLM.from_pretrained(folder)
    AutoTokenizer.from_pretrained(folder)
    assert load_scorer(folder).score(["What now?"], ["Save it."])[0] < 0
    card = (folder / "README.md").read_text()
    assert f"{result['heldout_loss']:.3f} nats a token" in card
    assert "AutoModelForCausalLM.from_pretrained" in card
    assert "load_scorer" in card
    exec(
        card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(folder)), {}
    )
    assert "reward" not in card.lower()


def test_sft_is_blind_to_labels(config, of_task, crowd, write_rows):
    rows = [json.loads(line) for line in Path(crowd).read_text().splitlines()]
    for row in rows:
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    one = of_task("sft", epsilon=200.0)
    other = replace(one, data=write_rows(rows), out=config.out + "2")
    assert run(other)["heldout_loss"] == (found := run(one))["heldout_loss"] > 0.0
    assert found["heldout_noise"] > 0.0
    assert np.array_equal(theta(one), theta(other))


def test_ties_are_no_reason_not_to_learn_from_responses(of_task, write_rows, make_rows):
    data = write_rows(make_rows([2] * 20, ties=True))
    assert run(of_task("sft", data=data, test=data))["heldout_accuracy"] is not None


def test_rankings_are_no_reason_either(of_task, crowd_of_four, of_four):
    declared = {**of_four, "model": "btl"}
    assert run(of_task("sft", data=crowd_of_four, **declared))["rounds"] == 2


def test_an_encoder_is_refused_before_anything_is_asked(config, language_model):
    with pytest.raises(InputError, match="its tokens see what follows"):
        run(replace(config, base=language_model("bert")))
