"""One ServerApp and ClientApp, every runtime: the same seed gives the same weights."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_runs import FLOWER, run_in
from safetensors.numpy import load_file

from murmuration import rank
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.sims.population.population import Population, own_texts, write
from murmuration.sims.runtimes import Runtime
from murmuration.strategies.config import RunConfig

SMALL = RunConfig(rounds=6, cohort=30, epsilon=8.0, delta=1e-3, seed=5)


ELSEWHERE = pytest.mark.parametrize(
    "runtime", [pytest.param(FLOWER, marks=pytest.mark.flower), Runtime.RAY]
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("population")
    write(folder, Population(users=100, test_users=10, unseen_users=10))
    return str(folder / "train.jsonl.gz")


def weights(
    config: RunConfig, out: Path, runtime: str = Runtime.LOCAL, users_per_node: int = 50
) -> np.ndarray:
    run_in(runtime, replace(config, out=str(out)), users_per_node)
    return RewardModel.load(out / "model").theta_D


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["uls", "els", "aup"])
def test_flower_and_local_agree(data: str, strategy: str, tmp_path: Path) -> None:
    config = replace(SMALL, data=data, strategy=strategy)
    local_D = weights(config, tmp_path / "local")
    flower_D = weights(config, tmp_path / "flower", runtime=FLOWER)
    assert np.abs(local_D).max() > 0
    np.testing.assert_allclose(flower_D, local_D, atol=1e-6, rtol=0)


def charged_alike(config: RunConfig, runtime: str, folder: Path) -> list[str]:
    """Kinds of a run's charges. Weights and charges are the same as in one process."""
    weights_of, charges_of = [], []
    for where in (Runtime.LOCAL, runtime):
        weights_of.append(weights(config, folder / where, runtime=where))
        charges = read_charges(folder / where / "ledger.jsonl")
        charges_of.append([(c.event, c.round) for c in charges])
    np.testing.assert_array_equal(*weights_of)
    assert charges_of[0] == charges_of[1]
    return [event.kind for event, round_ in charges_of[0] if 1 <= round_ <= config.rounds]


@ELSEWHERE
@pytest.mark.slow
def test_turns_are_taken_alike_everywhere(data: str, tmp_path: Path, runtime: str) -> None:
    config = replace(SMALL, data=data)
    config = config.changed(sampling="blt", users=80, cohort=20)
    first, *later = charged_alike(config, runtime, tmp_path)
    assert first == "blt-gaussian" and set(later) == {"blt-later"}


@ELSEWHERE
@pytest.mark.slow
def test_everybody_is_in_each_round_everywhere(data: str, tmp_path: Path, runtime: str) -> None:
    config = replace(SMALL, data=data, adjacency="zero-out")
    charged_alike(config.changed(sampling="all", cohort=0), runtime, tmp_path)


@ELSEWHERE
@pytest.mark.slow
def test_a_start_is_the_same_everywhere(data: str, tmp_path: Path, runtime: str):
    config = replace(SMALL, data=data, rounds=3, start="length")
    charged_alike(config.changed(features="hashing:65"), runtime, tmp_path)


def test_a_different_seed_gives_different_weights(data: str, tmp_path: Path) -> None:
    config = replace(SMALL, data=data)
    first_D = weights(config, tmp_path / "first")
    other_D = weights(replace(config, seed=6), tmp_path / "other")
    assert np.abs(first_D - other_D).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "task"),
    [
        pytest.param(FLOWER, "reward", marks=pytest.mark.flower),
        pytest.param(FLOWER, "policy", marks=pytest.mark.flower),
        (Runtime.RAY, "text"),
        (Runtime.RAY, "policy"),
    ],
)
def test_language_models_are_trained_alike(data, language_model, tmp_path, runtime, task):
    source = data
    if task == "text":
        source = str(tmp_path / "texts.jsonl")
        rows = own_texts(Population(users=100), "train")
        Path(source).write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = language_model("gpt2", n_positions=256)
    config = replace(SMALL, rounds=3, data=source, base=base, lora_rank=2, group_size=4, task=task)
    found = []
    for where in (Runtime.LOCAL, runtime):
        out = tmp_path / where
        result = run_in(where, replace(config, out=str(out)), 50)
        theta_D = load_file(out / "checkpoint" / "state.safetensors")["theta"]
        found.append((theta_D, result["heldout_accuracy"]))
    assert np.abs(found[0][0]).max() > 0
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-4, rtol=0)
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-3)


@pytest.mark.slow
@ELSEWHERE
def test_a_policy_is_chosen_alike(choice_config, runtime):
    found = []
    for where in (Runtime.LOCAL, runtime):
        config = replace(choice_config, out=f"{choice_config.out}-{where}")
        result = run_in(where, config, 10)
        found.append((result["choice"], result["heldout_accuracy"]))
    assert found[0] == found[1]


@pytest.mark.slow
@ELSEWHERE
def test_a_survey_is_the_same(data: str, tmp_path: Path, runtime: str) -> None:
    released = []
    for where in (Runtime.LOCAL, runtime):
        config = RunConfig(
            strategy="survey", data=data, heldout=0.0, epsilon=8.0, delta=1e-3, seed=5
        )
        config = replace(config, out=str(tmp_path / where))
        result = run_in(where, config, 50)
        (charge,) = read_charges(Path(config.out) / "ledger.jsonl")
        released.append((result["outcome"]["survey"], charge.event))
    assert released[0] == released[1]


#: Ways to make a board of items, as options of ``rank``.
BOARDS = {
    "ranking": {"delta": 1e-3},
    "ranking by category": {"delta": 1e-3, "categories": ["x", "y"], "by": "prompt"},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("board", BOARDS)
def test_a_board_is_the_same_on_ray(tmp_path: Path, board: str) -> None:
    """Bit for bit, with the same noise, so from the same sums."""
    names = ["a", "b", "c"]
    votes = [
        {"user_id": f"v{n}", "prompt": "xy"[n % 2], "chosen": names[n % 2], "rejected": "c"}
        for n in range(90)
    ]
    released = []
    for where in Runtime:
        options = {"epsilon": 4.0, "seed": 5, "out": tmp_path / where}
        how = {"runtime": where, "users_per_node": 20}
        ranking = rank(votes, names, **options, **BOARDS[board], **how)
        charges = read_charges(tmp_path / where / "ledger.jsonl")
        released.append((ranking.release.to_json(), [charge.event for charge in charges]))
    assert released[0] == released[1]
