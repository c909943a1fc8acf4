"""What report, card and terminal are told of a run: what things are called, and what is lacking."""

import pytest

from murmuration.preference.choices import TASKS
from murmuration.privacy.theorems import Participation
from murmuration.reporting.facts import facts, tenths


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_its_words(make_result, task):
    told = facts(make_result(task=task))
    words = told["words"]
    assert words.rows and words.examples and words.revealed and words.shared
    assert ("judg" in words.rows) == (task != "text")
    assert told["next_tokens"] == (task in ("text", "sft"))
    assert told["writes"] == (task != "reward")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "one user, with all their judgements, takes part"),
        ({"task": "text"}, "one user, with all their texts, takes part"),
        ({"one_user_per_row": True}, "whether one row takes part"),
        ({"one_user_per_row": True, "adjacency": "replace"}, "differ in one row."),
    ],
)
def test_the_adjacency_is_about_what_users_have(make_result, changes, words):
    assert words in facts(make_result(**changes))["sentence"]


@pytest.mark.parametrize(
    ("loss", "perplexity", "text"),
    [
        (1.23456, 3.4369, "1.235 nats a token, perplexity 3.437"),
        (900.0, None, "900.000 nats a token"),
        (None, None, "no finite loss"),
    ],
)
def test_losses(make_result, loss, perplexity, text):
    result = make_result(heldout_loss=loss, heldout_perplexity=perplexity)
    assert facts(result)["loss_text"] == text


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, "user"),
        ({"proven": False}, "claimed"),
        ({"epsilon": None, "proven": False}, "none"),
    ],
)
def test_what_is_promised_to_whom(make_result, changes, level):
    assert facts(make_result(**changes))["level"] == level


def test_where_nothing_is_known_of_users_nothing_is_said_of_tenths(make_result):
    run = facts(make_result())
    assert run["tenths_text"] == ""


def test_how_the_standard_error_came_by_its_noise(make_result):
    assert facts(make_result())["error_text"] == "2.5 points"
    noisy = facts(make_result(test_is_public=False, heldout_noise=0.0021))
    assert noisy["error_text"] == "2.5 points, 0.3 of them noise"


def test_ends_and_middle_are_named():
    deciles = [0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8, 0.9, 0.9, 1.0]
    assert tenths({"deciles": deciles, "errors": [0.02, *9 * [0.0]]}) == (
        "20.0 % ± 2.0 for the tenth of users whom it suits least, 75.0 % in the middle, "
        "100.0 % for the tenth whom it suits best"
    )


def test_of_nothing_nothing_is_said():
    assert tenths(None) == ""


@pytest.mark.parametrize(
    ("participation", "cohort", "text"),
    [
        (Participation.POISSON, 500, f"{Participation.POISSON}; 500 of 4,800 expected in a round"),
        (Participation.POISSON, 4_800, str(Participation.POISSON)),
        (Participation.EXAMPLES, 500, str(Participation.EXAMPLES)),
    ],
)
def test_who_takes_part(make_result, participation, cohort, text):
    theorem = make_result()["theorem"] | {"participation": str(participation)}
    run = facts(make_result(theorem=theorem, cohort=cohort, users=4_800))
    assert run["sampling"] == text
