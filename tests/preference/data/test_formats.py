"""Exports of other systems: what is preferred, by whom, and which ties; and what is refused."""

import gzip
import json
import re
import sys

import pytest

from murmuration.api.looking import data, written_conversion
from murmuration.planning.look import look_at
from murmuration.preference.choices import FORMAT_NAMES
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.formats.format import (
    Format,
    OwnRows,
    PublicTexts,
    SharedRecords,
    WholeSource,
    pair,
)
from murmuration.preference.data.formats.registry import FORMATS, format_named, recognised_format
from murmuration.preference.data.loading import load_data, load_judgements, public_texts
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.sources import READERS
from murmuration.preference.data.splitting import convert, split_users
from tests.preference.data.formats.examples import EXAMPLES

SECRET = "Xylophone"  # stands in every cell of text: no refusal may hold it


def chat(prompt, *texts):
    roles = ("user", "assistant") * (len(texts) + 1)
    return [{"role": r, "content": t} for r, t in zip(roles, (prompt, *texts), strict=False)]


@pytest.fixture
def read(tmp_path):
    """A function: (user, prompt, preferred first, y) of the rows in a file of a format."""

    def call(name, rows, *, columns=None, on_bad_rows="refuse", **declared):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        loaded = load_judgements(
            str(path),
            columns=columns,
            on_bad_rows=on_bad_rows,
            schema=Schema(format=name, **declared),
        )
        users = [u for u, n in zip(loaded.user_ids, loaded.counts_U, strict=True) for _ in range(n)]
        return [*zip(users, loaded.prompts, loaded.responses, loaded.y_R.tolist(), strict=True)]

    return call


def refusal(read, *args, **kwargs):
    with pytest.raises(InputError) as error:
        read(*args, **kwargs)
    message = str(error.value)
    assert "\n" not in message and SECRET not in message
    return message


def vote(**cells):
    row = {"conversation_a": chat("Q", f"A {SECRET}"), "conversation_b": chat("Q", f"B {SECRET}")}
    return row | {"judge": "j", "model_a": "m1", "model_b": "m2"} | cells


A, B = f"A {SECRET}", f"B {SECRET}"


@pytest.mark.parametrize(
    ("cells", "expected", "y"),
    [
        ({"winner": "model_a"}, (A, B), 1.0),
        ({"winner": "model_b"}, (B, A), 1.0),
        ({"winner": "b"}, (B, A), 1.0),
        ({"winner": "tie"}, (A, B), 0.5),
        ({"winner": "tie (bothbad)"}, (A, B), 0.5),
        ({"winner": "both_bad"}, (A, B), 0.5),
        ({"winner": "m2"}, (B, A), 1.0),
        ({"winner": "m1"}, (A, B), 1.0),
        ({"winner_model_a": 0, "winner_model_b": 1, "winner_tie": 0}, (B, A), 1.0),
        ({"winner_model_a": "1", "winner_model_b": "0", "winner_tie": "0"}, (A, B), 1.0),
        ({"winner_model_a": 0, "winner_model_b": 0, "winner_tie": 1}, (A, B), 0.5),
    ],
)
def test_arena(read, cells, expected, y):
    assert read("arena", [vote(**cells)]) == [("j", "Q", expected, y)]


@pytest.mark.parametrize(
    ("cells", "better_first"),
    [({"winner": "model_a"}, True), ({"winner": "m2"}, False), ({"winner": "tie"}, True)],
)
def test_arena_models_are_what_is_compared(read, cells, better_first):
    names = ("m1", "m2") if better_first else ("m2", "m1")
    y = 0.5 if cells["winner"] == "tie" else 1.0
    row = {name: vote(**cells)[name] for name in ("judge", "model_a", "model_b", "winner")}
    assert read("arena-models", [row]) == [("j", "Which model is better?", names, y)]


def test_arena_with_models_named_as_sides_is_not_misread(read):
    """A model that is called as the other side is."""
    swapped = {"model_a": "model_b", "model_b": "model_a", "winner": "model_a"}
    assert "names both sides" in refusal(read, "arena", [vote(**swapped)])
    assert "names both sides" in refusal(read, "arena", [vote(model_a="m2", winner="m2")])


@pytest.mark.parametrize("winner", [SECRET, "c", "", None, 1, "model_c", {"a": SECRET}])
def test_arena_with_another_winner_is_refused(read, winner):
    assert "'winner' names no side, model or tie" in refusal(read, "arena", [vote(winner=winner)])


@pytest.mark.parametrize("flags", [(1, 1, 0), (0, 0, 0), (1, 0, 1), (SECRET, 1, 0)])
def test_arena_with_not_exactly_one_winner_is_refused(read, flags):
    names = ("winner_model_a", "winner_model_b", "winner_tie")
    assert "'winner_" in refusal(read, "arena", [vote(**dict(zip(names, flags, strict=True)))])


def test_arena_of_kaggle_has_turns_as_json(read):
    texts = {"prompt": '["Q", "R"]', "response_a": '["a", "c"]', "response_b": '["b", "d"]'}
    row = {"user": "u"} | texts | {"winner_model_a": 0, "winner_model_b": 1, "winner_tie": 0}
    later = "\n\nHuman: R\n\nAssistant: "
    assert read("arena", [row]) == [("u", "Q", (f"b{later}d", f"a{later}c"), 1.0)]
    assert "not as many turns" in refusal(read, "arena", [row | {"response_a": '["a"]'}])


def comparia(**cells):
    names = {"model_a_name": "m1", "model_b_name": "m2", "visitor_id": "v"}
    row = {key: cell for key, cell in vote().items() if key.startswith("conversation")}
    return row | names | {"both_equal": False, "chosen_model_name": "m2"} | cells


