"""Randomized labels from settings to a finished run: level, ledger, nodes, resuming."""

import json
from pathlib import Path

import numpy as np
import pytest

from murmuration.client.app import app as client_app
from murmuration.preference.data.judgements import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.events import RandomizedLabels
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.reporting.report import page
from murmuration.server.run import run_training
from murmuration.server.run_directory import RunDirectory
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import RunAborted

pytestmark = pytest.mark.usefixtures("quick_runs")

IMAGES = {"accuracy": (b"", b""), "noise": (b"", b"")}


@pytest.fixture
def config(tmp_path, crowd):
    """Settings of a small run on 50 users."""
    return RunConfig(
        data=crowd,
        test=crowd,
        strategy="local-label",
        adjacency="replace-labels",
        epsilon=4.0,
        delta=1e-3,
        seed=3,
        out=str(tmp_path / "run"),
    )


def run(config, nodes=1):
    return run_training(config, LocalGrid(client_app, nodes, config.to_run_config()))


def charges(result):
    return [charge.event for charge in read_charges(Path(result["out"]) / "ledger.jsonl")]


def weights(result):
    return RewardModel.load(Path(result["out"]) / "model").theta_D


def test_user_level(config):
    result = run(config)
    assert result["privacy_level"] == "user"
    assert 3.99 < result["epsilon"] <= 4.0
    assert charges(result) == [RandomizedLabels(4.0)]
    assert result["rounds"] == 1
    assert "User-level local (4, 0)" in result["guarantee"]
    assert "single judgements" not in " ".join(result["warnings"])
    report = " ".join(page(result, IMAGES).split())
    assert "<h1>User-level DP: ε = 4.00" in report
    assert "The server sees no true label" in report
    assert "it sees sums before noise" not in report


def test_item_level_is_never_taken_for_a_users(config):
    result = run(config.changed(level="item", epsilon=0.5))
    assert result["privacy_level"] == "item"
    assert result["epsilon"] == 0.5
    most = result["group_size"]
    assert most > 1
    assert charges(result) == [RandomizedLabels(0.5, labels=most)]
    assert f"the most of one user here is {most}" in result["warnings"][0]
    report = page(result, IMAGES)
    assert (
        "<h1>Label-level DP: ε = 0.500 (simulation, seed known), δ = 0.001, for single judgements, "
        "not for whole users</h1>" in report
    )
    assert "in the labels of one user" not in " ".join(report.split())
    assert "not for whole users" in " ".join(
        (Path(result["out"]) / "model" / "README.md").read_text().split()
    )
    (line,) = (Path(result["out"]) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["epsilon"] == 0.5


@pytest.mark.parametrize("estimator", ["debiased", "mle", "sgd", "square"])
@pytest.mark.parametrize("level", ["user", "item"])
def test_users_on_nodes_change_nothing(config, tmp_path, estimator, level):
    found = [
        weights(
            run(config.changed(estimator=estimator, level=level, out=str(tmp_path / n)), int(n))
        )
        for n in ("1", "7", "50")
    ]
    assert np.abs(found[0]).max() > 0
    assert np.allclose(found[1], found[0], atol=1e-6)
    assert np.allclose(found[2], found[0], atol=1e-6)


@pytest.mark.parametrize("label_delta", [0.0, 1e-3])
def test_an_epsilon_between_the_accountants_steps_is_kept(config, label_delta):
    result = run(config.changed(epsilon=1 / 3, label_delta=label_delta))
    assert result["rounds"] == 1
    assert 0.33 < result["epsilon"] <= 1 / 3


def test_another_seed_is_other_labels(config, tmp_path):
    one = weights(run(config))
    other = weights(run(config.changed(seed=4, out=str(tmp_path / "other"))))
    assert not np.allclose(one, other, atol=1e-3)


def test_a_run_that_died_after_the_labels_were_told_goes_on(config, monkeypatch):
    whole = run(config.changed(out=config.out + "-whole"))

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(RunDirectory, "save_checkpoint", dies)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    result = run(config.changed(resume=True))
    assert np.array_equal(weights(result), weights(whole))
    assert len(charges(result)) == 1


def test_a_run_that_died_without_a_seed_gets_the_same_labels(config, monkeypatch):
    config = config.changed(seed=-1)
    asked = []

    def dies(_, round_, state):
        asked.append(state["theta"])
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(RunDirectory, "save_checkpoint", dies)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    result = run(config.changed(resume=True))
    assert np.array_equal(weights(result), asked[0].astype(np.float32))
    assert len(charges(result)) == 1


def test_a_cap_is_told_to_everybody(config):
    result = run(config.changed(label_cap=2))
    assert result["group_size"] == 2
    assert "at most 2 labels" in result["account"]


def test_labels_told_with_a_delta(config):
    result = run(config.changed(label_delta=1e-4))
    assert charges(result) == [RandomizedLabels(4.0, 1e-4)]
    assert 3.9 < result["epsilon"] <= 4.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"estimator": "best"}, "--estimator"),
        ({"level": "house"}, "--level must be user or item"),
        ({"label_delta": 0.1}, "part of"),
        ({"level": "item", "label_delta": 1e-4}, "--label-delta"),
        ({"adjacency": "replace"}, "use --adjacency replace-labels"),
        ({"rounds": 5}, "--rounds"),
        ({"label_weights": "many"}, "--label-weights"),
        ({"sgd_steps": "long"}, "--sgd-steps"),
        ({"estimator": "sgd", "model": "thurstone"}, "use debiased"),
        ({"strategy": "uls", "estimator": "mle"}, "--estimator is for --strategy local-label"),
        ({"strategy": "uls", "level": "item"}, "--level is for --strategy local-label"),
    ],
)
def test_what_cannot_be_is_refused(config, changes, words):
    with pytest.raises(InputError, match=words):
        run(config.changed(**{"rounds": 0, **changes}))


