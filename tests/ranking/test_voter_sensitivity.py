"""One voter moves a board at most by what its noise is made for, and that far if they try.

Two crowds that differ in one hostile voter go through whole runs, from a file of votes to the
result. A seeded run draws the same noise whatever the votes, so the difference of two released sums
is that of the sums before noise; where noise has no seed, nodes add none. In every runtime the
voter moves the sum by no more than the plan's sensitivity, and one who gives all they can by no
less than nearly all of it.

Legend: V coordinates.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from murmuration.client import secure
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.release import RankingRelease
from murmuration.sims.runtimes import Runtime
from murmuration.sims.runtimes.execute import execute
from murmuration.strategies.config import RunConfig

pytestmark = [pytest.mark.usefixtures("quick_runs"), pytest.mark.filterwarnings("ignore")]

ITEMS = ["a", "b", "c"]
CAP = 6  # not the default
MANY = 3_000
#: Of the sensitivity, what a voter who gives all they can moves the sum by at least: no vote can be
#: a win and a tie, so of the room for ties nothing is used.
NEARLY = 0.96
#: Beyond the bound, of numbers that are read from a result in 64 bits.
ROUNDING = 1.0 + 1e-9


def vote(voter: str, better: str, worse: str, **more: object) -> dict:
    return {"user_id": voter, "chosen": better, "rejected": worse, **more}


def crowd() -> list[dict]:
    draws = np.random.default_rng(3)
    return [vote(f"v{n}", *draws.permutation(ITEMS)[:2].tolist()) for n in range(24)]


MALLORY = "mallory"
ALL_ONE_WAY = [vote(MALLORY, "a", "b")] * MANY
THE_OTHER_WAY = [vote(MALLORY, "b", "a")] * MANY


def hostile(name: str) -> list[dict]:
    """Return rows of somebody who means harm."""
    nan = float("nan")
    return {
        "all one way": ALL_ONE_WAY,
        "ties": [vote(MALLORY, "a", "b", tie=True)] * MANY,
        "turn by turn": [*ALL_ONE_WAY[:20], *THE_OTHER_WAY[:20]] * 20,
        "round in circles": [vote(MALLORY, *pair) for pair in ("ab", "bc", "ca")] * 100,
        "NaN": [*ALL_ONE_WAY, vote(MALLORY, nan, "a"), vote(MALLORY, "a", "b", tie=nan)],
        "items that are not there": [*ALL_ONE_WAY, *[vote(MALLORY, "z", "a")] * MANY],
        "an item alike but for case": [*ALL_ONE_WAY, *[vote(MALLORY, "A", "b")] * MANY],
        "items with blanks": [*ALL_ONE_WAY, *[vote(MALLORY, " a ", "b")] * 9],
        "an item against itself": [*ALL_ONE_WAY, *[vote(MALLORY, "a", "a")] * 9],
        "an id with blanks": [*ALL_ONE_WAY, *[vote(f" {MALLORY}\t", "a", "b")] * 9],
    }[name]


def released(rows: list[dict], out: Path, runtime: Runtime = Runtime.LOCAL, **changes) -> dict:
    """The result of a run on a crowd, the ballots of which are mixed over its file."""
    path = out.with_suffix(".jsonl")
    mixed = np.random.default_rng(1).permutation(len(rows))
    path.write_text("".join(json.dumps(rows[place]) + "\n" for place in mixed))
    settings = {
        "data": str(path),
        "strategy": "ranking",
        "items": json.dumps(ITEMS),
        "group_size": CAP,
        "on_bad_rows": "skip",
        "no_prompt": True,
        "heldout": 0.0,
        "users": 25,
        "epsilon": 4.0,
        "delta": 1e-3,
        "seed": 5,
        "out": str(out),
        **changes,
    }
    config = RunConfig.from_run_config(settings)
    return execute(config, runtime=runtime, users_per_node=6, quiet=True)


def sum_of(result: dict, layout: VoteLayout) -> np.ndarray:
    """The sum that was released, (V,): what the layout reads, written again."""
    release = RankingRelease.from_json(result["outcome"]["votes"])
    sum_V, upper = np.zeros(layout.size), np.triu_indices(layout.items, 1)
    parts = {
        "net": release.net_BK,
        "variance": release.variance_BK,
        "votes": release.votes_B,
        "squares": release.squares_B,
        "ties": release.ties_B,
        "voters": release.voters_B,
        "clipped": np.array([release.clipped]),
    }
    if release.pair_counts_BKK is not None:
        parts["pair_counts"] = release.pair_counts_BKK[:, *upper]
    assert {name for name, at in layout.places.items() if at.stop > at.start} == {*parts}
    for name, part in parts.items():
        sum_V[layout.places[name]] = part.ravel() * layout.weights[name]
    return sum_V


def moves(tmp_path: Path, layout: VoteLayout, one: list[dict], other: list[dict], **how) -> float:
    """By how much of the layout's bound two crowds' sums differ."""
    first_V, second_V = (
        sum_of(released([*crowd(), *rows], tmp_path / f"run-{n}", **how), layout)
        for n, rows in enumerate((one, other))
    )
    return float(np.linalg.norm(first_V - second_V)) / layout.clip_norm


PLAIN = VoteLayout(items=3, cap=CAP)
MASKED = {"secure_aggregation": True, "adjacency": "zero-out"}

EVERYWHERE = [
    pytest.param({}, id="local"),
    pytest.param(MASKED, id="masks"),
    pytest.param({"runtime": Runtime.RAY}, id="ray", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("how", EVERYWHERE)
def test_who_gives_all_they_can_moves_it_by_nearly_all(tmp_path, how):
    share = moves(tmp_path, PLAIN, ALL_ONE_WAY, [], **how)
    assert NEARLY < share <= ROUNDING


@pytest.mark.skipif(not installed(), reason="OpenDP draws this noise")
def test_and_so_where_nodes_add_the_noise(tmp_path, monkeypatch):
    """The noise of the nodes has no seed: here they add none."""
    monkeypatch.setattr(secure, "with_share", lambda whole, steps, shares: whole)
    how = {**MASKED, "noise": "distributed", "seed": -1}
    assert NEARLY < moves(tmp_path, PLAIN, ALL_ONE_WAY, [], **how) <= ROUNDING


@pytest.mark.parametrize(
    "name",
    [
        "ties", "turn by turn", "round in circles", "NaN", "items that are not there",
        "an item alike but for case", "items with blanks", "an item against itself",
        "an id with blanks",
    ],
)  # fmt: skip
def test_nobody_moves_it_further(tmp_path, name):
    share = moves(tmp_path, PLAIN, hostile(name), [])
    assert 0.0 < share <= ROUNDING


def test_who_is_replaced_moves_it_by_twice_that_at_most(tmp_path):
    """Counts of votes stay as they are where votes turn round."""
    share = moves(tmp_path, PLAIN, ALL_ONE_WAY, THE_OTHER_WAY, adjacency="replace")
    assert 1.6 < share <= 2.0 * ROUNDING


@pytest.mark.parametrize(
    ("kind", "pairing"),
    [("ranking", "public"), ("ranking", "voters"), ("top-1", "voters"), ("pairs", "voters")],
)
def test_rankings_and_votes_for_the_best_of_three(tmp_path, kind, pairing):
    layout = VoteLayout(
        items=3, cap=CAP, kind=kind, pairing=pairing, responses=2 if kind == "pairs" else 3
    )
    order = {"ranking": [1, 2, 3]} if kind == "ranking" else {"best": 0}
    how = {"pairing": pairing, "kind": kind}
    if kind == "pairs":
        others, mine = crowd(), ALL_ONE_WAY
    else:
        others = [
            {"user_id": f"v{n}", "prompt": "?", "responses": ITEMS, **order} for n in range(24)
        ]
        mine = [{"user_id": MALLORY, "prompt": "?", "responses": ITEMS, **order}] * MANY
        how |= {"responses": 3, "model": "plackett-luce"}
    sums = [
        sum_of(released(rows, tmp_path / f"run-{n}", **how), layout)
        for n, rows in enumerate(([*others, *mine], others))
    ]
    share = float(np.linalg.norm(sums[0] - sums[1])) / layout.clip_norm
    assert NEARLY < share <= ROUNDING
