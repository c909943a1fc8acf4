"""Rules and examples on the public test: right by hand, and never of anybody else."""

import numpy as np
import pytest

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import load_judgements
from murmuration.server.baselines import baselines, on_public_test


def judged(*pairs, y=None):
    return Judgements(
        ("ada",),
        np.array([0, len(pairs)]),
        ["p"] * len(pairs),
        list(pairs),
        np.array([1.0] * len(pairs) if y is None else y, dtype=np.float32),
    )


def length(prompts, responses):
    return np.array([float(len(text)) for text in responses])


def test_longer_wins_counts_words_and_leaves_out_ties():
    pairs = [("a b c", "a"), ("aaaaaaaaaa", "b c"), ("a b", "c d"), ("a b c d", "e")]
    found = baselines(judged(*pairs, y=[1, 1, 1, 0.5]), None)
    assert found["longer_wins"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert found["near"] is None and found["examples"] == []


def test_the_longer_of_two_texts_without_blanks():
    pairs = [
        ("先存起来再等一等。", "全部花掉。"),
        ("ควรเก็บเงินไว้ก่อน", "ซื้อ"),
        ("今日は休もう、ok", "買う"),
    ]
    found = baselines(judged(*pairs), length)
    assert found["longer_wins"] == 1.0 and found["near"] is None


def test_nearly_equal_is_within_a_tenth_of_the_larger():
    ten, nine, eight = (" ".join(["w"] * n) for n in (10, 9, 8))
    found = baselines(judged((ten, nine), (ten, eight), (nine, ten)), length)
    assert found["near"]["pairs"] == 2
    assert found["near"]["accuracy"] == 0.5 and found["near"]["longer_wins"] == 0.5


def test_examples_are_right_wrong_and_close_and_do_not_change():
    pairs = [("aaaa", "b"), ("aaa", "b"), ("aa", "b"), ("a", "bbbb"), ("a", "bbbbb")]
    found = baselines(judged(*pairs), length)["examples"]
    assert [each["kind"] for each in found] == ["right", "wrong", "close"]
    margins = [each["reward_preferred"] - each["reward_other"] for each in found]
    assert margins[0] > 0 > margins[1] and abs(margins[2]) == 1
    assert baselines(judged(*pairs), length)["examples"] == found


def test_another_test_has_another_digest():
    digests = [
        baselines(test, None)["test_digest"]
        for test in (judged(("a", "b")), judged(("a", "c")), judged(("a", "b"), y=[0.5]))
    ]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    "error", [InputError("a text that has no features"), RuntimeError("out of memory")]
)
def test_what_cannot_be_scored_loses_no_run(crowd_test, error):
    def fails(prompts, responses):
        raise error

    found = on_public_test(load_judgements(crowd_test), fails, 10)
    assert found["longer_wins"] is not None and found["near"] is None


def several(*rows, y=None):
    ones = np.ones(len(rows), dtype=np.float32)
    return Judgements(
        ("ada",),
        np.array([0, len(rows)]),
        ["p"] * len(rows),
        list(rows),
        ones if y is None else np.array(y, dtype=np.float32),
        kind="top-1",
        most_responses=3,
    )


def test_the_best_of_several_is_its_first_place():
    rows = [("a b c", "a", "b"), ("a", "b c", "d"), ("a b", "c d", "e"), ("w", "x", "y")]
    found = baselines(several(*rows, y=[1, 1, 1, 0.5]), length)
    assert found["kind"] == "top-1"
    assert found["longer_wins"] == pytest.approx((1 + 0 + 1 / 2) / 3)  # a tie is none
    # Pairs with the preferred one: ("a", "d"), and ("a b", "c d"); equally long both.
    assert found["near"]["pairs"] == 2
    assert found["near"]["accuracy"] == found["near"]["longer_wins"] == 0.5
    shown = {each["kind"]: each for each in found["examples"]}
    assert shown["right"]["other"] in ("a", "b")
    assert shown["wrong"]["other"] == "b c"  # that of the highest reward
    assert shown["wrong"]["reward_other"] == 3.0


def test_no_more_is_scored_than_was_asked_for():
    asked = []

    def score(prompts, responses):
        asked.extend(responses)
        return length(prompts, responses)

    pairs = [(f"a{n} b", f"c{n} d") for n in range(50)]
    found = baselines(judged(*pairs), score, 10)
    assert found["near"]["pairs"] == 10 and len(found["examples"]) > 0
    assert len(asked) <= 2 * 20


def test_single_ratings_prefer_nothing_to_anything():
    thumbs = Judgements(
        ("ada",), np.array([0, 2]), ["p", "p"], [("good",), ("bad one",)],
        np.array([1.0, 0.0], dtype=np.float32), kind="thumbs", most_responses=1,
    )  # fmt: skip
    found = baselines(thumbs, length)
    assert (found["longer_wins"], found["near"], found["examples"]) == (None, None, [])
