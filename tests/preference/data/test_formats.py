"""Exports of other systems: what is preferred, by whom, and which ties; and what is refused."""

import copy
import json
import re
import sys

import pytest

from murmuration.api.looking import data, written_conversion
from murmuration.planning.look import look_at
from murmuration.preference.choices import FORMAT_NAMES
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.formats.format import (
    Format,
    OwnRows,
    PublicTexts,
    SharedRecords,
    WholeSource,
    pair,
)
from murmuration.preference.data.formats.registry import FORMATS, format_named
from murmuration.preference.data.loading import load_data, load_judgements, public_texts
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.sources import READERS
from murmuration.preference.data.splitting import convert, split_users
from tests.preference.data.formats.examples import EXAMPLES, chat

SECRET = "Xylophone"  # stands in every cell of text: no refusal may hold it
A, B, BAD = f"A {SECRET}", f"B {SECRET}", f"bad {SECRET}"


@pytest.fixture
def read(write_rows):
    """A function: (user, prompt, preferred first, y) of the rows in a file of a format."""

    def call(name, rows, *, columns=None, on_bad_rows="refuse", **declared):
        path, schema = write_rows(rows, "rows.jsonl"), Schema(format=name, **declared)
        loaded = load_judgements(path, columns=columns, on_bad_rows=on_bad_rows, schema=schema)
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
    row = {"conversation_a": chat("Q", A), "conversation_b": chat("Q", B)}
    return row | {"judge": "j", "model_a": "m1", "model_b": "m2"} | cells


def winners(*flags):
    return dict(zip(("winner_model_a", "winner_model_b", "winner_tie"), flags, strict=True))


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
        (winners(0, 1, 0), (B, A), 1.0),
        (winners("1", "0", "0"), (A, B), 1.0),
        (winners(0, 0, 1), (A, B), 0.5),
    ],
)
def test_arena(read, cells, expected, y):
    row = vote(**cells)
    assert read("arena", [row]) == [("j", "Q", expected, y)]
    if "winner" in row:
        names = tuple({A: "m1", B: "m2"}[text] for text in expected)
        row = {name: row[name] for name in ("judge", "model_a", "model_b", "winner")}
        assert read("arena-models", [row]) == [("j", "Which model is better?", names, y)]


def test_arena_of_kaggle_has_turns_as_json(read):
    texts = {"prompt": '["Q", "R"]', "response_a": '["a", "c"]', "response_b": '["b", "d"]'}
    row = {"user": "u"} | texts | winners(0, 1, 0)
    later = "\n\nHuman: R\n\nAssistant: "
    assert read("arena", [row]) == [("u", "Q", (f"b{later}d", f"a{later}c"), 1.0)]
    assert "not as many turns" in refusal(read, "arena", [row | {"response_a": '["a"]'}])


def comparia(**cells):
    names = {"model_a_name": "m1", "model_b_name": "m2", "visitor_id": "v"}
    row = {key: cell for key, cell in vote().items() if key.startswith("conversation")}
    return row | names | {"both_equal": False, "chosen_model_name": "m2"} | cells


def test_arena_with_a_system_prompt_of_one_model_alone(read):
    """They are not shown to who votes, and some models are given one."""
    system = [{"role": "system", "content": "Be kind."}]
    row = vote(winner="model_b")
    own = row | {"conversation_a": system + row["conversation_a"]}
    assert read("arena", [own]) == [("j", "Q", (B, A), 1.0)]
    shared = own | {"conversation_b": system + row["conversation_b"]}
    ((_, prompt, responses, _),) = read("arena", [shared])
    assert "Be kind." in prompt and responses == (B, A)


def feedback(rating=1, place="b", **cells):
    messages = {
        "a": {"id": "a", "parentId": None, "role": "user", "content": "Q"},
        "b": {"id": "b", "parentId": "a", "role": "assistant", "content": "good"},
        "c": {"id": "c", "parentId": "a", "role": "assistant", "content": BAD},
    }
    row = {
        "user_id": "u",
        "data": {"rating": rating, "details": {"rating": 10}},
        "meta": {"message_id": place},
        "snapshot": {"chat": {"user_id": "x", "chat": {"history": {"messages": messages}}}},
    }
    return row | cells


