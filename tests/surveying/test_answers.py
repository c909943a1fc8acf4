"""Users' answers to a survey: each a vector of bounded length, of that user alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.bases import base_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.schema import Schema
from murmuration.surveying.answers import SurveyAnswers
from murmuration.surveying.questionnaire import Questionnaire

FORM = Questionnaire(("money: save, spend",))


def answers_of(codes_of):
    """Answers of users, each a list of judgements' answers (Q numbers from 0 to 1)."""
    first_Q = np.array([place.start for place in FORM.places[1:]])
    many_Q = np.array([place.stop - place.start for place in FORM.places[1:]])
    rows = [row for codes in codes_of for row in codes]
    part_JQ = np.array(rows, dtype=np.float64).reshape(-1, len(first_Q))
    place_JQ = (first_Q + np.minimum(part_JQ * many_Q, many_Q - 1).astype(int)).astype(np.int32)
    start_U = torch.tensor(np.cumsum([0, *map(len, codes_of)]))
    return SurveyAnswers(start_U, place_JQ, FORM)


codes = st.lists(
    st.lists(st.floats(0, 1), min_size=6, max_size=6) | st.just([0.0] * 6), max_size=30
)


@given(codes)
def test_a_vector_is_whether_there_is_anything_and_distributions(rows):
    answers = answers_of([rows])
    vector_V = answers.vector(0)
    expected = 1.0 if rows else 0.0
    assert vector_V[0] == expected and vector_V.min() >= 0
    for place in FORM.places:
        assert vector_V[place].sum() == pytest.approx(expected)
    assert np.linalg.norm(vector_V) <= FORM.longest * (1 + 1e-12)


def test_one_who_always_answers_alike_attains_the_bound():
    for judgements in (1, 1000):
        vector_V = answers_of([[[0.3] * 6] * judgements]).vector(0)
        assert np.linalg.norm(vector_V) == pytest.approx(FORM.longest)


def test_many_rows_are_no_more_than_few():
    rows = [[0.1] * 6, [0.9] * 6]
    few_V, many_V = (answers_of([rows * times]).vector(0) for times in (1, 50_000))
    rest = FORM.places[1].start
    assert few_V[rest:] == pytest.approx(many_V[rest:])
    assert few_V[0] == many_V[0] == 1.0


@given(st.lists(codes, min_size=1, max_size=6))
def test_users_do_not_meet_in_a_vector(codes_of):
    answers = answers_of(codes_of)
    users = np.arange(len(codes_of))
    together = np.concatenate(list(answers.vectors(users)))
    turned = answers.select(users[::-1])
    assert turned.counts_U.tolist() == answers.counts_U.tolist()[::-1]
    for user in users:
        alone = answers.select(np.array([user]))
        assert alone.vector(0).tolist() == together[user].tolist()
        assert turned.vector(len(users) - 1 - user).tolist() == together[user].tolist()


def rows_of(**more):
    return [{"user_id": "u", "prompt": "?", "chosen": "a b", "rejected": "a", **more}]


def test_a_description_makes_them_of_judgements():
    model = base_of({"kind": "survey", "topics": ["money: save"]})
    made = model.examples(Judgements.from_rows(rows_of()))
    assert made.dimension == model.dimension == Questionnaire(("money: save",)).dimension
    assert made.vector(0).sum() == pytest.approx(1 + len(made.questionnaire.questions))
    assert base_of(model.to_config()).to_config() == model.to_config()
    with pytest.raises(InputError, match="gives no reward"):
        model.scores([], [], [])


@pytest.mark.parametrize("topics", ["money", [7], {"a": 1}])
def test_a_description_of_anything_else(topics):
    with pytest.raises(InputError, match="a list of lines"):
        base_of({"kind": "survey", "topics": topics})


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        (Schema(kind="thumbs"), {"user_id": "u", "prompt": "?", "completion": "a", "label": True}),
        (Schema(labels="randomized"), {**rows_of()[0], "flip_probability": 0.1}),
    ],
)
def test_what_is_not_asked_about(schema, row):
    model = base_of({"kind": "survey", "topics": []})
    with pytest.raises(InputError, match=r"--kind thumbs|randomized already"):
        model.examples(Judgements.from_rows([row], schema=schema))


def test_it_is_no_model():
    answers = answers_of([[[0.0] * 6]])
    assert answers.in_public() is answers and answers.in_batches(4) is answers
    for call in (answers.accuracy, answers.figures):
        with pytest.raises(ValueError, match="a survey learns no model"):
            call(np.zeros(1))
