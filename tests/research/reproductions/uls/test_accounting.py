"""Figure 1 of Charles et al. 2024: both accountants agree for one example, and part for many."""

import pytest

from murmuration.research.reproductions.uls import accounting


@pytest.fixture(scope="module")
def rows():
    return accounting.accounting(quick=True)


def test_of_one_example_both_say_the_same(rows):
    for row in rows:
        if row["group_size"] == 1:
            assert row["epsilon_tight"] == pytest.approx(row["epsilon_black_box"], rel=2e-3)


def test_the_tight_accountant_is_never_above_and_grows_nearly_linearly(rows):
    assert len(rows) == 6
    for row in rows:
        assert row["epsilon_tight"] <= row["epsilon_black_box"] * 1.002
    for sigma in (2.0, 4.0):
        same = [row for row in rows if row["sigma"] == sigma]
        assert 1.0 < accounting.power(same, "epsilon_tight") < 1.2
        assert accounting.power(same, "epsilon_black_box") > accounting.power(same, "epsilon_tight")


def test_where_the_black_box_ends_is_said():
    rows = [
        {"sigma": 1.0, "group_size": g, "epsilon_tight": 2.0 * g, "epsilon_black_box": e}
        for g, e in ((1, 2.0), (2, 5.0), (4, 40.0), (8, None))
    ]
    (text,) = accounting.remarks(rows)
    assert "power 1.00" in text and "5.0 times as much at G = 4" in text
    assert text.endswith("certifies nothing from G = 8 on.")


def test_a_black_box_that_diverges_has_no_figure(monkeypatch):
    monkeypatch.setattr(accounting, "group_epsilon", lambda *args, **named: float("inf"))
    monkeypatch.setattr(accounting.accountant, "epsilon", lambda *args, **named: 1.0)
    assert {row["epsilon_black_box"] for row in accounting.accounting(True)} == {None}
