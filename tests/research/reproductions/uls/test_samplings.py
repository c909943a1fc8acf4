"""Noise and accuracy by sampling: what must be equal is, and remarks say what can be seen."""

from types import SimpleNamespace
from typing import ClassVar

import pytest

from murmuration.research.reproductions.btl import Population
from murmuration.research.reproductions.uls import samplings
from murmuration.research.reproductions.uls.samplings import SAMPLINGS


def test_noise_is_less_by_allocation_and_the_same_with_a_cap():
    rows = samplings.noises(((5, 20),), (3.0,))
    noise = {row["sampling"]: row["noise_multiplier"] for row in rows}
    assert list(noise) == [*SAMPLINGS]
    assert noise["truncated-poisson"] == noise["poisson"] == pytest.approx(1.625, abs=1e-3)
    assert noise["allocation"] == pytest.approx(1.431, abs=1e-3)
    assert [row["less_noise"] for row in rows] == pytest.approx([0.0, 11.9, 0.0], abs=0.05)


class Known:
    """People on whom every sampling is as good as is said here."""

    name = "x"
    gains: ClassVar = {"poisson": 0.0, "allocation": 0.01, "truncated-poisson": 0.001}

    def __init__(self, users):
        self.train, self.configs = SimpleNamespace(counts_U=range(users)), []

    def accuracy(self, config):
        self.configs.append(config)
        sampling = config.own.sampling
        mixed = 0.01 * config.seed if sampling == "truncated-poisson" else 0.0
        return 0.6 + 0.05 * config.seed + self.gains[sampling] + mixed


def test_differences_are_taken_seed_by_seed():
    rows = samplings.accuracies(Known(100), (20,), (3.0,), seeds=5)
    assert [row["gain"] for row in rows] == pytest.approx([0.0, 1.0, 2.1])
    assert [row["gain_half_width"] for row in rows] == pytest.approx([0.0, 0.0, 1.963], abs=1e-3)
    first, second = samplings.remarks(rows)
    assert first.startswith("allocation on x, 20 rounds, ε = 3: +1.00 ± 0.00 points in 5 seeds.")
    assert second.endswith("in 5 seeds.")
    within = [{**row, "gain_half_width": 3.0} for row in rows]
    assert all("no difference" in line for line in samplings.remarks(within))


def test_a_run_has_a_cohort_of_whole_blocks_and_the_cap_that_is_said():
    people = Known(2_704)
    samplings.accuracies(people, (20,), (3.0,), seeds=2)
    assert {config.cohort for config in people.configs} == {541}
    assert {config.adjacency for config in people.configs} == {"zero-out"}
    assert [config.own.max_cohort for config in people.configs] == [0, 0, 0, 0, 541, 541]


def test_a_usual_cap_changes_no_run():
    """So the cap of the runs that are compared is one that binds."""
    examples = Population.draw(0, users=60, each=3, dimension=4).examples
    people = samplings.People("known", examples, examples)
    coins, capped = (
        samplings.config_of(people, 3, 8.0, sampling, 1)
        for sampling in ("poisson", "truncated-poisson")
    )
    assert people.accuracy(coins) == people.accuracy(capped.changed(max_cohort=0))
    assert 0.5 < people.accuracy(capped) <= 1.0