@pytest.fixture
def told(crowd, write_rows):
    """The crowd's judgements with labels randomized at item level ε = 2."""
    lines = [json.loads(line) for line in Path(crowd).read_text(encoding="utf-8").splitlines()]
    flip = RandomizedResponse(2.0).flip_probability
    return write_rows([row | {"flip_probability": flip} for row in lines])


def test_labels_that_come_randomized_are_trained_on(config, told):
    result = run(config.changed(data=told, labels="randomized", level="item", epsilon=2.0), nodes=3)
    assert np.abs(weights(result)).max() > 0
    assert "BIASED" not in " ".join(result["warnings"])
    assert "NOT THE TRUE ONE" not in " ".join(result["warnings"])  # with a test of true labels


def test_accuracy_on_randomized_labels_is_not_sold_as_the_true_one(config, told):
    warning = "THE HELD-OUT ACCURACY IS NOT THE TRUE ONE"
    asked = config.changed(data=told, labels="randomized", test="", level="item", epsilon=2.0)
    result = run(asked.changed(exact_heldout=True))
    assert result["heldout_accuracy"] is not None
    assert any(warning in text for text in result["warnings"])
    clean = run(config.changed(out=config.out + "-clean", test=""))
    assert warning not in " ".join(clean["warnings"])


def test_labels_that_come_randomized_are_not_sold_for_more(config, told):
    with pytest.raises(RunAborted, match="less protection than is asked for"):
        run(config.changed(data=told, labels="randomized", epsilon=2.0))


@pytest.mark.parametrize("strategy", ["nonprivate", "uls"])
def test_strategies_that_know_nothing_of_coins_warn(config, told, strategy):
    changes = {"rounds": 2, "cohort": 5, "strategy": strategy}
    result = run(config.changed(data=told, labels="randomized", **changes))
    assert any("THE MODEL IS BIASED" in text for text in result["warnings"])
    clean = run(config.changed(out=config.out + "-clean", **changes))
    assert "BIASED" not in " ".join(clean["warnings"])


def test_other_models(config, tmp_path):
    result = run(config.changed(model="thurstone", estimator="mle"))
    assert result["heldout_accuracy"] is not None