def test_arena_of_comparia(read):
    rows = [
        comparia(),
        comparia(chosen_model_name="m1"),
        comparia(both_equal=True, chosen_model_name=None),
    ]
    expected = [("v", "Q", (B, A), 1.0), ("v", "Q", (A, B), 1.0), ("v", "Q", (A, B), 0.5)]
    assert read("arena", rows) == expected
    for name in ("m3", None, SECRET):
        assert "'chosen_model_name'" in refusal(read, "arena", [comparia(chosen_model_name=name)])


def test_arena_with_a_system_prompt_of_one_model_alone(read):
    """They are not shown to who votes, and some models are given one."""
    system = [{"role": "system", "content": "Be kind."}]
    row = vote(winner="model_b")
    own = row | {"conversation_a": system + row["conversation_a"]}
    assert read("arena", [own]) == [("j", "Q", (B, A), 1.0)]
    shared = own | {"conversation_b": system + row["conversation_b"]}
    ((_, prompt, responses, _),) = read("arena", [shared])
    assert "Be kind." in prompt and responses == (B, A)


def test_arena_that_contradicts_itself_is_refused(read):
    both = comparia(both_equal=True, chosen_model_name="m1")
    assert "'both_equal' is true" in refusal(read, "arena", [both])


def feedback(rating=1, place="b", **cells):
    messages = {
        "a": {"id": "a", "parentId": None, "role": "user", "content": "Q"},
        "b": {"id": "b", "parentId": "a", "role": "assistant", "content": "good"},
        "c": {"id": "c", "parentId": "a", "role": "assistant", "content": f"bad {SECRET}"},
    }
    row = {
        "user_id": "u",
        "data": {"rating": rating, "details": {"rating": 10}},
        "meta": {"message_id": place},
        "snapshot": {"chat": {"user_id": "x", "chat": {"history": {"messages": messages}}}},
    }
    return row | cells


def test_openwebui(read):
    rows = [feedback(1), feedback("-1", "c")]
    bad = f"bad {SECRET}"
    assert read("openwebui", rows) == [("u", "Q", ("good", bad), 1.0)]
    thumbs = read("openwebui", rows, kind="thumbs")
    assert thumbs == [("u", "Q", ("good",), 1.0), ("u", "Q", (bad,), 0.0)]


@pytest.mark.parametrize("rating", [0, 5, None, "up", SECRET])
def test_openwebui_with_another_rating_is_refused(read, rating):
    assert "neither 1 nor -1" in refusal(read, "openwebui", [feedback(rating)])


def test_openwebui_without_the_message_is_refused(read):
    assert "not in the chat" in refusal(read, "openwebui", [feedback(place="z")])
    assert "no answer of the assistant" in refusal(read, "openwebui", [feedback(place="a")])
    message = refusal(read, "openwebui", [feedback(snapshot={SECRET: SECRET})])
    assert "a cell that --format openwebui cannot read (KeyError)" in message


def four(**cells):
    row = {f"response_{letter}": f"text {letter}" for letter in "abcd"}
    return {"annotator_id": 3, "prompt": "Q", "preferred_response": "response_c"} | row | cells


@pytest.mark.parametrize("named", ["response_c", "c", "C", "Response C"])
def test_community_alignment(read, named):
    ((user, prompt, responses, y),) = read(
        "community-alignment", [four(preferred_response=named)], kind="top-1", responses=4
    )
    assert (user, prompt, y) == ("3", "Q", 1.0)
    assert responses == ("text c", "text a", "text b", "text d")


def test_community_alignment_in_turns(read):
    first = {f"first_turn_{key}": cell for key, cell in four().items() if key != "annotator_id"}
    second = {"second_turn_prompt": "R", "second_turn_response_a": "x"}
    second |= {"second_turn_response_b": "y", "second_turn_preferred_response": "response_b"}
    row = {"annotator_id": 3} | first | second
    rows = read("community-alignment", [row], kind="top-1", responses=4)
    assert [each[2][0] for each in rows] == ["text c", "y"]
    assert "text c" in rows[1][1] and "text a" not in rows[1][1]


@pytest.mark.parametrize("named", ["e", "", None, "text c", SECRET])
def test_community_alignment_with_another_winner_is_refused(read, named):
    rows, declared = [four(preferred_response=named)], {"kind": "top-1", "responses": 4}
    assert "names none of the responses" in refusal(read, "community-alignment", rows, **declared)
    gone = [four(response_c=None)]
    assert "names none of the responses" in refusal(read, "community-alignment", gone, **declared)


def talk(*scores, chosen=1):
    parts = [{"turn": 0, "role": "user", "content": "Q"}]
    parts += [
        {"turn": 0, "role": "model", "content": f"r{n}", "score": s, "if_chosen": n == chosen}
        for n, s in enumerate(scores)
    ]
    return {"user_id": "u", "conversation_history": parts}


def test_prism(read):
    rows = read("prism", [talk(10, 90, 40)], kind="ranking", responses=3)
    assert rows == [("u", "Q", ("r1", "r2", "r0"), 1.0)]
    assert read("prism", [talk(10, 90)]) == [("u", "Q", ("r1", "r0"), 1.0)]


def test_prism_with_scores_that_contradict_the_choice_is_refused(read):
    message = refusal(read, "prism", [talk(90, 10, 40)], kind="ranking", responses=3)
    assert "does not have the highest score" in message


def judges(*prefs, name="normal_worker_annotations", key="overall_pref"):
    entries = [{"evaluator": f"e{n}", key: pref} for n, pref in enumerate(prefs)]
    return {"text": "Q", "completion_a": "A", "completion_b": "B", name: entries}


