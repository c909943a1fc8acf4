"""What things are called."""

import pytest

from murmuration.preference.choices import TASKS
from murmuration.server.reporting.figures import (
    examples_of,
    in_words,
    loss_text,
    revealed,
    rows_of,
    says_next_tokens,
    shared,
    task_of,
)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_its_words(task):
    assert rows_of(task) and examples_of(task) and revealed(task) and shared(task)
    assert ("judg" in rows_of(task)) == (task != "text")
    assert task_of({"task": task}) == task
    assert says_next_tokens({"task": task}) == (task != "reward")


def test_results_from_before_there_were_tasks():
    assert task_of({}) == "reward"


def test_sentences_are_about_what_users_have():
    said = "Each judgement of one user, and all their judgements."
    assert in_words(said, "text") == "Each text of one user, and all their texts."
    assert in_words(said, "sft") == in_words(said, "reward") == said


def test_losses():
    assert loss_text({"heldout_loss": 1.23456, "heldout_perplexity": 3.4369}) == (
        "1.235 nats a token, perplexity 3.437"
    )
    assert loss_text({"heldout_loss": 900.0, "heldout_perplexity": None}) == "900.000 nats a token"
    assert loss_text({"heldout_loss": None}) == "no finite loss"
