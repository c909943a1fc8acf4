"""What is ordinary in messy files is said in a line, once, with its counts."""

import csv
import json

import pytest

from murmuration.planning.look import look_at

USERS, ROWS = 120, 240


def pair(n, **more):
    row = {"user_id": f"u{n % USERS}", "prompt": f"Why {n}?", "chosen": f"yes {n}"}
    return {**row, "rejected": f"no {n}", **more}


def thumb(n, **more):
    row = {"user_id": f"u{n % USERS}", "prompt": f"Why {n // 2}?", "completion": f"so {n}"}
    return {**row, "label": n % 2 == 1, **more}


def capitals():
    emails = [f"name{n % USERS}@x.org" for n in range(ROWS)]
    emails[3], emails[4], emails[5] = "NAME3@x.org", " name4@x.org", "Name5@x.org"
    return [pair(n, user_id=email) for n, email in enumerate(emails)]


def letters():
    names = {7: "Jose\u0301", 127: "JOSE\u0301", 8: "ａ1", 128: "a1"}
    return [pair(n, user_id=names.get(n, f"u{n % USERS}")) for n in range(ROWS)]


def repeated():
    rows = [pair(n) for n in range(ROWS)]
    return rows + rows[:7]


def deleted():
    return [pair(n, rejected="[deleted]" if n % 20 == 0 else f"no {n}") for n in range(ROWS)]


def few():
    return [pair(n, user_id=f"u{n % 30}") for n in range(ROWS)]


def alone():
    return [pair(n, user_id=f"u{n}") for n in range(ROWS)]


def large():
    return [pair(n) for n in range(ROWS)] + [pair(n, user_id="u0") for n in range(ROWS, 357)]


def indian():
    return [pair(n, prompt="বাংলা ভাষা") if n % 4 == 0 else pair(n) for n in range(ROWS)]


def other():
    ranked = {"prompt": "p", "responses": ["x", "y"], "ranking": [1, 2]}
    return [pair(n) for n in range(ROWS)] + [ranked | {"user_id": f"u{n}"} for n in range(30)]


def mixed():
    return [pair(n) for n in range(ROWS)] + [thumb(n) for n in range(100)]


def marked():
    return [pair(n, is_hidden=n % 10 == 0, status="ok" if n % 8 else "removed", tag="t")
            for n in range(ROWS)]  # fmt: skip


def broken():
    rows = [pair(n, prompt="" if n in (3, 4, 5) else f"Why {n}?") for n in range(ROWS)]
    return [*rows, "{", pair(1, user_id=None)]


def odd_number():
    return [thumb(n, label=55 if n == 9 else 1 + n % 5) for n in range(ROWS)]


def odd_word():
    return [thumb(n, label="whatever") if n == 9 else thumb(n) for n in range(ROWS)]


def sides():
    return [
        {"Rater": f"u{n % USERS}", "PROMPT": f"Why {n}?", "ANSWER_A": f"a {n}",
         "ANSWER_B": f"b {n}", "LABEL": "A" if n % 3 else "B"}
        for n in range(ROWS)
    ]  # fmt: skip


