"""What an export's own system took out: left out, counted, and a matter of the record alone."""

import json

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.formats.marks import Mark, without_marked
from murmuration.preference.data.loading import load_judgements, public_texts
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.splitting import convert, split_users
from tests.preference.data.formats.examples import EXAMPLES

#: How exports write that a cell is true, and that it is false.
YES, NO = (True, "True", "true", 1, 1.0, "1", "t"), (False, "False", 0, "0", "f", 0.0)


@pytest.fixture
def load(write_rows):
    """A function: what is read of rows of a format."""

    def call(rows, name, kind="pairs"):
        return load_judgements(write_rows(rows), schema=Schema(format=name, kind=kind))

    return call


@pytest.mark.parametrize("cell", [*NO, *YES, None, ""])
def test_true_and_false_in_all_spellings(cell):
    for value, spellings in ((True, YES), (False, NO)):
        left, reasons = without_marked({"x": cell}, [Mark("x", (value,), "of it")])
        taken = any(
            cell is each or (cell == each and type(cell) is type(each)) for each in spellings
        )
        assert (left is None, len(reasons)) == (taken, int(taken))


def test_what_is_no_mark_takes_out_nothing():
    marks = [Mark("a.b", (-1,), "of it"), Mark("c.*.d", ("gone",), "of it")]
    listed = {"c": [1, None, {"d": "here"}]}
    for row in ({}, {"a": 5}, {"a": {"b": 0}}, {"a": "{"}, {"c": 3}, listed,
                {"c": {"x": {"d": ["gone"]}}}):  # fmt: skip
        assert without_marked(row, marks) == (row, [])


def test_entries_of_lists_and_objects_are_taken_out_as_json_too():
    mark = Mark("c.*.*.d.-1.e", (-1,), "of it")
    gone, stays = {"d": [{"e": 0}, {"e": "-1.0"}]}, {"d": [{"e": -1}, {"e": 0}]}
    row = {"c": {"x": [gone, stays, 7], "y": {"z": gone}}, "other": 1}
    expected = {"c": {"x": [stays, 7], "y": {}}, "other": 1}
    for cells in (row, {**row, "c": json.dumps(row["c"])}):
        left, reasons = without_marked(cells, [mark])
        assert left == expected and len(reasons) == 2


def marked_rows():
    """Yield (format, rows, marked copies of one of them, reason)."""
    rows = {name: example("u", 1) for name, example in EXAMPLES.items()}
    for name in ("arena", "arena-models"):
        yield name, rows[name], {"anony": False}, "'anony'"
        yield name, rows[name], {"dedup_tag": {"high_freq": True, "sampled": False}}, "'dedup_tag.s"
    (record,) = rows["argilla"]
    yield "argilla", [record], {"status": "discarded"}, "'status'"
    for status in ("draft", "discarded"):
        answer = {"user_id": "w", "value": "response_a", "status": status}
        yield "argilla", [record], {"responses": {"better": [answer]}}, "'responses.*.*.status'"
        values = {"better": {"value": "response_a"}}
        old = [{"user_id": "w", "values": values, "status": status}]
        yield "argilla", [record], {"responses": old}, "'responses.*.status'"
    (task,) = rows["label-studio"]
    for cells, column in (
        ({"was_cancelled": True}, "was_cancelled"),
        ({"last_action": "rejected"}, "last_action"),
        ({"last_action": "skipped"}, "last_action"),
        ({"reviews": [{"accepted": True}, {"accepted": False}]}, "reviews.-1.accepted"),
    ):
        annotation = {**task["annotations"][0], "completed_by": "w", **cells}
        yield "label-studio", [task], {"annotations": [annotation]}, f"'annotations.*.{column}'"


@pytest.mark.parametrize(("name", "rows", "cells", "reason"), list(marked_rows()))
def test_what_is_marked_is_left_out_and_counted(load, name, rows, cells, reason):
    """Also where bad rows are refused."""
    before = load(rows, name)
    after = load([*rows, *({**row, **cells} for row in rows)], name)
    assert (after.prompts, after.responses) == (before.prompts, before.responses)
    assert (after.y_R == before.y_R).all() and after.left_out == 0
    assert set(after.user_ids) == set(before.user_ids)
    (note,) = [note for note in after.notes if "left out" in note]
    assert reason in note and f"({len(rows)} rows)" in note
    with pytest.raises(InputError, match="no judgements: left out"):
        load([{**row, **cells} for row in rows], name)


def test_who_has_marked_rows_alone_stays_a_user(load):
    rows = [*EXAMPLES["arena-models"]("u", 1), *EXAMPLES["arena-models"]("v", 1)]
    rows[1] = {**rows[1], "anony": False}
    loaded = load(rows, "arena-models")
    assert (loaded.user_ids, loaded.counts_U.tolist()) == (("u", "v"), [1, 0])


def test_a_rejected_statement_goes_with_its_votes_in_any_order(load, write_rows):
    rows = [*EXAMPLES["polis"]("u", 0), *EXAMPLES["polis"]("u", 1)]
    rejected = {**rows[0], "moderated": "-1"}
    others = [row | {"moderated": 1} if "comment-body" in row else row for row in rows[1:]]
    for order in ([rejected, *others], [*others, rejected], [rows[0], rejected, *others]):
        loaded = load(order, "polis", kind="thumbs")
        texts = {text for responses in loaded.responses for text in responses}
        assert len(loaded) == 3 and rows[0]["comment-body"] not in texts
        assert sum("left out" in note for note in loaded.notes) == 2
        stay = [row["comment-body"] for row in others if "comment-body" in row]
        assert public_texts(write_rows(order), "", "polis") == stay


def test_a_voter_rejects_no_statement(load):
    """A row that names a voter says nothing of what others' votes are about."""
    rows = [*EXAMPLES["polis"]("u", 0)]
    hostile = {**rows[0], "voter-id": "x", "vote": 1, "moderated": -1}
    loaded = load([hostile, *rows], "polis", kind="thumbs")
    assert loaded.counts_U[loaded.user_ids.index("u")] == 2


@pytest.mark.parametrize(
    "cells",
    [{"deleted": True}, {"review_result": False}, {"tree_state": "aborted_low_grade"},
     {"tree_state": "halted_by_moderator"}],
)  # fmt: skip
def test_deleted_messages_are_in_no_ranking(write_rows, tmp_path, cells):
    rows = [*EXAMPLES["oasst"]("u", 1), *EXAMPLES["oasst"]("v", 1)]
    rows[-1] = {**rows[-1], **cells}
    made = convert(
        write_rows(rows), tmp_path / "out.jsonl", columns="user_id=user_id", format="oasst"
    )
    assert (made.rows, made.users, made.bad) == (1, 1, ())
    (reason,) = made.taken_out
    assert next(iter(cells)) in reason and "(1 rows)" in reason


def test_a_split_counts_what_was_taken_out(write_rows, tmp_path):
    rows = [row for n in range(40) for row in EXAMPLES["arena-models"](f"u{n}", 1)]
    rows += [{**row, "anony": "false"} for row in rows[:7]]
    split = split_users(write_rows(rows), 0.5, tmp_path, format="arena-models")
    written_rows = [*split.train.open(), *split.test.open()]
    assert len(written_rows) == 40 and split.left_out == 0
    assert "'anony'" in split.taken_out[0] and "(7 rows)" in split.taken_out[0]
