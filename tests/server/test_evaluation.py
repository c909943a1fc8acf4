"""Held-out accuracy: from a public file, or from nodes that are asked."""

from types import SimpleNamespace

import numpy as np
import pytest

from preference.features import HashingFeatures
from preference.judgements import InputError
from preference.loading import load_judgements
from preference.reward import RewardModel
from server.config import RunConfig
from server.evaluation import HeldOut, held_out, public_test

FEATURES = HashingFeatures(dimension=65)


def test_public_file(crowd_test):
    examples = public_test(RunConfig(test=crowd_test), FEATURES)
    assert examples.counts_U.tolist() == [4] * 10
    theta_D = np.random.default_rng(0).normal(size=65).astype(np.float32)
    found = held_out(theta_D, examples, strategy=None, grid=None)
    expected = RewardModel(theta_D, FEATURES).accuracy(load_judgements(crowd_test))
    assert found == HeldOut(expected.pooled, expected.by_user, 10, 0.5)
    assert 0.0 < found.accuracy < 1.0


def test_no_public_file():
    assert public_test(RunConfig(), FEATURES) is None


def test_a_test_file_is_read_like_the_training_file(write_rows, make_rows):
    renamed = [
        {("who" if key == "user_id" else key): value for key, value in row.items()}
        for row in make_rows([3])
    ]
    path = write_rows([*renamed, {"who": "x"}])
    settings = {"test": path, "columns": "user_id=who"}
    with pytest.raises(InputError, match=r"judgements\.jsonl:4"):
        public_test(RunConfig(**settings), FEATURES)
    assert len(public_test(RunConfig(**settings, on_bad_rows="skip"), FEATURES).y_R) == 3


def test_a_test_file_of_ties_alone_is_refused(write_rows, make_rows):
    path = write_rows(make_rows([3], ties=True))
    with pytest.raises(InputError, match=r"--test .* every judgement is a tie"):
        public_test(RunConfig(test=path), FEATURES)


def test_nodes_are_asked_once_for_the_final_model():
    asked = []

    def evaluate(grid, theta_D):
        asked.append((grid, theta_D))
        found = {"heldout_accuracy": 0.7, "heldout_accuracy_by_user": 0.6, "heldout_users": 12}
        return {**found, "heldout_chance": 0.5}

    strategy = SimpleNamespace(evaluate=evaluate)
    assert held_out("theta", None, strategy, "grid") == HeldOut(0.7, 0.6, 12, 0.5)
    assert asked == [("grid", "theta")]
    assert held_out("theta", None, SimpleNamespace(evaluate=lambda *_: None), "grid") is None
