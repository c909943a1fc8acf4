"""Accuracy on people who were never trained on; of a model that says the next token also its loss.

With a test source, which its owner thereby declares public, the server evaluates by itself, as
often as it likes. Without one, a share of the registered users is held out; their nodes are asked
once, at the end, because every further figure about them would be one more release.
"""

from dataclasses import dataclass, replace

import numpy as np
from flwr.serverapp import Grid

from preference.bases import Base, Examples, accuracy_at, examples_of
from preference.judgements import InputError, Judgements, OnBadRows
from preference.next_tokens import NextTokens
from preference.tasks import load_data
from server.config import RunConfig
from strategies.rounds import CohortStrategy


@dataclass(frozen=True)
class HeldOut:
    """Held-out accuracy: over judgements that are not ties, and the mean of users' means.

    ``chance`` is what guessing comes to: one over the number of responses, on average. Of a model
    that says the next token all is about tokens, and ``loss`` is its mean cross-entropy in nats.
    """

    accuracy: float
    by_user: float
    users: int
    chance: float
    loss: float | None = None


def public_test(config: RunConfig, features: Base) -> Examples | None:
    """The public test set, or None if the run holds out users of its own.

    Raises:
        InputError: it cannot be read, or every judgement in it is a tie.
    """
    if not config.test:
        return None
    skip: OnBadRows = "skip" if config.on_bad_rows == "skip" else "refuse"
    # Of true labels, whatever those trained on went through.
    schema = replace(config.schema, labels="true")
    data = load_data(config.task, config.test, config.columns, skip, schema)
    if config.task == "reward" and isinstance(data, Judgements) and not data.decided:
        raise InputError(f"--test {config.test}: every judgement is a tie, nothing to predict")
    return examples_of(data, features)


def held_out(
    theta_D: np.ndarray, test: Examples | None, strategy: CohortStrategy, grid: Grid
) -> HeldOut | None:
    """The figure for a model; None if no held-out user could be asked."""
    if test is not None:
        found = accuracy_at(theta_D, test)
        loss = found.loss if isinstance(test, NextTokens) else None
        return HeldOut(found.pooled, found.by_user, found.users, found.chance, loss)
    metrics = strategy.evaluate(grid, theta_D)
    if metrics is None:
        return None
    return HeldOut(
        float(metrics["heldout_accuracy"]),  # type: ignore[arg-type]
        float(metrics["heldout_accuracy_by_user"]),  # type: ignore[arg-type]
        int(metrics["heldout_users"]),  # type: ignore[arg-type]
        float(metrics["heldout_chance"]),  # type: ignore[arg-type]
        metrics.get("heldout_loss"),  # type: ignore[arg-type]
    )
