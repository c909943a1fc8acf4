"""Small seeded runs of every strategy give the weights, ledger and metrics that they always gave.

What they gave is in golden_runs.json; after a change that is meant to change it,

    MURMURATION_WRITE_GOLDEN=1 python -m pytest tests/sims/test_golden_runs.py

writes it anew. Weights are compared to five digits, by projections on fixed directions: on one
machine runs are equal bit for bit; machines, and numbers of threads, round differently. Of a choice
among policies, which has no weights of its own, what was chosen is compared, and what each loses.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from murmuration.preference.reward import RewardModel
from murmuration.reporting import run_end
from murmuration.research.strategies.choice.lineage import commit
from murmuration.sims.runtimes import Runtime
from murmuration.sims.runtimes.execute import execute
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig

GOLDEN = Path(__file__).with_name("golden_runs.json")
STEPS = {"rounds": 6, "cohort": 20}
LABELS = {"adjacency": "replace-labels"}
CASES = {
    "uls": STEPS,
    "uls replace": {**STEPS, "adjacency": "replace"},
    "uls masked": {**STEPS, "secure_aggregation": True, "adjacency": "zero-out"},
    "dp-fedavg": STEPS,
    "els": {**STEPS, "group_size": 4},
    "els that chooses its group size": STEPS,
    "group": {**STEPS, "group_size": 2},
    "adaptive": STEPS,
    "aup": STEPS,
    "aup above-threshold": {**STEPS, "variant": "above-threshold"},
    "aup-corrected": {**STEPS, "cohort": 45},
    "aup published": {**STEPS, "variant": "published"},
    "label-moment": LABELS,
    "objective-perturbation": LABELS,
    "local-label": LABELS,
    "nonprivate": STEPS,
    "exponential": {"task": "policy", "epsilon": 0.2, "r_max": 0.5},
}
#: How far policies are from their reference.
APART = (0.0, 0.05, 0.1, 0.2)


@pytest.fixture
def a_class(language_model, tmp_path):
    """A function: settings of a reference and a class of policies, whose weights are NumPy's draws:
    those of transformers may be others with another version."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def make():
        base, folders = language_model("gpt2"), []
        model, words = (
            AutoModelForCausalLM.from_pretrained(base),
            AutoTokenizer.from_pretrained(base),
        )
        draws = np.random.default_rng(0)
        start = {name: draws.standard_normal(p.shape) for name, p in drawn(model)}
        for apart in APART:
            with torch.no_grad():
                for name, p in drawn(model):
                    moved = start[name] + apart * draws.standard_normal(p.shape)
                    p.copy_(torch.from_numpy(0.3 * moved))
            folders.append(tmp_path / f"{apart}")
            model.save_pretrained(folders[-1])
            words.save_pretrained(folders[-1])
        file = tmp_path / "class.json"
        commit(file, [str(folder) for folder in folders], public=True)
        return {"base": str(folders[0]), "policies": str(file)}

    return make


def drawn(model):
    return sorted(model.named_parameters())


def told(folder: Path) -> dict[str, object]:
    """What a run gave: projected weights or a choice, events of its ledger, figures, metrics."""
    lines = (folder / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    ledger = [json.loads(line) for line in lines]
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    metrics = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    figures = ("epsilon", "noise_multiplier", "clip_norm", "group_size", "heldout_accuracy")
    return {
        **(chosen(result["choice"]) if result["choice"] else weights(folder)),
        "events": [line["event"] for line in ledger if "event" in line],
        "figures": {name: result[name] for name in figures},
        "metrics": [json.loads(line) for line in metrics],
    }


def weights(folder: Path) -> dict[str, object]:
    theta_D = RewardModel.load(folder / "model").theta_D.astype(np.float64)
    directions_KD = np.random.default_rng(0).standard_normal((6, len(theta_D)))
    return {"weights": (directions_KD @ theta_D).tolist()}


def chosen(choice: dict[str, object]) -> dict[str, object]:
    """But for where the policies lie, for digests of them, and for sentences."""
    places = ("class", "path", "digest", "says", "bound")
    return {"choice": {k: v for k, v in choice.items() if k not in places}}


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
def test_a_run_gives_what_it_always_gave(case, crowd, crowd_test, tmp_path, monkeypatch, a_class):
    monkeypatch.setattr(run_end, "write_report", lambda *_: None)  # plots take longer than runs
    given = {
        "strategy": case.split()[0],
        "data": crowd,
        "test": crowd_test,
        "epsilon": 8.0,
        "delta": 1e-3,
        "seed": 3,
        "out": str(tmp_path / "run"),
    }
    more = a_class() if case == "exponential" else {}
    config = RunConfig.from_run_config({**given, **CASES[case], **more})
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
    # Boards are of votes, not of this crowd, and a survey has no model: in
    # tests/strategies/solved are theirs.
    elsewhere = {"ranking", "survey"}
    ours = {strategy.name for strategy in registry.OURS} - elsewhere
    assert {case.split()[0] for case in CASES} == ours
    assert set(json.loads(GOLDEN.read_text(encoding="utf-8"))) == set(CASES)
