"""Seeded misreadings: every export holds a marker in whatever was preferred, so each way to read it
the other way round shows. A declaration that is turned round has to be seen, or refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.planning.look import look_at
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats import arena, label_studio, multipref, polis, registry
from murmuration.preference.data.formats.format import WholeSource
from murmuration.preference.data.formats.registry import FORMATS, recognised_format
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.splitting import convert

GOOD, BAD = "a merry reply", "a sober reply"
BOTH = ((GOOD, BAD), (BAD, GOOD))


def chat(prompt, reply):
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": reply}]


def _arena(first, second):
    row = {"question_id": "q", "model_a": "m1", "model_b": "m2", "judge": "arena_user_1"}
    row |= {"winner": "model_a" if first == GOOD else "model_b", "turn": 1, "anony": True}
    return [row | {"conversation_a": chat("Q", first), "conversation_b": chat("Q", second)}]


def _arena_of_kaggle(first, second):
    row = {"id": 1, "user": "u", "model_a": "m1", "model_b": "m2", "winner_tie": 0}
    row |= {"winner_model_a": int(first == GOOD), "winner_model_b": int(second == GOOD)}
    texts = {"prompt": ["Q"], "response_a": [first], "response_b": [second]}
    return [row | {column: json.dumps(text) for column, text in texts.items()}]


def _arena_of_comparia(first, second):
    row = {"model_a_name": "m1", "model_b_name": "m2", "both_equal": False, "visitor_id": "v"}
    row |= {"chosen_model_name": "m1" if first == GOOD else "m2"}
    return [row | {"conversation_a": chat("Q", first), "conversation_b": chat("Q", second)}]


def _arena_models(first, second):
    winner = "model_a" if first == GOOD else "model_b"
    return [{"judge": "j", "model_a": first, "model_b": second, "winner": winner}]


def _argilla(value):
    def rows(first, second):
        fields = {"prompt": "Q", "response1": first, "response2": second}
        answer = {"user_id": "w", "value": value(*("12" if first == GOOD else "21"))}
        return [{"id": "r", "fields": fields, "responses": {"preference": [answer]}}]

    return rows


def _community_alignment(first, second):
    row = {"annotator_id": 1, "prompt": "Q"}
    row |= {f"response_{letter}": BAD + letter for letter in "abcd"}
    row |= {"response_b": first, "response_d": second}
    return [row | {"preferred_response": "response_b" if first == GOOD else "response_d"}]


def _helpsteer(first, second):
    row = {"context": chat("Q", "")[:1], "response1": first, "response2": second}
    return [row | {"overall_preference": -2 if first == GOOD else 3}]


def _label_studio(first, second):
    result = {"type": "pairwise", "value": {"selected": "left" if first == GOOD else "right"}}
    data = {"prompt": "Q", "answer1": first, "answer2": second}
    return [{"id": 1, "data": data, "annotations": [{"completed_by": 7, "result": [result]}]}]


def _label_studio_ratings(first, second):
    return [
        {"id": 1, "data": {"prompt": "Q", "response": text}, "annotations": [
            {"completed_by": 7, "result": [
                {"type": "rating", "value": {"rating": 5 if text == GOOD else 2}}]}]}
        for text in (first, second)
    ]  # fmt: skip


def _likert(first, second):
    return [
        {"user_id": "u", "prompt": "Q", "response": text, "rating": 5 if text == GOOD else 2}
        for text in (first, second)
    ]


def _multipref(first, second):
    letter = "A" if first == GOOD else "B"
    entry = {"evaluator": "n", "overall_pref": f"{letter}-is-slightly-better"}
    row = {"text": "Q", "completion_a": first, "completion_b": second}
    return [row | {"normal_worker_annotations": [entry], "expert_worker_annotations": []}]


def _oasst(first, second):
    message = {"message_id": "a", "parent_id": None, "user_id": "w", "role": "prompter"}
    return [message | {"text": "Q", "rank": None}] + [
        message | {"message_id": text, "parent_id": "a", "role": "assistant", "text": text}
        | {"rank": int(text != GOOD)}
        for text in (first, second)
    ]  # fmt: skip


def _openwebui(first, second):
    messages = {"q": {"id": "q", "parentId": None, "role": "user", "content": "Q"}}
    messages |= {
        text: {"id": text, "parentId": "q", "role": "assistant", "content": text}
        for text in (first, second)
    }
    snapshot = {"chat": {"chat": {"history": {"messages": messages}}}}
    return [
        {"user_id": "u", "type": "rating", "snapshot": snapshot, "meta": {"message_id": text}}
        | {"data": {"rating": 1 if text == GOOD else -1}}
        for text in (first, second)
    ]


def _polis(first, second):
    texts = [first, second]
    return [
        {"comment-id": k, "comment-body": text, "agrees": int(text == GOOD)}
        | {"disagrees": int(text != GOOD)}
        for k, text in enumerate(texts)
    ] + [
        {"comment-id": k, "voter-id": 3, "vote": 1 if text == GOOD else -1}
        for k, text in enumerate(texts)
    ]


def _prism(first, second):
    history = [{"turn": 0, "role": "user", "content": "Q"}] + [
        {"turn": 0, "role": "model", "content": text, "score": 90 if text == GOOD else 10}
        | {"if_chosen": text == GOOD}
        for text in (first, second)
    ]
    return [{"user_id": "u", "conversation_history": history}]


def _tldr(first, second):
    row = {"info": {"post": "Q"}, "summaries": [{"text": first}, {"text": second}]}
    return [row | {"choice": int(second == GOOD), "worker": "w"}]


#: Rows of a format with two responses in the given order, and what has to be declared with them.
EXPORTS = {
    "arena": ("arena", _arena, {}),
    "arena of Kaggle": ("arena", _arena_of_kaggle, {}),
    "arena of compar:IA": ("arena", _arena_of_comparia, {}),
    "arena-models": ("arena-models", _arena_models, {}),
    "argilla, a label": ("argilla", _argilla(lambda best, _: f"Response {best}"), {}),
    "argilla, a ranking": (
        "argilla", _argilla(lambda best, other: [f"Response {best}", f"Response {other}"]), {}
    ),
    "argilla, ranks": (
        "argilla",
        _argilla(lambda best, other: [
            {"value": f"Response {other}", "rank": 2}, {"value": f"Response {best}", "rank": 1},
        ]),
        {},
    ),
    "community-alignment": ("community-alignment", _community_alignment, {"kind": "top-1"}),
    "helpsteer": ("helpsteer", _helpsteer, {"one_user_per_row": True}),
    "label-studio": ("label-studio", _label_studio, {}),
    "label-studio, ratings": ("label-studio", _label_studio_ratings, {"scale": "1..5"}),
    "likert": ("likert", _likert, {}),
    "multipref": ("multipref", _multipref, {}),
    "oasst": ("oasst", _oasst, {"kind": "ranking", "one_user_per_row": True}),
    "openwebui": ("openwebui", _openwebui, {}),
    "polis": ("polis", _polis, {}),
    "prism": ("prism", _prism, {}),
    "tldr": ("tldr", _tldr, {}),
}  # fmt: skip


@pytest.fixture
def preferred(tmp_path):
    """A function: what is read as preferred, of an export in both orders."""

    def call(name, **declared):
        form, rows_of, needed = EXPORTS[name]
        kind = (needed | declared).get("kind", "pairs")
        several = {"responses": 4} if kind in ("top-1", "ranking") else {}
        best = []
        for number, both in enumerate(BOTH):
            path = tmp_path / f"{number}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(*both)))
            said, source = several | needed | declared, str(path)
            if isinstance(FORMATS[form].reads, WholeSource):
                source = str(tmp_path / f"{number}-converted.jsonl")
                convert(str(path), Path(source), format=form, one_user_per_row=True)
            else:
                said["format"] = form
            schema = Schema(**said)
            best += [texts[0] for texts in load_judgements(source, schema=schema).responses]
        return best

    return call


def turned_round(row):
    """Return a row of ours that says the opposite."""
    if isinstance(row, BadRow):
        return row
    row = {**row}
    if "chosen" in row:
        row |= {"chosen": row["rejected"], "rejected": row["chosen"]}
    if "best" in row:
        row["best"] = (row["best"] + 1) % len(row["responses"])
    for column in {"ranking", "scores"} & {*row}:
        row[column] = [-value + max(row[column]) + 1 for value in row[column]]
    if "label" in row:
        words = {"agree": "disagree", "disagree": "agree"}
        label = row["label"]
        row["label"] = words.get(label) or (6 - label if type(label) in (int, float) else not label)
    return row


@pytest.mark.parametrize("name", EXPORTS)
def test_what_was_preferred_comes_first(preferred, name):
    assert preferred(name) == [GOOD, GOOD]


def test_each_format_has_an_export_here():
    assert {form for form, _, _ in EXPORTS.values()} == {*FORMATS}


@pytest.mark.parametrize("name", EXPORTS)
def test_a_format_that_is_turned_round_is_seen(preferred, monkeypatch, name):
    form = FORMATS[EXPORTS[name][0]]
    made_by = "judgement" if hasattr(form.reads, "judgement") else "judgements"
    made = getattr(form.reads, made_by)

    def turned(*given):
        result = made(*given)
        if made_by == "judgement":
            return turned_round(result)
        return [
            (each[0], turned_round(each[1])) if isinstance(each, tuple) else turned_round(each)
            for each in result
        ]

    seeded = replace(form, reads=replace(form.reads, **{made_by: turned}))
    monkeypatch.setitem(registry.FORMATS, form.name, seeded)
    assert GOOD not in preferred(name)


#: Declarations, each turned round: of which export, where it stands, and what is put there.
SEEDED = [
    ("arena", arena, {"_FIRST": arena._SECOND, "_SECOND": arena._FIRST}),
    ("arena of Kaggle", arena, {"_ONE_HOT": ("winner_model_b", "winner_model_a", "winner_tie")}),
    ("arena of compar:IA", arena, {"_MODELS": (("model_b_name", "model_a_name"),)}),
    ("arena-models", arena, {"_FIRST": arena._SECOND, "_SECOND": arena._FIRST}),
    ("label-studio", label_studio, {"_PAIRS": (("answer2", "answer1"),)}),
    ("multipref", multipref, {"_FIRST": multipref._SECOND, "_SECOND": multipref._FIRST}),
    ("multipref", multipref, {"_PAIRS": (("completion_b", "completion_a"),)}),
    ("polis", polis, {"_LABELS": {1.0: "disagree", -1.0: "agree", 0.0: "pass"}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "module", "seeded"), SEEDED)
def test_a_declaration_that_is_turned_round_is_seen(preferred, monkeypatch, name, module, seeded):
    for declaration, value in seeded.items():
        monkeypatch.setattr(module, declaration, value)
    assert GOOD not in preferred(name)


@pytest.mark.parametrize("name", ["likert", "label-studio, ratings"])
def test_a_scale_that_is_turned_round_is_seen(preferred, name):
    assert preferred(name, scale="5..1") == [BAD, BAD]


def test_a_look_at_signs_of_polis_the_other_way_round_says_so(tmp_path):
    rows = [row | ({"vote": -row["vote"]} if "vote" in row else {}) for row in _polis(GOOD, BAD)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert any("contradict" in note for note in look_at(str(path), "", {}).judgements.notes)


@pytest.mark.parametrize("name", EXPORTS)
def test_no_export_is_recognised_as_another(name):
    form, rows_of, _ = EXPORTS[name]
    columns = {column for row in rows_of(GOOD, BAD) for column in row}
    assert recognised_format(columns) == (form if FORMATS[form].unmistakable else "")
