"""Items: names and orders that labels cannot change."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.public_items import (
    best_places,
    canonical,
    canonical_order,
    item_id,
    item_ids,
    public_order,
)
from murmuration.preference.data.schema import Schema

GOLDEN = 10635930409807784319  # labels are remembered under this name: it may never change
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.lists(TEXTS, min_size=2, max_size=5), st.randoms())
def test_canonical_order_depends_on_the_responses_alone(responses, random):
    shuffled = list(responses)
    random.shuffle(shuffled)
    assert canonical(shuffled) == canonical(responses)
    assert tuple(shuffled[place] for place in canonical_order(shuffled)) == canonical(responses)
    # The same order that their bytes have, wherever these are sorted.
    assert [text.encode() for text in canonical(responses)] == sorted(t.encode() for t in responses)


@given(TEXTS, st.lists(TEXTS, min_size=2, max_size=4))
def test_items_are_unordered(prompt, responses):
    found = {item_id(prompt, order) for order in itertools.permutations(responses)}
    assert len(found) == 1
    assert 0 <= found.pop() < 2**64


def test_equal_texts_keep_their_order():
    assert canonical_order(("b", "a", "b", "a")) == (1, 3, 0, 2)


def test_other_texts_are_other_items():
    known = [
        ("p", ("a", "b")),
        ("p", ("a", "c")),
        ("q", ("a", "b")),
        ("p", ("ab",)),
        ("pa", ("b",)),
        ("p", ("a", "b", "b")),
        ("a", ("p", "b")),
    ]
    assert len({item_id(*item) for item in known}) == len(known)


def test_an_items_name_stays_what_it_is():
    assert item_id("What now?", ("Wait.", "Buy it.")) == item_id("What now?", ("Buy it.", "Wait."))
    assert item_id("What now?", ("Wait.", "Buy it.")) == GOLDEN


@pytest.fixture
def judgements(make_rows):
    return Judgements.from_rows(make_rows([7, 1, 30]))


def test_item_ids(judgements):
    ids_R = item_ids(judgements)
    assert ids_R.dtype == np.uint64
    assert ids_R[3] == item_id(judgements.prompts[3], judgements.responses[3])
    assert len(set(ids_R.tolist())) > 5


def test_public_order(judgements, make_rows):
    rows = public_order(judgements)
    assert sorted(rows) == list(range(len(judgements)))
    ids_R = item_ids(judgements)
    for user in range(3):
        here = slice(judgements.start_U[user], judgements.start_U[user + 1])
        assert set(rows[here]) == set(range(len(judgements))[here])
        assert (np.diff(ids_R[rows[here]].astype(object)) >= 0).all()
        # Judgements of one item stay in their order.
        for a, b in itertools.pairwise(rows[here]):
            assert ids_R[a] != ids_R[b] or a < b


def test_public_order_does_not_depend_on_labels(make_rows):
    rows = make_rows([20])
    turned = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in rows[::-1]]
    shown = []
    for found in (rows, turned):
        judgements = Judgements.from_rows(found)
        shown.append([canonical(judgements.responses[row]) for row in public_order(judgements)])
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("row", "places"),
    [
        ({"chosen": "b", "rejected": "a"}, (1,)),
        ({"chosen": "a", "rejected": "b"}, (0,)),
        ({"chosen": "b", "rejected": "a", "tie": True}, (0, 1)),
        ({"responses": ["c", "a", "b"], "best": 0}, (2,)),
        ({"responses": ["c", "a", "b"], "best": 2}, (1,)),
        ({"responses": ["c", "a", "b"], "best": [0, 2]}, (1, 2)),
        ({"responses": ["c", "a", "b"], "best": [2, 1, 0]}, (0, 1, 2)),
    ],
)
def test_a_label_is_a_place_in_canonical_order(row, places):
    schema = Schema("top-1", 3) if "best" in row else Schema()
    judgements = Judgements.from_rows([{"user_id": "u", "prompt": "p", **row}], schema=schema)
    assert best_places(judgements, 0) == places


def test_labels_that_are_no_place():
    row = {"user_id": "u", "prompt": "p", "responses": ["a", "b", "c"], "ranking": [1, 2, 3]}
    with pytest.raises(InputError, match="a whole ranking is no single label"):
        best_places(Judgements.from_rows([row], schema=Schema("ranking", 3)), 0)
    row = {"user_id": "u", "prompt": "p", "chosen": "a", "rejected": "b"}
    for y in (0.0, 0.3, 0.7, 0.25):
        judgements = Judgements.from_rows([row])
        judgements.y_R[0] = y
        with pytest.raises(InputError, match="is no answer"):
            best_places(judgements, 0)
