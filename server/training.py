"""Training, from the registry to the figures; the same over every grid.

A round that is run again is charged again, seeded or not, so there is a checkpoint after each. It
is written while nodes compute the next one, and is there before that is charged; on separate
machines, whose owners keep count of what they answered, before they are asked.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from murmuration.preference.data.errors import InputError
from murmuration.preference.kinds.model import Examples, Model
from murmuration.preference.kinds.starting import digest_of_start
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.spending import Spending
from murmuration.privacy.accounting.terms import Caveat
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Disclosure, Public, Shown
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.promise import Promise
from murmuration.server.evaluation import (
    final_evaluation,
    on_held_out,
    on_test,
)
from murmuration.server.outcome import Pace, marked, result_of, terms_of
from murmuration.server.participants import REFRESH, participants, refresh
from murmuration.server.record.checkpoints import Checkpoint, InBackground
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.refusals import check_refusals, show_newcomers
from murmuration.server.versions import versions
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.protocol.stated_plan import StatedPlan
from murmuration.strategies.registry import build
from murmuration.strategies.spec import BuiltStrategy, RunContext
from murmuration.strategies.steps.charged_moves import ChargedMoves

#: Hears a line of ``metrics.jsonl``.
OnMetrics = Callable[[Mapping[str, object]], None]

#: Seconds that a round waits for its nodes where nobody says. In a simulation nobody is late: a
#: node that fails says so.
TIMEOUT, IN_SIMULATION = 600.0, 86_400.0
_EVALUATIONS = 20
_FEW_EVALUATIONS = 4  # of a language model, each as long as several rounds


@dataclass(frozen=True)
class Trained:
    """The model that rounds gave, and figures about them.

    Attributes:
        theta_D: what was learnt.
        values: the fields of the run's `Result`, but for what follows from the model.
        computed: marks what is computed from all that the run released.
    """

    theta_D: np.ndarray
    values: Disclosure
    computed: Callable[[Any], Shown[Any]]


def train(
    config: RunConfig,
    grid: Grid,
    folder: RunDirectory,
    model: Model,
    lineage: Promise,
    *,
    test: Examples | None,
    on_metrics: OnMetrics,
) -> Trained:
    """Train a model over ``grid``.

    Args:
        config: the run's settings.
        grid: where its nodes are.
        folder: the run's, open.
        model: to be trained.
        lineage: the earlier runs that this one stands on.
        test: the public test; without it, a share of the users is held out.
        on_metrics: hears each line of ``metrics.jsonl``.

    Raises:
        InputError, ValueError, BudgetExceeded: settings that cannot be used; one line.
        RunAborted: nodes failed, or were not there; the run can be resumed.
    """
    asked = config
    with begun(asked, grid, folder, model, lineage) as (config, context, built, ledger, checkpoint):
        if (coins := context.hold_out) and not ledger.spent()[coins.coins]:
            ledger.charge(coins.coins, round_=0, covers="hold-out assignment")
        if not asked.timeout and context.participants.registry.simulated:
            built.strategy.timeout = IN_SIMULATION
        pace = _rounds(
            config,
            grid,
            folder,
            built,
            ledger,
            checkpoint=checkpoint,
            test=test,
            on_metrics=on_metrics,
        )
        _check_learnt(built, config)
        theta_D = built.strategy.optimizer.result_D
        figure, beside = None, {}
        if test is not None:
            figure, beside = final_evaluation(theta_D, test)
        elif config.heldout:
            figure = on_held_out(theta_D, context, built.strategy, ledger)
        result = result_of(context, built, ledger, figure, pace=pace, folder=folder.path)
    computed = marked(ledger)
    result["policy"] = computed(beside)
    result["features"] = Public({**json.loads(context.features), **model.details})
    result["versions"] = Public(versions())
    if choice := model.choice(theta_D, test):
        result["choice"] = computed({**(result["choice"] or {}), **choice})
    return Trained(theta_D, result, computed)


@contextmanager
def begun(
    config: RunConfig, grid: Grid, folder: RunDirectory, model: Model, lineage: Promise
) -> Iterator[tuple[RunConfig, RunContext, BuiltStrategy, Ledger, Checkpoint | None]]:
    """Yield what a run begins with, its settings resolved, up to where it would charge its rounds;
    the ledger is open until the end.

    Args and Raises: as of ``train``.
    """
    source = Randomness(config.seed if config.seed >= 0 else None)
    described = model.to_config()
    folder.keep_base(described)
    if config.start:
        folder.keep_start(digest_of_start(model.start_D, described))
    config = replace(config, timeout=config.timeout or TIMEOUT)
    taking_part = participants(config, grid, folder, json.dumps(described))
    config = config.resolved(len(taking_part.registry))
    context = RunContext(
        strategy=registry.named(config.strategy),
        config=config,
        participants=taking_part,
        source=source,
        features=json.dumps(described),
        start_D=model.start_D,
        log=folder.log_private,
        grid=grid,
        once=folder.once,
    )
    ledger = folder.open_ledger(
        adjacency=Adjacency(config.adjacency),
        delta=config.delta,
        budget=_budget(config),
        terms=terms_of(context, folder.run_id, lineage),
    )
    with ledger:
        built = with_hold_out(build(context, ledger), context, ledger)
        _check_start(built, context)
        if config.private and not context.strategy.is_proven(config.own):
            ledger.note(Caveat.NOT_PROVEN)
        built.strategy.stated = StatedPlan.of(
            folder.run_name,
            ledger.adjacency,
            ledger.delta,
            config.rounds,
            built.charges,
        ).to_json()
        checkpoint = folder.load_checkpoint() if config.resume else None
        done = checkpoint.round if checkpoint else 0
        if done < config.rounds:
            check_refusals(grid, built.strategy, done + 1)
        yield config, context, built, ledger, checkpoint


def _check_start(built: BuiltStrategy, context: RunContext) -> None:
    """Raise InputError where a strategy does not begin at the start that it was given."""
    begins_D = built.strategy.optimizer.theta_D
    if context.config.start and not np.array_equal(begins_D, context.start_D):
        raise InputError(
            f"--start: --strategy {context.config.strategy} begins elsewhere: leave it out, or use "
            "--strategy uls"
        )


def _check_learnt(built: BuiltStrategy, config: RunConfig) -> None:
    """Raise InputError if the model is nothing but noise, after aborts or crashes."""
    strategy = built.strategy
    if strategy.unanswered and strategy.rounds_done == strategy.unanswered:
        raise InputError(
            "nothing was learnt: nobody answered in any round; begin again with another --out"
        )
    if config.resume and strategy.stopped and not strategy.rounds_done:
        raise InputError(f"nothing was learnt: {strategy.stopped}; begin again with another --out")


def with_hold_out(built: BuiltStrategy, context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """Add the charges of a hold-out: for its assignment before the first round, for its figures at
    the end.

    So the ledger's epsilon is what was spent, at any time.
    """
    if context.hold_out is None:
        return built
    charges = {**built.charges, **context.hold_out.charges}
    if charges != built.charges:  # a strategy whose noise does not depend on it
        ledger.clear(charges)
    return replace(built, charges=charges)


def _rounds(
    config: RunConfig,
    grid: Grid,
    folder: RunDirectory,
    built: BuiltStrategy,
    ledger: Ledger,
    *,
    checkpoint: Checkpoint | None,
    test: Examples | None,
    on_metrics: OnMetrics,
) -> Pace:
    """Run what is left of the rounds after ``checkpoint``.

    That only what was charged moves the model is checked here for whatever strategy, also for one
    that runs rounds by itself.
    """
    strategy, optimizer, rounds = built.strategy, built.strategy.optimizer, config.rounds
    moves = ChargedMoves(config.strategy, optimizer, ledger)
    if checkpoint is not None:
        strategy.rounds_done = checkpoint.round
        strategy.restore(checkpoint.state)
        moves.check_restored(checkpoint.state, checkpoint.round)
    strategy.interrupted = folder.last_asked() if config.resume else 0
    folder.rewind_metrics(strategy.rounds_done)
    spending = Spending(ledger, built.charges)
    if built.charges:
        spending.prepare()
    every = max(1, rounds // (_FEW_EVALUATIONS if config.trains_layers else _EVALUATIONS))

    def epsilon(round_: int) -> float | None:
        return spending(exactly=round_ == rounds) if built.charges else None

    noise_norm = built.noise * math.sqrt(len(optimizer.theta))
    started = time.monotonic()
    released = ledger.released

    def on_round(round_: int) -> None:
        moves.check(round_)  # before anything of it is written
        update, more = strategy.update_norm, strategy.figures()
        noise = more.get("noise_norm", Public(noise_norm)).value
        line = Disclosure(
            {
                "round": Public(round_),
                "epsilon": released(epsilon(round_)),
                "learning_rate": Public(optimizer.rate(round_)),
                "update_norm": released(update),
                "noise_norm": released(noise),
                "signal_norm": released(math.sqrt(max(0.0, update**2 - noise**2))),
                **more,
            }
        )
        if test is not None and (round_ % every == 0 or round_ == rounds):
            figure = on_test(optimizer.result_D, test)
            line["heldout_accuracy"] = released(figure.accuracy)
            if figure.loss is not None:
                loss = figure.loss if math.isfinite(figure.loss) else None
                line["heldout_loss"] = released(loss)
        folder.note_head(round_)
        folder.add_metrics(line)  # first: after the checkpoint this round would not be run again
        on_metrics(line)
        state = strategy.state()
        saving.begin(lambda: folder.save_checkpoint(round_, state))
        if round_ == rounds:
            saving.wait()

    def before_round(round_: int) -> None:
        if not strategy.participants.registry.simulated:
            saving.wait()
        if config.comes_and_goes and (round_ - 1) % REFRESH == 0:
            there = strategy.participants.registry.nodes
            refresh(config, grid, folder, strategy, round_)
            show_newcomers(grid, strategy, there, round_)

    before = strategy.rounds_done
    with InBackground() as saving:
        try:
            strategy.start(
                grid,
                num_rounds=rounds,
                on_round=on_round,
                before_round=before_round,
                before_release=saving.wait,
            )
            moves.check_still(strategy.rounds_done)
        except RunAborted:
            if strategy.rounds_done > before:  # what was released is not released again
                moves.check(strategy.rounds_done)
                saving.wait()
                folder.save_checkpoint(strategy.rounds_done, strategy.state())
            raise
    return Pace(strategy.rounds_done - before, time.monotonic() - started)


def _budget(config: RunConfig) -> float | None:
    """The budget of a run."""
    return None if config.strategy == "nonprivate" else config.epsilon
