"""The best item alone: what a voter adds, what a run says, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from murmuration.audits.votes import one_sided
from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.ranking.layout import VoteLayout
from murmuration.preference.ranking.votes import made_up_votes
from murmuration.privacy.accounting.events import PermuteAndFlip
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.exponential_mechanism import STEPS
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.solved.best_item import (
    BEST_ITEM,
    BestItemPlan,
    client_update,
    most_of_one,
    span_of,
)

LAYOUT = VoteLayout(items=3, cap=4)


def plan(epsilon=1.0, adjacency=Adjacency.ADD_REMOVE):
    return BestItemPlan.for_epsilon(epsilon, layout=LAYOUT, delta=1e-5, adjacency=adjacency)


def sum_of(votes, **changes):
    users_S = np.arange(len(votes.counts_U))
    parameters = {"round": 1, **plan().node_config, **changes}
    work = TrainRequest({}, parameters, users_S)
    return client_update(votes, work, users_S.astype(np.uint64), Randomness(0))["sum"]


def test_a_million_votes_are_worth_the_span_and_no_more():
    for votes in (4, 5, 1_000_000):
        assert sum_of(one_sided(0, 1, votes=votes)).tolist() == [0.0, 1.0, 1.0]
    one_K = sum_of(one_sided(2, 1, votes=1))  # net scores 0, −1, 1
    assert one_K == pytest.approx(np.array([1.0, 2.0, 0.0]) / span_of(LAYOUT), abs=1e-6)
    bound = most_of_one(lambda name, default: {"policies": 3.0}.get(name, default))
    assert np.linalg.norm(sum_of(one_sided(0, 1))) <= bound


def test_sums_are_whole_numbers_of_each_voter_alone():
    votes = made_up_votes(3, 1, "pairs", 2, users=9, each=2)
    sum_K = sum_of(votes)
    assert (sum_K * STEPS % 1 == 0).all()
    assert sum_K.tolist() == (9 * sum_of(votes.select(np.arange(1)))).tolist()
    assert not sum_of(votes.select(np.arange(0))).any()
    with pytest.raises(ValueError, match="3 items"):
        sum_of(votes, policies=4)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("epsilon", [0.25, 0.73005, 3.0])
def test_the_plan_costs_its_epsilon(adjacency, epsilon):
    made = plan(epsilon, adjacency)
    assert epsilon - 1.1e-4 <= made.mechanism.epsilon <= epsilon
    assert made.charges == {PermuteAndFlip(made.mechanism.epsilon): 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "ranking", "responses": 3, "model": "plackett-luce"}, "votes on pairs"),
        ({"labels": "randomized"}, "--strategy best-item takes true labels"),
        ({"clip_norm": 1.0}, "--clip-norm follows"),
        ({"noise": "gaussian"}, "draws with whole numbers"),
        ({"noise": "distributed"}, "draws exactly, which the server does"),
    ],
)
def test_settings_by_which_no_item_is_chosen(changes, message):
    own = BEST_ITEM.settings(items='["a", "b"]')
    with pytest.raises(InputError, match=message):
        RunConfig(strategy="best-item", own=own, **changes)


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("masked", [False, True])
def test_a_run_chooses_on_however_many_nodes(tmp_path, masked):
    rows = [{"user_id": f"v{n}", "chosen": "b", "rejected": "ac"[n % 2]} for n in range(60)]
    path = tmp_path / "votes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for nodes in (3, 7):
        settings = {
            "data": str(path),
            "strategy": "best-item",
            "items": '["a", "b", "c"]',
            "heldout": 0.0,
            "epsilon": 1.0,
            "no_prompt": True,
            "secure_aggregation": masked,
            "adjacency": "zero-out",
            "out": str(tmp_path / f"r{nodes}"),
        }
        config = RunConfig.from_run_config(settings)
        result = run_training(config, LocalGrid(client_app, nodes, config.to_run_config()))
        assert result["best"]["item"] == "b"  # of 30 people, by two: e^−15 for another
        assert result["noise"] == "permute-and-flip"
        assert "(1, 0)-differential privacy" in result["guarantee"]
        spent = [charge.event for charge in read_charges(Path(result["out"]) / "ledger.jsonl")]
        assert spent == [PermuteAndFlip(1.0)]
