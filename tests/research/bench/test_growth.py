"""What grows is measured on runs of the stated size; no figure is checked for speed."""

from dataclasses import replace

import pytest

from murmuration.research.bench.growth import GROWTH, measure
from murmuration.research.bench.setting import Setting

TINY = Setting(users=30, cohort=10, dimension=8)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_row(here):
    row = measure(TINY, rounds=4)
    stated = {"users": 30, "cohort": 10, "d": 8, "judgements_each": 10, "rounds": 4}
    assert {name: row[name] for name in stated} == stated
    assert 0 < row["round_ms"] / 1000 < row["seconds"]
    assert not list(here.iterdir()), "the run's folder was left behind"


@pytest.mark.parametrize("kind", GROWTH)
def test_one_quantity_grows_and_the_others_stay(kind):
    points = GROWTH[kind]
    grown = [getattr(point, kind) for point in points]
    assert grown == sorted(set(grown))
    assert {replace(point, **{kind: 1}) for point in points} == {replace(Setting(), **{kind: 1})}
    assert Setting() in points
