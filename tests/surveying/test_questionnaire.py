"""The questions of a survey, and how judgements answer them."""

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.schema import Schema
from murmuration.surveying.questionnaire import PER_USER, Questionnaire


def answers_to(rows, topics=(), **schema):
    """What each judgement answers to each question, by the question's name."""
    judgements = Judgements.from_rows(rows, schema=Schema(**schema))
    asked_of = Questionnaire(topics)
    place_JQ = asked_of.answers(judgements)
    result = []
    for place_Q in place_JQ.tolist():
        by_name = {}
        for place, span, question in zip(
            place_Q, asked_of.places[1:], asked_of.questions[1:], strict=True
        ):
            by_name[question.name] = question.answers[range(span.start, span.stop).index(place)]
        result.append(by_name)
    return result


def pair(chosen, rejected, prompt="What should we do with it now?", **more):
    return {"user_id": "u", "prompt": prompt, "chosen": chosen, "rejected": rejected, **more}


def test_what_a_judgement_answers():
    (one,) = answers_to([pair("Save it for the day that you need it.", "Spend it.")])
    assert one == {
        "ties": "one was preferred",
        "longer": "the longest",
        "response_words": "1–8",  # 9 and 2, 5.5 on average
        "prompt_words": "1–8",
        "language": "English",
    }


@pytest.mark.parametrize(
    ("row", "longer", "ties"),
    [
        (pair("a b", "a"), "the longest", "one was preferred"),
        (pair("a", "a b"), "another", "one was preferred"),
        (pair("a", "b"), "no difference: a tie, or equally long", "one was preferred"),
        (pair("a b", "a", tie=True), "no difference: a tie, or equally long", "a tie"),
    ],
)
def test_the_longest_response(row, longer, ties):
    (one,) = answers_to([row])
    assert (one["longer"], one["ties"]) == (longer, ties)


@pytest.mark.parametrize(
    ("row", "kind", "longer", "ties"),
    [
        ({"best": 1}, "top-1", "the longest", "one was preferred"),
        ({"best": [1, 2]}, "top-1", "no difference: a tie, or equally long", "a tie"),
        ({"ranking": [1, 2, 3]}, "ranking", "another", "one was preferred"),
        ({"ranking": [2, 1, 2]}, "ranking", "the longest", "one was preferred"),
    ],
)
def test_of_several_responses_the_first_place_counts(row, kind, longer, ties):
    row = {"user_id": "u", "prompt": "?", "responses": ["a", "a b c", "a b"], **row}
    (one,) = answers_to([row], kind=kind, responses=3)
    assert (one["longer"], one["ties"]) == (longer, ties)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Кошка и собака не знакомы.", "Cyrillic"),
        ("kort", "Latin letters, unclear"),
        ("ᚠᚢᚦ", "other letters"),
        ("12 + 3", "no letters"),
        ("Das ist nicht gut, und ich bin es auch nicht.", "German"),
    ],
)
def test_languages(text, language):
    (one,) = answers_to([pair(text, text, text)])
    assert one["language"] == language


def test_texts_without_blanks():
    """Lengths are letters; a topic's words stand anywhere among them, but not in pieces."""
    topics = ("health: 医生", "money: 存款, ซื้อ, cash")
    rows = [
        pair("先存起来再等一等吧", "买", "怎么办？"),
        pair("买", "我的存款在哪里"),
        pair("用cash", "款存医学生", "p"),
        pair("อย่าซื้อ", "รอ", "p"),
        pair("生医", "ออ", "p"),
    ]
    answers = answers_to(rows, topics)
    assert answers[0] | {"topic": ""} == {
        "ties": "one was preferred",
        "longer": "the longest",
        "response_words": "1–8",  # 9 and 1
        "prompt_words": "1–8",
        "language": "Cjk",
        "topic": "",
    }
    assert [one["longer"] for one in answers[1:4]] == ["another", "another", "the longest"]
    topic = [one["topic"] for one in answers]
    assert topic == ["none of these", "money", "money", "money", "none of these"]


def test_topics_are_known_by_their_words():
    topics = ("money: Save, spend", "health: doctor, walk", "public transport")
    rows = [
        pair("SAVE it, then walk.", "Spend it."),  # two words of money, one of health
        pair("Walk to the doctor.", "No."),
        pair("Take transport.", "No."),
        pair("Savers", "Doctors"),  # are other words
        pair("Spend", "walk"),  # as many: the first
    ]
    topic = [one["topic"] for one in answers_to(rows, topics)]
    assert topic == ["money", "health", "public transport", "none of these", "money"]


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        (("money: save", "Money: spend"), "looks like 'money'"),
        ((": save",), "is no name"),
        (("money: !?",), "has no words by which to know it"),
    ],
)
def test_topics_that_cannot_be(topics, message):
    with pytest.raises(InputError, match=message):
        Questionnaire(topics)


def test_every_number_has_a_bin():
    form = Questionnaire()
    names = form.questions[0].answers
    assert form.questions[0].name == PER_USER
    first = form.places[0].start
    bins = [names[form.per_user(n) - first] for n in (1, 2, 3, 4, 5, 256, 257, 10**9)]
    assert bins == ["1", "2", "3–4", "3–4", "5–8", "129–256", "257 or more", "257 or more"]
    assert [place.stop - place.start for place in form.places] == [
        len(question.answers) for question in form.questions
    ]


def test_an_endless_text_is_in_the_last_bin():
    (one,) = answers_to([pair("x " * 50_000, "x " * 50_000, "y " * 50_000)])
    assert (one["response_words"], one["prompt_words"]) == ("513 or more", "513 or more")


def test_nodes_make_an_equal_one():
    form = Questionnaire(("money: save",))
    assert Questionnaire(tuple(form.to_config()["topics"])) == form
    assert np.isclose(form.longest**2, 1 + len(form.questions))
