"""Small seeded runs of every strategy give the weights, ledger and metrics that they always gave.

What they gave is in golden_runs.json; after a change that is meant to change it,

    MURMURATION_WRITE_GOLDEN=1 python -m pytest tests/sims/test_golden_runs.py

writes it anew. Weights are compared to five digits, by projections on fixed directions: on one
machine runs are equal bit for bit; machines, and numbers of threads, round differently.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from murmuration.preference.reward import RewardModel
from murmuration.server import training
from murmuration.server.config import RunConfig
from murmuration.sims.runtimes.execute import execute
from murmuration.sims.runtimes.runtime import Runtime
from murmuration.strategies import registry

GOLDEN = Path(__file__).with_name("golden_runs.json")
STEPS = {"rounds": 6, "cohort": 20}
LABELS = {"adjacency": "replace-labels"}
CASES = {
    "uls": STEPS,
    "uls normalized": {**STEPS, "normalized": True, "retain": 8, "adjacency": "replace"},
    "uls masked": {**STEPS, "secure_aggregation": True, "adjacency": "zero-out"},
    "dp-fedavg": STEPS,
    "els": {**STEPS, "group_size": 4},
    "els that chooses its group size": STEPS,
    "group": {**STEPS, "group_size": 2},
    "adaptive": STEPS,
    "aup": STEPS,
    "aup above-threshold": {**STEPS, "adaptation": "above-threshold"},
    "aup corrected": {**STEPS, "variant": "corrected", "cohort": 45},
    "aup published": {**STEPS, "variant": "published"},
    "label-moment": LABELS,
    "objective-perturbation": LABELS,
    "local-label": LABELS,
    "nonprivate": STEPS,
}


def told(folder: Path) -> dict[str, object]:
    """What a run gave: weights by projections, events of its ledger, figures, metrics."""
    theta_D = RewardModel.load(folder / "model").theta_D.astype(np.float64)
    directions_KD = np.random.default_rng(0).standard_normal((6, len(theta_D)))
    lines = (folder / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    ledger = [json.loads(line) for line in lines]
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    metrics = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    figures = ("epsilon", "noise_multiplier", "clip_norm", "group_size", "heldout_accuracy")
    return {
        "weights": (directions_KD @ theta_D).tolist(),
        "events": [line["event"] for line in ledger if "event" in line],
        "figures": {name: result[name] for name in figures},
        "metrics": [json.loads(line) for line in metrics],
    }


def same(found: object, expected: object, where: str) -> None:
    """Equal, numbers to five digits."""
    if isinstance(expected, float | int) and not isinstance(expected, bool):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-7), where
    elif isinstance(expected, dict):
        assert isinstance(found, dict) and list(found) == list(expected), where
        for name, value in expected.items():
            same(found[name], value, f"{where}, {name}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), where
        for place, value in enumerate(expected):
            same(found[place], value, f"{where}, {place}")
    else:
        assert found == expected, where


#: One of each strategy is for every day.
_DAILY = {strategy.name for strategy in registry.OURS}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c in _DAILY else pytest.mark.slow) for c in CASES]
)
def test_a_run_gives_what_it_always_gave(case, crowd, crowd_test, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "write_report", lambda *_: None)  # plots take longer than runs
    config = RunConfig(
        strategy=case.split()[0],
        data=crowd,
        test=crowd_test,
        epsilon=8.0,
        delta=1e-3,
        seed=3,
        out=str(tmp_path / "run"),
        **CASES[case],
    )
    execute(
        config, runtime=Runtime.LOCAL, users_per_node=10 if "masked" in case else None, quiet=True
    )
    found = json.loads(json.dumps(told(tmp_path / "run")))
    golden = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    if os.environ.get("MURMURATION_WRITE_GOLDEN"):
        golden[case] = found
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    same(found, golden[case], case)


def test_every_strategy_is_here():
    # One trains nothing, and chooses among networks that another transformers draws otherwise.
    trained = {strategy.name for strategy in registry.OURS} - {"exponential"}
    assert {case.split()[0] for case in CASES} == trained
    assert set(json.loads(GOLDEN.read_text(encoding="utf-8"))) == set(CASES)
