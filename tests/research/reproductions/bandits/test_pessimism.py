"""The comparison of policies: rows, units, remarks and plot."""

import pytest

from murmuration.research.reproductions.bandits import pessimism
from murmuration.research.reproductions.bandits.pessimism import GREEDY, PESSIMISTIC, SAFEST

SMALL = {"users": (300, 3000), "epsilons": (3.0,), "dimension": 4, "seeds": 6}


@pytest.fixture(scope="module")
def rows():
    return pessimism.pessimism(**SMALL)


def gaps(rows, **where):
    return {
        (row["n"], row["policy"]): row["gap_mean"]
        for row in rows
        if all(row[name] == value for name, value in where.items())
    }


def test_every_case_has_every_policy(rows):
    assert len(rows) == 3 * 2 * 3 * 3  # coverages, n, channels, policies
    assert {row["policy"] for row in rows} == {GREEDY, PESSIMISTIC, SAFEST}
    assert {(row["labels"], row["epsilon"]) for row in rows} == {
        ("none", None),
        ("centre", 3.0),
        ("local", 3.0),
    }
    for row in rows:
        assert 0.0 <= row["gap_mean"] <= 2.0
        assert row["in_set"] >= 0.5


def test_more_people_help(rows):
    for labels in ("none", "centre", "local"):
        found = gaps(rows, coverage="every direction", labels=labels)
        for policy in (GREEDY, PESSIMISTIC, SAFEST):
            assert found[3000, policy] < 0.5 * found[300, policy]


def test_pessimism_pays_where_judges_look_at_what_matters(rows):
    found = gaps(rows, coverage="what matters", labels="none")
    assert found[3000, PESSIMISTIC] < found[3000, GREEDY]
    missing = gaps(rows, coverage="little of what matters", labels="none")
    assert missing[3000, PESSIMISTIC] > missing[3000, GREEDY]


def test_remarks(rows):
    words = pessimism.remarks(rows)
    assert len(words) == 3
    assert all("of 6 cases" in line for line in words)


def test_plot(rows):
    figure = pessimism.plot(rows)
    assert len(figure.axes) == 6
    for axes in figure.axes:
        assert len(axes.lines) == 4  # no privacy and one ε, two policies
        assert all(len(line.get_xdata()) == 2 for line in axes.lines)


def test_quick_is_less_of_the_same(monkeypatch):
    seen = []

    def noted(coverage, channel, bandits):
        seen.append((channel, len(bandits)))
        return iter(())

    monkeypatch.setattr(pessimism, "compared", noted)
    monkeypatch.setattr(pessimism.Bandit, "draw", classmethod(lambda cls, *a, **k: None))
    pessimism.pessimism(True)
    assert len(seen) == 3 * 3 * 5
    assert {count for _, count in seen} == {10}