def four(**cells):
    row = {f"response_{letter}": f"text {letter}" for letter in "abcd"}
    return {"annotator_id": 3, "prompt": "Q", "preferred_response": "response_c"} | row | cells


def test_community_alignment_in_turns(read):
    first = {f"first_turn_{key}": cell for key, cell in four().items() if key != "annotator_id"}
    second = {"second_turn_prompt": "R", "second_turn_response_a": "x"}
    second |= {"second_turn_response_b": "y", "second_turn_preferred_response": "response_b"}
    row = {"annotator_id": 3} | first | second
    rows = read("community-alignment", [row], kind="top-1", responses=4)
    assert [each[2][0] for each in rows] == ["text c", "y"]
    assert "text c" in rows[1][1] and "text a" not in rows[1][1]


def talk(*scores, chosen=1):
    parts = [{"turn": 0, "role": "user", "content": "Q"}]
    parts += [
        {"turn": 0, "role": "model", "content": f"r{n}", "score": s, "if_chosen": n == chosen}
        for n, s in enumerate(scores)
    ]
    return {"user_id": "u", "conversation_history": parts}


def judges(*prefs, name="normal_worker_annotations", key="overall_pref"):
    entries = [{"evaluator": f"e{n}", key: pref} for n, pref in enumerate(prefs)]
    return {"text": "Q", "completion_a": "A", "completion_b": "B", name: entries}


def strength(value, **cells):
    row = {"context": chat("Q"), "response1": "A", "response2": "B", "overall_preference": value}
    return row | cells


def older(value):
    return {"prompt": "Q", "response_1": "A", "response_2": "B", "preference_strength": value}


def test_helpsteer_says_nobody(read):
    message = refusal(read, "helpsteer", [strength(1)])
    assert "does not say who judged" in message and "--one-user-per-row" in message


def task(selected, who=7, **cells):
    result = [{"type": "pairwise", "value": {"selected": selected}}]
    annotation = {"completed_by": who, "result": result} | cells
    data = {"prompt": "Q", "answer1": "A", "answer2": "B"}
    return {"id": 1, "data": data, "annotations": [annotation]}


def stars(text, kind, value):
    data = {"prompt": "Q", "response": text}
    annotation = {"completed_by": 7, "result": [{"type": kind, "value": value}]}
    return {"id": 1, "data": data, "annotations": [annotation]}


FIVE_AND_TWO = [stars("A", "rating", {"rating": 5}), stars("B", "rating", {"rating": 2})]


def record(value, fields=("response_a", "response_b"), **cells):
    texts = {name: f"text of {name}" for name in fields}
    answer = {"user_id": "w", "value": value} | cells
    return {"fields": {"prompt": "Q"} | texts, "responses": {"q": [answer], "why": []}}


NUMBERED = ("response1", "response2")
OF_THREE = ("response-1", "response-2", "response-3")


def test_argilla_of_several_and_of_version_1(read):
    ((*_, responses, _),) = read(
        "argilla", [record("response-2", OF_THREE)], kind="top-1", responses=3
    )
    assert responses[0] == "text of response-2"
    ranked = [{"value": name, "rank": n} for n, name in zip((3, 1, 2), OF_THREE, strict=True)]
    former = record(None, OF_THREE) | {
        "responses": [
            {"user_id": "w", "values": {"q": {"value": ranked}}, "status": "submitted"},
            {"user_id": "x", "values": {"q": {"value": ranked}}, "status": "discarded"},
        ]
    }
    ((user, _, responses, _),) = read("argilla", [former], kind="ranking", responses=3)
    assert user == "w"
    assert responses == tuple(f"text of {OF_THREE[n]}" for n in (1, 2, 0))


