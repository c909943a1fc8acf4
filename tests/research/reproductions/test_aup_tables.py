"""The paper's numbers come out of its settings, each in the unit that is said."""

import math

import pytest

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.reproductions.aup_tables import (
    COHORT,
    DELTA,
    TABLE_1,
    TABLE_2,
    aup_tables,
    published_variance,
    rdp_multiplier,
)


def sizes(m):
    users = 92_858 // m
    return users, 5 * math.ceil(users / 100)


@pytest.mark.parametrize("epsilon", [1, 3, 8])
def test_table_2_is_a_noise_multiplier_and_table_1_a_variance(epsilon):
    users, rounds = sizes(50)
    multiplier = rdp_multiplier(epsilon, DELTA, COHORT / users, rounds)
    assert multiplier == pytest.approx(TABLE_2[epsilon][50], rel=0.008)
    variance = published_variance(epsilon, users, rounds)
    assert variance == pytest.approx(TABLE_1[epsilon][50], rel=0.025)
    assert math.sqrt(variance) != pytest.approx(TABLE_1[epsilon][50], rel=0.2)


@pytest.mark.parametrize(
    ("epsilon", "m", "expected"), [(1, 50, 1.72), (3, 50, 4.03), (8, 50, 8.62)]
)
def test_table_2_under_replacement(epsilon, m, expected):
    users, rounds = sizes(m)
    found = accountant.epsilon(
        [(PoissonGaussian(COHORT / users, TABLE_2[epsilon][m]), rounds)],
        adjacency=Adjacency.REPLACE,
        delta=DELTA,
        interval=1e-3,
    )
    assert found == pytest.approx(expected, abs=0.01)


def test_rows(monkeypatch):
    # What is costly is tested above; here that each figure stands in its column.
    monkeypatch.setattr(
        "murmuration.research.reproductions.aup_tables.rdp_multiplier", lambda *_: 2.0
    )
    monkeypatch.setattr(accountant, "noise_multiplier_for", lambda *_, **__: 1.5)
    monkeypatch.setattr(accountant, "epsilon", lambda *_, **__: 7.0)
    rows = aup_tables(quick=True)
    assert [(row["epsilon"], row["m"]) for row in rows] == [
        (e, m) for e in (1, 3, 8) for m in (5, 50)
    ]
    assert len(aup_tables()) == 12
    row = rows[0]
    assert (row["users"], row["rounds"]) == (18_571, 930)
    assert (row["table_1"], row["table_2"]) == (0.366, 1.101)
    assert (row["table_2_recomputed"], row["table_2_pld"]) == (2.0, 1.5)
    assert row["epsilon_under_replace"] == 7.0
    variance = 8 * 9 * (1 + math.log(930 / 1e-5)) * 4 / 100**2
    assert row["table_1_recomputed"] == pytest.approx(variance)
    assert row["aup_noise_over_tau"] == pytest.approx(math.sqrt(variance) / 3)
    assert row["dpsgd_noise_over_clip"] == pytest.approx(0.02)
