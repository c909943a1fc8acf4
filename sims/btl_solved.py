"""Strategies that solve for the model on the populations of ``sims.btl``, under ``replace-labels``.

A population has features and no texts, so its public items are the features, turned so that they
tell nothing of labels: by the sign of their first number.

Legend: R rows (judgements), D dimensions.
"""

from typing import Any

import torch

from preference.examples import PairExamples
from privacy.adjacency import Adjacency
from privacy.ledger import Ledger
from server.setting import Setting
from strategies.label_moment import LabelMoment, LabelMomentPlan
from strategies.moment_solver import MomentSolver
from strategies.objective_perturbation import ObjectivePerturbation, ObjectivePlan
from strategies.rounds import CohortStrategy
from strategies.solved import SolvedModel


def without_labels(examples: PairExamples) -> PairExamples:
    """The public half of pairs: each turned by the sign of its first number, labels all one."""
    turn_R = torch.where(examples.x_RD[:, 0] < 0, -1.0, 1.0).to(examples.x_RD.dtype)
    return PairExamples(
        examples.x_RD * turn_R[:, None], torch.ones_like(examples.y_R), examples.start_U
    )


def solved(setting: Setting, examples: PairExamples, ledger: Ledger) -> CohortStrategy:
    """The strategy that the settings name, as ``server.build_moments`` builds it over texts."""
    config, public = setting.config, without_labels(examples)
    terms = {"users": setting.users, "delta": config.delta}
    arguments: dict[str, Any] = setting.arguments(SolvedModel(setting.dimension))
    adjacency = Adjacency(config.adjacency)
    if config.strategy == "label-moment":
        plan = LabelMomentPlan.for_epsilon(
            config.epsilon, rounds=config.rounds, adjacency=adjacency, **terms
        )
        return LabelMoment(plan, ledger, MomentSolver(public), **arguments)
    chosen = ObjectivePlan.for_epsilon(config.epsilon, adjacency=adjacency, **terms)
    return ObjectivePerturbation(chosen, ledger, public, **arguments)
