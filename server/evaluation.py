"""Accuracy on people who were never trained on; of a causal language model also its loss.

With a test source, which its owner thereby declares public, the server evaluates by itself, as
often as it likes. Without one, a share of the registered users is held out, at random and in
secret; their nodes are asked once, at the end, and the figures are one release with noise, charged
to the ledger (``privacy.mechanisms.tally``): accuracy by user and by tenths of the users, of causal
language models also the loss. Their reported number is a nominal one. Only a run that promises
nothing leaves out the noise.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from murmuration.preference.accuracy import Accuracy
from murmuration.preference.choices import JUDGED, NEXT_TOKENS
from murmuration.preference.data.judgements import InputError, LeftOut, OnBadRows
from murmuration.preference.data.loading import Data, load_data
from murmuration.preference.escaping import get_logger
from murmuration.preference.kinds.model import Examples, Model
from murmuration.preference.models import declared
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger
from murmuration.privacy.disclosure import OperatorOnly, Released
from murmuration.privacy.mechanisms.tally import COVERS, Tally, TallyRelease
from murmuration.privacy.user_histogram import ACCURACIES, Spread
from murmuration.server.record.resuming import HELD_OUT_FIGURES
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.config import RunConfig
from murmuration.strategies.spec import RunContext

_log = get_logger("murmuration")
#: With fewer judgements each, chance alone makes tenths of equal users differ most.
ENOUGH_TO_DIFFER = 10


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Accuracy on people who were never trained on.

    Attributes:
        accuracy: over a test's judgements that are not ties; of held-out users, by user.
        by_user: mean over users of each user's mean.
        users: of a test how many have such judgements; of held-out users the nominal number.
        of_users: how many users a test has, also with ties alone; None of held-out users.
        error: standard error of ``by_user``, at most.
        chance: what guessing comes to, on average; None where that is not public.
        loss: of models that say the next token, where all is about tokens: mean cross-entropy in
            nats; over a test's tokens, or by user.
        noise: the part of ``error`` that is noise; None where none was added.
        loss_noise: standard error of ``loss`` that is noise.
        epsilon: what telling it cost; None where none was added.
        accuracies: ``by_user`` over users, of a finished model; None of a test most of whose users
            have fewer than ``ENOUGH_TO_DIFFER`` judgements.
    """

    accuracy: float
    by_user: float
    users: int
    error: float
    chance: float | None = None
    loss: float | None = None
    noise: float | None = None
    loss_noise: float | None = None
    epsilon: float | None = None
    of_users: int | None = None
    accuracies: Spread | None = None


def read_test(config: RunConfig) -> Data | None:
    """Return the rows of the public test, or None if the run holds out users of its own.

    Raises:
        InputError: it cannot be read, or every judgement in it is a tie.
    """
    if not config.test:
        return None
    # Of true labels, whatever those trained on went through.
    schema = replace(config.schema, labels="true")
    data = load_data(config.task, config.test, config.columns, on_bad_rows(config), schema)
    if config.task in JUDGED and not data.decided:
        why = (
            "nobody has thumbs up and down"
            if schema.kind == "thumbs"
            else "every judgement is a tie"
        )
        raise InputError(f"--test {config.test}: {why}, nothing to predict")
    return data


def on_bad_rows(config: RunConfig) -> OnBadRows:
    """The handling of test rows that cannot be used."""
    return "skip" if config.on_bad_rows == "skip" else "refuse"


def examples_of_test(data: Data, model: Model, skip: OnBadRows) -> Examples:
    """The examples of a public test.

    Raises:
        InputError: rows that have no features, unless they are to be skipped and some are left.
    """
    left_out = LeftOut(skip) if skip == "skip" else None
    examples = model.examples(data, left_out)
    if left_out is not None and left_out.rows:
        left_out.check(int(examples.counts_U.sum()), "")
        rows, reason = left_out.rows, left_out.reasons[0]
        _log.warning("%s", OperatorOnly(f"{rows} rows of --test are left out, the first: {reason}"))
    return examples.in_public()


def on_test(theta_D: np.ndarray, test: Examples) -> HeldOut:
    """The figures of a model on a public test."""
    return _held_out(test.accuracy(theta_D), test)


def _held_out(found: Accuracy, test: Examples) -> HeldOut:
    variance = found.by_user * (1.0 - found.by_user)  # of a share between 0 and 1, at most
    return HeldOut(
        accuracy=found.pooled,
        by_user=found.by_user,
        users=found.users,
        error=math.sqrt(max(0.0, variance) / max(1, found.users)),
        chance=found.chance,
        loss=found.loss if test.measures_loss else None,
        of_users=len(test.counts_U),
    )


def final_evaluation(theta_D: np.ndarray, test: Examples) -> tuple[HeldOut, dict[str, float]]:
    """Return the figures of a finished model on a public test, and what is to be known beside
    them; see `Examples.figures`."""
    accuracy, more = test.figures(theta_D)
    figure = _held_out(accuracy, test)
    if len(accuracy.judged_U) and np.median(accuracy.judged_U) >= ENOUGH_TO_DIFFER:
        figure = replace(figure, accuracies=ACCURACIES.spread(accuracy.share_U))
    return figure, more


def on_held_out(
    theta_D: np.ndarray, context: RunContext, strategy: CohortStrategy, ledger: Ledger
) -> HeldOut | None:
    """The accuracy on held-out users; None if noise hides it.

    A resumed run that has released it before returns it again. If only its charge is left, a new
    release is charged again, or not made.
    """
    config, hold_out = context.config, context.hold_out
    tally = Tally(loss=config.task in NEXT_TOKENS)

    if hold_out is None:
        release, measured = None, tally.read(strategy.tally(context.grid, theta_D, tally))
    else:
        release = TallyRelease(hold_out, ledger.adjacency, tally)
        release_once = partial(_told, release, theta_D, context, strategy, ledger)
        try:
            sum_F = np.array(context.once(HELD_OUT_FIGURES, release_once), dtype=np.float64)
            if not ledger.spent()[hold_out]:  # the figures are on file, their charge was lost
                ledger.charge(hold_out, round_=config.rounds + 1, covers=COVERS)
        except BudgetExceeded as refusal:
            context.log({"not evaluated": str(refusal)})
            return None
        measured = tally.read(sum_F, release.std)
    if measured is None:
        return None
    return HeldOut(
        accuracy=measured.accuracy,
        by_user=measured.accuracy,
        users=config.measured_on(len(context.participants.registry)),
        error=measured.error,
        chance=0.5 if config.task in JUDGED and not declared(config.model).several else None,
        loss=measured.loss,
        noise=measured.noise if release else None,
        loss_noise=measured.loss_noise if release else None,
        epsilon=hold_out.epsilon if hold_out else None,
        accuracies=measured.accuracies,
    )


def _told(
    release: TallyRelease,
    theta_D: np.ndarray,
    context: RunContext,
    strategy: CohortStrategy,
    ledger: Ledger,
) -> Released[list[int]]:
    """Ask the nodes, and release; BudgetExceeded if that is not paid for."""
    sum_F = strategy.tally(context.grid, theta_D, release.tally)
    after = context.config.rounds + 1  # the last of them
    noisy_F = release.release(sum_F, round_=after, ledger=ledger, source=context.source)
    return ledger.released(noisy_F)