def test_multipref(read):
    prefs = ("A-is-clearly-better", "B-is-slightly-better", "Tie")
    expected = [("A", "B"), ("B", "A"), ("A", "B")]
    for names in ({}, {"name": "annotations", "key": "winner"}):
        rows = read("multipref", [judges(*prefs, **names)])
        assert [row[0] for row in rows] == ["e0", "e1", "e2"]
        assert [row[2] for row in rows] == expected
        assert [row[3] for row in rows] == [1.0, 1.0, 0.5]
    both = judges("a") | {"expert_worker_annotations": [{"evaluator": "e0", "overall_pref": "b"}]}
    assert [row[2] for row in read("multipref", [both])] == [("A", "B"), ("B", "A")]


def test_multipref_with_another_entry_is_refused(read):
    for pref in (SECRET, "C-is-clearly-better", "", None):
        assert "names neither" in refusal(read, "multipref", [judges(pref)])
    nobody = judges() | {"normal_worker_annotations": [{"overall_pref": "a"}]}
    assert "does not say who gave it" in refusal(read, "multipref", [nobody])


def strength(value, **cells):
    row = {"context": chat("Q"), "response1": "A", "response2": "B", "overall_preference": value}
    return row | cells


@pytest.mark.parametrize(
    ("value", "expected"),
    [(-3, (("A", "B"), 1.0)), ("-1", (("A", "B"), 1.0)), (0, (("A", "B"), 0.5)),
     (2, (("B", "A"), 1.0))],
)  # fmt: skip
def test_helpsteer(read, value, expected):
    ((_, prompt, responses, y),) = read("helpsteer", [strength(value)], one_user_per_row=True)
    assert (prompt, (responses, y)) == ("Q", expected)
    older = {"prompt": "Q", "response_1": "A", "response_2": "B", "preference_strength": value}
    ((_, prompt, responses, y),) = read("helpsteer", [older], one_user_per_row=True)
    assert (prompt, (responses, y)) == ("Q", expected)


def test_helpsteer_says_nobody(read):
    message = refusal(read, "helpsteer", [strength(1)])
    assert "does not say who judged" in message and "--one-user-per-row" in message
    named = read("helpsteer", [strength(1, rater="r")], columns={"user_id": "rater"})
    assert named == [("r", "Q", ("B", "A"), 1.0)]
    for value in (4, 0.5, SECRET, None):
        message = refusal(read, "helpsteer", [strength(value)], one_user_per_row=True)
        assert "no whole number from -3 to 3" in message


def task(selected, who=7, **cells):
    result = [{"type": "pairwise", "value": {"selected": selected}}]
    annotation = {"completed_by": who, "result": result} | cells
    data = {"prompt": "Q", "answer1": "A", "answer2": "B"}
    return {"id": 1, "data": data, "annotations": [annotation]}


def test_label_studio(read):
    rows = [
        task("left"),
        task("right", {"id": 8, "email": "x@y"}),
        task("left", was_cancelled=True),
    ]
    expected = [("7", "Q", ("A", "B"), 1.0), ("8", "Q", ("B", "A"), 1.0)]
    assert read("label-studio", rows) == expected
    chosen = task("")
    chosen["annotations"][0]["result"] = [{"type": "choices", "value": {"choices": ["answer2"]}}]
    assert read("label-studio", [chosen]) == [("7", "Q", ("B", "A"), 1.0)]


def test_label_studio_of_ratings(read):
    def stars(text, kind, value, who=7):
        result = [{"type": kind, "value": value}]
        data = {"prompt": "Q", "response": text}
        return {"id": 1, "data": data, "annotations": [{"completed_by": who, "result": result}]}

    rows = [stars("A", "rating", {"rating": 5}), stars("B", "rating", {"rating": 2})]
    assert "--scale 1..5" in refusal(read, "label-studio", rows)
    assert read("label-studio", rows, scale="1..5") == [("7", "Q", ("A", "B"), 1.0)]
    rows = [stars("A", "choices", {"choices": ["Bad"]}), stars("B", "choices", {"choices": "good"})]
    assert read("label-studio", rows) == [("7", "Q", ("B", "A"), 1.0)]
    assert "exactly one result" in refusal(read, "label-studio", [stars("A", "pairwise", {})])


def test_label_studio_with_another_annotation_is_refused(read):
    for selected in (SECRET, "middle", "", None):
        assert "names neither" in refusal(read, "label-studio", [task(selected)])
    assert "exactly one result" in refusal(read, "label-studio", [task("left", result=[])])
    assert "who gave it" in refusal(read, "label-studio", [task("left", None)])
    third = task("left")
    third["data"] |= {"response_a": "C", "response_b": SECRET}
    assert "exactly one pair" in refusal(read, "label-studio", [third])


def record(value, fields=("response_a", "response_b"), **cells):
    texts = {name: f"text of {name}" for name in fields}
    answer = {"user_id": "w", "value": value} | cells
    return {"fields": {"prompt": "Q"} | texts, "responses": {"q": [answer], "why": []}}


def test_argilla(read):
    first, second = "text of response_a", "text of response_b"
    ranking = [{"value": "response_b", "rank": 1}, {"value": "response_a", "rank": 2}]
    equal = [{"value": "response_b", "rank": 1}, {"value": "response_a", "rank": 1}]
    values = ["response_a", "response_b", "b", "tie", ranking, equal]
    rows = read("argilla", [record(value) for value in values])
    assert [row[2] for row in rows] == [
        (first, second), (second, first), (second, first), (first, second), (second, first),
        (first, second),
    ]  # fmt: skip
    assert [row[3] for row in rows] == [1.0, 1.0, 1.0, 0.5, 1.0, 0.5]
    assert {row[0] for row in rows} == {"w"}