def test_argilla_reads_fields_of_responses_and_one_question(read):
    """Words and ratings are other questions; of two that prefer, neither is taken."""
    other = record("response_b")
    other["fields"] |= {"source": SECRET, "topic": SECRET}
    other["responses"]["why"] = [{"user_id": "w", "value": SECRET}]
    other["responses"]["stars"] = [{"user_id": "w", "value": 1}]
    both = ("text of response_b", "text of response_a")
    assert read("argilla", [other]) == [("w", "Q", both, 1.0)]
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


def rated(rating, response="R", **cells):
    return {"participant_id": "p", "prompt": "Q", "response": response, "rating": rating} | cells


def test_likert_on_another_scale_is_refused(read):
    for rating in (0, 6, 100):
        assert "not on the scale" in refusal(read, "likert", [rated(rating)], kind="thumbs")
        rows = [rated(5), rated(rating), rated(rating)]
        assert "pass --scale" in refusal(read, "likert", rows, kind="thumbs")
        assert len(read("likert", rows, kind="thumbs", on_bad_rows="skip")) == 1


def summaries(choice, **cells):
    info = {"post": "Q", "title": "T", "article": None}
    both = [{"text": "A", "policy": "m1"}, {"text": "B", "policy": "m2"}]
    return {"info": info, "summaries": both, "choice": choice, "worker": "w"} | cells


FOUR = {"kind": "top-1", "responses": 4}
THREE = {"kind": "ranking", "responses": 3}


@pytest.fixture
def best(read):
    """A function: (user, preferred text, y) of the rows in a file of a format."""
    return lambda name, rows, **more: [
        (u, shown[0], y) for u, _, shown, y in read(name, rows, **more)
    ]


def test_arena_of_comparia(best):
    tie = comparia(both_equal=True, chosen_model_name=None)
    rows = [comparia(), comparia(chosen_model_name="m1"), tie]
    assert best("arena", rows) == [("v", B, 1.0), ("v", A, 1.0), ("v", A, 0.5)]


def test_openwebui(best):
    rows = [feedback(1), feedback("-1", "c")]
    assert best("openwebui", rows) == [("u", "good", 1.0)]
    assert best("openwebui", rows, kind="thumbs") == [("u", "good", 1.0), ("u", BAD, 0.0)]


def test_responses_of_several_stand_behind_the_best(read):
    for name in ("response_c", "c", "C", "Response C"):
        row = four(preferred_response=name)
        ((user, *_, shown, y),) = read("community-alignment", [row], **FOUR)
        assert (user, shown, y) == ("3", ("text c", "text a", "text b", "text d"), 1.0)
    assert read("prism", [talk(10, 90, 40)], **THREE) == [("u", "Q", ("r1", "r2", "r0"), 1.0)]


def test_multipref(best):
    prefs = ("A-is-clearly-better", "B-is-slightly-better", "Tie")
    for names in ({}, {"name": "annotations", "key": "winner"}):
        found = best("multipref", [judges(*prefs, **names)])
        assert found == [("e0", "A", 1.0), ("e1", "B", 1.0), ("e2", "A", 0.5)]
    both = judges("a") | {"expert_worker_annotations": [{"evaluator": "e0", "overall_pref": "b"}]}
    assert best("multipref", [both]) == [("e0", "A", 1.0), ("e0", "B", 1.0)]


def test_helpsteer(best):
    for row in (strength, older):
        rows = [row(value) | {"rater": "r"} for value in (-3, "-1", 0, 2)]
        found = best("helpsteer", rows, columns={"user_id": "rater"})
        assert found == [("r", "A", 1.0), ("r", "A", 1.0), ("r", "A", 0.5), ("r", "B", 1.0)]


