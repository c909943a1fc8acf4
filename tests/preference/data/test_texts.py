"""Users' own texts: grouped by user, refused with their place."""

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.files.packed_texts import PackedTexts
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.features import mapped_rows


def read(rows, **more):
    placed = [("f", line, row) for line, row in enumerate(rows, start=1)]
    return UserTexts.from_placed_rows(placed, **more)


ROWS = [
    {"user_id": "b", "text": "one"},
    {"user_id": " a ", "text": " two\n"},
    {"user_id": "b", "text": "three", "mood": 3},
    {"user_id": 7, "text": "four"},
]


def test_rows_are_grouped_by_user():
    found = read(ROWS)
    assert found.user_ids == ("b", "a", "7")
    assert [*found.texts] == ["one", "three", " two\n", "four"]
    assert found.start_U.tolist() == [0, 2, 3, 4]
    assert found.counts_U.tolist() == [2, 1, 1]
    assert len(found) == 4


def test_select():
    chosen = read(ROWS).select(np.array([2, 0]))
    assert (chosen.user_ids, [*chosen.texts]) == (("7", "b"), ["four", "one", "three"])
    assert chosen.start_U.tolist() == [0, 1, 3]
    assert read(ROWS).select([]).user_ids == ()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"user_id": "a"}, r"f:2: no column 'text'; the columns are: user_id.*--columns text=NAME"),
        ({"user_id": "a", "text": "  "}, r"f:2: 'text' is empty"),
        ({"user_id": "a", "text": 3}, r"f:2: 'text' must be text"),
        ({"user_id": "", "text": "x"}, r"f:2: 'user_id' is empty"),
        ({"user_id": float("nan"), "text": "x"}, "no user id"),
        (["a"], "expected an object"),
    ],
)
def test_bad_rows(row, said):
    with pytest.raises(InputError, match=said):
        read([ROWS[0], row])
    found = read([ROWS[0], row], on_bad_rows="skip")
    assert len(found) == 1
    assert found.set_aside[0].startswith("f:2: ")
    with pytest.raises(InputError, match="all 1 rows are bad"):
        read([row], on_bad_rows="skip")


def test_nothing_to_read():
    with pytest.raises(InputError, match="nowhere: no texts"):
        read([], source="nowhere")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"prompt": "x"}, "'prompt' is not a field; the fields"),
        ({"text": "user_id"}, "one column"),
    ],
)
def test_columns_that_cannot_be(columns, said):
    with pytest.raises(InputError, match=said):
        read(ROWS, columns=columns)


def test_what_does_not_fit_together():
    """As with judgements; here it's asked at all."""
    good = {
        "user_ids": ("a", "b"),
        "start_U": np.array([0, 1, 2]),
        "texts": PackedTexts.pack(["x", "y"]),
    }
    UserTexts(**good)
    with pytest.raises(InputError):
        UserTexts(**(good | {"start_U": np.array([0, 1, 3])}))


def test_nested_names():
    rows = [{"who": {"id": who}, "text": f"of {who}"} for who in ("ann", "ann", "bob")]
    placed = [("f", number, row) for number, row in enumerate(rows, start=1)]
    texts = UserTexts.from_placed_rows(placed, columns={"user_id": "who.id"})
    assert (texts.user_ids, texts.counts_U.tolist()) == (("ann", "bob"), [2, 1])


def parts_of(texts):
    """All that there is of texts."""
    return (
        *(texts.user_ids, [*texts.texts], texts.start_U.tolist()),
        *(texts.set_aside, texts.left_out, texts.notes),
    )


HOSTILE = ["", " \n", "x" * 3000, "\ud800", "\udcff", "\x00", None, 3, ["a"], "🙂", "fine"]


def test_hostile_texts_are_left_out_alone(monkeypatch):
    """Wherever texts lie; each stays its user's own matter, and the file is as it was."""
    rows = [{"user_id": f"u{n % 3}", "text": text} for n, text in enumerate(HOSTILE)]
    schema = Schema(max_characters=2000)
    texts = read(rows, on_bad_rows="isolate", schema=schema)
    assert texts.user_ids == ("u0", "u1", "u2")
    assert [*texts.texts] == ["🙂", "fine", "\x00"]
    assert texts.counts_U.tolist() == [1, 1, 1]
    reasons = (
        "empty",
        "empty",
        "3000 characters",
        "surrogate",
        "not UTF-8",
        "text",
        "text",
        "text",
    )
    assert len(texts.set_aside) == len(reasons)
    for reason, part in zip(texts.set_aside, reasons, strict=True):
        assert part in reason
    monkeypatch.setattr(mapped_rows, "IN_MEMORY", 0)
    assert parts_of(read(rows, on_bad_rows="isolate", schema=schema)) == parts_of(texts)


def test_one_user_with_too_many_rows():
    rows = [{"user_id": u, "text": f"{n}"} for n, u in enumerate("abaab")]
    with pytest.raises(InputError, match="f:4: more than 2 rows of this user"):
        read(rows, schema=Schema(max_judgements=2))
    found = read(rows, schema=Schema(max_judgements=2), on_bad_rows="skip")
    assert ([*found.texts], found.left_out) == (["0", "2", "1", "4"], 1)


def test_what_is_broken_off_leaves_nothing(tmp_path, monkeypatch):
    """And what is begun again is the same."""
    monkeypatch.setattr(mapped_rows, "IN_MEMORY", 0)
    monkeypatch.setattr(mapped_rows, "_PART", 1)
    monkeypatch.setattr(mapped_rows.tempfile, "tempdir", str(tmp_path))

    def interrupted():
        yield from [("f", line, row) for line, row in enumerate(ROWS, start=1)]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        UserTexts.from_placed_rows(interrupted())
    assert not [*tmp_path.iterdir()]
    assert [*read(ROWS).texts] == ["one", "three", " two\n", "four"]