def test_argilla_of_several_and_of_version_1(read):
    fields = ("response-1", "response-2", "response-3")
    ((*_, responses, _),) = read(
        "argilla", [record("response-2", fields)], kind="top-1", responses=3
    )
    assert responses[0] == "text of response-2"
    ranks = [{"value": name, "rank": n} for n, name in zip((3, 1, 2), fields, strict=True)]
    older = record(None, fields) | {
        "responses": [
            {"user_id": "w", "values": {"q": {"value": ranks}}, "status": "submitted"},
            {"user_id": "x", "values": {"q": {"value": ranks}}, "status": "discarded"},
        ]
    }
    ((user, _, responses, _),) = read("argilla", [older], kind="ranking", responses=3)
    assert user == "w"
    assert responses == tuple(f"text of {fields[n]}" for n in (1, 2, 0))


def test_argilla_of_version_2_ranks_by_order_and_titles_have_blanks(read):
    fields = ("response1", "response2")
    first, second = (f"text of {name}" for name in fields)
    ranks = [{"value": "Response 1", "rank": 2}, {"value": "Response 2", "rank": 1}]
    values = [["response2", "response1"], ["Response 1", "Response 2"], ranks, "Response 2"]
    rows = read("argilla", [record(value, fields) for value in values])
    assert [row[2][0] for row in rows] == [second, first, second, second]
    twice = record("Response 1", fields)
    twice["responses"]["q"].append({"user_id": "x", "value": ["response1", "response1"]})
    assert "does not rank" in refusal(read, "argilla", [twice])


def test_argilla_takes_no_other_field_for_a_response(read):
    extra = record("response_b")
    extra["fields"] |= {"source": SECRET, "topic": SECRET}
    assert read("argilla", [extra]) == [
        ("w", "Q", ("text of response_b", "text of response_a"), 1.0)
    ]


def test_argilla_of_ratings(read):
    rows = [record(5, ("response",)), record(2, ("answer",))]
    assert "--scale 1..5" in refusal(read, "argilla", rows)
    texts = ("text of response", "text of answer")
    assert read("argilla", rows, scale="1..5") == [("w", "Q", texts, 1.0)]


def test_argilla_reads_one_question(read):
    """Words and ratings are other questions; of two that prefer, neither is taken."""
    other = record("response_b")
    other["responses"]["why"] = [{"user_id": "w", "value": SECRET}]
    other["responses"]["stars"] = [{"user_id": "w", "value": 1}]
    assert [row[2][0] for row in read("argilla", [other])] == ["text of response_b"]
    other["responses"]["honest"] = [{"user_id": "w", "value": "response_a"}]
    assert "not exactly one of an annotator's answers" in refusal(read, "argilla", [other])


def test_argilla_with_another_answer_is_refused(read):
    part = [{"value": "response_a", "rank": 1}]
    for value, why in ((SECRET, "names none"), (part, "does not rank"), (5, "neither the name")):
        assert why in refusal(read, "argilla", [record(value)])
        both = record("response_a")
        both["responses"]["q"].append({"user_id": "x", "value": value})
        assert why in refusal(read, "argilla", [both])
        assert [user for user, *_ in read("argilla", [both], on_bad_rows="skip")] == ["w"]
    assert "who gave it" in refusal(read, "argilla", [record("a", user_id=None)])


def rated(rating, response="R", **cells):
    return {"participant_id": "p", "prompt": "Q", "response": response, "rating": rating} | cells


def test_likert(read):
    ratings = [5, "4", "Strongly agree", 1, "Disagree", 3, "Neutral"]
    rows = read("likert", [rated(each, f"R{n}") for n, each in enumerate(ratings)], kind="thumbs")
    assert [row[3] for row in rows] == [1.0, 1.0, 1.0, 0.0, 0.0]
    strict = read("likert", [rated(4), rated(5)], kind="thumbs", positive_from="5")
    assert [row[3] for row in strict] == [0.0, 1.0]
    wide = read("likert", [rated(6), rated(2)], kind="thumbs", scale="1..7")
    assert [row[3] for row in wide] == [1.0, 0.0]


def test_likert_on_another_scale_is_refused(read):
    for rating in (0, 6, 100):
        assert "not on the scale" in refusal(read, "likert", [rated(rating)], kind="thumbs")
        rows = [rated(5), rated(rating), rated(rating)]
        assert "pass --scale" in refusal(read, "likert", rows, kind="thumbs")
        assert len(read("likert", rows, kind="thumbs", on_bad_rows="skip")) == 1
    assert "neither a number nor a word" in refusal(read, "likert", [rated(SECRET)])
    assert "is the rating?" in refusal(read, "likert", [rated(4, score=2)])


STATEMENTS = [
    {"comment-id": 0, "comment-body": f"Zero {SECRET}", "agrees": 2, "disagrees": 0},
    {"comment-id": 1, "comment-body": "One", "agrees": 0, "disagrees": 1},
]


def votes(*triples):
    return [{"voter-id": v, "comment-id": c, "vote": vote} for v, c, vote in triples]


def test_polis(read):
    cast = votes(("3", "0", "1"), ("3", "1", "-1"), ("4", "0", "-1"), ("4", "0", "1"), ("4", 1, 0))
    rows = read("polis", [*cast, *STATEMENTS], kind="thumbs")
    zero = f"Zero {SECRET}"
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("3", (zero,), 1.0), ("3", ("One",), 0.0), ("4", (zero,), 1.0)
    ]  # fmt: skip
    ((user, _, responses, _),) = read("polis", [*cast, *STATEMENTS])
    assert (user, responses) == ("3", (zero, "One"))


def test_polis_counts_the_last_vote_of_a_user_whose_id_is_read_by_the_one_rule(read):
    """7, 7.0 and the text `7.0` are one voter, in votes and in all else."""
    own, rows = votes((7, 0, 1), (7.0, 1, -1), ("7", 1, 1)), [*STATEMENTS]
    alone = [(user, texts, y) for user, _, texts, y in read("polis", rows + own, kind="thumbs")]
    assert alone == [("7", (f"Zero {SECRET}",), 1.0), ("7", ("One",), 1.0)]
    other = votes(("7.00", 1, -1), ("70", 0, -1))
    both = read("polis", rows + own + other, kind="thumbs", on_bad_rows="skip")
    assert {(user, texts, y) for user, _, texts, y in both} == {
        ("7", (f"Zero {SECRET}",), 1.0),
        ("7", ("One",), 0.0),
        ("70", (f"Zero {SECRET}",), 0.0),
    }