def test_label_studio(best):
    words = [[{"type": "choices", "value": {"choices": ["answer2"]}}]]
    rows = [
        task("left"),
        task("right", {"id": 8, "email": "x@y"}),
        task("left", was_cancelled=True),
    ]
    rows += [task("", result=result) for result in words]
    assert best("label-studio", rows) == [("7", "A", 1.0), ("7", "B", 1.0), ("8", "B", 1.0)]
    assert best("label-studio", FIVE_AND_TWO, scale="1..5") == [("7", "A", 1.0)]
    rows = [stars("A", "choices", {"choices": ["Bad"]}), stars("B", "choices", {"choices": "good"})]
    assert best("label-studio", rows) == [("7", "B", 1.0)]


def test_argilla(best):
    ranking = [{"value": "response_b", "rank": 1}, {"value": "response_a", "rank": 2}]
    equal = [{**each, "rank": 1} for each in ranking]
    values = ["response_a", "response_b", "b", "tie", ranking, equal]
    found = best("argilla", [record(value) for value in values])
    first = ["a", "b", "b", "a", "b", "a"]
    assert [text for _, text, _ in found] == [f"text of response_{letter}" for letter in first]
    assert [y for *_, y in found] == [1.0, 1.0, 1.0, 0.5, 1.0, 0.5]
    assert {user for user, *_ in found} == {"w"}
    rows = [record(5, ("response",)), record(2, ("answer",))]
    assert best("argilla", rows, scale="1..5") == [("w", "text of response", 1.0)]


def test_argilla_of_version_2_ranks_by_order_and_titles_have_blanks(best):
    ranks = [{"value": "Response 1", "rank": 2}, {"value": "Response 2", "rank": 1}]
    values = [["response2", "response1"], ["Response 1", "Response 2"], ranks, "Response 2"]
    found = best("argilla", [record(value, NUMBERED) for value in values])
    assert [text for _, text, _ in found] == [f"text of response{n}" for n in (2, 1, 2, 2)]


def test_likert(best):
    ratings = [5, "4", "Strongly agree", 1, "Disagree", 3, "Neutral"]
    rows = [rated(each, f"R{n}") for n, each in enumerate(ratings)]
    found = best("likert", rows, kind="thumbs")
    assert found == [("p", f"R{n}", y) for n, y in enumerate([1.0, 1.0, 1.0, 0.0, 0.0])]
    strict = best("likert", [rated(4), rated(5)], kind="thumbs", positive_from="5")
    assert [y for *_, y in strict] == [0.0, 1.0]
    wide = best("likert", [rated(6), rated(2)], kind="thumbs", scale="1..7")
    assert [y for *_, y in wide] == [1.0, 0.0]


def test_tldr(best):
    assert best("tldr", [summaries(0), summaries(1)]) == [("w", "A", 1.0), ("w", "B", 1.0)]


