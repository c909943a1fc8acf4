"""Facts about a finished run, for its report, its model's card and the terminal."""

from collections.abc import Mapping
from typing import Any

from murmuration.preference import models
from murmuration.preference.choices import NEXT_TOKENS, WORDS
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.figures import (
    duration,
    points_of_error,
    round_digits,
    share_text,
)
from murmuration.privacy.promise import delta_text, epsilon_text, with_seed_known
from murmuration.privacy.theorems import Participation

#: What is promised, in a line.
_CLAIMS = {
    "none": "No privacy: a non-private run",
    "claimed": "Claimed, not proven: {figure}",
    "row": "Row-level DP: {figure}, for single rows, not for people",
    "user": "User-level DP: {figure}",
}
#: What is counted where judgements are thumbs: no offset of a user's enters, nor could be known.
_JUDGED_THUMBS = (
    "pairs of a response that a user liked and one that the same user did not; those with only one "
    "sort left out"
)


def facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a ``result.json``, and texts about them.

    Figures in texts are rounded to their precision, epsilon always upwards. ``level`` is that of
    the guarantee: ``none``, ``claimed`` (and not proven), or for every ``user``; ``claim`` states
    it in a line.
    """
    run = dict(result)
    accounted = run["epsilon"] is not None
    level = "none" if not accounted else "user" if run["proven"] else "claimed"
    server_epsilon, speed = run["epsilon_against_server"], run["users_per_second"]
    loss = models.find(run["model"])  # of another package it may not be here
    thumbs = bool(loss and "thumbs" in loss.kinds)
    words, adjacency = WORDS[run["task"]], Adjacency(run["adjacency"])
    epsilon = with_seed_known(epsilon_text(run["epsilon"]), run["seeded"]) if accounted else "none"
    delta = delta_text(run["delta"])
    unit = "row" if level == "user" and run["one_user_per_row"] else level
    return run | {
        "level": level,
        "claim": _CLAIMS[unit].format(figure=f"ε = {epsilon}, δ = {delta}"),
        "accounted": accounted,
        "words": words,
        "next_tokens": run["task"] in NEXT_TOKENS,
        "writes": run["task"] != "reward",
        "thumbs": thumbs,
        "several": bool(loss and loss.several),
        "scores": loss.scores if loss else "",
        "judged": _JUDGED_THUMBS if thumbs else "judgements, ties left out",
        "epsilon_text": epsilon,
        "delta_text": delta,
        "sentence": adjacency.sentence(words.rows, each_row=run["one_user_per_row"]),
        "sampling": sampling(run),
        "seen_by_server": None
        if server_epsilon is None
        else with_seed_known(epsilon_text(server_epsilon), run["seeded"]),
        "who_adds_noise": f"if {run['noise_parties']} of the nodes in each sum add their noise",
        "accuracy_text": share_text(run["heldout_accuracy"], run["heldout_users"]),
        "by_user_text": share_text(run["heldout_accuracy_by_user"], run["heldout_users"]),
        "why_unmeasured": _why_unmeasured(run),
        "error_text": _error(run),
        "tenths_text": tenths(run["accuracy_over_users"]),
        "loss_text": _loss(run),
        "time_text": duration(run["seconds_training"]),
        "speed_text": round_digits(speed) if speed else "",
    }


def sampling(run: Mapping[str, Any]) -> str:
    """The users who take part in a round."""
    who = str(run["theorem"]["participation"])
    if run["cohort"] >= run["users"] or who == Participation.EXAMPLES:
        return who
    return f"{who}; {run['cohort']:,} of {run['users']:,} expected in a round"


def _why_unmeasured(run: Mapping[str, Any]) -> str:
    """The reason why there is no accuracy."""
    if run["heldout_epsilon"] is not None:
        return (
            f"Too few users for noise at ε = {run['heldout_epsilon']:g}, or telling it again after "
            "a crash would have cost more than the budget."
        )
    return "No held-out user could be asked." if run["heldout_users"] else "Nobody was held out."


def _error(run: Mapping[str, Any]) -> str:
    """The standard error of the accuracy by user, and the part of it due to noise."""
    error = f"{points_of_error(run['heldout_error'])} points"
    if run["heldout_noise"] is None:
        return error
    return f"{error}, {points_of_error(run['heldout_noise'])} of them noise"


def _loss(run: Mapping[str, Any]) -> str:
    """Loss and perplexity, of causal language models."""
    loss, perplexity = run["heldout_loss"], run["heldout_perplexity"]
    if loss is None:
        return "no finite loss"
    shown = f", perplexity {perplexity:.4g}" if perplexity is not None else ""
    return f"{loss:.3f} nats a token{shown}"


def tenths(spread: Mapping[str, Any] | None) -> str:
    """Return how often a model is right for the tenth of users whom it suits least, for those in
    the middle and for the tenth whom it suits best; empty where that is not known."""
    if not spread:
        return ""
    deciles = spread["deciles"]
    return (
        f"{share_text(deciles[0])}{_noise(spread, 0)} for the tenth of users whom it suits least, "
        f"{share_text((deciles[4] + deciles[5]) / 2)} in the middle, "
        f"{share_text(deciles[-1])}{_noise(spread, -1)} for the tenth whom it suits best"
    )


def _noise(spread: Mapping[str, Any], tenth: int) -> str:
    error = spread["errors"][tenth]
    return f" ± {points_of_error(error)}" if error else ""
