"""A board at pure epsilon: the bound in ℓ1, hostile voters, and runs."""

import json
from pathlib import Path

import numpy as np
import pytest

from murmuration.audits.votes import one_sided
from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.ranking.layout import VoteLayout
from murmuration.preference.ranking.release import RankingRelease
from murmuration.preference.ranking.votes import ItemVotes, made_up_votes
from murmuration.privacy.accounting.events import LaplaceNoise
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.solved.laplace_ranking import (
    LAPLACE_RANKING,
    LaplacePlan,
    client_update,
)

ITEMS = ["a", "b", "c", "d"]


def plan(layout, adjacency=Adjacency.ADD_REMOVE, epsilon=1.0):
    return LaplacePlan.for_epsilon(
        epsilon, users=40, rounds=1, delta=1e-5, hold_out=None, adjacency=adjacency, layout=layout
    )


def sum_of(votes: ItemVotes, layout: VoteLayout) -> np.ndarray:
    users_S = np.arange(len(votes.counts_U))
    work = TrainRequest({}, {"round": 1, **plan(layout).node_config}, users_S)
    return client_update(votes, work, users_S.astype(np.uint64), Randomness(0))["sum"]


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("epsilon", [0.25, 0.73005, 3.0])
def test_the_plan_costs_its_epsilon_without_a_delta(adjacency, epsilon):
    made = plan(VoteLayout(items=4, cap=3, norm_order=1), adjacency, epsilon)
    pure, delta = made.spent
    assert epsilon - 1.1e-4 <= pure <= epsilon and delta == 0.0
    assert made.charges == {LaplaceNoise(made.noise_multiplier): 1}
    assert made.epsilon() <= epsilon
    least = float(made.mechanism.scale) * made.clip.step
    assert least >= adjacency.vectors_changed * made.layout.clip_norm / epsilon


@pytest.mark.parametrize("pairing", ["public", "voters"])
@pytest.mark.parametrize(
    ("kind", "responses"), [("pairs", 2), ("top-1", 3), ("ranking", 4), ("ranking", 3)]
)
def test_no_voter_exceeds_the_bound(pairing, kind, responses):
    layout = VoteLayout(
        items=4, cap=3, pairing=pairing, kind=kind, responses=responses, norm_order=1
    )
    if kind == "pairs":
        sums = [
            sum_of(one_sided(0, 1, votes=n), VoteLayout(items=3, cap=4, norm_order=1))
            for n in (1, 3, 1000)
        ]
        assert all(np.abs(sum_V).sum() <= 4 * 2.48 for sum_V in sums)
    mine_V = sum_of(made_up_votes(4, 1, kind, responses, users=1, each=3), layout)
    assert 0.5 * layout.clip_norm < np.abs(mine_V).sum() <= layout.clip_norm


@pytest.mark.parametrize("pairing", ["public", "voters"])
def test_a_million_votes_are_worth_the_bound_and_no_more(pairing):
    layout = VoteLayout(items=3, cap=4, pairing=pairing, norm_order=1)
    mine_V = sum_of(one_sided(0, 1, votes=1_000_000), layout)
    other_V = sum_of(one_sided(1, 0, votes=1_000_000), layout)
    # All of the bound but the share of ties, of which there are none.
    assert 0.96 * layout.clip_norm < np.abs(mine_V).sum() <= layout.clip_norm
    assert np.abs(mine_V - other_V).sum() <= 2 * layout.clip_norm


def test_a_voter_is_worth_the_same_in_any_company():
    layout = VoteLayout(items=4, cap=3, norm_order=1)
    votes = made_up_votes(4, 1, "pairs", 2, users=9, each=2)
    assert (sum_of(votes, layout) == 9 * sum_of(votes.select(np.arange(1)), layout)).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "gaussian"}, "draws with whole numbers"),
        ({"noise": "distributed"}, "draws exactly, which the server does"),
        ({"noise": "discrete"}, "--noise discrete is not for --strategy laplace-ranking"),
        ({"kind": "thumbs", "model": "thumbs"}, "--kind thumbs rates single ones"),
        ({"labels": "randomized"}, "--strategy laplace-ranking takes true labels"),
    ],
)
def test_settings_that_make_no_pure_board(changes, message):
    own = LAPLACE_RANKING.settings(items='["a", "b"]')
    with pytest.raises(InputError, match=message):
        RunConfig(strategy="laplace-ranking", own=own, **changes)


@pytest.fixture
def board(tmp_path):
    """A function: a run on so many nodes of 60 people who mostly prefer a to b to c to d."""
    rng, path = np.random.default_rng(0), tmp_path / "votes.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for voter in range(60):
            for _ in range(rng.integers(1, 6)):
                first, second = sorted(rng.choice(4, 2, replace=False))
                if rng.random() < 0.2:
                    first, second = second, first
                row = {"user_id": f"v{voter}", "chosen": ITEMS[first], "rejected": ITEMS[second]}
                file.write(json.dumps(row) + "\n")

    def make(nodes=1, **changes):
        settings = {
            "data": str(path),
            "strategy": "laplace-ranking",
            "items": json.dumps(ITEMS),
            "heldout": 0.0,
            "epsilon": 20.0,
            "delta": 1e-3,
            "no_prompt": True,
            "seed": 3,
            "out": str(tmp_path / f"run-{len(list(tmp_path.iterdir()))}"),
            **changes,
        }
        config = RunConfig.from_run_config(settings)
        result = run_training(config, LocalGrid(client_app, nodes, config.to_run_config()))
        return RankingRelease.from_json(result["votes"]), result

    return make


@pytest.mark.usefixtures("quick_runs")
def test_a_run_ranks_and_says_that_there_is_no_delta(board):
    release, result = board()
    assert release.net_BK[0].argmax() == 0 and release.net_BK[0].argmin() == 3
    assert (release.epsilon, release.delta) == (pytest.approx(20.0, abs=1e-3), 0.0)
    assert "(20, 0)-differential privacy" in result["guarantee"]
    assert result["noise"] == "discrete-laplace" and result["epsilon"] <= 20.0
    assert release.clipped == 0.0 == release.noise.clipped
    spent = [charge.event for charge in read_charges(Path(result["out"]) / "ledger.jsonl")]
    assert spent == [LaplaceNoise(result["noise_multiplier"])]
    opinion = result["second_opinion"]
    assert opinion["theirs"] == pytest.approx(opinion["ours"], abs=1e-4)


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize(
    "changes", [{"pairing": "voters"}, {"secure_aggregation": True, "adjacency": "zero-out"}]
)
def test_on_however_many_nodes_the_release_is_the_same(board, changes):
    few = 3 if "secure_aggregation" in changes else 1
    (one, _), (many, _) = board(nodes=few, **changes), board(nodes=7, **changes)
    assert one.to_json() == many.to_json()


@pytest.mark.usefixtures("quick_runs")
def test_nobody_is_held_out(board):
    with pytest.raises(InputError, match="--heldout 0"):
        board(heldout=0.2)