LEFT_OUT = judges() | {"normal_worker_annotations": [{"overall_pref": "a"}]}
THIRD = task("left")
THIRD["data"] |= {"response_a": "C", "response_b": SECRET}
TWICE = record("Response 1", NUMBERED)
TWICE["responses"]["q"].append({"user_id": "x", "value": ["response1", "response1"]})
#: Rows that say nothing, or two things.
REFUSED = {
    # A model that is called as the other side is.
    ("arena", "names both sides"): [
        vote(model_a="model_b", model_b="model_a", winner="model_a"),
        vote(model_a="m2", winner="m2"),
    ],
    ("arena", "'winner' names no side, model or tie"): [
        vote(winner=winner) for winner in (SECRET, "c", "", None, 1, "model_c", {"a": SECRET})
    ],
    ("arena", "'winner_"): [
        vote(**winners(*flags)) for flags in ((1, 1, 0), (0, 0, 0), (1, 0, 1), (SECRET, 1, 0))
    ],
    ("arena", "'chosen_model_name'"): [
        comparia(chosen_model_name=name) for name in ("m3", None, SECRET)
    ],
    ("arena", "'both_equal' is true"): [comparia(both_equal=True, chosen_model_name="m1")],
    ("openwebui", "neither 1 nor -1"): [feedback(n) for n in (0, 5, None, "up", SECRET)],
    ("openwebui", "not in the chat"): [feedback(place="z")],
    ("openwebui", "no answer of the assistant"): [feedback(place="a")],
    ("openwebui", "cannot read (KeyError)"): [feedback(snapshot={SECRET: SECRET})],
    ("community-alignment", "names none of the responses"): [
        *(four(preferred_response=name) for name in ("e", "", None, "text c", SECRET)),
        four(response_c=None),
    ],
    ("prism", "does not have the highest score"): [talk(90, 10)],
    ("multipref", "names neither"): [
        judges(pref) for pref in (SECRET, "C-is-clearly-better", "", None)
    ],
    ("multipref", "does not say who gave it"): [LEFT_OUT],
    ("helpsteer", "no whole number from -3 to 3"): [strength(x) for x in (4, 0.5, SECRET, None)],
    ("label-studio", "--scale 1..5"): FIVE_AND_TWO,
    ("label-studio", "exactly one result"): [
        stars("A", "pairwise", {}),
        task("left", result=[]),
    ],
    ("label-studio", "names neither"): [task(x) for x in (SECRET, "middle", "", None)],
    ("label-studio", "who gave it"): [task("left", None)],
    ("label-studio", "exactly one pair"): [THIRD],
    ("argilla", "does not rank"): [TWICE],
    ("argilla", "--scale 1..5"): [record(5, ("response",)), record(2, ("answer",))],
    ("argilla", "who gave it"): [record("a", user_id=None)],
    ("likert", "neither a number nor a word"): [rated(SECRET)],
    ("likert", "is the rating?"): [rated(4, score=2)],
    ("tldr", "neither 0 nor 1"): [summaries(x) for x in (2, -1, None, "A", SECRET)],
}
DECLARED = {"community-alignment": FOUR, "helpsteer": {"one_user_per_row": True}}


@pytest.mark.parametrize(("name", "why"), REFUSED)
def test_a_row_that_says_nothing_or_two_things_is_refused(read, name, why):
    for row in REFUSED[name, why]:
        assert why in refusal(read, name, [row], **DECLARED.get(name, {}))


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


def test_signs_of_polis_are_for_a_look_alone(write_rows):
    """Nine voters with signs the other way round took the vote of the tenth away."""
    cast = [(f"{n}", k, 2 * k - 1) for n in range(9) for k in (0, 1)]
    rows = [*STATEMENTS, *votes(*cast, ("10", 0, 1), ("10", 1, -1))]
    path = write_rows(rows)
    assert len(load_judgements(path, schema=Schema(format="polis"))) == 10
    (warning,) = (note for note in data(path).judgements.notes if "1 must mean agree" in note)
    assert "contradict" in warning
    path = write_rows([*STATEMENTS, *rows[-2:]])
    assert not any("agree" in note for note in data(path).judgements.notes)


def test_a_look_counts_the_statements_that_nobody_voted_on(write_rows):
    """Which ones a board has must not tell of votes, so they stay on it."""
    new = {"comment-id": 2, "comment-body": "New", "agrees": 0, "disagrees": 0, "moderated": 0}
    gone = {**new, "comment-id": 3, "moderated": -1}
    path = write_rows([*STATEMENTS, new, gone, *votes(("10", 0, 1), ("10", 1, -1))])
    (note,) = (note for note in data(path).judgements.notes if "without any vote" in note)
    assert "1 of 3 (no moderator has looked at 1)" in note and SECRET not in note
    assert "New" in public_texts(path, "", "polis")


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
def converted(tmp_path, write_rows):
    """A function: the rows that an export becomes when it is converted, and the bad ones."""

    def call(name, rows, **more):
        path, out = write_rows(rows, "export.jsonl"), tmp_path / "converted.jsonl"
        out.unlink(missing_ok=True)
        made = convert(path, out, format=name, **more)
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


