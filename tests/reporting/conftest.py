"""A finished run, as its result and metrics would be written."""

import math

import numpy as np
import pytest
from cards import result_of_a_run


@pytest.fixture
def make_result():
    """A function: result(private=True, **changes)."""
    return result_of_a_run


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
