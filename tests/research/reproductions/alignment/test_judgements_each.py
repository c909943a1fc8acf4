"""Reward over KL divergence against the judgements of each user."""

import numpy as np
import pytest

from murmuration.research.reproductions.alignment import judgements_each
from murmuration.research.reproductions.alignment.answers import Answers
from murmuration.research.reproductions.alignment.claims import AGREES, DISAGREES, OPEN
from murmuration.research.reproductions.alignment.judgements_each import NAMES, TABLE_7
from murmuration.research.reproductions.alignment.rewards import (
    NONPRIVATE,
    PUBLISHED,
    USERWISE,
    Learnt,
)


@pytest.fixture(scope="module")
def result():
    generator = np.random.default_rng(0)
    phi_PND = generator.standard_normal((60, 16, 2)).astype(np.float32)
    pool = Answers(phi_PND[:, :, 0].astype(float), np.zeros((60, 16), bool), phi_PND)
    found = []
    for seed in range(3):
        of = {}
        for name in (*NAMES, NONPRIVATE):
            for m, noise in ((10, 1.0), (100, 0.2)):
                if name == PUBLISHED:  # gets worse
                    noise = 1.2 - noise
                theta_D = np.array([1.0, 1.0 if name == USERWISE else noise + 0.01 * seed])
                of[name, m] = Learnt(theta_D.astype(np.float32), 0.7, 5)
        found.append(of)
    return judgements_each.measured(pool, found)


def test_the_ratio_is_gain_over_kl(result):
    row = result.rows[0]
    assert row["ratio_mean"] == pytest.approx(row["gain_mean"] / (np.log(16) - 15 / 16))
    assert row["table_7"] == TABLE_7[10]


def test_claims_are_of_each_strategy(result):
    said = "\n".join(result.remarks)
    assert f"{DISAGREES}: {PUBLISHED}, m = 100 above 10" in said
    assert f"{AGREES}: {NONPRIVATE}, m = 100 above 10" in said
    assert f"{OPEN}: {USERWISE}, m = 100 above 10" in said


def test_smaller_m_are_first_judgements_of_the_same_users(monkeypatch):
    given = {}

    class People:
        def __init__(self, sizes, seed, examples):
            given[sizes.each] = examples

        def learnt(self, name, epsilon):
            return name, epsilon

    monkeypatch.setattr(judgements_each, "People", People)
    found = judgements_each.one_seed((4, (2, 5), 0))
    assert found[NONPRIVATE, 2] == (NONPRIVATE, None)
    assert found[USERWISE, 5] == (USERWISE, 8.0)
    assert given[2].counts_U.tolist() == [2] * 4
    assert np.array_equal(given[2].x_RD[:2], given[5].x_RD[:2])
