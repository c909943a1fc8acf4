"""One ServerApp and ClientApp, every runtime: the same seed gives the same weights."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from preference.reward import RewardModel
from server.config import RunConfig
from sims.population import Population, write
from sims.run_command import Runtime, execute

SMALL = RunConfig(rounds=6, cohort=30, epsilon=8.0, delta=1e-3, seed=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("population")
    write(folder, Population(users=100, test_users=10, unseen_users=10))
    return str(folder / "train.jsonl.gz")


def weights(config: RunConfig, out: Path, **how: object) -> np.ndarray:
    execute(replace(config, out=str(out)), **how)  # type: ignore[arg-type]
    return RewardModel.load(out / "model").theta_D


@pytest.mark.flower
@pytest.mark.parametrize(
    "strategy",
    ["uls", *[pytest.param(name, marks=pytest.mark.slow) for name in ("els", "aup")]],
)
def test_flower_and_local_agree(data: str, strategy: str, tmp_path: Path) -> None:
    config = replace(SMALL, data=data, strategy=strategy)
    local_D = weights(config, tmp_path / "local")
    flower_D = weights(config, tmp_path / "flower", runtime=Runtime.FLOWER, users_per_node=50)
    assert np.abs(local_D).max() > 0
    np.testing.assert_allclose(flower_D, local_D, atol=1e-6, rtol=0)
    assert (tmp_path / "flower" / "private" / "flower.log").exists()


def test_a_different_seed_gives_different_weights(data: str, tmp_path: Path) -> None:
    config = replace(SMALL, data=data)
    first_D = weights(config, tmp_path / "first")
    other_D = weights(replace(config, seed=6), tmp_path / "other")
    assert np.abs(first_D - other_D).max() > 1e-3
