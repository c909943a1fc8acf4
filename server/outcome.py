"""What a run says of itself: in its ledger before it begins, in its result when it has ended."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.preference import policy_losses
from murmuration.preference.base_names import name_of
from murmuration.preference.choices import JUDGED, NEXT_TOKENS
from murmuration.preference.data.errors import InputError
from murmuration.privacy import attack_bounds
from murmuration.privacy.accounting import accountant, second_opinion
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.second_opinion import SecondOpinion
from murmuration.privacy.accounting.terms import Caveat, RunTerms, Trust, Unit, caveat_sentences
from murmuration.privacy.disclosure import Disclosure, Public, Shown, disclosed
from murmuration.privacy.mechanisms.distributed import against_server
from murmuration.privacy.promise import Promise
from murmuration.privacy.theorems import Mechanism
from murmuration.server.evaluation import HeldOut
from murmuration.strategies.settings.model import user_isolation
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.spec import BuiltStrategy, RunContext

_MOST_LOSS = 700.0  # nats; the perplexity of more is no floating-point number


@dataclass(frozen=True)
class Pace:
    """The part of the run that this process did: after a resume, less than the whole."""

    rounds: int
    seconds: float


def terms_of(context: RunContext, run: str, lineage: Promise) -> RunTerms:
    """Return what the run with this identity says of itself in the first line of its ledger.

    Raises:
        InputError: its population is said to be disjoint, and there is no earlier run of which that
            could be said.
    """
    config = context.config
    caveats = {
        Caveat.SEEDED: context.source.seeded,
        Caveat.SHARED_PASSES: config.shared_passes,
        Caveat.LARGE_DELTA: config.delta >= 1 / context.users,
        Caveat.EXACT_USERS: config.exact_users,
        Caveat.FLOATING_POINT: bool(context.noise.warning),
        Caveat.ROWS_ARE_USERS: config.one_user_per_row,
        Caveat.CHOSEN_FROM_DATA: config.chosen_from_data,
    }
    row = Unit.ROW if config.one_user_per_row else Unit.USER
    return RunTerms(
        run=run,
        unit=row if config.private else Unit.NOBODY,
        trust=_trust(context),
        population=config.population,
        disjoint_from=_disjoint_from(config, lineage) if config.disjoint else frozenset(),
        caveats=frozenset(
            name.value for name, is_so in caveats.items() if is_so and config.private
        ),
    )


def _trust(context: RunContext) -> Trust:
    if context.strategy.local:
        return Trust.OWN_NODE
    if not context.config.secure_aggregation:
        return Trust.SERVER
    return Trust.NODES if context.noise.parties else Trust.SERVER_OF_SUMS


def _disjoint_from(config: Settings, lineage: Promise) -> frozenset[str]:
    """The earlier runs that ``--disjoint`` is about."""
    others = {run.terms.run for run in lineage.runs if run.terms.population}
    others -= {run.terms.run for run in lineage.runs if run.terms.population == config.population}
    if not (named := others - {""}):
        raise InputError(
            "--disjoint says that nobody is in an earlier run's population too, and what this run "
            "is trained on came from no run with another declared population (runs of earlier "
            "versions have no identity that it could be said of): leave it out"
        )
    return frozenset(named)


def result_of(
    context: RunContext,
    built: BuiltStrategy,
    ledger: Ledger,
    figure: HeldOut | None,
    *,
    pace: Pace,
    folder: Path,
) -> Disclosure:
    """The fields of the `Result` of a run that has ended, but for what it was learnt on."""
    strategy, config = built.strategy, context.config
    private, terms = bool(built.charges), ledger.terms
    opinion, epsilon = _second_opinion(built, ledger), ledger.epsilon() if built.charges else None
    warnings = [opinion.warning] if opinion and opinion.warning else []
    warnings += strategy.notes()
    warnings += [*_randomized(context), *_caveats(context, ledger)]
    computed = marked(ledger)
    public: dict[str, object] = {
        "task": config.task,
        "strategy": config.strategy,
        "model": config.model,
        "adjacency": config.adjacency,
        "noise_parties": context.noise.parties or None,
        "run": terms.run,
        "epsilon_target": config.epsilon if private else None,
        "delta": config.delta,
        "noise_multiplier": built.noise_multiplier,
        "clip_norm": built.clip_norm,
        "rounds_planned": config.rounds,
        "users": context.users,
        "cohort": config.cohort,
        "dimension": context.dimension,
        "gradients": built.gradients,
        "bytes_per_user": built.bytes_per_user,
        "learning_rate": strategy.optimizer.rate(),
        "heldout_epsilon": context.hold_out.epsilon if context.hold_out else None,
        "heldout_users": _heldout_users(context, figure),
        "test": name_of(config.test),
        "test_users": figure.of_users if figure else None,
        "heldout_chance": figure.chance if figure else None,
        "out": str(folder),
        "private": private and not strategy.source.seeded,
        "seeded": strategy.source.seeded,
        "one_user_per_row": config.one_user_per_row,
        "proven": context.strategy.is_proven(config.own),
        "test_is_public": bool(config.test),
        "noise": context.noise.kind if private else None,
        "theorem": _theorem(context),
        "secure_aggregation": config.secure_aggregation,
        "user_isolation": user_isolation(config.shared_passes) if private else None,
    }
    from_releases: dict[str, object] = {
        "epsilon": epsilon,
        "epsilon_against_server": against_server_epsilon(ledger),
        "attack": _attack(context, ledger, epsilon),
        "second_opinion": opinion.to_json() if opinion else None,
        "ledger_head": str(ledger.head),
        "group_size": built.group_size,
        "rounds": strategy.rounds_done,
        "heldout_accuracy": figure.accuracy if figure else None,
        "heldout_accuracy_by_user": figure.by_user if figure else None,
        "heldout_error": figure.error if figure else None,
        "heldout_noise": figure.noise if figure else None,
        "accuracy_over_users": figure.accuracies.to_json()
        if figure and figure.accuracies
        else None,
        **_loss(figure if config.task in NEXT_TOKENS else None),
        # Not to the last digit: how long a round takes depends on who took part.
        "users_per_second": float(f"{config.cohort * pace.rounds / pace.seconds:.2g}")
        if pace.seconds > 0
        else None,
        "seconds_training": round(pace.seconds, 1),
        "stopped": strategy.stopped,
        "warnings": warnings,
        "choice": dict(built.about) or None,
    }
    result = Disclosure.public(public)
    result.update({name: computed(value) for name, value in from_releases.items()})
    outcome = Disclosure(strategy.outcome())
    result["outcome"] = computed(disclosed(outcome))
    return result


def _theorem(context: RunContext) -> dict[str, str]:
    """The row of ``privacy.theorems`` that the run's rounds are charged by."""
    rows = context.strategy.theorems_of(context.config.own)
    of_noise = {"discrete": Mechanism.DISCRETE_GAUSSIAN, "distributed": Mechanism.SHARES}
    drawn = of_noise.get(context.noise.kind)
    row = next((row for row in rows if row.mechanism is drawn), rows[0])
    names = ("unit", "participation", "mechanism", "says", "source")
    return {name: str(getattr(row, name)) for name in names}


