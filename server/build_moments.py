"""Strategies that solve for the model on public prompts and responses, from settings."""

import json
import math

from preference.examples import PairExamples
from preference.features import feature_map
from preference.judgements import InputError
from privacy.adjacency import Adjacency
from privacy.clipping import UserClip
from privacy.ledger import Ledger
from server.setting import Built, Setting, promise
from strategies.label_moment import DEFAULT_CLIP, LabelMoment, LabelMomentPlan
from strategies.moment_solver import MomentSolver
from strategies.objective_perturbation import (
    ObjectivePerturbation,
    ObjectivePlan,
    check_pairs,
)
from strategies.public_items import PublicItems
from strategies.solved import SolvedModel


def build_label_moment(setting: Setting, ledger: Ledger) -> Built:
    """One or two noisy moments, and a solve."""
    config = setting.config
    plan = LabelMomentPlan.for_epsilon(
        config.epsilon,
        users=setting.users,
        rounds=config.rounds,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        clip=UserClip(config.clip or DEFAULT_CLIP),
        discrete=setting.noise.on(setting.dimension),
    )
    examples, sent = public_examples(setting)
    solver = MomentSolver(
        examples, config.model, ridge=config.ridge or None, ball=config.ball or math.inf
    )
    model = SolvedModel(setting.dimension)
    times = "once" if plan.rounds == 1 else "twice"
    account = (
        "What was shown to each user is public and was sent to the server. Everybody took part "
        f"{times}, with one vector: the sum of their "
        "judgements' features, weighted by how surprising each label was, divided by its public "
        f"length and clipped to {plan.clip.norm:g}. Gaussian noise of "
        f"{plan.noise_multiplier:.4g} times that per coordinate was added to the sum. The model "
        "was solved for from it and from public features."
    )
    return Built(
        strategy=LabelMoment(plan, ledger, solver, **setting.arguments(model)),
        charges=plan.charges,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clip.norm,
        group_size=_most(examples),
        noise=plan.std / setting.users,
        guarantee=promise(config),
        gradients=plan.rounds * setting.users,
        bytes_per_user=_bytes(setting, sent),
        account=account,
    )


def build_objective(setting: Setting, ledger: Ledger) -> Built:
    """A random linear term in the likelihood."""
    config = setting.config
    examples, sent = public_examples(setting)
    check_pairs(examples)
    plan = ObjectivePlan.for_epsilon(
        config.epsilon,
        calibration="paper" if config.calibration == "paper" else "analytic",
        users=setting.users,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        length=config.clip,
    )
    account = (
        "What was shown to each user is public and was sent to the server. Everybody took part "
        "once, with one vector: the mean of their judgements' features, signed by the label, with "
        "a public weight by which all labels of a user together can move the sum by at most "
        f"{plan.length or 1.0:g}. Gaussian noise of {plan.std:.4g} per coordinate was added to the "
        "sum; with that as its linear term the likelihood was minimised over public features."
    )
    return Built(
        strategy=ObjectivePerturbation(
            plan,
            ledger,
            examples,
            ridge=config.ridge or None,
            ball=config.ball or math.inf,
            **setting.arguments(SolvedModel(setting.dimension)),
        ),
        charges=plan.charges,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clip.norm,
        group_size=_most(examples),
        noise=plan.std / setting.users,
        guarantee=promise(config),
        gradients=setting.users,
        bytes_per_user=_bytes(setting, sent),
        account=account,
    )


def public_examples(setting: Setting) -> tuple[PairExamples, float]:
    """The public examples of the users trained on, and how many bytes each takes to send.

    InputError if labels on some node are randomized already: such nodes take no part, and what was
    released would be noise alone.
    """
    participants = setting.participants
    if participants.registry.randomized:
        raise InputError(
            f"--strategy {setting.config.strategy} takes true labels, and these went through "
            "randomized response (flip_probability): use --strategy local-label"
        )
    items = PublicItems.ask(
        setting.grid,
        participants.registry,
        participants.train,
        schema=setting.config.schema,
        timeout=setting.config.timeout,
    )
    return items.examples(feature_map(json.loads(setting.features))), items.bytes_per_user


def _most(examples: PairExamples) -> int:
    return int(examples.counts_U.max())


def _bytes(setting: Setting, sent: float) -> float:
    """Bytes per user: the model in float32 down and a sum in float64 up, each round, and texts."""
    each = (4 + 8) * setting.dimension * setting.config.rounds
    return each + sent