def test_polis_takes_no_statement_from_a_row_that_names_a_voter(read):
    cast = votes(("3", 0, 1), ("3", 1, -1))
    for who in ("x", 4, "\u202ex", ["x"]):
        forged = {"voter-id": who, "comment-id": 0, "comment-body": "forged", "vote": 1}
        for rows in ([forged, *STATEMENTS, *cast], [*STATEMENTS, *cast, forged]):
            got = read("polis", rows, kind="thumbs", on_bad_rows="skip")
            assert {texts for _, _, texts, _ in got} == {(f"Zero {SECRET}",), ("One",)}
        new = forged | {"comment-id": 2}
        rows = [*STATEMENTS, *cast, *votes(("3", 2, 1)), new]
        got = read("polis", rows, kind="thumbs", on_bad_rows="skip")
        assert {texts for _, _, texts, _ in got} == {(f"Zero {SECRET}",), ("One",)}


def test_polis_with_a_broken_public_part_is_refused_as_a_whole(read):
    cast, again = votes(("3", 0, 1)), STATEMENTS[0] | {"agrees": 3}
    assert len(read("polis", [*STATEMENTS, again, *cast], kind="thumbs")) == 1
    for broken, why in (({"comment-body": SECRET}, "two public texts"), ({"comment-id": ""}, "no")):
        rows = [*STATEMENTS, *cast, again | broken]
        assert why in refusal(read, "polis", rows, kind="thumbs", on_bad_rows="skip")


def test_signs_of_polis_are_for_a_look_alone(tmp_path):
    """Nine voters with signs the other way round took the vote of the tenth away."""
    cast = [(f"{n}", k, 2 * k - 1) for n in range(9) for k in (0, 1)]
    path = tmp_path / "rows.jsonl"
    rows = [*STATEMENTS, *votes(*cast, ("10", 0, 1), ("10", 1, -1))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    judgements = load_judgements(str(path), schema=Schema(format="polis"))
    assert len(judgements) == 10
    (warning,) = (note for note in data(str(path)).judgements.notes if "1 must mean agree" in note)
    assert "contradict" in warning
    path.write_text("".join(json.dumps(row) + "\n" for row in [*STATEMENTS, *rows[-2:]]))
    assert not any("agree" in note for note in data(str(path)).judgements.notes)


def test_a_look_counts_the_statements_that_nobody_voted_on(tmp_path):
    """Which ones a board has must not tell of votes, so they stay on it."""
    new = {"comment-id": 2, "comment-body": "New", "agrees": 0, "disagrees": 0, "moderated": 0}
    gone = {**new, "comment-id": 3, "moderated": -1}
    path = tmp_path / "rows.jsonl"
    rows = [*STATEMENTS, new, gone, *votes(("10", 0, 1), ("10", 1, -1))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (note,) = (note for note in data(str(path)).judgements.notes if "without any vote" in note)
    assert "1 of 3 (no moderator has looked at 1)" in note and SECRET not in note
    assert "New" in public_texts(str(path), "", "polis")


def test_polis_needs_both_files(read):
    assert "'comment-body'" in refusal(read, "polis", votes((1, 0, 1)))
    assert "there are no rows" in refusal(read, "polis", STATEMENTS)
    cast = votes((1, 0, 1), (2, 7, 1))
    assert "statement that is not there" in refusal(read, "polis", [*cast, *STATEMENTS])
    assert "none of 1, -1 and 0" in refusal(
        read, "polis", [*votes((1, 0, 1), (2, 0, 2)), *STATEMENTS]
    )


def message(own, parent, role, text, rank=None):
    names = ("message_id", "parent_id", "role", "text", "rank", "user_id")
    return dict(zip(names, (own, parent, role, text, rank, f"by {own}"), strict=True))


TREE = [
    message("c", "a", "assistant", "second", 1),
    message("a", None, "prompter", "Q"),
    message("b", "a", "assistant", "best", 0.0),
    message("d", "a", "assistant", "third", 2),
    message("e", "b", "prompter", "R"),
    message("f", "e", "assistant", "only", 0),
]


@pytest.fixture
def converted(tmp_path):
    """A function: the rows that an export becomes when it is converted, and the bad ones."""

    def call(name, rows, **more):
        path, out = tmp_path / "export.jsonl", tmp_path / "converted.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        out.unlink(missing_ok=True)
        made = convert(str(path), out, format=name, **more)
        written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        assert len(written) == made.rows
        assert not any("\n" in reason or SECRET in reason for reason in made.bad)
        return written, [reason.removeprefix(f"{path}:") for reason in made.bad]

    return call


RANKED = {
    "user_id": "by a",
    "prompt": [{"role": "user", "content": "Q"}],
    "responses": ["second", "best", "third"],
    "ranking": [2, 1, 3],
}


def test_oasst_is_read_by_no_run_and_converted(read, converted, tmp_path):
    declared = {"kind": "ranking", "responses": 3}
    for more in ({}, {"columns": {"user_id": "user_id"}}, {"one_user_per_row": True}):
        for on_bad_rows in ("refuse", "skip", "isolate"):
            message = refusal(read, "oasst", TREE, **declared, **more, on_bad_rows=on_bad_rows)
            assert "rows.jsonl --format oasst --convert FILE.jsonl" in message
    assert converted("oasst", TREE, columns="user_id=user_id") == ([RANKED], [])
    written = str(tmp_path / "converted.jsonl")
    loaded = load_judgements(written, schema=Schema(**declared))
    assert (loaded.user_ids, loaded.prompts) == (("by a",), ["Q"])
    assert loaded.responses == [("best", "second", "third")]
    ((row,), _) = converted("oasst", TREE, one_user_per_row=True)
    assert "user_id" not in row and row["ranking"] == [2, 1, 3]
    with pytest.raises(InputError, match=r"does not say who judged.*--user-column user_id"):
        converted("oasst", TREE)


def test_oasst_with_broken_messages_is_converted_without_them(converted):
    """The last message of an id took the ranking, and who wrote that was its user."""
    thief = message("a", None, "prompter", SECRET) | {"user_id": "thief"}
    circle = [
        message("x", "z", "prompter", SECRET),
        message("y", "x", "assistant", SECRET, 0),
        message("z", "x", "assistant", SECRET, 1),
    ]
    rows = [*TREE, thief, *circle, message(["i"], "a", "assistant", SECRET, 3), {"text": SECRET}]
    written, bad = converted("oasst", rows, columns="user_id=user_id")
    assert written == [RANKED]
    reasons = {7: "has the same", 8: "in a circle", 11: "is no id", 12: "no column 'message_id'"}
    assert len(bad) == len(reasons)
    for line, why in reasons.items():
        (reason,) = (each for each in bad if each.startswith(f"{line}: "))
        assert why in reason
    with pytest.raises(InputError, match=":1: the message replied to is not there"):
        converted("oasst", [TREE[0], TREE[2]], columns="user_id=user_id")


def test_a_conversion_is_never_written_over_and_carries_what_private_models_wrote(tmp_path):
    path, out = tmp_path / "votes.jsonl", tmp_path / "ours.jsonl"
    rows = [vote(winner="a", private_runs="one@1:ab"), vote(winner="b", judge="k")]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, vote(winner=SECRET)]))
    said = written_conversion(str(path), out, "", "", False)
    assert said.splitlines() == [
        f"{out}: 2 rows, by 2 users, for --data",
        "bad rows, left out: 1",
        f"{path}:3: 'winner' names no side, model or tie",
    ]
    written = out.read_text()
    assert [json.loads(line)["private_runs"] for line in written.splitlines()] == ["one@1:ab"] * 2
    assert load_judgements(str(out)).user_ids == ("j", "k")
    with pytest.raises(InputError, match=r"ours\.jsonl: File exists"):
        written_conversion(str(path), out, "", "", False)
    assert out.read_text() == written
    with pytest.raises(InputError, match="of which --format"):
        written_conversion(str(out), tmp_path / "again.jsonl", "", "", False)


