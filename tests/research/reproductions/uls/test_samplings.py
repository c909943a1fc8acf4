"""Noise and accuracy by sampling: what must be equal is, and remarks say what can be seen."""

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from murmuration.research.reproductions.uls import samplings
from murmuration.research.reproductions.uls.samplings import SAMPLINGS
from murmuration.strategies.config import RunConfig
from murmuration.strategies.settings.sampling import usual_cohort, whole_blocks


def test_noise_is_less_by_allocation_and_the_same_with_a_cap():
    rows = samplings.noises(((5, 20),), (3.0,))
    noise = {row["sampling"]: row["noise_multiplier"] for row in rows}
    assert list(noise) == [*SAMPLINGS]
    assert noise["truncated-poisson"] == noise["poisson"] == pytest.approx(1.625, abs=1e-3)
    assert noise["allocation"] == pytest.approx(1.431, abs=1e-3)
    assert [row["less_noise"] for row in rows] == pytest.approx([0.0, 11.9, 0.0], abs=0.05)


class Known:
    """People on whom every way is as good as is said here."""

    name, digest, truth_D = "x", "x", True
    gains: ClassVar = {
        "poisson": 0.0,
        "allocation": 0.01,
        "truncated-poisson": 0.001,
        "cyclic": 0.0,
        "all": 0.002,
    }

    def __init__(self, users, cohort):
        self.train, self.cohort = SimpleNamespace(counts_U=range(users)), cohort
        self.configs = []

    def reached(self, config):
        self.configs.append(config)
        sampling = config.own.sampling
        mixed = 0.01 * config.seed if sampling == "truncated-poisson" else 0.0
        accuracy = 0.6 + 0.05 * config.seed + self.gains[sampling] + mixed
        error = (10.0 + config.seed) * (0.5 if config.own.banded or config.own.buffered else 1.0)
        return {"accuracy": accuracy, "error": error}


def rows_of(people, *more, **others):
    return samplings.accuracies(lambda: people, *more, workers=1, **others)


def test_differences_are_taken_seed_by_seed():
    rows = rows_of(Known(100, 20), (20,), (3.0,), seeds=5)
    assert [row["gain"] for row in rows] == pytest.approx([0.0, 1.0, 2.1, 0.0, 0.0, 0.2])
    widths = [row["gain_half_width"] for row in rows]
    assert widths == pytest.approx([0.0, 0.0, 1.963, 0.0, 0.0, 0.0], abs=1e-3)
    assert [row["less_error"] for row in rows] == pytest.approx([0.0, 0.0, 0.0, 50.0, 50.0, 0.0])
    assert [row["error_mean"] for row in rows] == pytest.approx([12.0, 12.0, 12.0, 6.0, 6.0, 12.0])
    lines = samplings.remarks(rows)
    first, second = lines[0], lines[2]
    assert first == "allocation on x, 20 rounds, ε = 3: +1.00 ± 0.00 points in 5 seeds."
    assert second.endswith("in 5 seeds.")
    assert lines[-3].endswith("ε = 3: +50.00 ± 0.00 % less error in 5 seeds.")
    within = [{**row, "gain_half_width": 3.0, "less_error_half_width": 60.0} for row in rows]
    assert all("no difference" in line for line in samplings.remarks(within))


def test_a_run_has_the_peoples_cohort_and_the_cap_that_is_said():
    people = Known(2_704, 541)
    rows_of(people, (20,), (3.0,), seeds=2)
    assert [config.cohort for config in people.configs] == [*[541] * 5, 2_704] * 2
    assert {config.adjacency for config in people.configs} == {"zero-out"}
    assert [config.own.max_cohort for config in people.configs] == [0, 0, 541, 0, 0, 0] * 2
    drawn = ["poisson", "allocation", "truncated-poisson", "poisson", "cyclic", "all"]
    assert [config.own.sampling for config in people.configs] == drawn * 2


def test_people_who_are_read_have_a_cohort_of_whole_blocks(crowd):
    people = samplings.read("x", crowd, crowd)
    users = len(people.train.counts_U)
    assert people.cohort == whole_blocks(users, usual_cohort(users))
    assert people.truth_D is None


def test_made_up_users_are_disjoint_and_their_truth_is_known():
    people = samplings.made_up(1_000, 100, 3, 8)
    assert people.train.counts_U.tolist() == [3] * 1_000 and people.cohort == 10
    assert people.test.counts_U.tolist() == [3] * 100
    shared = {row.tobytes() for row in people.train.x_RD.numpy()}
    assert not shared & {row.tobytes() for row in people.test.x_RD.numpy()}
    logits_R = people.train.x_RD.double().numpy() @ people.truth_D
    assert (logits_R**2).mean() ** 0.5 == pytest.approx(1.5, rel=0.1)
    # The error is of the direction: none of the truth's, however long; a right angle of another's.
    at_right = np.zeros(8)
    at_right[:2] = people.truth_D[1], -people.truth_D[0]
    for theta_D, error in ((3.0 * people.truth_D, 0.0), (at_right, 90.0), (-people.truth_D, 180.0)):
        result = SimpleNamespace(optimizer=SimpleNamespace(result_D=theta_D))
        run = SimpleNamespace(run=lambda config, result=result: (result, None))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(samplings.People, "_training", lambda self, seed, run=run: run)
            assert people.reached(RunConfig())["error"] == pytest.approx(error, abs=1e-5)


def test_a_usual_cap_changes_no_run_and_banded_noise_does():
    """So the cap of the runs that are compared is one that binds."""
    people = samplings.made_up(600, 60, 3, 4)
    coins, capped, banded = (
        samplings.config_of(people, 60, 8.0, way, 1)
        for way in ("poisson", "truncated-poisson", "banded")
    )
    reached = people.reached(coins)
    assert reached == people.reached(capped.changed(max_cohort=0))
    assert reached == people.reached(coins)  # names that were made once are the same users
    assert reached != people.reached(banded)
    assert 0.5 < people.reached(capped)["accuracy"] <= 1.0
