"""The declaration that is found in all rows of a source, and that a run reads them by it."""

import csv
import json
import shlex

import pytest

from murmuration.planning.declaration import find_declaration
from murmuration.planning.look import look_at
from murmuration.preference.data.columns import parse_columns
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.schema import Schema


@pytest.fixture
def written(tmp_path):
    """A function: rows in a file, by the end of its name."""

    def write(rows, name="rows.jsonl"):
        path = tmp_path / name
        if name.endswith(".csv"):
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0], delimiter=";")
                writer.writeheader()
                writer.writerows(rows)
        else:
            lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    return write


def rated(labels, **more):
    return [
        {"user_id": f"u{n}", "prompt": "p", "completion": f"text {n}", "label": label, **more}
        for n, label in enumerate(labels)
    ]


def won(labels):
    return [
        {"user_id": f"u{n}", "prompt": "p", "response_a": "x", "response_b": "y", "winner": label}
        for n, label in enumerate(labels)
    ]


@pytest.mark.parametrize(
    ("labels", "scale"),
    [([1, 0], "0..1"), ([1, 1], "0..1"), ([0.0, 1.0], "0..1"), ([1, -1], "-1..1"),
     ([-1, 0, 1], "-1..1"), ([1, 2, 3, 4, 5], "1..5"), ([2, 4, 5], "2..5"), ([1, 2], "1..2"),
     (["1", "0"], "0..1"), ([True, False], None), (["up", "down"], None), (["yes", "no"], None),
     ([n / 2 for n in range(1, 160)], "0..100"), ([1, 2, 3, 4, 5] * 20 + [55], "1..5"),
     ([1, 0] * 60 + [2], "0..1"), ([1, 2, 3, 4, 5] * 30 + [0], "0..5"),
     ([1, 2, 1e30], "1..2"), ([1e30], None), ([0.0, 1e-9], None)],
)  # fmt: skip
def test_the_scale_of_labels_that_are_numbers(written, labels, scale):
    declaration = find_declaration(written(rated(labels)), "", {})
    assert declaration.declared.get("scale") == scale
    assert [each for each in declaration.reasons if "--scale" in each] == [*declaration.reasons]


@pytest.mark.parametrize(
    ("labels", "scale"),
    [([0, 1], "0..1"), ([1, 2], "1..2"), ([-3, 1, 2], "-3..3"), (["a", "b", "tie"], None),
     (["response_a", "response_b"], None), ([1, 1], "0..1"), ([2, 2], None)],
)  # fmt: skip
def test_the_scale_of_winners_that_are_numbers(written, labels, scale):
    declaration = find_declaration(written(won(labels)), "", {})
    assert declaration.declared.get("scale") == scale
    if scale:
        (why,) = declaration.reasons
        assert "'response_a' won" in why and f"--scale {scale}" in why


def test_winners_that_name_numbered_sides_need_no_scale(written):
    rows = [{"user_id": "u", "prompt": "p", "answer_1": "x", "answer_2": "y", "choice": n}
            for n in (1, 2)]  # fmt: skip
    assert "scale" not in find_declaration(written(rows), "", {}).declared


def test_all_labels_may_be_one_number(written):
    declaration = find_declaration(written(rated([5, 5])), "", {})
    assert (
        declaration.declared["positive_from"] == "5"
        and "all labels are 5" in declaration.reasons[0]
    )


def test_what_is_stated_is_not_looked_for(written):
    path = written(rated([1, 2, 3]))
    for stated in ({"scale": "1..5"}, {"positive_from": "2"}, {"scale": ""}):
        declaration = find_declaration(path, "", stated)
        assert {
            **declaration.declared,
            **stated,
        } == declaration.declared and not declaration.reasons


def bare(chosen, rejected, **more):
    return {"user_id": "u", "chosen": chosen, "rejected": rejected, **more}


@pytest.mark.parametrize(
    ("rows", "without"),
    [([bare("Tea is warm", "Rain is wet")] * 3, True),
     ([bare("Why? Tea is warm", "Why? Rain is wet")] * 3, False),
     ([bare("Tea is warm", "Rain is wet", prompt="")] * 3, True),
     ([bare("Tea", "Rain"), bare("Tea", "Rain", prompt="Why?")], False),
     ([bare("\n\nHuman: a\n\nAssistant: b", "\n\nHuman: a\n\nAssistant: c")], False),
     ([{"user_id": "u", "completion": "Tea", "label": "up"}], True),
     ([{"user_id": "u", "prompt": "p", "completion": "Tea", "label": "up"}], False)],
)  # fmt: skip
def test_rows_without_a_prompt(written, rows, without):
    declaration = find_declaration(written(rows), "", {})
    assert bool(declaration.declared.get("no_prompt")) is without
    assert any("--no-prompt" in each for each in declaration.reasons) is without


