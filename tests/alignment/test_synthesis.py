"""Synthetic preferences: which pairs, which label, what is left out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, ndtr

from murmuration.alignment.pool import Pool
from murmuration.alignment.synthesis import Synthesis, preferences
from murmuration.preference.data.rows import InputError
from murmuration.preference.language.generation import PublicSeed

EVERY = ("p0 b a", "p0 a c", "p0 b c", "p1 d e", "p1 d f", "p1 f e")


def pool_of(*rows):
    """Of prompts, each with answers and their rewards."""
    return Pool(
        [f"p{number}" for number in range(len(rows))],
        [list(row) for row in rows],
        np.array([list(row.values()) for row in rows], dtype=float),
    )


def told(found):
    return [(row["prompt"], row["chosen"], row["rejected"]) for row in found.rows]


def test_best_and_worst():
    found = preferences(pool_of({"a": 1, "b": 3, "c": -2}, {"d": 0, "e": -1, "f": -0.5}))
    assert told(found) == [("p0", "b", "c"), ("p1", "d", "e")]
    assert [*found.rows[0]] == ["prompt", "chosen", "rejected", "score_chosen", "score_rejected"]
    assert (found.rows[0]["score_chosen"], found.rows[0]["score_rejected"]) == (3.0, -2.0)
    assert sum(found.left_out.values()) == 0


def test_all_pairs_and_one_at_random():
    pool = pool_of({"a": 1, "b": 3, "c": -2}, {"d": 0, "e": -1, "f": -0.5})
    every = told(preferences(pool, Synthesis("all")))
    assert sorted(every) == sorted([tuple(triple.split()) for triple in EVERY])
    seen = set()
    for seed in range(60):
        some = told(preferences(pool, Synthesis("random", seed=PublicSeed(seed))))
        assert [prompt for prompt, *_ in some] == ["p0", "p1"]
        seen |= {*some}
    assert seen == {*every}


def test_what_is_left_out_is_counted():
    pool = Pool(
        ["p"] * 4,
        [["a b", " a  b", "a b"], ["x", "y", "z"], ["", " ", "x"], ["", "u", "v"]],
        np.array([[1, 2, 3], [5, 5, 5], [1, 2, 3], [9, 1, 0]], dtype=float),
    )
    found = preferences(pool)
    assert told(found) == [("p", "u", "v")]  # the empty one is no answer, whatever its reward
    assert found.left_out == {"equal texts": 1, "equal scores": 1, "empty answers": 1}


@given(st.integers(0, 5), st.sampled_from(["best-worst", "all", "random"]))
def test_hard_labels_have_the_higher_score_first(seed, pairs):
    generator = np.random.default_rng(seed)
    answers = [[f"{p} {n}" for n in range(4)] for p in range(5)]
    pool = Pool([*"abcde"], answers, generator.integers(0, 3, (5, 4)).astype(float))
    found = preferences(pool, Synthesis(pairs, seed=PublicSeed(seed)))
    assert all(row["score_chosen"] > row["score_rejected"] for row in found.rows)
    made = {"best-worst": 5, "all": 30, "random": 5}[pairs]
    assert len(found.rows) + sum(found.left_out.values()) == made


@pytest.mark.parametrize(("model", "chance"), [("btl", expit), ("thurstone", ndtr)])
def test_sampled_labels_have_the_odds_of_the_reward(model, chance):
    count, ahead = 20_000, 0.8
    pool = Pool(["p"] * count, [["a", "b"]] * count, np.tile([ahead, 0.0], (count, 1)))
    found = preferences(pool, Synthesis("best-worst", "sampled", PublicSeed(3), model))
    share = np.mean([row["chosen"] == "a" for row in found.rows])
    assert share == pytest.approx(chance(ahead), abs=4 * 0.5 / count**0.5)
    assert all((row["score_chosen"] == ahead) == (row["chosen"] == "a") for row in found.rows)
    assert preferences(pool, Synthesis("best-worst", "sampled", PublicSeed(3), model)) == found
    assert preferences(pool, Synthesis("best-worst", "sampled", PublicSeed(4), model)) != found


@pytest.mark.parametrize(
    ("wrong", "option"), [({"pairs": "some"}, "--pairs"), ({"labels": "soft"}, "--label-draw")]
)
def test_settings_that_there_are_not(wrong, option):
    with pytest.raises(InputError, match=option):
        Synthesis(**wrong)