def summaries(choice, **cells):
    info = {"post": "Q", "title": "T", "article": None}
    both = [{"text": "A", "policy": "m1"}, {"text": "B", "policy": "m2"}]
    return {"info": info, "summaries": both, "choice": choice, "worker": "w"} | cells


def test_tldr(read):
    rows = [summaries(0), summaries(1)]
    assert read("tldr", rows) == [("w", "Q", ("A", "B"), 1.0), ("w", "Q", ("B", "A"), 1.0)]
    for choice in (2, -1, None, "A", SECRET):
        assert "neither 0 nor 1" in refusal(read, "tldr", [summaries(choice)])


# What holds of all of them.

ROWS = {name: [*example("u", 1)] for name, example in EXAMPLES.items()}


def test_all_are_known_by_name():
    assert tuple(FORMATS) == FORMAT_NAMES == tuple(ROWS)
    with pytest.raises(InputError, match=r"--format must be one of arena, .*; got 'arenas'"):
        format_named("arenas")


@pytest.mark.parametrize("name", FORMATS)
def test_an_example_is_of_its_user(read, converted, name):
    form = FORMATS[name]
    several = {"kind": {"community-alignment": "top-1", "oasst": "ranking"}.get(name, "pairs")}
    several |= {} if several["kind"] == "pairs" else {"responses": 4}
    texts = set()
    for number in range(8):
        rows = EXAMPLES[name]("u", number)
        assert json.loads(json.dumps(rows)) == [*rows]
        if isinstance(form.reads, WholeSource):
            ((row,), bad) = converted(name, rows, columns="user_id=user_id")
            assert row["user_id"] == "u" and not bad
            texts.add(row["ranking"][0])
            continue
        who = {"user_id": "annotator"} if form.nobody else None
        ((user, _, responses, y),) = read(name, rows, columns=who, **several)
        assert (user, y) == ("u", 1.0)
        texts.add(next(each for each in ("merry", "sober", "m1", "m", "S") if each in responses[0]))
    assert len(texts) == 2 or name == "polis"  # either is preferred at times


@pytest.mark.parametrize("name", sorted({*FORMATS} - {"oasst"}))
def test_a_file_of_no_such_form_is_refused_in_one_line(read, name):
    message = refusal(read, name, [{"something": SECRET}], one_user_per_row=True)
    assert re.search(rf"not of the form --format {name}: no column '", message)
    # Skipping does not help: no row is left.
    refusal(read, name, [{"something": SECRET}] * 99, on_bad_rows="skip", one_user_per_row=True)


@pytest.mark.parametrize("name", FORMATS)
def test_cells_of_any_kind_are_refused_without_being_quoted(read, converted, name):
    declared = {"one_user_per_row": True}
    for cell in (SECRET, [SECRET], {SECRET: SECRET}, 7.5, None):
        for at, row in enumerate(ROWS[name]):
            for column in row:
                if column not in FORMATS[name].columns:
                    continue
                rows = [*ROWS[name][:at], row | {column: cell}, *ROWS[name][at + 1 :]]
                try:
                    if name == "oasst":
                        converted(name, rows, **declared)
                    else:
                        read(name, rows, kind="thumbs", **declared)
                except InputError as error:
                    assert SECRET not in str(error)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_unmistakable_is_recognised(name):
    names = {recognised_format([*row]) for row in ROWS[name]}
    assert (name in names) == FORMATS[name].unmistakable
    assert names <= {name, ""}


