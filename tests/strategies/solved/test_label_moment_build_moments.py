"""Strategies that solve for the model, from settings to a run and back from a crash."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from murmuration.client.app import app as client_app
from murmuration.preference.data.judgements import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server import training
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")

BASE = {"epsilon": 3.0, "delta": 1e-3, "adjacency": "replace-labels", "seed": 3}


@pytest.fixture
def run(tmp_path, crowd, crowd_test):
    """A function: a small run on 50 users, with a public test; its result and weights."""

    def make(nodes=1, resume_in=None, **changes):
        out = resume_in or str(tmp_path / f"run-{len(list(tmp_path.iterdir()))}")
        config = RunConfig.from_run_config(
            {"data": crowd, "test": crowd_test, "out": out, **BASE, **changes}
        )
        config = replace(config, resume=resume_in is not None)
        result = run_training(config, LocalGrid(client_app, nodes, config.to_run_config()))
        return result, RewardModel.load(Path(config.out) / "model").theta_D

    return make


@pytest.mark.parametrize(
    ("strategy", "rounds"),
    [("label-moment", 1), ("label-moment", 2), ("objective-perturbation", 1)],
)
def test_a_run(run, strategy, rounds):
    result, theta_D = run(strategy=strategy, rounds=rounds)
    assert (result["rounds"], result["rounds_planned"], result["cohort"]) == (rounds, rounds, 50)
    assert 2.99 < result["epsilon"] <= 3.0
    spent = [c.event for c in read_charges(Path(result["out"]) / "ledger.jsonl")]
    assert spent == [PoissonGaussian(1.0, result["noise_multiplier"])] * rounds
    assert np.abs(theta_D).max() > 0
    # Communication and computation, beside those of strategies with many rounds.
    assert result["gradients"] == 50 * rounds
    assert result["bytes_per_user"] > rounds * 8 * result["dimension"]
    assert result["bytes_per_user"] < 0.05 * 200 * 8 * result["dimension"]
    assert result["learning_rate"] is None
    assert result["heldout_accuracy"] is not None
    assert "public" in result["account"]
    metrics = (Path(result["out"]) / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in metrics] == list(range(1, rounds + 1))
    assert json.loads(metrics[-1])["noise_norm"] > 0
    assert json.loads(metrics[-1])["epsilon"] == pytest.approx(result["epsilon"], rel=0.01)


@pytest.mark.parametrize("strategy", ["label-moment", "objective-perturbation"])
def test_users_per_node_change_nothing(run, strategy):
    (_, one_D), (_, other_D) = run(strategy=strategy), run(nodes=7, strategy=strategy)
    np.testing.assert_allclose(one_D, other_D, atol=1e-6)


def test_a_crash_between_the_rounds_changes_nothing(run, monkeypatch, tmp_path):
    result, whole_D = run(strategy="label-moment", rounds=2)

    class Crash(Exception):
        pass

    add = training.RunDirectory.add_metrics

    def crashing(self, line):
        add(self, line)
        if line["round"] == 1:
            self.save_checkpoint(1, seen[0].state())
        if line["round"] == 2:
            raise Crash

    seen, make = [], training.build

    def watched(setting, ledger):
        built = make(setting, ledger)
        seen.append(built.strategy)
        return built

    out = str(tmp_path / "crashed")
    with monkeypatch.context() as patch:
        patch.setattr(training, "build", watched)
        patch.setattr(training.RunDirectory, "add_metrics", crashing)
        with pytest.raises(Crash):
            run(strategy="label-moment", rounds=2, out=out)
    again, resumed_D = run(strategy="label-moment", rounds=2, resume_in=out)
    assert resumed_D.tolist() == whole_D.tolist()
    assert again["epsilon"] == result["epsilon"]


def test_held_out_users_give_no_items(run, crowd):
    """Without a test file some users are held out, and are neither asked nor solved with."""
    result, _ = run(strategy="label-moment", test="")
    assert result["users"] == result["cohort"] < 50
    assert result["heldout_users"] == 50 - result["users"]


def test_options_reach_the_solver(run):
    _, theta_D = run(strategy="label-moment", max_norm=0.05)
    assert np.linalg.norm(theta_D) <= 0.0501
    _, theta_D = run(strategy="objective-perturbation", ridge=1e6)
    assert np.linalg.norm(theta_D) < 1e-3
    result, _ = run(strategy="label-moment", clip_norm=0.3)
    assert result["clip_norm"] == 0.3
    result, _ = run(strategy="objective-perturbation", calibration="paper")
    assert result["epsilon"] < 2.9
    result, _ = run(strategy="objective-perturbation", clip_norm=0.5)
    assert result["clip_norm"] == 0.25


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "thurstone"}, "--model thurstone"),
        ({"adjacency": "add-remove"}, "use --adjacency replace-labels"),
        ({"adjacency": "replace"}, "use --adjacency replace-labels"),
        ({"rounds": 3}, "in 1 or 2 rounds, not 3"),
        ({"learning_rate": 1.0}, "--learning-rate has no meaning"),
        ({"group_size": 4}, "--group-size has no meaning"),
        ({"optimizer": "adam"}, "--optimizer has no meaning"),
        ({"retain": 4}, "--retain is for"),
        ({"calibration": "paper"}, "--calibration is for"),
        ({"strategy": "objective-perturbation", "rounds": 2}, "not 2"),
        ({"strategy": "uls", "ridge": 1.0}, "--ridge is for"),
        ({"strategy": "uls", "max_norm": 1.0}, "--max-norm is for"),
    ],
)
def test_refusals_name_the_option(run, changes, message):
    with pytest.raises(InputError, match=message):
        run(**{"strategy": "label-moment", **changes})


@pytest.mark.parametrize("strategy", ["label-moment", "objective-perturbation"])
def test_randomized_labels_are_refused_before_anything_is_released(run, tmp_path, strategy):
    rows = [
        {"user_id": f"u{n % 9}", "prompt": "p", "chosen": f"c {n}", "rejected": f"r {n}"}
        | {"flip_probability": 0.2}
        for n in range(36)
    ]
    told = tmp_path / "told.jsonl"
    told.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "refused"
    with pytest.raises(InputError, match=f"{strategy} takes true labels.*local-label"):
        run(strategy=strategy, rounds=1, data=str(told), labels="randomized", out=str(out))
    assert not (out / "ledger.jsonl").exists()
