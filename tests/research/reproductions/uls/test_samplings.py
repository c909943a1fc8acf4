"""Noise and accuracy by sampling: what must be equal is, and remarks say what can be seen."""

import pytest

from murmuration.research.reproductions.uls import samplings
from murmuration.research.reproductions.uls.samplings import SAMPLINGS, Run


def test_noise_is_less_by_allocation_and_the_same_with_a_cap():
    rows = samplings.noises(((5, 20),), (3.0,))
    noise = {row["sampling"]: row["noise_multiplier"] for row in rows}
    assert list(noise) == [*SAMPLINGS]
    assert noise["truncated-poisson"] == noise["poisson"] == pytest.approx(1.625, abs=1e-3)
    assert noise["allocation"] == pytest.approx(1.431, abs=1e-3)
    assert [row["less_noise"] for row in rows] == pytest.approx([0.0, 11.9, 0.0], abs=0.05)


def test_differences_are_taken_seed_by_seed(monkeypatch):
    gains = {"poisson": 0.0, "allocation": 0.01, "truncated-poisson": 0.001}

    def accuracy(run: Run) -> float:
        mixed = 0.01 * run.seed if run.sampling == "truncated-poisson" else 0.0
        return 0.6 + 0.05 * run.seed + gains[run.sampling] + mixed

    monkeypatch.setattr(samplings, "accuracy", accuracy)
    monkeypatch.setattr(samplings, "in_processes", map)
    rows = samplings.accuracies("x", "a", "b", 100, (20,), (3.0,), seeds=5)
    assert [row["gain"] for row in rows] == pytest.approx([0.0, 1.0, 2.1])
    assert [row["gain_half_width"] for row in rows] == pytest.approx([0.0, 0.0, 1.963], abs=1e-3)
    said = samplings.remarks(rows)
    assert said[0].startswith("allocation on x, 20 rounds, ε = 3: +1.00 ± 0.00 points in 5 seeds.")
    assert said[1].endswith("in 5 seeds.")


def test_a_run_has_a_cohort_of_whole_blocks_and_the_cap_that_is_said(monkeypatch):
    configs = []
    monkeypatch.setattr(
        samplings,
        "execute",
        lambda config, quiet: configs.append(config) or {"heldout_accuracy": 0.5},
    )
    for sampling in SAMPLINGS:
        samplings.accuracy(Run("a", "b", 2_704, 20, 3.0, sampling, 1))
    assert [config.cohort for config in configs] == [541] * 3
    assert [config.own.max_cohort for config in configs] == [0, 0, 541]
    assert {config.adjacency for config in configs} == {"zero-out"}
