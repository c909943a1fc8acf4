"""ELS and group privacy from settings to a finished run: the group size, its cost, resuming."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.client.app import app as client_app
from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import GroupGaussian, PureChoice
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.median import GRID
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import els, sums
from murmuration.strategies.config import RunConfig
from murmuration.strategies.els import MEDIAN_SHARE

#: Of who is held out at ε = 0.5: the coins, and what is told.
HELD_OUT = HoldOut(0.2), HoldOut(0.2, 0.25)

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.fixture
def config(tmp_path, crowd):
    """Settings of a small run on about 40 of 50 users."""
    return RunConfig(
        data=crowd,
        strategy="els",
        epsilon=0.5,
        delta=1e-3,
        rounds=4,
        cohort=2,
        users=40,
        seed=3,
        out=str(tmp_path / "run"),
    )


def run(config, nodes=1):
    return run_training(config, LocalGrid(client_app, nodes, config.to_run_config()))


def charges(result):
    return [charge.event for charge in read_charges(Path(result["out"]) / "ledger.jsonl")]


def test_the_median_is_released_once_and_paid_for(config):
    result = run(config)
    first, coins, *rounds, figures = charges(result)
    assert (coins, figures) == HELD_OUT
    assert first == PureChoice(MEDIAN_SHARE * 0.5)
    assert result["group_size"] in GRID
    probability = els.same_compute(2, 40, result["group_size"])
    event = MixtureGaussian(result["noise_multiplier"], result["group_size"], probability)
    assert rounds == [event] * 4
    assert result["epsilon"] <= 0.5
    # What is left for the rounds is what choosing the group size has not taken, and a little more:
    # nobody is in them who is held out.
    alone = accountant.epsilon([(event, 4)], adjacency=Adjacency.ADD_REMOVE, delta=1e-3)
    assert 0.475 < alone < 0.6
    assert result["epsilon"] > 0.999 * 0.5
    assert str(result["group_size"]) in result["account"]
    assert "choosing it cost" in result["account"]
    kept = json.loads((Path(result["out"]) / "released.json").read_text())
    assert kept.keys() == {"group-size", "held-out figures", "check"}
    assert kept["group-size"] == result["group_size"]


def test_a_given_group_size_costs_nothing(config):
    result = run(config.changed(group_size=3, sampling_probability=0.05))
    rounds = [MixtureGaussian(result["noise_multiplier"], 3, 0.05)] * 4
    assert charges(result) == [HELD_OUT[0], *rounds, HELD_OUT[1]]
    assert 0.4995 < result["epsilon"] <= 0.5
    assert "choosing it cost" not in result["account"]
    assert result["gradients"] == pytest.approx(4 * 0.05 * 3 * 40 / sums.DEFAULT_GROUP_SIZE)


@pytest.mark.parametrize("seed", [3, -1])
def test_a_resumed_run_keeps_its_group_size(config, seed, monkeypatch):
    config = replace(config, seed=seed)
    asked = els.Els.gradient

    def killed(self, round_, totals):
        if round_ == 3:
            raise KeyboardInterrupt
        return asked(self, round_, totals)

    monkeypatch.setattr(els.Els, "gradient", killed)
    with pytest.raises(KeyboardInterrupt):
        run(config)
    monkeypatch.setattr(els.Els, "gradient", asked)
    result = run(replace(config, resume=True))
    spent = charges(result)
    assert sum(isinstance(event, PureChoice) for event in spent) == 1
    assert len(set(spent) - {*HELD_OUT}) == 2
    assert (result["rounds"], result["stopped"]) == (4, None)


def test_the_group_size_is_learnt_under_masks_too(config):
    bare = replace(config, adjacency="zero-out")
    plain = run(bare, nodes=5)
    masked = run(replace(bare, secure_aggregation=True, out=config.out + "-masked"), nodes=5)
    assert masked["group_size"] == plain["group_size"]
    assert charges(masked)[0] == PureChoice(MEDIAN_SHARE * 0.5)


def test_too_few_nodes_for_masks_are_refused_before_the_group_size_is_paid_for(config):
    with pytest.raises(InputError, match="needs 3 nodes"):
        run(replace(config, adjacency="zero-out", secure_aggregation=True), nodes=2)
    assert not Path(config.out).exists()


def test_users_per_node_change_nothing(config):
    one = run(config)
    other = run(replace(config, out=config.out + "-7"), nodes=7)
    assert one["group_size"] == other["group_size"]
    assert one["heldout_accuracy"] == other["heldout_accuracy"]


def test_group_privacy(config):
    result = run(replace(config, strategy="group", group_size=2, adjacency="replace"))
    probability = els.same_compute(2, 40, 2)
    rounds = [GroupGaussian(result["noise_multiplier"], 2, probability)] * 4
    assert charges(result) == [HoldOut(0.2), *rounds, HoldOut(0.2, 0.5)]  # all of ε, for nothing
    assert 0.495 < result["epsilon"] <= 0.5
    assert "group privacy" in result["account"]


def test_group_privacy_that_diverges_is_one_line(config):
    with pytest.raises(InputError, match=r"cannot be certified for 4 releases: .* choose at least"):
        run(replace(config, strategy="group", group_size=400, epsilon=0.01, delta=1e-100))
    assert not Path(config.out).exists()


def test_sizes_are_checked_before_anything_is_asked(config):
    with pytest.raises(InputError, match="--cohort 90 is more than the 40 users"):
        run(replace(config, cohort=90, group_size=2))
    assert not Path(config.out).exists()
