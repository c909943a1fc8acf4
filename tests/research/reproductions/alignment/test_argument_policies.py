"""Policies of judgements, as they are compared: beside answers whose worth is known."""

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.research.reproductions.alignment import argument_policies
from murmuration.research.reproductions.alignment.argument_policies import Cell, Made, Plan
from murmuration.research.reproductions.alignment.argument_pool import Answer
from murmuration.research.reproductions.alignment.arguments import LONGER, Judge, Pool
from murmuration.research.reproductions.entry import where

JUDGED, CHOOSING = 150, 100
PLAN = Plan(
    steps={"dpo": (1.0, 2.0), "align": (20,)},
    epsilons=(3.0, 1000.0),
    seeds=2,
    judged=JUDGED,
    choosing=CHOOSING,
    samples=2,
)
#: What an answer of each is worth over the base's, before noise of variance one in both.
WORTH = {("dpo", 1.0): 0.0, ("dpo", 2.0): 2.0, ("align", 20): 1.0}


@pytest.fixture(scope="module")
def compared():
    generator = np.random.default_rng(0)
    cells = [
        Cell(way, epsilon, step, seed)
        for way, steps in PLAN.steps.items()
        for epsilon in PLAN.epsilons
        for step in steps
        for seed in range(PLAN.seeds)
    ]
    made, worth = {}, []
    for cell in cells:
        share = 1.0 if cell.epsilon > 100 else 0.5
        worth.append(
            share * WORTH[cell.way, cell.step]
            + generator.standard_normal((PLAN.written, PLAN.samples))
        )
        made[cell] = Made(
            [
                [Answer(f"prompt {at}", "word " * 5, False) for _ in range(PLAN.samples)]
                for at in range(PLAN.written)
            ],
            cell.step,
        )
    worth_PN = np.concatenate(worth, axis=1)
    gain_PN = worth_PN - generator.standard_normal((PLAN.written, 1))
    tried = argument_policies._tried(made, Judge("hashing", 0.8, 0.7, gain_PN[JUDGED:]), PLAN)
    steps = {(row["way"], row["epsilon"]): row["step"] for row in where(tried, chosen=True)}
    chosen = [cell for cell in cells if steps[cell.way, cell.epsilon] == cell.step]
    answers = [
        column
        for cell in chosen
        for column in range(
            cells.index(cell) * PLAN.samples, (cells.index(cell) + 1) * PLAN.samples
        )
    ]
    sizes = generator.integers(1, 11, (JUDGED, 1 + len(answers)))
    pool = Pool(
        [
            [Answer(f"prompt {at}", "word " * int(n), False) for n in row]
            for at, row in enumerate(sizes)
        ]
    )
    judge = Judge("hashing", 0.8, 0.7, gain_PN[:JUDGED, answers])
    judges = {"hashing": judge, LONGER: Judge(LONGER, 0.6, 0.6, pool.longer_PN)}
    of_them = {cell: made[cell] for cell in chosen}
    rows = argument_policies._win_rows(of_them, judges, pool, PLAN)
    return of_them, pool, judge, tried, rows


def test_the_step_that_gains_most_is_chosen_at_each_epsilon(compared):
    _, _, _, tried, _ = compared
    chosen = where(tried, chosen=True)
    assert [(row["way"], row["epsilon"], row["step"]) for row in chosen] == [
        ("dpo", 3.0, 2.0),
        ("dpo", 1000.0, 2.0),
        ("align", 3.0, 20),
        ("align", 1000.0, 20),
    ]


def test_questions_for_choosing_and_for_judging_are_apart():
    first = [Answer(f"prompt {at}", f"base {at}", False) for at in range(5)]
    cells = [Cell("dpo", 3.0, 1.0, seed) for seed in range(2)]
    made = {
        cell: Made([[Answer(f"prompt {at}", f"{cell.seed} {at}", False)] for at in range(5)], 0.0)
        for cell in cells
    }
    judged = argument_policies._pool(first, made, slice(3))
    chosen = argument_policies._pool(first, made, slice(3, 5))
    assert [one.response for one in judged.first] == ["base 0", "base 1", "base 2"]
    assert [one.response for one in chosen.first] == ["base 3", "base 4"]
    assert [[one.response for one in row] for row in chosen.others] == [
        ["0 3", "1 3"],
        ["0 4", "1 4"],
    ]


def test_each_policy_wins_by_its_own_answers(compared):
    *_, rows = compared
    by = {(row["way"], row["epsilon"]): row for row in where(rows, judge="hashing")}
    # A difference of two normal numbers is above minus its mean: .92, .76, .76 and .64.
    for (way, epsilon), win in {
        ("dpo", 1000.0): 0.921,
        ("dpo", 3.0): 0.760,
        ("align", 1000.0): 0.760,
        ("align", 3.0): 0.638,
    }.items():
        row = by[way, epsilon]
        assert row["win"] == pytest.approx(win, abs=0.06)
        assert row["win_low"] < row["win"] < row["win_high"]
        assert row["controlled"] == pytest.approx(row["win"], abs=0.05)  # length tells nothing
    assert by["dpo", 1000.0]["of_nonprivate"] == pytest.approx(1.0)
    assert by["dpo", 3.0]["of_nonprivate"] == pytest.approx(0.5, abs=0.12)
    assert by["dpo", 3.0]["log_ratio"] == 2.0


def test_what_is_told_and_drawn(compared):
    made, pool, judge, tried, rows = compared
    examples = argument_policies._examples(made, pool, judge, PLAN)
    assert len(examples) == 12
    place = argument_policies._places(made, Cell("dpo", 3.0, 2.0, 0), PLAN).start
    assert examples[0]["dpo"]["gain"] == judge.gain_PN[0, place]
    extra = {"questions": JUDGED, "samples": 2, "seeds": 2, "examples": examples}
    lines = argument_policies.remarks([*tried, *rows], extra)
    assert any("dpo, ε = 3, judged on hashing: wins" in line for line in lines)
    (ends,) = (line for line in lines if "least or largest" in line)
    assert "dpo at ε = 3" in ends
    assert "align" not in ends  # of which one was tried
    assert len(argument_policies.plot([*tried, *rows]).axes) == 2


def test_it_needs_people():
    with pytest.raises(InputError, match="ukp_judgements"):
        argument_policies.argument_policies(False)


@pytest.mark.slow
def test_a_miniature_is_made_and_made_once(tmp_path):
    result = argument_policies.argument_policies(True)
    assert {row["way"] for row in result.rows} == {"dpo", "align"}
    assert all(np.isfinite(row["win"]) for row in result.rows if "win" in row)
