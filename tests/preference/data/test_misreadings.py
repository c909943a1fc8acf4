"""Seeded misreadings: every export holds a marker in whatever was preferred, so each way to read it
the other way round shows. A declaration that is turned round has to be seen, or refused."""

import json
from dataclasses import replace

import pytest

from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats import arena, label_studio, multipref, polis, registry
from murmuration.preference.data.formats.format import WholeSource
from murmuration.preference.data.formats.registry import FORMATS, recognised_format
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.splitting import convert
from tests.preference.data.formats.examples import ROWS_OF, Judged

GOOD, BAD = "a merry reply", "a sober reply"


def _arena_of_kaggle(judged):
    row = {"id": 1, "user": "u", "model_a": "m1", "model_b": "m2", "winner_tie": 0}
    row |= {"winner_model_a": judged.says(1, 0), "winner_model_b": judged.says(0, 1)}
    texts = {"prompt": ["Q"], "response_a": [judged.first], "response_b": [judged.second]}
    return [row | {column: json.dumps(text) for column, text in texts.items()}]


def _arena_of_comparia(judged):
    (row,) = ROWS_OF["arena"](judged)
    row = {name: cell for name, cell in row.items() if name.startswith("conversation")}
    row |= {"model_a_name": "m1", "model_b_name": "m2", "both_equal": False, "visitor_id": "v"}
    return [row | {"chosen_model_name": judged.says("m1", "m2")}]


def _argilla(value):
    def rows(judged):
        fields = {"prompt": "Q", "response1": judged.first, "response2": judged.second}
        answer = {"user_id": "w", "value": value(*judged.says("12", "21"))}
        return [{"id": "r", "fields": fields, "responses": {"preference": [answer]}}]

    return rows


def _label_studio_ratings(judged):
    def rated(text, stars):
        result = [{"type": "rating", "value": {"rating": stars}}]
        data = {"prompt": "Q", "response": text}
        return {"id": 1, "data": data, "annotations": [{"completed_by": 7, "result": result}]}

    return [*map(rated, judged.replies, judged.says((5, 2), (2, 5)))]


def _ranks(best, other):
    return [{"value": f"Response {other}", "rank": 2}, {"value": f"Response {best}", "rank": 1}]


#: What has to be declared with a format.
NEEDED = {
    "community-alignment": {"kind": "top-1"},
    "helpsteer": {"one_user_per_row": True},
    "oasst": {"kind": "ranking", "one_user_per_row": True},
}
#: Rows of a format with two responses, and what has to be declared with them.
EXPORTS = {name: (name, rows_of, NEEDED.get(name, {})) for name, rows_of in ROWS_OF.items()}
EXPORTS |= {
    "arena of Kaggle": ("arena", _arena_of_kaggle, {}),
    "arena of compar:IA": ("arena", _arena_of_comparia, {}),
    "argilla, a title": ("argilla", _argilla(lambda best, _: f"Response {best}"), {}),
    "argilla, a ranking": (
        "argilla",
        _argilla(lambda *order: [f"Response {n}" for n in order]),
        {},
    ),
    "argilla, ranks": ("argilla", _argilla(_ranks), {}),
    "label-studio, ratings": ("label-studio", _label_studio_ratings, {"scale": "1..5"}),
}


@pytest.fixture
def preferred(tmp_path, write_rows):
    """A function: whether the good response is read as preferred, of an export in both orders."""

    def call(name, **declared):
        form, rows_of, needed = EXPORTS[name]
        kind = (needed | declared).get("kind", "pairs")
        several = {"responses": 4} if kind in ("top-1", "ranking") else {}
        best = []
        for number, both in enumerate(((GOOD, BAD), (BAD, GOOD))):
            rows = rows_of(Judged("w", "Q", *both, first_wins=both[0] == GOOD))
            source, said = write_rows(rows), several | needed | declared
            if isinstance(FORMATS[form].reads, WholeSource):
                converted = tmp_path / f"{number}-converted.jsonl"
                convert(source, converted, format=form, one_user_per_row=True)
                source = str(converted)
            else:
                said["format"] = form
            schema = Schema(**said)
            loaded = load_judgements(source, schema=schema)
            assert name not in ROWS_OF or schema.one_user_per_row or loaded.user_ids == ("w",)
            best += [texts[0].startswith(GOOD) for texts in loaded.responses]
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
    assert preferred(name) == [True, True]


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
    assert not any(preferred(name))


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
    assert not any(preferred(name))


@pytest.mark.parametrize("name", ["likert", "label-studio, ratings"])
def test_a_scale_that_is_turned_round_is_seen(preferred, name):
    assert preferred(name, scale="5..1") == [False, False]


@pytest.mark.parametrize("name", EXPORTS)
def test_no_export_is_recognised_as_another(name):
    form, rows_of, _ = EXPORTS[name]
    columns = {column for row in rows_of(Judged("w", "Q", GOOD, BAD, True)) for column in row}
    assert recognised_format(columns) == (form if FORMATS[form].unmistakable else "")