def test_a_conversion_is_never_written_over_and_carries_what_private_models_wrote(
    write_rows, tmp_path
):
    rows = [vote(winner="a", private_runs="one@1:ab"), vote(winner="b", judge="k")]
    path, out = write_rows([*rows, vote(winner=SECRET)]), tmp_path / "ours.jsonl"
    said = written_conversion(path, out, "", "", False)
    assert said.splitlines() == [
        f"{out}: 2 rows, by 2 users, for --data",
        "bad rows, left out: 1",
        f"{path}:3: 'winner' names no side, model or tie",
    ]
    written = out.read_text()
    assert [json.loads(line)["private_runs"] for line in written.splitlines()] == ["one@1:ab"] * 2
    assert load_judgements(str(out)).user_ids == ("j", "k")
    with pytest.raises(InputError, match=r"ours\.jsonl: File exists"):
        written_conversion(path, out, "", "", False)
    assert out.read_text() == written
    with pytest.raises(InputError, match="of which --format"):
        written_conversion(str(out), tmp_path / "again.jsonl", "", "", False)


# What holds of all of them.

ROWS = {name: [*example("u", 1)] for name, example in EXAMPLES.items()}


def test_all_are_known_by_name():
    assert tuple(FORMATS) == FORMAT_NAMES == tuple(ROWS)
    with pytest.raises(InputError, match=r"--format must be one of arena, .*; got 'arenas'"):
        format_named("arenas")


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


#: Where the answers to a record are.
ANSWERS = {
    "argilla": lambda record: record["responses"]["better"],
    "label-studio": lambda record: record["annotations"],
    "multipref": lambda record: record["normal_worker_annotations"],
}


def shared(name, *answers):
    """A record with these answers about the same texts."""
    record = copy.deepcopy(EXAMPLES[name]("x", 1)[0])
    ANSWERS[name](record)[:] = answers
    return record


def _answer(name, who):
    return ANSWERS[name](EXAMPLES[name](who, 1)[0])[0]


@pytest.mark.parametrize("name", ANSWERS)
def test_an_annotators_answer_is_bad_for_nobody_else(read, name):
    first, last = _answer(name, "u"), _answer(name, "v")
    good = read(name, [shared(name, first, last)])
    assert [user for user, *_ in good] == ["u", "v"]
    whole = _answer(name, "x")
    broken = [5, None, SECRET, [], {}, *({**whole, key: 5} for key in whole)]
    broken += [{**whole, key: {SECRET: SECRET}} for key in whole]
    broken += [{key: whole[key] for key in whole if key != left_out} for left_out in whole]
    for answer in broken:
        found = read(name, [shared(name, first, answer, last)], on_bad_rows="skip")
        rest = [each for each in found if each[0] in "uv"]
        assert rest == good, answer


def test_another_question_of_one_annotator_is_no_reason_for_others(read):
    """It made the question unclear for all."""
    given = record("response_b")
    given["responses"]["honest"] = [{"user_id": "x", "value": "response_a"}]
    best = [(user, texts[0]) for user, _, texts, _ in read("argilla", [given])]
    assert best == [("w", "text of response_b"), ("x", "text of response_a")]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("argilla", {"fields": SECRET}),
        ("label-studio", {"data": {}}),
        ("multipref", {"completion_a": ""}),
    ],
)
def test_broken_texts_are_bad_for_all_annotators_alike(write_rows, name, shown):
    broken = shared(name, _answer(name, "u"), _answer(name, "v")) | shown
    rows = [broken, shared(name, _answer(name, "w"))]
    schema = Schema(format=name)
    loaded = load_judgements(write_rows(rows), on_bad_rows="skip", schema=schema)
    assert (loaded.user_ids, loaded.left_out) == (("u", "v", "w"), 2)
    assert loaded.counts_U.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("argilla", {"responses": 5}),
        ("argilla", {"responses": {"q": SECRET}}),
        ("label-studio", {"annotations": SECRET}),
        ("multipref", {"normal_worker_annotations": "[{"}),
    ],
)
def test_a_record_that_cannot_be_split_refuses_the_source(read, name, broken):
    rows = [shared(name, _answer(name, "u"))] * 99
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


