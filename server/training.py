"""One run, from the registry to the report; the same over every grid.

Checkpoints: a seeded simulation replays lost rounds bit for bit at no cost, so it is saved about
once a second. In a deployment every replayed round is charged again, so it is saved every round.
"""

import json
import math
import time
from dataclasses import dataclass

from flwr.serverapp import Grid

from preference.bases import Base, Examples, base_of
from preference.judgements import InputError
from preference.language_reward import reward_model
from privacy.accounting import SpendingCurve
from privacy.adjacency import Adjacency
from privacy.ledger import BudgetExceeded, Ledger
from privacy.randomness import Randomness
from server.build import build
from server.card import model_card
from server.config import RunConfig
from server.evaluation import HeldOut, held_out, public_test
from server.language import base_config, trains_layers
from server.participants import participants, refresh
from server.report import write_report
from server.run_directory import RunDirectory
from server.setting import Built, Setting
from strategies.stated import StatedPlan

_SECONDS_BETWEEN_CHECKPOINTS = 1.0
_EVALUATIONS = 20
_FEW_EVALUATIONS = 4  # of a language model, each as long as several rounds


@dataclass
class _Clock:
    started: float
    saved: float


@dataclass(frozen=True)
class _Pace:
    """What this process did of the run: after a resume, less than the whole."""

    rounds: int
    seconds: float


def train(config: RunConfig, grid: Grid, features: Base | None = None) -> dict[str, object]:
    """Run ``config`` over ``grid``; returns the result, which also stands in ``result.json``.

    ``features`` takes the place of the feature map or language model that the config names.

    Raises:
        InputError: settings, data or run directory that cannot be used; one line.
    """
    folder = RunDirectory(config)
    if folder.result is not None:  # asking held-out users again would be one more release
        return folder.result
    try:
        features = features or base_of(base_config(config))
        return _train(config, grid, folder, features)
    except (ValueError, BudgetExceeded) as error:
        folder.discard_if_unused()
        if isinstance(error, InputError):
            raise
        raise InputError(" ".join(str(error).split())) from error


def _train(
    config: RunConfig, grid: Grid, folder: RunDirectory, features: Base
) -> dict[str, object]:
    source = Randomness(config.seed if config.seed >= 0 else None)
    test = public_test(config, features)
    features_json = json.dumps(features.to_config())
    taking_part = participants(config, grid, folder, features_json)
    config = config.settled(len(taking_part.train))
    ledger = Ledger(
        folder.ledger_path,
        adjacency=Adjacency(config.adjacency),
        delta=config.delta,
        budget=_budget(config),
    )
    with ledger:
        setting = Setting(
            config=config,
            participants=taking_part,
            source=source,
            features=features_json,
            dimension=features.dimension,
            log=folder.log_private,
            grid=grid,
            once=folder.once,
        )
        built = build(setting, ledger)
        built.strategy.stated = StatedPlan.of(
            folder.run_name, ledger.adjacency, ledger.delta, config.rounds, built.charges
        ).to_json()
        pace = _rounds(config, grid, folder, built, ledger, test)
        theta_D = built.strategy.optimizer.result_D
        figure = held_out(theta_D, test, built.strategy, grid)
        result = _result(config, setting, built, ledger, figure, pace, folder)
    result["features"] = features.to_config()
    model = reward_model(theta_D, features, config.model)
    model.save(folder.path / "model", model_card(result), overwrite=True)
    write_report(folder.path, result, folder.metrics())
    folder.write_json("result.json", result)
    return result


