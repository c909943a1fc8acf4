"""Strings and chat messages, one or many, as what a model is asked to score."""

import math

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.scoring import prompt_text, response_text, scores_of, strings_of

USER = [{"role": "user", "content": "Buy?"}]
SAID = [{"role": "assistant", "content": "Wait."}]


def lengths(prompts, responses):
    asked, said = strings_of(prompts, responses)
    return np.array([100.0 * len(p) + len(r) for p, r in zip(asked, said, strict=True)])


@pytest.mark.parametrize("prompt", ["Buy?", USER])
@pytest.mark.parametrize("response", ["Wait.", SAID])
def test_one_is_a_number_and_many_are_an_array(prompt, response):
    one = scores_of(lengths, prompt, response)
    assert type(one) is float and one == 405.0
    many = scores_of(lengths, [prompt, "?"], [response, ""])
    assert many.tolist() == [405.0, 100.0]


@pytest.mark.parametrize(
    ("prompts", "responses"),
    [("a", ["b"]), (["a"], "b"), (["a", "b"], ["c"]), (USER, ["b"]), (["a"], SAID)],
)
def test_one_is_not_mixed_with_many(prompts, responses):
    with pytest.raises(InputError, match="one prompt and one response, or equally many of both"):
        scores_of(lengths, prompts, responses)


def test_none_at_all():
    assert scores_of(lengths, [], []).shape == (0,)


def test_a_conversation_says_who_said_what():
    """As in a file of judgements, so that a reward that reads the prompt sees all of it."""
    turns = [{"role": "system", "content": "Be brief."}, *USER]
    assert prompt_text(turns) == "\n\nSystem: Be brief.\n\nHuman: Buy?"
    assert prompt_text(USER) == "Buy?"


def test_the_last_message_is_the_response():
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "Wa"}, {"text": "it."}]}]
    thought = [{"role": "assistant", "content": "hm"}, *SAID]
    assert response_text(parts) == response_text(thought) == "Wait."
    assert response_text([]) == ""


def test_what_is_no_text_is_refused():
    for wrong in (prompt_text, response_text):
        with pytest.raises(InputError, match="a message without text"):
            wrong([{"role": "user", "content": None}])
    with pytest.raises(InputError, match="a message without text"):
        prompt_text([{"role": "nobody", "content": "a"}])


@pytest.mark.parametrize("wrong", [None, math.nan, 5, b"a", ["a"], np.eye(2)])
def test_a_bad_cell_is_one_line_that_says_which(wrong):
    with pytest.raises(InputError, match=r"^prompt 2: neither text nor chat messages, but \w+"):
        scores_of(lengths, ["a", wrong], ["a", "b"])
    with pytest.raises(InputError, match=r"^response 1: neither text nor chat messages, but \w+"):
        scores_of(lengths, ["a"], [wrong])


@pytest.mark.parametrize("wrong", [None, math.nan, 5, b"a", {"content": "a"}])
def test_what_is_neither_one_nor_many_is_one_line(wrong):
    for one in ((wrong, "a"), ("a", wrong), (wrong, ["a"]), (["a"], wrong)):
        with pytest.raises(InputError, match=r"^neither text nor chat messages, but \w+"):
            scores_of(lengths, *one)