@pytest.mark.parametrize(
    ("row", "columns"),
    [({"Email": "a@x", "Question": "p", "Better": "x", "Worse": "y"},
      "user_id=Email,chosen=Better,rejected=Worse,prompt=Question"),
     ({"who": "a", "prompt": "p", "Answer A": "x", "Answer B": "y", "Vote": "A"},
      "user_id=who,response_a=Answer A,response_b=Answer B,winner=Vote"),
     ({"worker": "a", "question": "p", "answer": "x", "stars": 4},
      "completion=answer,label=stars,prompt=question"),
     ({"user_id": "a", "question": "p", "chosen": "x", "rejected": "y"}, "prompt=question"),
     ({"User ID": "a", "Prompt": "p", "Chosen": "x", "Rejected": "y"},
      "user_id=User ID,chosen=Chosen,rejected=Rejected,prompt=Prompt"),
     ({"rater": "a", "judge": "b", "prompt": "p", "chosen": "x", "rejected": "y"},
      "user_id=rater"),
     ({"user_id": "a", "messages": [{"role": "user", "content": "p"},
                                    {"role": "assistant", "content": "x"}], "label": "up"}, ""),
     ({"worker": "a", "prompt": "p", "chosen": "x", "rejected": "y", "topic": "t"}, ""),
     ({"user_id": "a", "topic": "t", "responses": ["x", "y"], "best": 0}, "prompt=topic")],
)  # fmt: skip
def test_columns_by_their_names(written, row, columns):
    path = written([row] * 2)
    declaration = find_declaration(path, "", {})
    assert declaration.columns == columns
    assert any(columns in each for each in declaration.reasons) is bool(columns)
    read = look_at(path, "", {}).judgements
    assert read.left_out == 0 and read.user_ids == ("a@x" if "Email" in row else "a",)


def test_columns_that_are_named_are_taken_and_no_others(written):
    row = {"who": "a", "q": "p", "good": "x", "bad": "y", "question": "z"}
    declaration = find_declaration(written([row]), "chosen=good,rejected=bad,prompt=q", {})
    assert declaration.columns == "chosen=good,rejected=bad,prompt=q,user_id=who"


def test_a_column_whose_name_cannot_be_written_is_not_proposed(written):
    row = {"user_id": "a", "prompt": "p", "chosen": "x", "rejected": "y"}
    row["e=mail,"] = row.pop("user_id")
    with pytest.raises(InputError, match="no column says who judged"):
        look_at(written([row]), "", {})


def test_rows_that_say_how_likely_their_label_is_false(written):
    row = {**bare("x", "y", prompt="p"), "flip_probability": 0.2}
    assert find_declaration(written([row] * 3), "", {}).declared["labels"] == "randomized"


def test_a_user_with_very_many_rows(written):
    rows = [bare("x", "y", prompt="p")] * 10_001
    declaration = find_declaration(written(rows), "", {})
    assert declaration.declared["max_judgements"] == 20_000
    assert declaration.reasons == (
        "one user has 10,001 rows: --max-judgements 20000 reads them all",
    )


def test_scores_are_pairs_or_the_best_of_several(written):
    scored = {"user_id": "u", "prompt": "p", "responses": ["x", "y"], "scores": [2, 1]}
    four = {**scored, "responses": list("xyzw"), "scores": [4, 3, 2, 1]}
    assert find_declaration(written([scored]), "", {}).kinds == {"pairs": 1}
    declaration = find_declaration(written([scored, four]), "", {})
    assert declaration.kinds == {"top-1": 2} and "--kind ranking" in declaration.reasons[0]
    assert declaration.schema("top-1") == Schema("top-1", 4)


@pytest.mark.parametrize(
    ("rows", "name"),
    [(rated([1, 2, 3, 4, 5] * 4), "rows.jsonl"), (won([0, 1] * 10), "rows.jsonl"),
     ([bare("Tea is warm", "Rain is wet")] * 4, "odd name.jsonl"),
     ([{"Rater": "a", "Frage": "p", "Answer A": "x", "Answer B": "y", "Choice": "B"}] * 3,
      "rows.csv")],
)  # fmt: skip
def test_a_run_reads_by_the_command_what_the_look_read(written, rows, name):
    looked = look_at(written(rows, name), "", {})
    words = shlex.split(looked.command.replace("\\\n", " "))
    assert words[:3] == ["murmuration", "run", "--data"]
    stated = {
        word.removeprefix("--"): True if after.startswith("--") else after
        for word, after in zip(words, [*words[1:], "--"], strict=True)
        if word.startswith("--")
    }
    fields = {name.replace("_", "-") for name in vars(Schema())}
    schema = Schema.of({each: value for each, value in stated.items() if each in fields})
    columns = parse_columns(str(stated.get("columns", "")))
    read = load_judgements(words[3], columns=columns, on_bad_rows="skip", schema=schema)
    assert (read.prompts, read.responses) == (
        looked.judgements.prompts,
        looked.judgements.responses,
    )
    assert read.y_R.tolist() == looked.judgements.y_R.tolist() and len(read)