FILES = {
    capitals: ["ids that differ only in case, spaces or Unicode form: 122 ids are 120 without",
               "write their ids alike"],
    letters: ["ids that differ only in case, spaces or Unicode form: 121 ids are 120 without"],
    repeated: ["duplicates: 7 of 247 rows"],
    deleted: ["one answer to many prompts: '[deleted]' in 12 of 240 judgements"],
    few: ["few people: 30 users. A delta of 1 / 30 = 0.033 would allow to publish one of them"],
    alone: ["every judgement has a user of its own"],
    large: ["one user, 'u0', made 33.3 % of all judgements"],
    indian: ["hashing cuts words at the vowel signs of Bengali"],
    other: ["rows of another kind: 30 as ranking"],
    mixed: ["pairs and thumbs: 240 rows are pairs and 100 are single ratings: --kind pairs reads"],
    marked: ["the column 'is_hidden' is not used, and may mark rows: 'false' in 216, 'true' in 24",
             "the column 'status' is not used, and may mark rows: 'ok' in 210, 'removed' in 30"],
    broken: ["5 of 242 rows", "3 like rows.jsonl:4: 'prompt' is empty", "1 like rows.jsonl:241:"],
    odd_number: ["odd labels of thumbs: '55' in 1", "labels are 1, 2, 3, 4, 5: --scale 1..5"],
    odd_word: ["odd labels of thumbs: 'whatever' in 1"],
    sides: ["columns used: user_id = Rater, prompt = PROMPT, response_a = ANSWER_A, "
            "response_b = ANSWER_B, which of the two won: LABEL"],
}  # fmt: skip
#: The beginnings of all findings.
KNOWN = ("ids that", "duplicates:", "one answer", "few people", "pairs and thumbs", "the column",
         "odd labels", "every judgement", "one user", "hashing", "rows of another")  # fmt: skip


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A function: rows in a file, CSV where they come in columns of capitals."""
    monkeypatch.chdir(tmp_path)

    def write(rows):
        if "LABEL" in rows[0]:
            with (tmp_path / "rows.csv").open("w", encoding="utf-8-sig", newline="") as file:
                writer = csv.DictWriter(file, rows[0], delimiter=";")
                writer.writeheader()
                writer.writerows(rows)
            return "rows.csv"
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
        return "rows.jsonl"

    return write


@pytest.mark.parametrize("rows", FILES, ids=lambda rows: rows.__name__)
def test_each_finding_is_printed_once_and_no_other(written, rows):
    looked = look_at(written(rows()), "", {})
    text = " ".join(str(looked).split())
    for expected in FILES[rows]:
        assert text.count(expected) == 1, text
    expected = [line for line in FILES[rows] if line.startswith(KNOWN)]
    assert len(looked.findings) == len(expected)
    assert all(each.startswith(KNOWN) for each in looked.findings)


def test_a_tidy_file_has_no_findings(written):
    looked = look_at(written([pair(n) for n in range(ROWS)]), "", {})
    assert not looked.findings and not looked.declared
    assert "Look at these" not in str(looked)


@pytest.mark.parametrize("label", ["tie", "neutral", "unsure"])
def test_a_rare_tie_is_not_odd(written, label):
    rows = [thumb(n, label=label) if n == 9 else thumb(n) for n in range(ROWS)]
    assert not look_at(written(rows), "", {}).findings


def test_an_answer_that_all_items_share_is_no_finding(written):
    """Votes on few items name each of them often."""
    rows = [pair(n, chosen=f"item {n % 7}", rejected=f"item {n % 5 + 7}") for n in range(ROWS)]
    assert not look_at(written(rows), "", {}).findings


def test_marks_of_an_export_are_seen_too(written):
    first = [{"role": "user", "content": "Tea?"}, {"role": "assistant", "content": "No."}]
    second = [first[0], {"role": "assistant", "content": "Gladly."}]
    rows = [
        {"judge": f"u{n}", "model_a": "m1", "model_b": "m2", "winner": "model_a",
         "conversation_a": first, "conversation_b": second, "flagged": n % 4 == 0, "anony": True}
        for n in range(120)
    ]  # fmt: skip
    (line,) = (each for each in look_at(written(rows), "", {}).findings if "mark rows" in each)
    assert "'flagged'" in line and "'true' in 30" in line


@pytest.mark.parametrize(
    ("column", "cells", "shown"),
    [("deleted_at", [None, *range(40)], "'something' in 117, nothing in 3"),
     ("superseded_by", ["", *range(99)], "'something' in 118, nothing in 2"),
     ("Tombstone", [False, True], "'false' in 60, 'true' in 60"),
     ("anony", [1, 0, 0], "'0' in 80, '1' in 40"),
     ("Duplicate of", ["", "", "r7"], "nothing in 80, 'r7' in 40")],
)  # fmt: skip
def test_what_may_say_that_a_row_does_not_count_is_listed(written, column, cells, shown):
    rows = [pair(n) | {column: cells[n % len(cells)]} for n in range(120)]
    found = [line for line in look_at(written(rows), "", {}).findings if "may mark rows" in line]
    assert len(found) == 1 and repr(column) in found[0] and shown in found[0]


def test_a_mark_that_late_rows_alone_have_is_listed(written):
    """Where it is false, JSON leaves it out; the look at columns ended after a hundred rows."""
    rows = [pair(n) | ({"removed": True} if n == 119 else {}) for n in range(120)]
    found = [line for line in look_at(written(rows), "", {}).findings if "may mark rows" in line]
    assert len(found) == 1 and "nothing in 119, 'true' in 1" in found[0]
