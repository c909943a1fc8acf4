"""A finished run, as its result and metrics would be written."""

import math

import numpy as np
import pytest

RESULT = {
    "strategy": "uls",
    "adjacency": "add-remove",
    "epsilon": 2.9914,
    "epsilon_target": 3.0,
    "delta": 1e-5,
    "noise_multiplier": 1.31724,
    "clip_norm": 0.1,
    "group_size": 16,
    "rounds": 200,
    "rounds_planned": 200,
    "users": 2717,
    "cohort": 540,
    "dimension": 1025,
    "learning_rate": 0.91372,
    "heldout_accuracy": 0.743123,
    "heldout_accuracy_by_user": 0.738712,
    "heldout_users": 330,
    "heldout_error": 0.0242,
    "heldout_chance": 0.5,
    "users_per_second": 43219.4,
    "seconds_training": 2.49812,
    "out": "/home/ada/runs/r",
    "private": True,
    "seeded": False,
    "stopped": None,
    "warnings": ["The number of users was taken from the registry."],
    "guarantee": "User-level (3, 1e-05)-differential privacy for all 200 models together.",
    "features": {
        "kind": "hashing",
        "dimension": 1025,
        "ngrams": 2,
        "length_weight": 0.3,
        "length": "bounded",
    },
    "test_is_public": True,
}
NONPRIVATE = {
    "strategy": "nonprivate",
    "epsilon": None,
    "epsilon_target": None,
    "noise_multiplier": 0.0,
    "clip_norm": None,
    "private": False,
    "warnings": ["No privacy: this is the non-private twin, for comparison only."],
    "guarantee": "No privacy: exact gradients were released.",
}


@pytest.fixture
def make_result():
    """A function: result(private=True, **changes)."""

    def make(private=True, **changes):
        return {**RESULT, **({} if private else NONPRIVATE), **changes}

    return make


@pytest.fixture
def make_metrics():
    """A function: metrics(result, noise, signal, accuracy): updates of a signal plus noise."""

    def make(result, noise=0.008, signal=0.02, accuracy=True):
        generator, dimension = np.random.default_rng(0), result["dimension"]
        rounds = result["rounds"]
        noise = noise if result["private"] else 0.0
        lines = []
        for t in range(1, rounds + 1):
            # Of a Gaussian vector of expected length noise, one coordinate and the rest's length.
            rest = math.sqrt(generator.chisquare(dimension - 1)) if noise else 0.0
            first = signal + noise * generator.normal() / math.sqrt(dimension)
            update = math.hypot(first, noise * rest / math.sqrt(dimension))
            line = {
                "round": t,
                "epsilon": result["epsilon"] * math.sqrt(t / rounds) if result["private"] else None,
                "learning_rate": 1.0,
                "update_norm": update,
                "noise_norm": noise,
                "signal_norm": math.sqrt(max(0.0, update**2 - noise**2)),
            }
            if accuracy and (t % max(1, rounds // 20) == 0 or t == rounds):
                line["heldout_accuracy"] = 0.5 + 0.24 * t / rounds
            lines.append(line)
        return lines

    return make
