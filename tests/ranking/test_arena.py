"""The synthetic arena: votes as the model has them, and a truth that many votes come to."""

import json

import numpy as np
import pytest

from murmuration.preference.data.loading import load_judgements
from murmuration.ranking.arena import ARENA_ITEMS, Arena, arena, write_arena
from murmuration.ranking.bradley_terry import ELO_PER_UNIT, strengths


def fitted(one: Arena, draw: int = 0):
    votes, items = one.votes(draw), one.items
    pairs_KK, net_K = np.zeros((items, items)), np.zeros(items)
    np.add.at(pairs_KK, (votes.first_V, votes.second_V), 1.0)
    np.add.at(net_K, votes.first_V, votes.outcome_V)
    np.add.at(net_K, votes.second_V, -votes.outcome_V)
    ties = float((votes.outcome_V == 0).sum())
    return strengths(net_K, pairs_KK + pairs_KK.T, ridge=1e-6, ties=ties)


@pytest.mark.parametrize("taste", [0.0, 300.0])
def test_many_votes_come_to_the_truth(taste: float) -> None:
    one = Arena(voters=20_000, items=5, taste=taste, tie=0.3)
    result, truth = fitted(one), one.truth()
    assert result.elo_K == pytest.approx(truth.elo_K, abs=12)
    assert result.tie == pytest.approx(truth.tie, abs=0.02)


def test_without_tastes_the_truth_is_the_crowd() -> None:
    one = Arena(items=7, taste=0.0)
    assert one.truth().theta_K == pytest.approx(one.crowd_K, abs=1e-5)
    assert one.truth().tie == pytest.approx(one.tie, abs=1e-6)
    assert one.crowd_K.std() * ELO_PER_UNIT == pytest.approx(one.points, rel=0.2)


def test_disagreement_makes_boards_flatter() -> None:
    flat = Arena(items=7, taste=400.0).truth().theta_K.std()
    assert flat < 0.8 * Arena(items=7, taste=0.0).truth().theta_K.std()


def test_votes_of_one_voter_go_together() -> None:
    """The variance of voters' net scores of an item is larger than that of independent votes."""

    def ratio(taste: float) -> float:
        one = Arena(voters=4000, items=2, points=0.0, taste=taste, tie=0.0, median_votes=10)
        votes = one.votes()
        won_V = votes.outcome_V * np.where(votes.first_V == 0, 1, -1)
        return float(np.square(np.bincount(votes.voter_V, won_V)).sum() / len(won_V))

    assert ratio(0.0) == pytest.approx(1.0, abs=0.1)
    assert ratio(300.0) > 3


def test_pairs_come_as_they_are_asked_for() -> None:
    wanted_KK = np.array([[0.0, 3, 1], [3, 0, 0], [1, 0, 0]])
    votes = Arena(voters=2000, items=3, pairing_KK=wanted_KK).votes()
    pair_V = np.sort([votes.first_V, votes.second_V], axis=0).T
    share = (pair_V == [0, 1]).all(axis=1).mean()
    assert share == pytest.approx(0.75, abs=0.02)
    assert not (pair_V == [1, 2]).all(axis=1).any()


def test_files_are_votes_on_the_items(tmp_path) -> None:
    one = Arena(voters=30, items=6, seed=3)
    write_arena(tmp_path / "a", one)
    write_arena(tmp_path / "b", one)
    write_arena(tmp_path / "c", Arena(voters=30, items=6, seed=4))
    names = ["items.txt", "truth.json", "votes.jsonl"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names
    for name in names:
        same = (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert same, name
    assert (tmp_path / "a/votes.jsonl").read_bytes() != (tmp_path / "c/votes.jsonl").read_bytes()
    judgements = load_judgements(str(tmp_path / "a" / "votes.jsonl"))
    assert len(judgements.user_ids) == 30
    items = (tmp_path / "a" / "items.txt").read_text().split()
    assert {name for shown in judgements.responses for name in shown} <= set(items)
    truth = json.loads((tmp_path / "a" / "truth.json").read_text())
    assert list(truth["elo"]) == items == list(one.names)
    assert np.array(list(truth["elo"].values())) == pytest.approx(one.truth().elo_K, abs=1e-3)


def test_the_default_arena_has_its_items() -> None:
    shown = {name for row in arena() for name in (row["chosen"], row["rejected"])}
    assert shown == set(ARENA_ITEMS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"voters": -1},
        {"items": 1},
        {"seed": -1},
        {"points": -1.0},
        {"taste": float("nan")},
        {"tie": -0.1},
        {"median_votes": 0.0},
        {"most_votes": 0},
    ],
)
def test_parameters_out_of_range_are_refused(wrong) -> None:
    with pytest.raises(ValueError):
        Arena(**wrong)
