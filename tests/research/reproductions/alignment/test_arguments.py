"""Arguments chosen by private rewards: who wins, by which judge, beside known answers."""

from dataclasses import replace

import numpy as np
import pytest

from murmuration.preference.accuracy import Accuracy
from murmuration.preference.data.judgements import Judgements
from murmuration.research.reproductions.alignment import arguments
from murmuration.research.reproductions.alignment.argument_pool import Answer
from murmuration.research.reproductions.alignment.arguments import (
    Judge,
    Plan,
    Pool,
    Rewards,
)

PROMPTS, MET, ANSWERS = 120, 3, 8
PLAN = Plan(("hashing",), (3.0, None), 2, PROMPTS, (2, 8), met=MET)


@pytest.fixture(scope="module")
def result():
    """A judge who knows the truth; a reward that knows it, and one that is half noise."""
    generator = np.random.default_rng(0)
    pool = Pool(
        [
            [Answer(f"prompt {at}", "word " * int(n), bool(n > 8)) for n in row]
            for at, row in enumerate(generator.integers(1, 11, (PROMPTS, MET + ANSWERS)))
        ],
        MET,
    )
    met, others = np.split(generator.standard_normal((PROMPTS, MET + ANSWERS)), [MET], axis=1)
    judge = Judge("hashing", 0.8, 0.7, others[:, :, None] - met[:, None])
    noise = generator.standard_normal((2, PROMPTS, ANSWERS))
    known_SPN = np.stack([others] * 2)
    rewards = {
        "hashing": Rewards(
            {3.0: known_SPN + noise, None: known_SPN},
            {3.0: [(0.7, 0.6), (0.8, 0.6)], None: [(0.8, 0.7)] * 2},
        )
    }
    return pool, judge, rewards


def test_the_best_of_eight_beats_one_in_eight_of_nine(result):
    pool, judge, rewards = result
    rows = arguments._win_rows(rewards, judge, pool, PLAN)
    by = {(row["epsilon"], row["best_of"]): row for row in rows}
    assert by[None, 8]["win"] == pytest.approx(8 / 9, abs=0.06)
    assert by[None, 2]["win"] == pytest.approx(2 / 3, abs=0.08)
    assert by[None, 8]["of_nonprivate"] == pytest.approx(1.0)
    noisy = by[3.0, 8]
    # Half of the variance is the truth's: sqrt(1/2) of what the best gains.
    assert noisy["of_nonprivate"] == pytest.approx(0.71, abs=0.12)
    assert noisy["of_nonprivate_low"] < noisy["of_nonprivate"] < noisy["of_nonprivate_high"]
    assert noisy["win_low"] < noisy["win"] < noisy["win_high"]
    assert noisy["controlled"] == pytest.approx(noisy["win"], abs=0.05)  # length tells nothing
    assert 0 < noisy["cut_off"] < 0.5


def test_wins_are_a_mean_over_the_answers_that_are_met(result):
    pool, judge, rewards = result
    whole = arguments._win_rows(rewards, judge, pool, PLAN)
    alone = []
    for at in range(MET):
        one = Judge("hashing", 0.8, 0.7, judge.gain_PNK[:, :, at : at + 1])
        answers = [[met[at], *row] for met, row in zip(pool.met, pool.others, strict=True)]
        alone.append(arguments._win_rows(rewards, one, Pool(answers, 1), replace(PLAN, met=1)))
    for rows in zip(whole, *alone, strict=True):
        for name in ("win", "gain"):
            assert rows[0][name] == pytest.approx(np.mean([row[name] for row in rows[1:]]))
        assert rows[0]["controlled"] == pytest.approx(
            np.mean([row["controlled"] for row in rows[1:]]), abs=0.02
        )


def test_a_judge_is_a_row(result):
    pool, judge, _ = result
    judges = {"hashing": judge, arguments.LONGER: Judge("length alone", 0.6, 0.6, pool.longer_PNK)}
    rows = arguments._judge_rows(judges, PLAN)
    assert [row["judge"] for row in rows] == ["hashing", "length alone"]
    assert rows[0]["wins_by_hashing"] == pytest.approx(8 / 9, abs=0.06)
    assert rows[1]["wins_by_hashing"] == pytest.approx(0.5, abs=0.1)
    assert rows[1]["wins_by_length alone"] > 0.8


