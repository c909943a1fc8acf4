"""Ranking: the plan, the node half, hostile voters, and runs on every grid of this process."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_runs import resumed, run
from made_up_votes import made_up_votes

from murmuration.api.config import TrainConfig
from murmuration.planning.plan import plan as planned
from murmuration.preference.data.errors import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.release import RankingRelease
from murmuration.ranking.strategy import RankingPlan, client_update
from murmuration.research.audits.votes import one_sided
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.messages import TrainRequest

ITEMS = ["a", "b", "c", "d"]
LAYOUT = VoteLayout(items=4, cap=3)
PLAN = {"users": 40, "rounds": 1, "delta": 1e-5, "layout": LAYOUT}


def plan(adjacency=Adjacency.ADD_REMOVE, **changes):
    return RankingPlan(**{**PLAN, "noise_multiplier": 3.0, "adjacency": adjacency, **changes})


def sum_of(votes, users_S=None, source=None, layout=LAYOUT, **changes):
    users_S = (
        np.arange(len(votes.counts_U)) if users_S is None else np.array(users_S, dtype=np.int64)
    )
    given = replace(plan(layout=layout), users=max(1, len(users_S))).node_config
    work = TrainRequest({}, {"round": 1, **given, **changes}, users_S)
    keys_S = users_S.astype(np.uint64)
    return client_update(votes, work, keys_S, source or Randomness(0))["sum"]


# The plan


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_release_of_the_bound_is_all_that_is_charged(adjacency):
    made = plan(adjacency)
    assert made.charges == {PoissonGaussian(1.0, 3.0): 1}
    assert made.mechanism.std == pytest.approx(3.0 * LAYOUT.clip_norm)
    assert made.clip.sensitivity(adjacency) == LAYOUT.clip_norm * adjacency.vectors_changed
    with pytest.raises(ValueError, match="--rounds must be 1, got 2"):
        plan(adjacency, rounds=2)


# The node half


@pytest.mark.parametrize("pairing", ["public", "voters"])
def test_a_million_votes_are_worth_the_bound_and_no_more(pairing):
    layout = VoteLayout(items=3, cap=4, pairing=pairing)
    mine_V = sum_of(one_sided(0, 1, votes=1_000_000), layout=layout)
    other_V = sum_of(one_sided(1, 0, votes=1_000_000), layout=layout)
    assert 0.9999 * layout.clip_norm < np.linalg.norm(mine_V) <= layout.clip_norm
    # Only net scores turn round, so one who is replaced moves it by less than twice the bound.
    assert np.linalg.norm(mine_V - other_V) <= 2 * layout.clip_norm


def test_a_sum_is_that_of_its_voters_wherever_they_are():
    votes = made_up_votes(4, 1, "pairs", 2, users=9, each=2)
    apart = sum(sum_of(votes, [user]) for user in range(9))
    assert apart.tolist() == sum_of(votes).tolist()
    assert not sum_of(votes, []).any()


def test_which_votes_count_is_by_chance():
    """Each window of a voter with one win of ``a`` and nine of ``b`` is as likely."""
    votes = one_sided(0, 1, votes=10)
    votes.better_R[1:], votes.worse_R[1:] = 1, 0
    layout = VoteLayout(items=3, cap=1)
    firsts = [sum_of(votes, layout=layout, source=Randomness(seed))[0] > 0 for seed in range(400)]
    assert 20 < sum(firsts) < 64  # 40 ± 4 standard deviations


def test_the_server_cannot_ask_for_another_bound_than_it_names():
    short_V = sum_of(one_sided(0, 1), layout=VoteLayout(items=3, cap=9), **{"clip-norm": 0.5})
    assert np.linalg.norm(short_V) <= 0.5
    with pytest.raises(ValueError, match="who chose the pairs"):
        sum_of(one_sided(0, 1), layout=VoteLayout(items=3, cap=9), pairing="drawn")


# The whole


@pytest.fixture
def votes(tmp_path):
    """A file with votes of 60 people, by category; a is better than b than c than d."""
    rng, path = np.random.default_rng(0), tmp_path / "votes.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for voter in range(60):
            for _ in range(rng.integers(1, 6)):
                first, second = sorted(rng.choice(4, 2, replace=False))
                turned = rng.random() < 0.2
                better, worse = (second, first) if turned else (first, second)
                row = {"user_id": f"v{voter}", "chosen": ITEMS[better], "rejected": ITEMS[worse]}
                row |= {"prompt": "x" if voter % 2 else "y", "tie": bool(rng.random() < 0.1)}
                file.write(json.dumps(row) + "\n")
    return str(path)


@pytest.fixture
def board(votes, tmp_path, quick_runs):
    """A function: a run on so many nodes; what it released, and the result."""

    def make(nodes=1, **changes):
        out = str(tmp_path / f"run-{len(list(tmp_path.iterdir()))}")
        settings = {
            "data": votes,
            "strategy": "ranking",
            "items": json.dumps(ITEMS),
            "heldout": 0.0,
            "epsilon": 4.0,
            "delta": 1e-3,
            "out": out,
            **changes,
        }
        result = run(RunConfig.from_run_config(settings), nodes)
        return RankingRelease.from_json(result["outcome"]["votes"]), result

    return make


def test_a_run_ranks(board):
    release, result = board(seed=3)
    scores = RewardModel.load(Path(result["out"]) / "model").score([""] * 4, ITEMS)
    assert np.argmax(scores) == 0 and np.argmin(scores) == 3
    assert (result["rounds"], result["cohort"], result["users"]) == (1, 60, 60)
    assert result["heldout_accuracy"] is None and result["heldout_users"] == 0
    spent = [charge.event for charge in read_charges(Path(result["out"]) / "ledger.jsonl")]
    assert spent == [PoissonGaussian(1.0, result["noise_multiplier"])]
    assert release.epsilon == pytest.approx(4.0, rel=1e-3)
    assert release.noise.net == pytest.approx(result["noise_multiplier"] * result["clip_norm"])
    saved = json.loads((Path(result["out"]) / "result.json").read_text(encoding="utf-8"))
    assert saved["outcome"]["votes"] == release.to_json()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pairing": "voters"},
        {"categories": '["x", "y"]'},
        {"secure_aggregation": True, "adjacency": "zero-out"},
    ],
)
def test_on_however_many_nodes_the_release_is_the_same(board, changes):
    few = 3 if "secure_aggregation" in changes else 1
    (one, _), (many, _) = board(nodes=few, seed=3, **changes), board(nodes=7, seed=3, **changes)
    assert one.to_json() == many.to_json()


@pytest.mark.skipif(not installed(), reason="OpenDP draws this noise")
@pytest.mark.parametrize("noise", ["discrete", "distributed"])
def test_noise_on_a_grid(board, noise):
    masked = {"secure_aggregation": True, "adjacency": "zero-out"}
    release, result = board(
        nodes=4, noise=noise, epsilon=50.0, **(masked if noise == "distributed" else {})
    )
    assert result["noise"] == noise
    assert 0 < release.net_BK[0, 0] < 200


def test_noise_is_as_promised(board):
    """The released sum less that of a run with next to no noise, in units of what is promised."""
    changes = {"pairing": "voters", "categories": '["x", "y"]', "group_size": 30}
    loud, _ = board(seed=3, epsilon=0.5, **changes)
    quiet, _ = board(seed=3, epsilon=200.0, **changes)
    upper = np.triu_indices(4, 1)
    parts = [
        ((getattr(loud, f"{name}_{axes}") - getattr(quiet, f"{name}_{axes}")), name)
        for name, axes in (("net", "BK"), ("variance", "BK"), ("votes", "B"), ("ties", "B"))
    ]
    parts.append(((loud.pair_counts_BKK - quiet.pair_counts_BKK)[:, *upper], "pair_counts"))
    noise_V = np.concatenate([part.ravel() / getattr(loud.noise, name) for part, name in parts])
    assert 0.6 < np.std(noise_V) < 1.4


def test_a_board_that_noise_made_says_that_nothing_was_learnt(board):
    _, drowned = board(seed=3, epsilon=0.01)
    assert any("NOTHING WAS LEARNT" in warning for warning in drowned["warnings"])
    _, clear = board(seed=3, epsilon=200.0)
    assert not any("NOTHING WAS LEARNT" in warning for warning in clear["warnings"])


def test_more_wins_than_meetings_are_said_with_the_way_out(board, tmp_path):
    """In every vote is one item; by --pairing public it is in half of them."""
    path = tmp_path / "swept.jsonl"
    rows = (
        {"user_id": f"u{n}", "prompt": "x", "chosen": "a", "rejected": "bcd"[n % 3]}
        for n in range(60)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    swept = {"data": str(path), "seed": 3, "epsilon": 200.0}
    _, result = board(**swept)
    (said,) = [text for text in result["warnings"] if "NOT DRAWN ALIKE" in text]
    assert "--pairing voters" in said and "a won or lost" in said
    assert not any("NOTHING WAS LEARNT" in text for text in result["warnings"])
    _, chosen = board(**swept, pairing="voters")
    assert not any("NOT DRAWN ALIKE" in text for text in chosen["warnings"])


def test_it_needs_a_list_of_items(board):
    with pytest.raises(InputError, match="--strategy ranking needs --items"):
        board(items="")


def test_a_run_that_is_resumed_tells_the_same(board):
    release, result = board()  # without a seed: other noise would show
    (Path(result["out"]) / "result.json").unlink()
    assert resumed(result["out"])["outcome"]["votes"] == release.to_json()
    assert len(read_charges(Path(result["out"]) / "ledger.jsonl")) == 1


def test_the_power_of_a_board():
    """The noise of the plan enters: fewer voters are needed at a larger epsilon, and never fewer
    than without noise."""
    board = {"strategy": "ranking", "users": 3000, "board_size": 20, "votes_each": 7.0}
    board["delta"] = 1e-5
    small, large = (planned(epsilon=epsilon, **board) for epsilon in (0.25, 4.0))
    for points, least in ((10, 33_432), (20, 8_358), (50, 1_338)):
        name = f"voters_for_{points}_points"
        assert least < large[name] < small[name]
    assert large["points_told_apart"] < small["points_told_apart"]
    assert small["noise_multiplier"] > large["noise_multiplier"]
    ten = planned(epsilon=1.0, **board)["voters_for_10_points"]
    assert ten == pytest.approx(34_115, rel=0.01)
    assert planned(epsilon=1.0, group_size=30, **board)["voters_for_10_points"] > ten
    config = TrainConfig(strategy="ranking", items='["a", "b"]', epsilon=1.0, group_size=30)
    of_config = planned(config, **board)
    assert of_config["voters_for_10_points"] > ten and "group_size" not in of_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"board_size": 1}, "--board-size of at least 2"),
        ({"board_size": 5, "votes_each": 11.0}, "at most --group-size"),
        ({"group_size": 4}, "add --board-size"),
        ({"board_size": 5, "strategy": "uls", "rounds": 3}, "are for --strategy ranking"),
    ],
)
def test_boards_that_cannot_be_planned(changes, message):
    terms = {"strategy": "ranking", "users": 300, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(InputError, match=message):
        planned(**{**terms, **changes})
