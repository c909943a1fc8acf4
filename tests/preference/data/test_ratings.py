"""Thumbs become pairs: within one user and one prompt, and in nobody else's rows."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.ratings import pair_up
from murmuration.preference.data.rows import Row
from murmuration.preference.data.schema import Schema


def thumb(user, prompt, text, label):
    return {"user_id": user, "prompt": prompt, "completion": text, "label": label}


def mine(judgements, user):
    place = judgements.user_ids.index(user)
    rows = range(judgements.start_U[place], judgements.start_U[place + 1])
    return [(judgements.prompts[row], *judgements.responses[row]) for row in rows]


KTO = [
    thumb("a", "p", "good", True),
    thumb("b", "p", "bad", False),
    thumb("a", "p", "bad", False),
    thumb("a", "q", "fine", "up"),
    thumb("b", "q", "fine", "true"),
    thumb("a", "p", "worse", "down"),
    thumb("c", "p", "good", True),
]


def test_pairs_within_a_user_and_a_prompt():
    found = Judgements.from_rows(KTO)
    assert mine(found, "a") == [("p", "good", "bad"), ("p", "good", "worse")]
    assert (mine(found, "b"), mine(found, "c")) == ([], [])
    assert found.user_ids == ("a", "b", "c")
    assert (found.kind, found.y_R.tolist()) == ("pairs", [1.0, 1.0])
    assert (found.thumbs, found.thumbs_alone) == (7, 4)
    assert found.notes == (
        "7 single ratings make 2 pairs: of one user and one prompt, what was liked against what "
        "was not. 4 of them are in no pair: --kind thumbs --model thumbs learns from these, too",
    )


def test_a_file_as_of_trl(tmp_path):
    path = tmp_path / "kto.jsonl"
    rows = [
        {"annotator_id": 3, "prompt": "The sky is", "completion": " blue.", "label": True},
        {"annotator_id": 3, "prompt": "The sky is", "completion": " green.", "label": False},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = load_judgements(str(path))
    assert mine(found, "3") == [("The sky is", " blue.", " green.")]
    assert found.notes[0] == "who judged is read from the column 'annotator_id' (2 rows)"


def test_pairs_stand_behind_those_that_were_given():
    pair = {"user_id": "a", "prompt": "p", "chosen": "x", "rejected": "y"}
    found = Judgements.from_rows([*KTO, pair])
    assert mine(found, "a")[0] == ("p", "x", "y")
    assert len(mine(found, "a")) == 3


def test_thumbs_up_and_down_for_one_text_are_no_pair():
    rows = [thumb("a", "p", "x", True), thumb("a", "p", "x", False), thumb("a", "p", "y", False)]
    assert mine(Judgements.from_rows(rows), "a") == [("p", "x", "y")]
    assert Judgements.from_rows(rows).thumbs_alone == 1


def test_no_pair_at_all():
    with pytest.raises(InputError, match=r"no user rated .* up and down.*--kind thumbs"):
        Judgements.from_rows(KTO[:2])


def test_of_each_row_a_user_nothing_is_paired():
    with pytest.raises(InputError, match="no user rated"):
        Judgements.from_rows(KTO, schema=Schema(one_user_per_row=True))


def test_a_node_makes_no_pairs():
    """Which there are would tell how its users rated."""
    labels_only = {"schema": Schema(pair_thumbs=False), "on_bad_rows": "skip"}
    pair = {"user_id": "d", "prompt": "p", "chosen": "x", "rejected": "y"}
    for judgements in (
        Judgements.from_rows([*KTO, pair], on_bad_rows="isolate"),
        Judgements.from_rows([*KTO, pair], **labels_only),
    ):
        assert (len(judgements), judgements.thumbs) == (1, 0)
        assert judgements.user_ids == ("a", "b", "c", "d")
        assert "none are made at a node" in judgements.set_aside[0]


@pytest.mark.parametrize("kind", ["top-1", "ranking"])
def test_other_kinds_take_no_thumbs(kind):
    with pytest.raises(InputError, match="a row of kind thumbs"):
        Judgements.from_rows(KTO, schema=Schema(kind, 3))


def row(prompt, text, liked):
    return Row("thumbs", prompt, (text,), float(liked))


def test_a_limit_for_a_user_uses_ratings_evenly_and_is_told():
    rows = [row("p", f"up {n}", True) for n in range(3)]
    rows += [row("p", f"down {n}", False) for n in range(4)]
    found, paired = pair_up({"a": rows}, 4)
    assert [pair.responses for pair in found["a"]] == [
        ("up 0", "down 0"),
        ("up 1", "down 1"),
        ("up 2", "down 2"),
        ("up 0", "down 3"),
    ]
    assert (paired.pairs, paired.beyond, paired.alone) == (4, 8, 0)
    assert "8 more pairs are beyond --max-judgements" in paired.told()[0]


def test_a_limit_is_of_all_that_a_user_gave():
    pair = Row("pairs", "o", ("x", "y"))
    rows = [pair, *(row(prompt, text, text == "up") for prompt in "pqr" for text in ("up", "down"))]
    found, paired = pair_up({"a": rows}, 3)
    assert [made.prompt for made in found["a"]] == ["o", "p", "q"]
    assert (paired.pairs, paired.beyond) == (2, 1)


ratings = st.lists(
    st.builds(row, st.sampled_from("pq"), st.sampled_from("stuvwxyz"), st.booleans()), max_size=12
)


@given(ratings, ratings)
def test_every_one_against_every_other_whatever_others_have(rows, others):
    alone = pair_up({"a": rows}, 1000)[0]["a"]
    together = pair_up({"b": others, "a": rows}, 1000)[0]["a"]
    assert alone == together
    expected = [
        (up.prompt, *up.responses, *down.responses)
        for up in rows
        for down in rows
        if up.y > down.y and up.prompt == down.prompt and up.responses != down.responses
    ]
    found = [(pair.prompt, *pair.responses) for pair in alone]
    assert sorted(found) == sorted(expected)