def test_our_own_forms_are_no_format():
    for columns in (
        ("user_id", "prompt", "chosen", "rejected"),
        ("user_id", "prompt", "response_a", "response_b", "winner"),
        ("user_id", "prompt", "completion", "label"),
        ("user_id", "prompt", "response", "rating"),
        ("user_id", "prompt", "responses", "ranking"),
    ):
        assert recognised_format(columns) == ""


def test_no_row_decides_whether_others_are_read(read):
    """The sixth bad one of 106 took away all, and so did one that came first."""
    rows = [vote(winner="a", judge=f"j{n}") for n in range(100)]
    good = read("arena", rows)
    for bad in (vote(winner=SECRET), {"judge": "x"}):
        for before, after in ((0, 5), (0, 6), (0, 99), (1, 0), (99, 0)):
            mixed = [bad] * before + rows + [bad] * after
            assert read("arena", mixed, on_bad_rows="skip") == good
    with pytest.raises(InputError, match=r"101: 'winner' names no side"):
        read("arena", [*rows, vote(winner=SECRET)])


CROWDS = {
    "argilla": lambda *answers, **cells: {
        "fields": {"prompt": "Q", "response_a": "A", "response_b": "B"},
        "responses": {"q": [*answers]},
    } | cells,
    "label-studio": lambda *answers, **cells: task("left") | {"annotations": [*answers]} | cells,
    "multipref": lambda *answers, **cells: judges(name="annotations")
    | {"annotations": [*answers]}
    | cells,
}  # fmt: skip


def _answer(name, who):
    if name == "label-studio":
        return task("left", who)["annotations"][0]
    key, value = {"argilla": ("user_id", "value"), "multipref": ("evaluator", "winner")}[name]
    return {key: who, value: "response_a" if name == "argilla" else "a"}


@pytest.mark.parametrize("name", CROWDS)
def test_an_annotators_answer_is_bad_for_nobody_else(read, name):
    first, last = _answer(name, "u"), _answer(name, "v")
    good = read(name, [CROWDS[name](first, last)])
    assert [user for user, *_ in good] == ["u", "v"]
    whole = _answer(name, "x")
    broken = [5, None, SECRET, [], {}, *({**whole, key: 5} for key in whole)]
    broken += [{**whole, key: {SECRET: SECRET}} for key in whole]
    broken += [{key: whole[key] for key in whole if key != left_out} for left_out in whole]
    for answer in broken:
        record = CROWDS[name](first, answer, last)
        rest = [each for each in read(name, [record], on_bad_rows="skip") if each[0] in "uv"]
        assert rest == good, answer


def test_another_question_of_one_annotator_is_no_reason_for_others(read):
    """It made the question unclear for all."""
    given = record("response_b")
    given["responses"]["honest"] = [{"user_id": "x", "value": "response_a"}]
    best = [(user, texts[0]) for user, _, texts, _ in read("argilla", [given])]
    assert best == [("w", "text of response_b"), ("x", "text of response_a")]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("argilla", {"fields": SECRET}), ("label-studio", {"data": {}}), ("multipref", {"text": ""})],
)
def test_broken_texts_are_bad_for_all_annotators_alike(tmp_path, name, shown):
    path = tmp_path / "rows.jsonl"
    broken = CROWDS[name](_answer(name, "u"), _answer(name, "v"), **shown)
    rows = [broken, CROWDS[name](_answer(name, "w"))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    loaded = load_judgements(str(path), on_bad_rows="skip", schema=Schema(format=name))
    assert (loaded.user_ids, loaded.left_out) == (("u", "v", "w"), 2)
    assert loaded.counts_U.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("argilla", {"responses": 5}),
        ("argilla", {"responses": {"q": SECRET}}),
        ("label-studio", {"annotations": SECRET}),
        ("multipref", {"annotations": "[{"}),
    ],
)
def test_a_record_that_cannot_be_split_refuses_the_source(read, name, broken):
    rows = [CROWDS[name](_answer(name, "u"))] * 99
    message = refusal(read, name, [*rows, rows[0] | broken], on_bad_rows="skip")
    assert "rows.jsonl:100: " in message and "cannot be split by annotator" in message
    with pytest.raises(InputError, match="cannot be split by annotator"):
        read(name, [*rows, 5], on_bad_rows="skip")


def test_each_format_says_what_a_users_rows_depend_on():
    of_others = {
        "argilla": SharedRecords,
        "label-studio": SharedRecords,
        "multipref": SharedRecords,
        "oasst": WholeSource,
        "polis": PublicTexts,
    }
    for name, form in FORMATS.items():
        assert type(form.reads) is of_others.get(name, OwnRows)
        assert form.isolates == (name not in of_others)
    with pytest.raises(TypeError, match="reads"):
        Format("none", forms=(("a",),))
    with pytest.raises(TypeError, match="must say what a user's rows depend on"):
        Format("none", forms=(("a",),), reads=print)


def test_who_judged_is_the_only_known_column_or_named(read):
    nobody = vote(winner="a")
    del nobody["judge"]
    assert "no column says who judged" in refusal(read, "arena", [nobody])
    assert "may each say who judged" in refusal(read, "arena", [vote(winner="a", rater="r")])
    assert read("arena", [vote(winner="a", who="x")], columns={"user_id": "who"})[0][0] == "x"
    message = refusal(read, "arena", [vote(winner="a")], columns={"chosen": "conversation_a"})
    assert "--columns may name user_id alone, not chosen" in message
    assert "no column 'who'" in refusal(
        read, "arena", [vote(winner="a")], columns={"user_id": "who"}
    )


