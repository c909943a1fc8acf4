"""What a look at judgements finds."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from murmuration.planning import judgement_statistics as statistics
from murmuration.planning import look
from murmuration.preference.data.files import reading
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import Schema
from murmuration.preference.language.row_cache import FOLDER


def pair(user, chosen, rejected, **more):
    row = {"user_id": user, "prompt": "What now?", "chosen": chosen, "rejected": rejected}
    return {**row, **more}


@pytest.fixture
def written(tmp_path):
    """A function: rows, or lines, in a file."""

    def write(rows, name="rows.jsonl"):
        path = tmp_path / name
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    return write


def test_the_kind_that_most_rows_are_of_is_taken(written):
    listed = {"user_id": "a", "prompt": "p", "responses": ["x", "y", "z", "w"]}
    rows = [pair("a", "x", "y")] + [{**listed, "best": best} for best in (0, 1, 2)]
    looked = look.look_at(written([*rows, {**listed, "ranking": [1, 2, 3, 4]}]), "", {})
    assert (looked.schema.kind, looked.schema.responses) == ("top-1", 4)
    (line,) = (each for each in looked.findings if each.startswith("rows of another kind"))
    assert "1 as pairs, 1 as ranking" in line
    assert (len(looked.judgements), looked.judgements.left_out) == (3, 2)


def thumb(user, text, label):
    return {"user_id": user, "prompt": "What now?", "completion": text, "label": label}


def test_single_ratings_are_pairs_where_most_are_in_one(written):
    rows = [thumb("a", "x", True), thumb("a", "y", False), thumb("b", "x", True)]
    looked = look.look_at(written(rows), "", {})
    assert (looked.schema.kind, len(looked.judgements)) == ("pairs", 1)
    assert not any("another kind" in each for each in looked.findings)
    assert looked.judgements.thumbs_alone == 1
    assert {"completion", "label"} <= looked.taken.keys()
    assert any("3 single ratings make 1 pairs" in note for note in looked.judgements.notes)


def test_single_ratings_are_thumbs_where_few_are_in_a_pair(written):
    rows = [thumb("a", "x", True), thumb("a", "y", False)]
    rows += [thumb(user, "x", True) for user in "bcd"]
    looked = look.look_at(written(rows), "", {})
    assert (looked.schema.kind, len(looked.judgements)) == ("thumbs", 5)
    looked = look.look_at(written(rows[1:]), "", {})
    assert (looked.schema.kind, len(looked.judgements)) == ("thumbs", 4)
    assert look.look_at(written(rows), "", {"kind": "pairs"}).schema.kind == "pairs"


def test_what_is_declared_is_not_guessed(written):
    rows = [pair("a", "x", "y"), {"user_id": "a", "prompt": "p", "responses": ["x"] * 3, "best": 0}]
    path = written(rows)
    looked = look.look_at(path, "", {"kind": "top-1", "responses": 5})
    assert (looked.schema.kind, looked.schema.responses) == ("top-1", 5)
    looked = look.look_at(path, "", {"kind": "pairs"})
    assert not any("another kind" in each for each in looked.findings)
    with pytest.raises(InputError, match="all 2 rows are bad"):
        look.look_at(path, "", {"kind": "ranking"})


def test_columns_that_were_taken_and_bad_rows_by_reason(written):
    rows = [{**pair("u", "x", "y"), "who": f"u{n}", "day": 3} for n in range(6)]
    for row in rows:
        del row["user_id"]
    rows[1]["chosen"] = rows[4]["chosen"] = ""
    looked = look.look_at(written([*rows, '{"who": ', '{"who": 5']), "user_id=who", {})
    assert list(looked.columns) == ["prompt", "chosen", "rejected", "who", "day"]
    assert looked.taken["user_id"] == "who" and "tie" not in looked.taken
    assert max(times for times, _ in looked.reasons.values()) == 2
    assert sum(times for times, _ in looked.reasons.values()) == looked.judgements.left_out == 4
    first = looked.reasons["… is empty"][1]
    assert first.endswith("rows.jsonl:2: 'chosen' is empty")


def test_a_users_column_by_another_known_name_is_shown(written):
    rows = [pair("u", "x", "y") for _ in range(3)]
    for row in rows:
        row["annotator"] = row.pop("user_id")
    looked = look.look_at(written(rows), "", {})
    assert looked.taken["user_id"] == "annotator" and len(looked.judgements) == 3
    assert any("annotator" in note for note in looked.judgements.notes)


def judged(rows, **declared):
    return Judgements.from_rows(rows, schema=Schema(**declared))


def test_rules_that_know_nothing_of_the_prompt():
    rows = [pair("a", "long one", "short")] * 3 + [pair("b", "short", "long one")]
    rows += [pair("c", "equal", "alike"), pair("d", "a long tie here", "no", tie=True)]
    judgements = judged(rows)
    guess, longer = statistics.guessing(judgements), statistics.longer_wins(judgements)
    assert (guess.pooled, guess.by_user, guess.rows) == (0.5, 0.5, 5)
    assert longer.pooled == pytest.approx(3.5 / 5) and longer.by_user == pytest.approx(1.5 / 3)


def test_rules_about_texts_without_blanks():
    rows = [pair("a", "先存起来再等一等。", "全部花掉。"), pair("b", "ควรเก็บเงินไว้ก่อน", "ซื้อ ซื้อ")]
    judgements = judged(rows)
    assert statistics.longer_wins(judgements).pooled == 1.0


def test_rules_over_several_responses():
    shown = {"user_id": "a", "prompt": "p", "responses": ["a a a a", "bbbbbbbb", "c c c c", "d"]}
    rows = [{**shown, "best": best} for best in (0, 1)] + [{**shown, "best": [0, 2]}]
    judgements = judged(rows, kind="top-1", responses=4)
    assert (
        statistics.guessing(judgements).pooled == 0.25 and statistics.guessing(judgements).rows == 2
    )
    assert statistics.longer_wins(judgements).pooled == pytest.approx((0.5 + 0.0) / 2)


def test_ties_alone_leave_nothing_to_guess():
    guess = statistics.guessing(judged([pair("a", "x", "y", tie=True)]))
    assert guess.rows == 0 and np.isnan(guess.pooled)


def test_users_by_how_many_judgements_they_have():
    counts_U = np.array([0, 1, 1, 2, 3, 4, 5, 9, 40])
    bins = dict(statistics.histogram(counts_U))
    assert bins == {"0": 1, "1": 2, "2": 1, "3–4": 2, "5–8": 1, "9–16": 1, "17–32": 0, "33–64": 1}
    assert list(statistics.histogram(np.array([1, 2]))) == [("1", 1), ("2", 1)]
    generator = np.random.default_rng(0)
    many_U = generator.integers(0, 3000, 500)
    assert sum(users for _, users in statistics.histogram(many_U)) == 500


def test_a_heavy_tail():
    counts_U = np.array([100] + [1] * 100 + [0] * 99)
    assert statistics.shares(counts_U) == {
        "the largest user": 0.5, "1 % of users": 101 / 200, "10 % of users": 119 / 200
    }  # fmt: skip
    assert statistics.shares(np.array([3])) == {"the largest user": 1.0}


def test_scripts():
    texts = ["The cat and the dog have not met.", "Der Hund ist nicht mit der Katze.",
             "Кошка и собака не знакомы.", "猫と犬はまだ会っていない", "12 + 3"]  # fmt: skip
    rows = [{**pair("a", text, "x"), "prompt": text} for text in texts]
    scripts = statistics.scripts_of(judged(rows))
    assert scripts["Latin"] == 4 and scripts["Cyrillic"] == 2 and scripts["no letters"] == 2
    without_prompt = replace(judged(rows[:1]), prompts=[""])
    assert statistics.scripts_of(without_prompt) == {"Latin": 1}


def test_the_column_of_users_is_the_one_that_a_run_takes(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"worker": 1, "prompt": "p", "chosen": "a", "rejected": "b"}\n')
    assert look.look_at(str(path), "", {}).taken["user_id"] == "worker"


@pytest.mark.parametrize("column", ["ranking", "ranks", "rank"])
def test_ranks_are_shown_as_used_whatever_their_column_is_called(written, column):
    row = {"user_id": "a", "prompt": "p", "responses": ["x", "y"], column: [2, 1]}
    assert look.look_at(written([row]), "", {}).taken["ranking"] == column


def test_two_sides_and_who_won_are_shown_as_used(written):
    row = {"user_id": "a", "prompt": "p", "answer_1": "x", "answer_2": "y", "choice": 2}
    looked = look.look_at(written([row]), "", {})
    taken = looked.taken
    assert (taken["response_a"], taken["response_b"], taken["winner"]) == (
        "answer_1",
        "answer_2",
        "choice",
    )
    assert not {"chosen", "rejected"} & {*taken}
    columns = "response_a = answer_1, response_b = answer_2, which of the two won: choice"
    assert columns in " ".join(str(looked).split())


@pytest.mark.parametrize("there", [False, True])
def test_what_features_cost_or_how_to_have_them_stands_beside_the_advice(
    written, there, monkeypatch
):
    monkeypatch.setattr(look, "has_minilm", lambda: False)
    monkeypatch.setattr(look, "has_smollm2", lambda: there)
    path = written([pair(f"u{n}", "one two three", f"four {n}") for n in range(50)])
    shown = " ".join(str(look.look_at(path, "", {})).split())
    assert ("smollm2 first reads every response" in shown) is there
    assert ("pip install" in shown) is not there


def test_the_rows_are_read_twice(written, monkeypatch):
    """Once to find the declaration, and once by it, as a run reads them."""
    opened, whole = [], reading.open_regular
    monkeypatch.setattr(reading, "open_regular", lambda path: opened.append(path) or whole(path))
    path = written([pair("a", "x", "y")])
    opened.clear()
    look.look_at(path, "", {})
    assert [str(each) for each in opened] == [path] * 2


def test_a_summary_is_a_line_and_in_a_notebook_its_escaped_text(written):
    rows = [pair("<b>who</b>", "x", "y"), pair("a", "x", "y")]
    source = written(rows, "<i>rows.jsonl")
    summary = look.look_at(source, "", {})
    assert repr(summary) == f"DataSummary({source!r}, Judgements(2 pairs of 2 users))"
    shown = summary._repr_html_()
    assert "2 judgements by 2 users" in shown
    assert "<i>" not in shown
    assert "<b>" not in shown


def test_the_command_says_that_its_settings_were_chosen_from_the_data(written):
    path = written([pair("a", "x", "y")])
    looked, public = look.look_at(path, "", {}), look.look_at(path, "", {}, public=True)
    assert "--chosen-from-data" in looked.command and "--chosen-from-data" in str(looked)
    assert "--chosen-from-data" not in str(public)
    for summary in (looked, public):
        assert str(summary).startswith("operator only: this is exact private information")


def test_ratings_from_1_to_5_are_read_by_the_scale_that_is_found(written):
    rows = [thumb(f"u{n}", f"text {n}", 1 + n % 5) for n in range(20)]
    path = written(rows)
    assert look.look_at(path, "", {}).schema.options == "--kind thumbs --scale 1..5"
    summary = look.look_at(path, "", {"positive_from": "4", "kind": "thumbs"})
    assert summary.judgements.y_R.mean() == pytest.approx(0.4)
    assert summary.schema.options == "--kind thumbs --positive-from 4"


@pytest.fixture
def forty(make_rows):
    return Judgements.from_rows(make_rows([40]))


def test_a_few_are_computed_and_then_found(forty, language_model, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    first = look.time_of(language_model("bert"), forty)
    (timed,) = re.findall(r"as measured on (\d+); once, then they are found", first)
    assert 0 < int(timed) <= 16
    assert "had been computed before" in look.time_of(language_model("bert"), forty)


def test_hashing_keeps_nothing(forty):
    for _ in range(2):
        assert re.match(r"hashing: about .* for all \d+ distinct", look.time_of("hashing", forty))


def test_features_that_are_not_there(forty):
    with pytest.raises(InputError, match="no such folder"):
        look.time_of("./none", forty)


def test_strengths_are_offered_where_a_public_list_is_declared(written, tmp_path):
    rows = [pair("a", "x", "y"), pair("b", "y", "z"), pair("b", "x", "w"), pair("c", "x", "v")]
    path = written(rows)
    items = tmp_path / "items.json"
    items.write_text('["x", "y"]')
    looked = look.look_at(path, "", {}, items=str(items))
    assert any("62.5 % of responses shown are among the 2" in line for line in looked.findings)
    assert any("--features strengths" in line for line in looked.findings)
    assert "strengths" not in looked.features and "--items" not in looked.command
    given = look.look_at(path, "", {}, items=str(items), features="strengths")
    assert given.features == "strengths" and "strengths" in given.about_features
    assert f"--items {items}" in given.command
    without = look.look_at(path, "", {})
    assert (
        "strengths" not in f"{without.findings} {without.features}"
        and "--items" not in without.command
    )
    with pytest.raises(InputError, match="--items"):
        look.look_at(path, "", {}, items=str(tmp_path / "none"))
