"""Whole runs under masks and with discrete noise: every runtime, and what the report says."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_runs import FLOWER, run_in

from murmuration.api.config import make_config as settings
from murmuration.preference.data.errors import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.sims.population.population import Population, write
from murmuration.sims.runtimes.execute import execute
from murmuration.strategies.config import RunConfig

SMALL = RunConfig(rounds=4, cohort=30, epsilon=1.0, delta=1e-3, seed=5, adjacency="zero-out")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("population")
    write(folder, Population(users=100, test_users=10, unseen_users=10))
    return str(folder / "train.jsonl.gz")


def run(config: RunConfig, out: Path, **how: object) -> tuple[dict, np.ndarray]:
    result = execute(replace(config, out=str(out)), quiet=True, **how)  # type: ignore[arg-type]
    return result, RewardModel.load(out / "model").theta_D


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"strategy": "adaptive"},
        {"sampling": "banded"},
        {"sampling": "blt", "users": 80, "cohort": 40},
    ],
    ids=["uls", "adaptive", "banded", "blt"],
)
def test_masks_change_nothing_but_rounding(
    data: str, own: dict[str, str | int], tmp_path: Path
) -> None:
    config = SMALL.changed(data=data, **own)
    _, plain_D = run(config, tmp_path / "plain")
    result, masked_D = run(replace(config, secure_aggregation=True), tmp_path / "masked")
    assert np.abs(plain_D).max() > 0.01
    np.testing.assert_allclose(masked_D, plain_D, atol=1e-6, rtol=0)
    assert result["secure_aggregation"]
    assert json.loads((tmp_path / "masked" / "private" / "nodes.json").read_text())["nodes"] == 5
    report = (tmp_path / "masked" / "report.html").read_text()
    assert "no node&#x27;s own" in report or "no node's own" in report
    assert "it sees sums before noise is added. So are" not in report


@pytest.mark.flower
@pytest.mark.slow
def test_flower_and_local_agree_under_masks(data: str, tmp_path: Path) -> None:
    config = replace(SMALL, data=data, secure_aggregation=True)
    _, local_D = run(config, tmp_path / "local", users_per_node=20)
    run_in(FLOWER, replace(config, out=str(tmp_path / "flower")), users_per_node=20)
    flower_D = RewardModel.load(tmp_path / "flower" / "model").theta_D
    np.testing.assert_array_equal(flower_D, local_D)
    log = (tmp_path / "flower" / "private").glob("log*")
    assert not any("left out" in path.read_text() for path in log)


def test_too_few_nodes_are_refused_before_anything_is_released(data: str, tmp_path: Path) -> None:
    config = replace(SMALL, data=data, secure_aggregation=True)
    with pytest.raises(InputError, match="needs 3 nodes in a round"):
        run(config, tmp_path / "run", users_per_node=60)
    assert not (tmp_path / "run").exists()


def test_without_a_seed_noise_is_discrete_and_charged_as_such(data: str, tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    result, _ = run(replace(SMALL, data=data, seed=-1, rounds=2), tmp_path / "run")
    assert result["noise"] == "discrete"
    assert result["epsilon"] <= 1.0
    assert not [text for text in result["warnings"] if "floating point" in text]
    events = [charge.event for charge in read_charges(tmp_path / "run" / "ledger.jsonl")]
    assert [type(event) for event in events] == [
        HoldOut,
        DiscretizedGaussian,
        DiscretizedGaussian,
        HoldOut,
    ]
    for event in events[1:-1]:
        assert isinstance(event, DiscretizedGaussian)
        assert event.dimension == result["dimension"]
    assert "discrete Gaussian" in (tmp_path / "run" / "report.html").read_text()


def test_floating_point_without_a_seed_is_said(data: str, tmp_path: Path) -> None:
    config = replace(SMALL, data=data, seed=-1, rounds=2, noise="gaussian")
    result, _ = run(config, tmp_path / "run")
    assert result["noise"] == "gaussian"
    assert [text for text in result["warnings"] if "--noise gaussian was asked for" in text]


def test_both_are_options(tmp_path: Path) -> None:
    given = {"noise": "gaussian", "secure_aggregation": True, "adjacency": "replace"}
    made = settings({**given, "out": str(tmp_path)})
    assert (made.noise, made.secure_aggregation) == ("gaussian", True)
    run_config = made.to_run_config()
    assert run_config["secure-aggregation"] is True
    assert RunConfig.from_run_config(run_config) == made
