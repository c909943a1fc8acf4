"""Grids, hostile ones among them."""

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.tuning.grid import parsed, points

#: Settings that a search leaves alone.
PROMISED = (
    "epsilon", "delta", "adjacency", "users", "data", "test", "heldout", "heldout_epsilon",
    "seed", "out", "resume", "noise", "population", "max_judgements", "base",
    "task", "secure-aggregation", "one-user-per-row", "policies",
)  # fmt: skip


def test_values_have_the_settings_types():
    grid = parsed(["clip-norm=0.05, 0.1", "rounds=3,5", "checkpointing=true,false", "model=btl"])
    assert grid == {
        "clip_norm": [0.05, 0.1],
        "rounds": [3, 5],
        "checkpointing": [True, False],
        "model": ["btl"],
    }
    all_points = points(grid)
    assert len(all_points) == 8
    assert all_points[0] == {"clip_norm": 0.05, "rounds": 3, "checkpointing": True, "model": "btl"}
    assert len({repr(one) for one in all_points}) == 8


@pytest.mark.parametrize("name", PROMISED)
def test_what_decides_the_promise_is_no_candidate(name):
    with pytest.raises(InputError, match="same for all"):
        parsed([f"{name}=1,2"])
    with pytest.raises(InputError, match="same for all"):
        points({name: [1, 2]})


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["clip_norm"], "NAME=V1,V2"),
        (["=1,2"], "no such setting"),
        (["min_nodes=1,2"], "no such setting"),
        (["grid=1,2"], "no such setting"),
        (["clip_norm=a,b"], "is no float"),
        (["clip_norm=,"], "is no float"),
        (["rounds=1.5,2"], "is no int"),
        (["checkpointing=maybe"], "is neither true nor false"),
        (["clip_norm=1,2", "--clip-norm=3"], "already"),
    ],
)
def test_hostile_texts_are_refused(texts, why):
    with pytest.raises(InputError, match=why):
        parsed(texts)


@pytest.mark.parametrize(
    ("grid", "why"),
    [
        ({}, "1 combinations"),
        ({"clip_norm": [0.1]}, "1 combinations"),
        ({"clip_norm": [0.1, 0.1]}, "twice"),
        ({"clip_norm": []}, "must be values"),
        ({"clip_norm": "0.1"}, "a list"),
        ({"clip_norm": 3.0}, "a list"),
        ({"clip_norm": [1.0 + n for n in range(40)], "rounds": list(range(1, 41))}, "1,600"),
    ],
)
def test_hostile_grids_are_refused(grid, why):
    with pytest.raises(InputError, match=why):
        points(grid)
