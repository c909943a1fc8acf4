"""Rewards by LoRA, as they are compared: which step is chosen, and on whom."""

import itertools
import json

import pytest

import murmuration
from murmuration.preference.data.errors import InputError
from murmuration.research.reproductions.alignment import lora_rewards
from murmuration.research.reproductions.alignment.lora_rewards import Cell, Plan
from murmuration.research.reproductions.entry import where

PLAN = Plan(layers=("last:1",), steps=(1.0, 2.0, 3.0), epsilons=(3.0, 1000.0), seeds=2, workers=1)
#: By step: what gold, test and unseen people would say. The best on tests is another one.
RIGHT = {1.0: (0.6, 0.9, 0.9), 2.0: (0.7, 0.6, 0.5), 3.0: (0.65, 0.8, 0.8)}


@pytest.fixture
def made(tmp_path):
    """Runs that are there already."""
    for epsilon in PLAN.epsilons:
        for step in PLAN.steps:
            for seed in range(PLAN.seeds):
                cell = Cell("last:1", epsilon, step, seed)
                right = dict(
                    zip(lora_rewards.GROUPS, (r + 0.01 * seed for r in RIGHT[step]), strict=True)
                )
                (tmp_path / f"{cell.name}.json").write_text(json.dumps(right))
    return lora_rewards.compared(tmp_path, "no base", tmp_path, PLAN)


def test_the_step_is_chosen_on_people_that_it_is_not_tried_on(made):
    chosen = where(made.rows, chosen=True)
    assert [(row["epsilon"], row["step"]) for row in chosen] == [(3.0, 2.0), (1000.0, 2.0)]
    assert chosen[0]["test_mean"] == pytest.approx(0.605)
    assert chosen[0]["unseen_mean"] == pytest.approx(0.505)
    assert chosen[0]["test_sd"] == pytest.approx(0.01 / 2**0.5)
    assert "least or largest" not in made.remarks[0]


def test_it_says_where_a_larger_step_might_do_better(made):
    rows = [dict(row) for row in made.rows]
    for row in rows:
        row["chosen"] = row["step"] == 3.0
    assert all("least or largest" in line for line in lora_rewards.remarks(rows))


def test_it_needs_people():
    with pytest.raises(InputError, match="ukp_judgements"):
        lora_rewards.lora_rewards(False)


@pytest.mark.filterwarnings(
    "ignore:SIMULATION", "ignore:Nodes were allowed", "ignore:The exact number", "ignore:operator"
)
def test_a_saved_reward_is_put_back_into_its_base(language_model, tmp_path, monkeypatch):
    pytest.importorskip("peft")
    monkeypatch.setenv("MURMURATION_CACHE", str(tmp_path / "cache"))
    texts = ["save it", "spend it", "it is a loan", "keep the old one"]
    rows = [
        {"user_id": f"u{user}", "prompt": "what now ?", "chosen": one, "rejected": other}
        for user, (one, other) in enumerate(itertools.permutations(texts, 2))
    ]
    for name in ("train", *lora_rewards.GROUPS):
        text = "".join(json.dumps(row) + "\n" for row in rows[len(name) % 3 :])
        (tmp_path / f"{name}.jsonl").write_text(text)
    plan = Plan(("last:1",), (30.0,), (1000.0,), 1, 2, 8, 1, {"lora_rank": 2}, 1)
    cell = Cell("last:1", 1000.0, 30.0, 0)
    task = lora_rewards.Task(plan, tmp_path, str(language_model("llama")), tmp_path, cell)
    right = lora_rewards.accuracies(task)
    model = murmuration.RewardModel.load(tmp_path / cell.name / "model")
    for group in lora_rewards.GROUPS:
        assert right[group] == model.accuracy(str(tmp_path / f"{group}.jsonl")).pooled
    assert len(set(right.values())) > 1


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:SIMULATION", "ignore:Nodes were allowed", "ignore:The exact number", "ignore:operator"
)
def test_a_miniature():
    rows = lora_rewards.lora_rewards(True).rows
    assert len(rows) == 2
    assert len(where(rows, chosen=True)) == 2
    assert all(0.0 <= row[f"{group}_mean"] <= 1.0 for row in rows for group in lora_rewards.GROUPS)
