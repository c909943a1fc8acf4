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
        return [("Held-out accuracy", "not measured", why_not(result))]
    error = f"standard error at most {error_words(result)}"
    who = f"of {users:,} users who were not trained on"
    next_tokens = says_next_tokens(result)
    if result["test_is_public"]:
        what = "of the tokens " + who if next_tokens else f"of the judgements {who}; ties left out"
        shown = [share_text(pooled, users), f"{what}{chance_words(result)}"]
        averaged = [("the same, averaged by user", share_text(by_user, users), error)]
    else:
        about = f"by user, of about {users:,} who were not trained on; {error}"
        shown, averaged = [share_text(by_user, users), f"{about}{chance_words(result)}"], []
    if not next_tokens:
        return [("Held-out accuracy", shown[0], shown[1]), *averaged]
    loss = "The mean over tokens of −log of the probability that the right one was given."
    if (noise := result.get("heldout_loss_noise")) is not None:
        loss += f" By user; with noise of {noise:.2g}."
    return [
        ("Held-out loss", loss_text(result), loss),
        ("Next tokens guessed right", shown[0], shown[1]),
        *averaged,
    ]


def error_words(result: Result) -> str:
    """The standard error of the accuracy by user, and how it came by noise."""
    error = f"{points_of_error(result.get('heldout_error'))} points"
    if result["test_is_public"]:
        return error
    if result.get("heldout_noise") is None:
        told = " (exact: outside the guarantee)" if result["private"] else ""
        return error + told
    return f"{error}, {points_of_error(result['heldout_noise'])} of them noise"


def chance_words(result: Result) -> str:
    """What guessing comes to, where that is known."""
    chance = result.get("heldout_chance")
    known = chance is not None and not says_next_tokens(result)
    return f"; guessing comes to {share_text(chance)}" if known else ""


def why_not(result: Result) -> str:
    """Why there is no accuracy."""
    if result.get("heldout_epsilon") is None:
        return "No held-out user could be asked."
    return (
        f"Too few users for noise at ε = {result['heldout_epsilon']:g}, or telling it again after "
        "a crash would have cost more than the budget."
    )


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
