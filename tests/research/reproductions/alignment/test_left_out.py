"""Nobody is trained on what is tested; and whose means, intervals and differences there are."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from murmuration.planning.judgement_statistics import longer_wins
from murmuration.preference.data.judgements import Judgements
from murmuration.research.reproductions.alignment import left_out
from murmuration.research.reproductions.alignment.left_out import (
    DEBATES,
    LENGTH,
    PAIRS,
    RUNS,
    Sizes,
    by_debate,
    by_pair,
    compared,
    debate_of,
)
from murmuration.research.reproductions.entry import where
from murmuration.research.reproductions.rivals.real_people import Runs

SIZES = Sizes(("hashing",), (3.0, None), 2, 5)
KNOWN, NEW = [f"debate {at}?" for at in range(4)], ["a new debate?"]


def judged_by(users, debates, seed):
    """Judgements of responses of 1 to 9 words, either one chosen, a tenth of them ties."""
    generator = np.random.default_rng(seed)
    rows = []
    for user in users:
        for _ in range(1 + generator.poisson(6)):
            debate, side = generator.choice(debates), generator.choice(["yes", "no"])
            first, second = generator.choice(9, 2, replace=False) + 1
            tie = {"tie": True} if generator.random() < 0.1 else {}
            texts = [f"{debate} {side} " + "so " * many for many in (first, second)]
            rows.append(
                {"user_id": user, "prompt": f"{debate} Argue: {side}", "chosen": texts[0],
                 "rejected": texts[1], **tie}
            )  # fmt: skip
    return Judgements.from_rows(rows)


@pytest.fixture(scope="module")
def people():
    return {
        "train": judged_by([f"a{at}" for at in range(40)], KNOWN, 1),
        "test": judged_by([f"b{at}" for at in range(25)], KNOWN, 2),
        "unseen": judged_by([f"b{at}" for at in range(25)], NEW, 3),
    }


def pairs_of(judgements):
    return {frozenset(shown) for shown in judgements.responses}


def test_each_debate_is_tested_by_others_and_not_trained_on(people):
    folds = by_debate(people, 16)
    assert sorted(fold.name for fold in folds) == sorted(KNOWN + NEW)
    for fold in folds:
        assert {debate_of(prompt) for prompt in fold.test.prompts} == {fold.name}
        assert {debate_of(prompt) for prompt in fold.train.prompts} == {*KNOWN} - {fold.name}
    assert sum(len(fold.test) for fold in folds) == len(people["test"]) + len(people["unseen"])
    sizes = [len(fold.test) for fold in folds]
    assert [len(fold.test) for fold in by_debate(people, 2)] == sorted(sizes)[:-3:-1]


def test_each_pair_is_tested_once_and_not_trained_on_either_way_round(people):
    folds = by_pair(people)
    assert sum(len(fold.test) for fold in folds) == len(people["test"])
    for fold in folds:
        assert len(fold.train) and len(fold.test)
        assert not pairs_of(fold.train) & pairs_of(fold.test)
    assert sum(len(fold.train) for fold in folds) == 2 * len(people["train"])


def by_length(sign):
    """A head that is right where the longer (or the shorter) response is."""

    def trained(examples, epsilon, seed):
        theta_D = np.zeros(examples.dimension, dtype=np.float32)
        theta_D[-1] = sign(epsilon, seed)
        return theta_D

    return trained


def test_length_alone_is_the_length_baseline(people, tmp_path):
    rows, differences, debates = compared(
        people, SIZES, by_length(lambda epsilon, seed: 1.0), Runs(tmp_path / RUNS, {})
    )
    assert len(rows) == 2 * 2 * 2 and len(differences) == 2 * 2
    longer = longer_wins(people["test"])
    for row in where(rows, left_out=PAIRS):
        assert row["accuracy"] == pytest.approx(longer.by_user)
        assert row["pooled"] == pytest.approx(longer.pooled)
        assert row["accuracy_low"] < row["accuracy"] < row["accuracy_high"]
    of_debates = [longer_wins(fold.test).by_user for fold in by_debate(people, 16)]
    for row in where(rows, left_out=DEBATES):
        assert row["accuracy"] == pytest.approx(np.mean(of_debates))
        half = stats.t.ppf(0.975, 4) * np.std(of_debates, ddof=1) / 5**0.5
        assert row["accuracy_high"] - row["accuracy"] == pytest.approx(half)
    assert [row[LENGTH] for row in where(debates, epsilon=None)] == pytest.approx(of_debates)
    for row in differences:
        assert (row["first"], row["second"]) == ("hashing", LENGTH)
        assert row["accuracy"] == row["accuracy_low"] == row["accuracy_high"] == 0.0


def test_differences_are_of_the_same_users_and_means_over_seeds(people, tmp_path):
    """The shorter response, by one of two seeds without privacy: level with guessing."""
    rows, differences, _ = compared(
        people,
        SIZES,
        by_length(lambda epsilon, seed: -1.0 if epsilon is None and seed else 1.0),
        Runs(tmp_path / RUNS, {}),
    )
    for what in (DEBATES, PAIRS):
        (length,) = where(rows, left_out=what, epsilon=None, features=LENGTH)
        (mixed,) = where(rows, left_out=what, epsilon=None, features="hashing")
        assert mixed["accuracy"] == pytest.approx(0.5)
        (gap,) = where(differences, left_out=what, epsilon=None)
        assert gap["accuracy"] == pytest.approx(0.5 - length["accuracy"])


def test_what_was_run_is_written_down_and_not_run_again(people, tmp_path):
    trained = []

    def head(examples, epsilon, seed):
        trained.append((len(examples.y_R), epsilon, seed))
        return by_length(lambda epsilon, seed: 1.0)(examples, epsilon, seed)

    first = compared(people, SIZES, head, Runs(tmp_path / RUNS, {}))
    assert len(trained) == (5 + 3) * 2 * 2
    assert {rows for rows, *_ in trained} == {
        len(fold.train) for fold in (*by_debate(people, 16), *by_pair(people))
    }
    assert compared(people, SIZES, head, Runs(tmp_path / RUNS, {})) == first
    assert len(trained) == 32
    compared(people, replace(SIZES, seeds=3), head, Runs(tmp_path / RUNS, {}))
    assert len(trained) == 48


def test_who_judged_much_counts_as_once(people):
    judged_F, right_F = [np.array([9.0, 1.0, 0.0])] * 2, [np.array([[9.0, 0.0, 0.0]])] * 2
    for what in (DEBATES, PAIRS):
        found = left_out._estimate(what, right_F, judged_F)
        assert found["accuracy"] == pytest.approx(0.5) and found["pooled"] == pytest.approx(0.9)


def test_a_debate_without_a_decided_judgement_is_no_fold_and_none_is_twice():
    tie = {"prompt": "q", "chosen": "a", "rejected": "b", "tie": True}
    rows = [{"user_id": "u", **tie}, {"user_id": "u", **tie, "prompt": "r", "tie": False}]
    judgements = Judgements.from_rows(rows)
    folds = by_debate({"train": judgements, "test": judgements, "unseen": judgements}, 16)
    assert [fold.name for fold in folds] == ["r"]