def test_a_node_reads_what_keeps_people_apart(write_rows):
    for name, form in FORMATS.items():
        path = write_rows([{"nothing": 1}, *ROWS[name], vote(judge="other", winner=SECRET)])
        schema = Schema(format=name, one_user_per_row=True)
        if not form.isolates:
            with pytest.raises(InputError, match=r"keep people's rows apart|convert it first"):
                load_judgements(path, on_bad_rows="isolate", schema=schema)
        else:
            loaded = load_judgements(path, on_bad_rows="isolate", schema=schema)
            assert loaded.left_out >= 2
    path = write_rows([vote(winner=SECRET)])
    loaded = load_judgements(path, on_bad_rows="isolate", schema=Schema(format="arena"))
    assert (loaded.user_ids, len(loaded)) == (("j",), 0)


def test_a_format_is_no_form_of_texts(write_rows):
    with pytest.raises(InputError, match="--format arena is about judgements"):
        load_data("text", write_rows([vote(winner="b")]), schema=Schema(format="arena"))


def test_a_look_recognises_a_format_and_its_command_names_it(write_rows):
    path = write_rows([four()] * 3)
    summary = look_at(path, "", {})
    assert summary.schema.options == "--kind top-1 --responses 4 --format community-alignment"
    assert summary.taken["user_id"] == "annotator_id"
    assert "--format community-alignment" in summary.command
    with pytest.raises(InputError):
        look_at(path, "", {"format": "arena"})


def test_splitting_by_user_writes_our_own_form(write_rows, tmp_path):
    path = write_rows([judges("a", "b", "tie", "a", "b", "b", "a", "a")])
    split = split_users(path, 0.5, tmp_path / "out", format="multipref")
    both = [load_judgements(str(each)) for each in (split.train, split.test)]
    assert sum(map(len, both)) == 8
    assert not {*both[0].user_ids} & {*both[1].user_ids}


@pytest.fixture
def brought(monkeypatch):
    """A function: a format of another package, ``mine``, and the rows that it was given."""

    def bring(columns, made):
        given = []

        def rows(row):
            given.append(row)
            yield made(row)

        form = Format("mine", forms=(columns,), reads=OwnRows(rows))
        monkeypatch.setattr(READERS, "names", lambda: ("mine",))
        monkeypatch.setattr(READERS, "load", lambda name: form)
        return given

    return bring


def test_cells_that_are_equal_and_not_the_same_are_not_taken_for_each_other(brought, read):
    """1 == True == 1.0: a format may tell them apart, whichever comes first."""
    brought(
        ("one", "two", "best"),
        lambda r: pair("Q", r["one"], r["two"], 1.0 if r["best"] is True else 0.0),
    )
    rows = [{"rater": "r", "one": "A", "two": "B", "best": best} for best in (1, True, 1.0, True)]
    assert [each[2][0] for each in read("mine", rows)] == ["B", "A", "B", "A"]


def test_a_format_sees_the_columns_that_it_declares(brought, read):
    """A row is a function of these alone, so nobody's can become another's."""
    given = brought(
        ("one", "two", "best"),
        lambda r: pair(r["secret"], r["one"], r["two"], 1.0),
    )
    row = {"rater": "r", "one": "A", "two": "B", "best": "1", "secret": "of a user"}
    assert "cannot read (KeyError)" in refusal(read, "mine", [row])
    assert given == [{"one": "A", "two": "B", "best": "1"}]


def test_an_id_that_cannot_be_written_is_bad_for_nobody_else(monkeypatch):
    """It ended the reading of all, with a traceback."""
    rows = [vote(winner="a", judge="u"), vote(winner="a", judge=10**5000)]
    monkeypatch.setattr(sys.modules[__name__], "given", lambda: rows, raising=False)
    loaded = load_judgements(f"{__name__}:given", on_bad_rows="skip", schema=Schema(format="arena"))
    assert (loaded.user_ids, loaded.left_out) == (("u",), 1)