def test_examples_are_the_best_of_the_private_reward(result):
    pool, judge, rewards = result
    examples = arguments._examples(rewards, {"hashing": judge}, pool, PLAN)
    assert len(examples) == 12
    assert examples[0]["prompt"] == "prompt 0"
    best = rewards["hashing"].rewards_SPN[3.0][0, 0].argmax()
    assert examples[0]["best"] == pool.others[0][best].response
    assert examples[0]["gains"] == {"hashing": judge.gain_PNK[0, best, 0]}


def test_rewards_that_choose_nothing_are_measured_by_themselves(language_model):
    """A head reads the base's own states."""
    people = {
        group: Judgements.from_rows(
            {
                "user_id": f"{group} {user}",
                "prompt": "what now ?",
                "chosen": f"save it {'more ' * user}",
                "rejected": "spend it",
            }
            for user in range(12)
        )
        for group in arguments.GROUPS
    }
    plan = replace(PLAN, seeds=1, rounds=3, cohort=6)
    right = arguments.alone(people, str(language_model("llama")), plan)
    assert list(right[arguments.HEAD]) == [3.0, None]
    seen, unseen = right[arguments.HEAD][None][0]
    assert seen.by_user == unseen.by_user == 1.0  # everybody prefers what nobody rejects


def test_rewards_are_right_by_user():
    """One who judged much counts as much as one who judged once; the interval is over users."""
    right = Accuracy.of_users(np.array([1.0, 1.0, 0.0]), np.array([1.0, 1.0, 98.0]), 0.5)
    (row, baseline) = arguments._reward_rows(
        {"hashing": {3.0: [(right, right)] * 2}},
        Judge("length alone", 0.6, 0.5, np.zeros((1, 1, 1))),
    )
    assert row["seen"] == pytest.approx(2 / 3)
    assert row["seen_pooled"] == pytest.approx(0.02)
    assert row["unseen_low"] < 0.0 < 1.0 < row["unseen_high"]
    assert (baseline["seen"], baseline["unseen"]) == (0.6, 0.5)


def test_differences_are_those_of_the_same_users():
    """Each is right where the other is wrong, or about one user more."""
    judged_U = np.array([1.0, 1.0, 8.0, 2.0])

    def right(*right_U):
        return Accuracy.of_users(np.array(right_U), judged_U, 0.5)

    better, worse, longer = right(1.0, 1.0, 8.0, 1.0), right(1.0, 0.0, 8.0, 1.0), right(1, 1, 0, 1)
    of = {"a": {3.0: [(better, worse)] * 2}, "b": {3.0: [(worse, worse)] * 2}}
    rows = arguments.reward_differences(of, (longer, longer))
    by = {(row["first"], row["second"]): row for row in rows}
    assert [*by] == [("a", "b"), ("a", arguments.LONGER), ("b", arguments.LONGER)]
    assert by["a", "b"]["seen"] == pytest.approx(0.25) and by["a", "b"]["unseen"] == 0.0
    assert by["a", "b"]["unseen_low"] == by["a", "b"]["unseen_high"] == 0.0
    assert by["a", arguments.LONGER]["seen"] == pytest.approx(0.25)
    assert by["b", arguments.LONGER]["seen"] == pytest.approx(0.0)
    assert by["b", arguments.LONGER]["seen_low"] < -0.5 and by["a", "b"]["seen_low"] < 0.0


def test_the_longer_response_is_right_as_often_as_it_is_counted():
    people = {
        group: Judgements.from_rows(
            {"user_id": f"{user % 5}", "prompt": "p", "chosen": "a " * (user % 4 + 1),
             "rejected": "b " * (user % 3 + 1)}
            for user in range(30)
        )
        for group in ("test", "unseen")
    }  # fmt: skip
    for found, group in zip(arguments.longer_right(people), people, strict=True):
        counted = arguments.longer_wins(people[group])
        assert found.by_user == pytest.approx(counted.by_user)
        assert found.pooled == pytest.approx(counted.pooled)