def _rounds(
    config: RunConfig,
    grid: Grid,
    folder: RunDirectory,
    built: Built,
    ledger: Ledger,
    test: Examples | None,
) -> _Pace:
    """Run what is left of the rounds."""
    strategy, optimizer = built.strategy, built.strategy.optimizer
    checkpoint = folder.load_checkpoint() if config.resume else None
    if checkpoint is not None:
        strategy.rounds_done, state = checkpoint
        strategy.restore(state)
    folder.rewind_metrics(strategy.rounds_done)
    curve = SpendingCurve(built.charges, adjacency=ledger.adjacency, delta=ledger.delta)
    every = max(1, config.rounds // (_FEW_EVALUATIONS if trains_layers(config) else _EVALUATIONS))

    def epsilon(round_: int) -> float | None:
        if built.level == "item":
            return config.epsilon
        return curve(round_ / config.rounds) if built.charges else None

    noise_norm = built.noise * math.sqrt(len(optimizer.theta))
    clock = _Clock(time.monotonic(), time.monotonic())

    def on_round(round_: int) -> None:
        update, more = strategy.update_norm, strategy.figures()
        noise = more.get("noise_norm", noise_norm)
        line: dict[str, object] = {
            "round": round_,
            "epsilon": epsilon(round_),
            "learning_rate": optimizer.rate(round_),
            "update_norm": update,
            "noise_norm": noise,
            "signal_norm": math.sqrt(max(0.0, update**2 - noise**2)),
            **more,
        }
        if test is not None and (round_ % every == 0 or round_ == config.rounds):
            figure = held_out(optimizer.result_D, test, strategy, grid)
            line["heldout_accuracy"] = figure.accuracy if figure else None
        folder.add_metrics(line)  # first: after the checkpoint this round would not be run again
        now = time.monotonic()
        last = round_ == config.rounds
        if last or not strategy.source.seeded or now - clock.saved > _SECONDS_BETWEEN_CHECKPOINTS:
            folder.save_checkpoint(round_, strategy.state())
            clock.saved = now

    def before_round(round_: int) -> None:
        if config.refresh and (round_ - 1) % config.refresh == 0:
            refresh(config, grid, folder, strategy, round_)

    before = strategy.rounds_done
    strategy.start(grid, num_rounds=config.rounds, on_round=on_round, before_round=before_round)
    return _Pace(strategy.rounds_done - before, time.monotonic() - clock.started)


def _result(
    config: RunConfig,
    setting: Setting,
    built: Built,
    ledger: Ledger,
    figure: HeldOut | None,
    pace: _Pace,
    folder: RunDirectory,
) -> dict[str, object]:
    strategy = built.strategy
    private = bool(built.charges)
    return {
        "strategy": config.strategy,
        "model": config.model,
        "adjacency": config.adjacency,
        "epsilon": _spent(config, built, ledger),
        "privacy_level": built.level,
        "epsilon_target": config.epsilon if private else None,
        "delta": config.delta,
        "noise_multiplier": built.noise_multiplier,
        "clip_norm": built.clip_norm,
        "group_size": built.group_size,
        "rounds": strategy.rounds_done,
        "rounds_planned": config.rounds,
        "users": setting.users,
        "cohort": config.cohort,
        "dimension": setting.dimension,
        "gradients": built.gradients,
        "bytes_per_user": built.bytes_per_user,
        "learning_rate": strategy.optimizer.rate(),
        "heldout_accuracy": figure.accuracy if figure else None,
        "heldout_accuracy_by_user": figure.by_user if figure else None,
        "heldout_users": _heldout_users(config, figure),
        "heldout_chance": figure.chance if figure else None,
        # Not to the last digit: how long a round takes depends on who took part.
        "users_per_second": float(f"{config.cohort * pace.rounds / pace.seconds:.2g}")
        if pace.seconds > 0
        else None,
        "seconds_training": round(pace.seconds, 1),
        "out": str(folder.path),
        "private": private,
        "seeded": strategy.source.seeded,
        "stopped": strategy.stopped,
        "guarantee": built.guarantee,
        "account": built.account,
        "proven": built.proven,
        "test_is_public": bool(config.test),
        "noise": setting.noise.kind if private else None,
        "secure_aggregation": config.secure_aggregation,
        "warnings": [*strategy.notes(), *_warnings(config, setting, private)],
    }


def _budget(config: RunConfig) -> float | None:
    """What a user may spend. What is promised about items says nothing about users."""
    return None if config.strategy == "nonprivate" or config.level == "item" else config.epsilon


def _spent(config: RunConfig, built: Built, ledger: Ledger) -> float | None:
    """ε of a user, from the ledger; of an item, as promised, where that is the level."""
    if not built.charges:
        return None
    return config.epsilon if built.level == "item" else ledger.epsilon()


def _heldout_users(config: RunConfig, figure: HeldOut | None) -> int:
    """How many users the accuracy is about; the nominal number where the true one is not public."""
    if figure is None:
        return 0
    if config.test or not config.users:
        return figure.users
    return round(config.users * config.heldout / (1 - config.heldout))


def _randomized(setting: Setting) -> list[str]:
    """That labels are false by chance: other strategies know nothing of it, nor does accuracy."""
    strategy, found = setting.config.strategy, []
    if not setting.participants.registry.randomized:
        return found
    if strategy != "local-label":
        found.append(
            "THE MODEL IS BIASED: labels here went through randomized response (flip_probability), "
            f"and --strategy {strategy} takes them for true ones. Use --strategy local-label, "
            "whose estimators correct for the coins."
        )
    if not setting.config.test:
        found.append(
            "THE HELD-OUT ACCURACY IS NOT THE TRUE ONE: the labels of held-out users went through "
            "randomized response (flip_probability) as well, so even a perfect model would agree "
            "only with those that were told truly. Name judgements with true labels with --test."
        )
    return found


def _warnings(config: RunConfig, setting: Setting, private: bool) -> list[str]:
    """What a reader must know before believing the epsilon."""
    if not private:
        return [
            "No privacy: this is the non-private twin, for comparison only.",
            *_randomized(setting),
        ]
    found = _randomized(setting)
    users = setting.users
    if config.delta >= 1 / users:
        found.append(
            f"delta = {config.delta:g} is not below 1 / users = {1 / users:.2g}: such a delta "
            "allows a mechanism that publishes one user outright. Choose a smaller --delta."
        )
    if config.adjacency == "add-remove" and not config.users:
        found.append(
            f"The number of users, {users}, was taken from the registry and decides the sampling "
            "probability, so it is treated as public. State a nominal number with --users if it "
            "is not, or call the adjacency zero-out."
        )
    if setting.source.seeded:
        found.append(
            "A seeded simulation: whoever knows or guesses the seed can subtract the noise. The "
            "guarantee holds for a run without --seed, or for a seed that is secret and random."
        )
    if setting.noise.warning:
        found.append(setting.noise.warning)
    if not config.test:
        found.append(
            "The held-out accuracy is a figure about users outside training; their judgements "
            "are not covered by the guarantee."
        )
    return found
