"""How many layers learn: whom a reward is tried on, its row, and a miniature."""

import itertools
import json
from dataclasses import replace

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.research.reproductions.alignment import lora_layers
from murmuration.research.reproductions.alignment.lora_layers import HELD_OUT, PLAN, divide, people
from murmuration.research.reproductions.alignment.lora_rewards import Cell

ROWS = [
    {"user_id": f"u{number % 20}", "prompt": "p", "chosen": f"c{number}", "rejected": "r"}
    for number in range(100)
]


def users_of(path):
    return {json.loads(line)["user_id"] for line in path.read_text().splitlines()}


def test_nobody_is_tried_on_who_was_trained_on(tmp_path):
    held = []
    for seed in range(3):
        folder = people(tmp_path, seed)
        divide(ROWS, folder, seed)
        train, test = (folder / f"{name}.jsonl" for name in ("train", HELD_OUT))
        assert len(users_of(test)) == 4
        assert not users_of(train) & users_of(test)
        lines = [*train.read_text().splitlines(), *test.read_text().splitlines()]
        assert sorted(map(json.dumps, ROWS)) == sorted(lines)
        divide(ROWS, folder, seed)  # a command that goes on has the same people
        assert lines == [*train.read_text().splitlines(), *test.read_text().splitlines()]
        held.append(users_of(test))
    assert held[0] != held[1] != held[2]


def test_each_number_of_layers_stands_with_its_best_step(tmp_path):
    plan = replace(PLAN, layers=("last:1", "last:8"), seeds=2, workers=1)
    right = {("last:1", 4000.0): 0.7, ("last:8", 8000.0): 0.68}
    for layers, step, seed in itertools.product(plan.layers, plan.steps, range(2)):
        cell = Cell(layers, 8.0, step, seed)
        figures = {
            HELD_OUT: right.get((layers, step), 0.6) + 0.01 * seed,
            "processor_minutes": 9.0
            if (step, seed) == (4000.0, 0)
            else 3.0 + seed
            if seed
            else None,
        }
        (tmp_path / f"{cell.name}.json").write_text(json.dumps(figures))
    result = lora_layers.compared(ROWS, "no base", tmp_path, plan)
    assert [(row["layers"], row["step"]) for row in result.rows] == [
        *itertools.product(plan.layers, plan.steps)
    ]
    assert result.rows[1]["accuracy_mean"] == pytest.approx(0.705)
    assert result.rows[1]["accuracy_sd"] == pytest.approx(0.01 / 2**0.5)
    assert result.remarks[0].startswith("last:1: 70.5% of held-out users' judgements at step 4000,")
    assert "the best of 3, in" in result.remarks[0]  # not an end of what was tried
    assert result.remarks[1].startswith("last:8: 68.5% of held-out users' judgements at step 8000,")
    assert "the best of 3, the least or largest, in" in result.remarks[1]
    assert all("in 4.0 processor minutes" in line for line in result.remarks)
    assert result.extra == {"users": 20, "seeds": 2}


def test_it_needs_people(tmp_path):
    with pytest.raises(InputError, match="a file of judgements"):
        lora_layers.lora_layers(False)
    wrong = tmp_path / "wrong.jsonl"
    for text in ("no JSON\n", '["a list"]\n', '{"prompt": "p"}\n'):
        wrong.write_text(text)
        with pytest.raises(InputError, match="lora-layers reads a file of JSON lines"):
            lora_layers.of_people(wrong, tmp_path)
    with pytest.raises(InputError, match="JSON lines"):
        lora_layers.of_people(tmp_path, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:SIMULATION", "ignore:Nodes were allowed", "ignore:The exact number", "ignore:operator"
)
def test_a_miniature():
    rows = lora_layers.lora_layers(True).rows
    assert [row["layers"] for row in rows] == ["last:1", "all"]
    assert all(0.0 <= row["accuracy_mean"] <= 1.0 and row["processor_minutes"] > 0 for row in rows)