def test_a_node_reads_what_keeps_people_apart(tmp_path):
    path = tmp_path / "rows.jsonl"
    for name, form in FORMATS.items():
        lines = [{"nothing": 1}, *ROWS[name], vote(judge="other", winner=SECRET)]
        path.write_text("".join(json.dumps(row) + "\n" for row in lines), encoding="utf-8")
        schema = Schema(format=name, one_user_per_row=True)
        if not form.isolates:
            with pytest.raises(InputError, match=r"keep people's rows apart|convert it first"):
                load_judgements(str(path), on_bad_rows="isolate", schema=schema)
        else:
            loaded = load_judgements(str(path), on_bad_rows="isolate", schema=schema)
            assert loaded.left_out >= 2
    path.write_text(json.dumps(vote(winner=SECRET)) + "\n", encoding="utf-8")
    loaded = load_judgements(str(path), on_bad_rows="isolate", schema=Schema(format="arena"))
    assert (loaded.user_ids, len(loaded)) == (("j",), 0)


def test_other_files_and_texts(tmp_path):
    path = tmp_path / "votes.json.gz"
    path.write_bytes(gzip.compress(json.dumps([vote(winner="b")]).encode()))
    loaded = load_judgements(str(path), schema=Schema(format="arena"))
    assert loaded.responses == [(B, A)]
    with pytest.raises(InputError, match="--format arena is about judgements"):
        load_data("text", str(path), schema=Schema(format="arena"))


def test_parquet(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [vote(winner="b", unused="z"), vote(winner="a")]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "votes.parquet")
    loaded = load_judgements(str(tmp_path / "votes.parquet"), schema=Schema(format="arena"))
    assert loaded.responses == [(B, A), (A, B)]


def test_a_look_recognises_a_format_and_its_command_names_it(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [four()] * 3), encoding="utf-8")
    summary = look_at(str(path), "", {})
    assert summary.schema.options == "--kind top-1 --responses 4 --format community-alignment"
    assert summary.taken["user_id"] == "annotator_id"
    assert "--format community-alignment" in summary.command
    with pytest.raises(InputError):
        look_at(str(path), "", {"format": "arena"})


def test_splitting_by_user_writes_our_own_form(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [judges("a", "b", "tie", "a", "b", "b", "a", "a")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    split = split_users(str(path), 0.5, tmp_path / "out", format="multipref")
    both = [load_judgements(str(each)) for each in (split.train, split.test)]
    assert sum(map(len, both)) == 8
    assert not {*both[0].user_ids} & {*both[1].user_ids}


def _counting_format(monkeypatch, columns, made):
    """A format of another package, and the rows that it was given."""
    given = []

    def rows(row):
        given.append(row)
        yield made(row)

    form = Format("mine", forms=(columns,), reads=OwnRows(rows))
    monkeypatch.setattr(READERS, "names", lambda: ("mine",))
    monkeypatch.setattr(READERS, "load", lambda name: form)
    return given


def test_cells_that_are_equal_and_not_the_same_are_not_taken_for_each_other(monkeypatch, read):
    """1 == True == 1.0: a format may tell them apart, whichever comes first."""
    _counting_format(
        monkeypatch,
        ("one", "two", "best"),
        lambda r: pair("Q", r["one"], r["two"], 1.0 if r["best"] is True else 0.0),
    )
    rows = [{"rater": "r", "one": "A", "two": "B", "best": best} for best in (1, True, 1.0, True)]
    assert [each[2][0] for each in read("mine", rows)] == ["B", "A", "B", "A"]


def test_a_format_sees_the_columns_that_it_declares(monkeypatch, read):
    """A row is a function of these alone, so nobody's can become another's."""
    given = _counting_format(
        monkeypatch,
        ("one", "two", "best"),
        lambda r: pair(r["secret"], r["one"], r["two"], 1.0),
    )
    row = {"rater": "r", "one": "A", "two": "B", "best": "1", "secret": "of a user"}
    assert "cannot read (KeyError)" in refusal(read, "mine", [row])
    assert given == [{"one": "A", "two": "B", "best": "1"}]


def test_a_format_of_another_package(monkeypatch, read):
    def rows(row):
        if row["best"] not in (1, 2):
            raise BadRow("'best' is neither 1 nor 2")
        yield pair(row["q"], row["one"], row["two"], 2.0 - row["best"])

    form = Format("mine", forms=(("q", "one", "two", "best"),), reads=OwnRows(rows))
    monkeypatch.setattr(READERS, "names", lambda: ("mine",))
    monkeypatch.setattr(READERS, "load", lambda name: form)
    row = {"rater": "r", "q": "Q", "one": "A", "two": "B"}
    assert read("mine", [row | {"best": 2}]) == [("r", "Q", ("B", "A"), 1.0)]
    assert "neither 1 nor 2" in refusal(read, "mine", [row | {"best": 3}])


@pytest.mark.parametrize(
    "column",
    ["visitor_id", "voter-id", "voter_id", "evaluator", "raterParticipantId", "annotator_id",
     "worker", "completed_by", "judge"],
)  # fmt: skip
def test_columns_of_users(tmp_path, column):
    path = tmp_path / "rows.jsonl"
    row = {column: "u", "prompt": "Q", "chosen": "A", "rejected": "B"}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert load_judgements(str(path)).user_ids == ("u",)


def test_an_id_that_cannot_be_written_is_bad_for_nobody_else(monkeypatch):
    """It ended the reading of all, with a traceback."""
    rows = [vote(winner="a", judge="u"), vote(winner="a", judge=10**5000)]
    monkeypatch.setattr(sys.modules[__name__], "given", lambda: rows, raising=False)
    loaded = load_judgements(f"{__name__}:given", on_bad_rows="skip", schema=Schema(format="arena"))
    assert (loaded.user_ids, loaded.left_out) == (("u",), 1)