def marked(ledger: Ledger) -> Callable[[Any], Shown[Any]]:
    """Return what marks values that are computed from all that a run released; they are public
    where it ended before it released anything."""
    return ledger.released if ledger.has_released else Public


def _attack(
    context: RunContext, ledger: Ledger, epsilon: float | None
) -> dict[str, float | None] | None:
    """Return what attacks on a user reach at most; None where nothing is promised."""
    if epsilon is None or not context.strategy.is_proven(context.config.own):
        return None
    terms = {"adjacency": ledger.adjacency, "delta": ledger.delta}
    result = attack_bounds.of_run(ledger.spent().items(), epsilon=epsilon, **terms)
    return dataclasses.asdict(result)


def _second_opinion(built: BuiltStrategy, ledger: Ledger) -> SecondOpinion | None:
    """Return what dp-accounting makes of the same; None where nothing is accounted for."""
    if not built.charges:
        return None
    spent = ledger.spent().items()
    return second_opinion.of_run(spent, adjacency=ledger.adjacency, delta=ledger.delta)


def against_server_epsilon(ledger: Ledger) -> float | None:
    """ε of what the server itself saw, where all noise was added by nodes; else None.

    Unlike what is published it knows who was in which round; see
    ``privacy.mechanisms.distributed``.
    """
    seen = against_server(ledger.spent())
    if not seen:
        return None
    return accountant.epsilon(seen.items(), adjacency=ledger.adjacency, delta=ledger.delta)


def _heldout_users(context: RunContext, figure: HeldOut | None) -> int:
    """Return how many users the accuracy is about: of a test the number, else the nominal one."""
    if context.config.test:
        return figure.users if figure else 0
    return context.config.measured_on(len(context.participants.registry))


def _loss(figure: HeldOut | None) -> dict[str, float | None]:
    """Return the loss of models that say the next token; None where it is not known or not
    finite."""
    loss = figure.loss if figure and figure.loss is not None else math.nan
    finite = math.isfinite(loss)
    perplexity = math.exp(loss) if finite and loss < _MOST_LOSS else None
    return {
        "heldout_loss": loss if finite else None,
        "heldout_perplexity": perplexity,
        "heldout_loss_noise": figure.loss_noise if figure else None,
    }


def _randomized(context: RunContext) -> list[str]:
    """That labels are false by chance: other strategies know nothing of it, nor does accuracy."""
    strategy, result = context.config.strategy, []
    if not context.participants.registry.randomized:
        return result
    if context.config.task not in JUDGED:
        return result
    if context.config.task == "policy":
        loss = context.config.loss or policy_losses.DEFAULT
        if not policy_losses.objective(loss).unbiased:
            result.append(
                "THE POLICY IS BIASED: labels here went through randomized response "
                f"(flip_probability), and --loss {loss} takes them for true ones. "
                f"{', '.join(policy_losses.UNBIASED_LOSSES)} correct for randomized response."
            )
    elif strategy != "local-label":
        result.append(
            "THE MODEL IS BIASED: labels here went through randomized response (flip_probability), "
            f"and --strategy {strategy} takes them for true ones. Use --strategy local-label, "
            "whose estimators correct for randomized response."
        )
    if not context.config.test:
        result.append(
            "THE HELD-OUT ACCURACY IS NOT THE TRUE ONE: the labels of held-out users went through "
            "randomized response (flip_probability) as well, so even a perfect model would agree "
            "only with those that were told truly. Name judgements with true labels with --test."
        )
    return result


def _caveats(context: RunContext, ledger: Ledger) -> list[str]:
    """Return what a reader must know before believing the epsilon, but for what is said with
    figures; of noise in floating point why it is, and what to do about it."""
    if not context.config.private:
        return ["No privacy: this is the non-private twin, for comparison only."]
    others = ledger.terms.caveats - {Caveat.FLOATING_POINT}
    return [*caveat_sentences(others), *filter(None, [context.noise.warning])]
