"""Whole runs from a start: what is learnt, owed, sent, resumed and told."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_runs import private_log, run, theta

from murmuration import RewardModel
from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.linear.examples import pair_examples
from murmuration.server.record.lineage import promise_of_run
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import registry

pytestmark = [
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.settings(
        features="hashing:65", test="crowd_test", rounds=3, cohort=10, users=40, epsilon=2.0
    ),
]


@pytest.fixture
def start(tmp_path):
    """The folder of a public reward on the same features."""
    theta_D = np.random.default_rng(4).normal(size=65).astype(np.float32)
    RewardModel(theta_D, HashingFeatures(65)).save(tmp_path / "public-reward")
    return str(tmp_path / "public-reward")


def saved(config):
    return RewardModel.load(Path(config.out) / "model")


def declared(config, start, **more):
    return replace(config, start=start, base_privacy="public", **more)


# What is learnt


def test_the_saved_model_is_the_start_where_steps_lead_nowhere(config, start):
    still = declared(config, start, learning_rate=1e-12)
    run(still)
    assert saved(still).features.to_config() == HashingFeatures(65).to_config()
    np.testing.assert_allclose(saved(still).theta_D, RewardModel.load(start).theta_D, atol=1e-5)


@pytest.mark.settings(
    strategy="nonprivate", rounds=1, optimizer="sgd", cohort=40, test="crowd_test"
)
def test_one_step_from_a_start_is_that_start_and_the_gradient_there(config, start, crowd):
    config = declared(config, start, learning_rate=0.5, momentum=0.0, group_size=100)
    run(config)
    examples = pair_examples(load_judgements(crowd), HashingFeatures(65))
    start_D = RewardModel.load(start).theta_D
    (line,) = [line for line in private_log(config) if "cohort" in line]
    moved_D = saved(config).theta_D - start_D
    # The direction is that of the loss at the start; by how much depends on who was drawn.
    assert np.linalg.norm(moved_D) > 1e-3 and line["cohort"] > 0
    before, after = (
        float(np.mean(examples.accuracy(theta_D).share_U))
        for theta_D in (start_D, start_D + moved_D)
    )
    assert after >= before


@pytest.mark.settings(strategy="label-moment", adjacency="replace-labels", rounds=1, cohort=0)
def test_label_moments_are_taken_at_the_start_and_the_ridge_is_about_it(config, start):
    strong = replace(config.changed(ridge=1e9), base_privacy="public", start=start)
    run(strong)
    np.testing.assert_allclose(saved(strong).theta_D, RewardModel.load(start).theta_D, atol=1e-3)
    plain = replace(config.changed(ridge=1e9), out=config.out + "-plain")
    run(plain)
    np.testing.assert_allclose(saved(plain).theta_D, 0.0, atol=1e-3)


STEPPED = sorted(
    name
    for name, strategy in registry.strategies().items()
    if not (strategy.rounds or strategy.features or name == "aup-corrected")
)


@pytest.mark.parametrize("strategy", STEPPED)
def test_every_strategy_that_steps_begins_there(config, start, strategy):
    own = {"group_size": 4} if strategy in ("els", "group") else {}
    config = config.changed(strategy=strategy, rounds=1, learning_rate=1e-12, **own)
    config = declared(config, start)
    run(config)
    np.testing.assert_allclose(saved(config).theta_D, RewardModel.load(start).theta_D, atol=1e-5)


# What it promises


def test_a_start_that_was_trained_on_users_adds_its_promise(config):
    first = replace(config, out=config.out + "-first")
    result = run(first)
    later = replace(config, start=first.out + "/model", seed=9)
    both = run(later)
    assert both["promise"]["runs"][0]["epsilon"] == pytest.approx(result["epsilon"])
    assert len(both["promise"]["runs"]) == 2
    (row,) = both["promise"]["composed"]
    assert row["epsilon"] > max(result["epsilon"], both["epsilon"])
    assert len(promise_of_run(Path(later.out)).runs) == 2
    held = sorted(file.name for file in (Path(later.out) / "model").glob("ledger-*"))
    assert held[:1] == ["ledger-1.jsonl"] and len(held) == 4
    card = (Path(later.out) / "model" / "README.md").read_text()
    assert f"{row['epsilon']:.0f}" in card
    # And so to whatever begins there.
    third = replace(config, start=later.out + "/model", out=config.out + "-third", seed=10)
    assert len(run(third)["promise"]["runs"]) == 3


@pytest.mark.parametrize("features", ["hashing:65", "hashing:17"])
def test_whose_cost_is_not_known_is_refused_before_anything_is_charged(config, start, features):
    config = replace(config, start=start, features=features)
    with pytest.raises(InputError, match=r"--start .*--base-privacy"):
        run(config)
    assert not Path(config.out).exists()
    assert run(replace(config, base_privacy="public"))["promise"]["caveats"]


def test_that_it_is_public_takes_back_nothing_that_its_folder_states(config):
    first = replace(config, out=config.out + "-first")
    run(first)
    later = declared(config, first.out + "/model", seed=9)
    assert len(run(later)["promise"]["runs"]) == 2


def test_a_start_without_a_promise_to_its_users_is_refused(config):
    first = replace(config.changed(strategy="nonprivate"), out=config.out + "-first")
    run(first)
    with pytest.raises(InputError, match="promised its users nothing"):
        run(replace(config, start=first.out + "/model"))


def test_a_start_whose_ledger_is_gone_or_of_another_run_is_refused(config):
    first = replace(config, out=config.out + "-first")
    run(first)
    ledger = Path(first.out) / "ledger.jsonl"
    whole = ledger.read_bytes()
    for damage in (b"", whole[: len(whole) // 2]):
        ledger.write_bytes(damage)
        with pytest.raises(InputError, match="--start"):
            run(replace(config, start=first.out + "/model", seed=9))


# Nodes, resumed runs, and what is told


def test_several_nodes_give_what_one_gives(config, start):
    for name, more in {
        "same": {"start": start},
        "scorer": {"start": start, "features": "hashing:17"},
        "length": {"start": "length"},
    }.items():
        made = []
        for nodes in (1, 4):
            here = replace(config, base_privacy="", out=f"{config.out}-{name}-{nodes}", **more)
            here = here if more["start"] == "length" else replace(here, base_privacy="public")
            run(here, nodes)
            made.append(saved(here).theta_D)
        np.testing.assert_array_equal(*made)


class Noting(LocalGrid):
    """Notes the features of each request."""

    def __init__(self, config):
        super().__init__(client_app, 1, config.to_run_config())
        self.features, self.held = set(), []

    def _answer(self, message):
        for record in message.content.config_records.values():
            self.features |= {str(record["features"])} if "features" in record else set()
            self.held += [repr(value) for value in record.values()]
        return super()._answer(message)


def test_nodes_are_sent_weights_and_no_place_of_the_server(config, start):
    config = declared(config, start, features="hashing:17")
    grid = Noting(config)
    run_training(config, grid)
    (features,) = grid.features
    assert "scorer" in json.loads(features)
    assert str(Path(start).parent) not in "".join(grid.held)


@pytest.mark.parametrize("features", ["hashing:65", "hashing:17"])
def test_a_resumed_run_goes_on_from_the_same_start_alone(
    config, start, broken_off, features, tmp_path
):
    config = declared(config, start, features=features)
    whole = replace(config, out=config.out + "-whole")
    run(whole)
    broken_off(config, after=1)
    kept = tmp_path / "kept"
    shutil.copytree(start, kept)
    shutil.rmtree(start)
    RewardModel(np.ones(65, dtype=np.float32), HashingFeatures(65)).save(start)
    with pytest.raises(InputError, match="--resume: what --start names"):
        run(replace(config, resume=True))
    shutil.rmtree(start)
    shutil.copytree(kept, start)
    run(replace(config, resume=True))
    np.testing.assert_array_equal(theta(config), theta(whole))


def test_other_settings_of_the_start_are_refused_at_resuming(config, broken_off):
    config = replace(config, start="length")
    broken_off(config, after=1)
    with pytest.raises(InputError, match="--resume with other settings"):
        run(replace(config, resume=True, start=""))


def test_the_start_stands_beside_the_model_on_the_same_users(config, start, crowd_test):
    config = declared(config, start)
    result = run(config)
    beside = result["baselines"]["start"]
    test = pair_examples(load_judgements(crowd_test), HashingFeatures(65))
    alone, model = (
        test.accuracy(theta_D)
        for theta_D in (RewardModel.load(start).theta_D, saved(config).theta_D)
    )
    assert beside["by_user"] == pytest.approx(alone.by_user)
    assert beside["gain"] == pytest.approx(model.by_user - alone.by_user)
    assert beside["error"] > 0
    still = declared(config, start, learning_rate=1e-12, out=config.out + "-still")
    assert any("ITS START" in line for line in run(still)["warnings"])


@pytest.mark.settings(test="", heldout=0.2)
def test_of_held_out_users_no_second_figure_is_released(config, start):
    config = declared(config, start)
    plain = replace(config, start="", base_privacy="", out=config.out + "-plain")
    result, without = run(config), run(plain)
    assert result["baselines"] is None
    assert any("start is not known" in line for line in result["warnings"])
    released = [
        sorted(json.loads((Path(of.out) / "released.json").read_text())) for of in (config, plain)
    ]
    assert released[0] == released[1]
    assert result["epsilon"] == without["epsilon"]


def test_weights_of_a_start_show_in_no_result(config, start):
    result = run(declared(config, start, features="hashing:17"))
    assert result["features"]["scorer"].keys() == {"features"}
