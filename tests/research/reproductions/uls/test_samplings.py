"""Noise and accuracy by sampling: what must be equal is, and remarks say what can be seen."""

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from murmuration.research.reproductions.uls import samplings
from murmuration.strategies.config import RunConfig
from murmuration.strategies.settings.sampling import cohort_of_turns, usual_cohort


class Known:
    """People on whom every way is as good as is said here."""

    name, digest, truth_D = "x", "x", True
    gains: ClassVar = {
        "poisson": 0.0,
        "banded": 0.0,
        "blt": 0.01,
        "all": 0.002,
    }

    def __init__(self, users, cohort):
        self.train, self.cohort = SimpleNamespace(counts_U=range(users)), cohort
        self.configs = []

    def reached(self, config):
        self.configs.append(config)
        sampling = config.own.sampling
        mixed = 0.01 * config.seed if sampling == "all" else 0.0
        accuracy = 0.6 + 0.05 * config.seed + self.gains[sampling] + mixed
        error = (10.0 + config.seed) * (1.0 if not config.own.correlated else 0.5)
        return {"accuracy": accuracy, "error": error}


def rows_of(people, *more, **others):
    return samplings.accuracies(lambda: people, *more, **others)


def test_differences_are_taken_seed_by_seed():
    rows = rows_of(Known(100, 20), (20,), (3.0,), seeds=5)
    assert [row["gain"] for row in rows] == pytest.approx([0.0, 0.0, 1.0, 2.2])
    widths = [row["gain_half_width"] for row in rows]
    assert widths == pytest.approx([0.0, 0.0, 0.0, 1.963], abs=1e-3)
    assert [row["less_error"] for row in rows] == pytest.approx([0.0, 50.0, 50.0, 0.0])
    assert [row["error_mean"] for row in rows] == pytest.approx([12.0, 6.0, 6.0, 12.0])
    lines = samplings.remarks(rows)
    assert "blt on x, 20 rounds, ε = 3: +1.00 ± 0.00 points in 5 seeds." in lines
    assert "blt on x, 20 rounds, ε = 3: +50.00 ± 0.00 % less error in 5 seeds." in lines
    within = [{**row, "gain_half_width": 3.0, "less_error_half_width": 60.0} for row in rows]
    assert all("no difference" in line for line in samplings.remarks(within))


def test_a_run_has_the_peoples_cohort():
    people = Known(2_704, 541)
    rows_of(people, (20,), (3.0,), seeds=2)
    assert [config.cohort for config in people.configs] == [*[541] * 3, 2_704] * 2
    assert {config.adjacency for config in people.configs} == {"zero-out"}
    drawn = ["poisson", "banded", "blt", "all"]
    assert [config.own.sampling for config in people.configs] == drawn * 2


def test_people_who_are_read_have_a_cohort_of_cohort_of_turns(crowd):
    people = samplings.read("x", crowd, crowd)
    users = len(people.train.counts_U)
    assert people.cohort == cohort_of_turns(users, usual_cohort(users))
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


def test_banded_noise_makes_another_run():
    people = samplings.made_up(600, 60, 3, 4)
    coins, banded = (samplings.config_of(people, 60, 8.0, way, 1) for way in ("poisson", "banded"))
    reached = people.reached(coins)
    assert reached == people.reached(coins)  # names that were made once are the same users
    assert reached != people.reached(banded)
