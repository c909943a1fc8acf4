"""What a report says about users who were not trained on: figures, and how to read their curve."""

from collections.abc import Mapping
from typing import Any

from server import page
from server.rounding import points_of_error, share_text
from server.task_words import loss_text, says_next_tokens

Result = Mapping[str, Any]


def heldout_rows(result: Result) -> list[page.Row]:
    """Rows for the table of figures."""
    pooled, by_user = result["heldout_accuracy"], result["heldout_accuracy_by_user"]
    users = result["heldout_users"]
    if pooled is None:
        return [("Held-out accuracy", "not measured", "No held-out user could be asked.")]
    averaged: page.Row = (
        "the same, averaged by user",
        share_text(by_user, users),
        f"standard error at most {points_of_error(by_user, users)} points",
    )
    who = f"of {users:,} users who were not trained on"
    if says_next_tokens(result):
        loss = "The mean over tokens of −log of the probability that the right one was given."
        return [
            ("Held-out loss", loss_text(result), loss),
            ("Next tokens guessed right", share_text(pooled, users), f"of the tokens {who}"),
            averaged,
        ]
    chance = share_text(result.get("heldout_chance") or 0.5)
    return [
        (
            "Held-out accuracy",
            share_text(pooled, users),
            f"of the judgements {who}; ties left out; guessing comes to {chance}",
        ),
        averaged,
    ]


def accuracy_words(result: Result) -> tuple[str, str]:
    """What the plot of accuracy shows, for who cannot see it, and how to read it."""
    told = (
        "How often the likeliest next token is the one that a held-out user's text has."
        if says_next_tokens(result)
        else "How often the model prefers the response that a held-out user preferred."
    )
    measured = (
        f"{told} A curve that has gone flat will gain little from more rounds; one that falls is "
        "losing to noise, or its steps are too long."
        if result["test_is_public"]
        else "Held-out accuracy, measured once, after the last round, since every further "
        "figure about the held-out users would be one more release."
    )
    if not result["private"]:
        return "Held-out accuracy over rounds", measured
    return (
        "Held-out accuracy over rounds, and epsilon spent so far",
        f"Top: {measured[0].lower()}{measured[1:]} Bottom: ε so far. It grows fast at first and "
        "slower later, so stopping a run early saves less than it seems.",
    )
