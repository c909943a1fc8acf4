"""Who is in which group, what is written down and taken up again, and what is concluded."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.research.reproductions.rivals import real_people
from murmuration.research.reproductions.rivals.contestants import (
    CENTRED,
    LABELS,
    MOMENT,
    NONPRIVATE,
    RIVALS,
    ULS,
    USERS,
)
from murmuration.research.reproductions.rivals.real_people import (
    RUNS,
    Plan,
    Runs,
    compared,
    in_groups,
    judged,
    miniature,
    remarks,
)
from murmuration.sims.population.population import Population

SMALL = Plan(("hashing",), (8.0,), seeds=2, rounds=4, tuned_at=8.0, settings=2)


@pytest.fixture(scope="module")
def judgements():
    return Judgements.from_rows(Population(users=80, median_judgements=4).rows("train"))


@pytest.fixture
def cheap(monkeypatch):
    """Heads that cost nothing: the larger the bound, the more they are right about length."""
    trained = []

    class Cheap:
        def __init__(self, examples, rounds):
            self.examples = examples

        def head(self, rival, setting, epsilon, seed):
            trained.append((rival.name, setting, epsilon, seed, len(self.examples.counts_U)))
            theta_D = np.zeros(self.examples.dimension, dtype=np.float32)
            theta_D[-1] = 1.0 if setting == rival.settings[1] else -1.0
            return theta_D

        def without_privacy(self, seed):
            return np.zeros(self.examples.dimension, dtype=np.float32)

    monkeypatch.setattr(real_people, "Learners", Cheap)
    return trained


@pytest.mark.parametrize("users", [10, 137, 3017])
def test_nobody_is_in_two_groups_and_everybody_is_in_one(users):
    groups = in_groups(users)
    assert sorted(np.concatenate(list(groups.values())).tolist()) == list(range(users))
    for name, share in real_people.SHARES.items():
        assert abs(len(groups[name]) - share * users) <= 1
    assert all((one == again).all() for one, again in zip(
        groups.values(), in_groups(users).values(), strict=True
    ))  # fmt: skip


def test_ties_are_not_judged():
    rows = [
        {"user_id": user, "prompt": "p", "chosen": "a", "rejected": "b", **tie}
        for user, tie in (("u", {}), ("u", {"tie": True}), ("v", {}), ("w", {"tie": True}))
    ]
    assert judged(Judgements.from_rows(rows)).tolist() == [1.0, 1.0, 0.0]


def test_settings_are_chosen_on_others_than_heads_are_trained_on(judgements, cheap, tmp_path):
    compared(judgements, tmp_path / RUNS, SMALL)
    groups = in_groups(len(judgements.user_ids))
    tuning = [run for run in cheap if run[3] == real_people._TUNING_SEED]
    trained = [run for run in cheap if run[3] != real_people._TUNING_SEED]
    assert {run[4] for run in tuning} == {len(groups["tuning"])}
    assert {run[4] for run in trained} == {len(groups["training"])}
    assert len(tuning) == 2 * len(RIVALS) and len(trained) == SMALL.seeds * len(RIVALS)
    # The better one on the validation's users is what is trained, whatever the test would say.
    chosen = {rival.settings[1] for rival in RIVALS}
    assert {run[1] for run in trained} == chosen


def test_an_interrupted_comparison_goes_on_with_what_is_missing(judgements, cheap, tmp_path):
    path = tmp_path / RUNS
    whole = compared(judgements, path, SMALL)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-3]) + lines[-3][:20])  # killed while it wrote
    before = len(cheap)
    again = compared(judgements, path, SMALL)
    assert len(cheap) - before == 3
    assert again.rows == whole.rows and again.extra == whole.extra
    before = len(cheap)
    more = compared(judgements, path, Plan(**{**vars(SMALL), "seeds": 3}))
    assert len(cheap) - before == len(RIVALS)  # a further seed of each
    assert len(more.rows) == len(whole.rows)


def test_runs_of_other_judgements_are_refused(judgements, cheap, tmp_path):
    compared(judgements, tmp_path / RUNS, SMALL)
    others = judgements.select(np.arange(1, len(judgements.user_ids)))
    with pytest.raises(InputError, match="another --out"):
        compared(others, tmp_path / RUNS, SMALL)
    with pytest.raises(InputError, match=RUNS):
        compared(judgements, tmp_path / RUNS, Plan(**{**vars(SMALL), "rounds": 5}))


def test_a_file_of_runs_begins_with_what_they_are_of(tmp_path):
    runs = Runs(tmp_path / "new" / RUNS, {"a": (1, 2)})
    assert runs.result("one", lambda: [0.5]) == [0.5]
    again = Runs(tmp_path / "new" / RUNS, {"a": (1, 2)})
    assert again.result("one", pytest.fail) == [0.5] and "two" not in again
    first, *_ = (tmp_path / "new" / RUNS).read_text().splitlines()
    assert json.loads(first) == {"a": [1, 2]}


def test_rows_and_comparisons_are_of_every_case(judgements, cheap, tmp_path):
    result = compared(judgements, tmp_path / RUNS, SMALL)
    assert [row["strategy"] for row in result.rows] == [NONPRIVATE, *(r.name for r in RIVALS)]
    of_users = sum(rival.adjacency == USERS for rival in RIVALS)
    of_labels = len(RIVALS) - of_users
    pairs = result.extra["pairs"]
    assert len(pairs) == of_users * (of_users - 1) // 2 + of_labels * (of_labels - 1) // 2
    # All heads are the same, so nobody is above anybody, and all are first.
    assert {pair["verdict"] for pair in pairs} == {"level"}
    assert "below at least one: none" in result.remarks[0]
    assert result.rows[0]["accuracy"] == pytest.approx(0.5)  # a head of zero
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in result.rows)


def test_accuracy_is_that_of_the_examples(judgements, tmp_path):
    """Sums by user come to what the product says of the same head."""
    contest = real_people.Contest(judgements, "hashing", SMALL, Runs(tmp_path / RUNS, {}))
    test = contest._examples["test"]
    theta_D = torch.randn(test.dimension, generator=torch.Generator().manual_seed(0))
    right_U, judged_U = real_people.right_by_user(
        test.logits_R(theta_D), test.y_R, test.start_U, test.kind, test.width
    )
    accuracy = test.accuracy(theta_D)
    assert float(right_U.sum() / judged_U.sum()) == pytest.approx(accuracy.pooled)
    assert int(judged_U.sum()) == accuracy.judgements
    users = in_groups(len(judgements.user_ids))["test"]
    assert judged_U.tolist() == judged(judgements)[users].tolist()


def pair(first, second, verdict, **case):
    case = {"features": "x", "adjacency": USERS, "epsilon": 3.0} | case
    return case | {"first": first, "second": second, "verdict": verdict, "difference": 0.1}


def row(name, accuracy, **case):
    case = {"features": "x", "adjacency": USERS, "epsilon": 3.0} | case
    return case | {"strategy": name, "accuracy": accuracy, "low": accuracy, "high": accuracy}


def test_who_loses_is_named():
    rows = [row(ULS, 0.7), row(CENTRED, 0.8), row("els", 0.6), row("odd", 0.9, adjacency=LABELS)]
    pairs = [
        pair(ULS, CENTRED, "below"),
        pair(ULS, "els", "level"),
        pair(CENTRED, "els", "above"),
        pair(MOMENT, "odd", "below", adjacency=LABELS),
    ]
    users, labels, centred, _, moment, uls = remarks(rows, pairs)
    assert f"nobody is above {CENTRED} (0.800)" in users
    assert f"below at least one: {ULS} (0.700), els (0.600)" in users
    assert "nobody is above odd" in labels
    assert "above a rival in 2 of 2 comparisons, level in 0, below in 0." in centred
    assert "above a rival in 0 of 1 comparisons, level in 0, below in 1; below odd on x" in moment
    assert f"below in 1; below {CENTRED} on x, ε = 3." in uls


def test_people_are_read_from_a_file(cheap, monkeypatch, tmp_path, write_rows):
    monkeypatch.setattr(real_people, "Plan", lambda: SMALL)
    path = write_rows(list(Population(users=80, median_judgements=4).rows("train")))
    result = real_people.of_people(Path(path), tmp_path / "out")
    assert sum(result.extra["users"].values()) == 80
    assert (tmp_path / "out" / RUNS).exists()


@pytest.mark.slow
def test_quick_has_every_strategy():
    assert len(miniature().rows) == 1 + len(RIVALS)
