"""Synthetic users who judge by a Bradley–Terry–Luce model that is known, and a node to host them.

Features have length one and are spread evenly over d dimensions, θ* has length two, and every user
has m judgements of pairs drawn for them. The node is given the features as they are, so nothing has
to be put into texts and taken out again.

Legend: N users, R rows (judgements), D dimensions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from murmuration.audits.auditing import scratch_ledger
from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import LabelClip
from murmuration.privacy.mechanisms.randomness import Randomness, user_key
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import registry as catalogue
from murmuration.strategies.base import CohortStrategy, Participants
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.registry import build
from murmuration.strategies.settings.own import Solved
from murmuration.strategies.solved.label_moment import DEFAULT_CLIP, LabelMoment, LabelMomentPlan
from murmuration.strategies.solved.moment_solver import MomentSolver
from murmuration.strategies.solved.objective_perturbation import (
    ObjectivePerturbation,
    ObjectivePlan,
)
from murmuration.strategies.spec import RunContext
from murmuration.strategies.steps.optimizers import SolvedModel

#: ‖θ*‖.
NORM = 2.0


def directions(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Vectors of length one, which point everywhere alike."""
    drawn = generator.standard_normal(shape)
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Population:
    """Users with their judgements, and the model they judge by."""

    examples: PairExamples
    truth_D: np.ndarray

    @classmethod
    def draw(
        cls, seed: int, *, users: int, each: int, dimension: int, norm: float = NORM
    ) -> "Population":
        """``users`` users with ``each`` judgements; ``norm`` is ‖θ*‖."""
        generator = np.random.default_rng([2024, seed])
        truth_D = norm * directions(generator, 1, dimension)[0]
        shape = (users * each, dimension)
        x_RD = directions(generator, *shape) - directions(generator, *shape)
        agrees_R = generator.random(len(x_RD)) < 1.0 / (1.0 + np.exp(-x_RD @ truth_D))
        x_RD = np.where(agrees_R[:, None], x_RD, -x_RD)
        start_N = torch.arange(0, len(x_RD) + 1, each)
        examples = PairExamples(
            torch.tensor(x_RD, dtype=torch.float32), torch.ones(len(x_RD)), start_N
        )
        return cls(examples, truth_D)

    def error(self, theta_D: np.ndarray) -> float:
        """‖θ − θ*‖₂."""
        return float(np.linalg.norm(theta_D - self.truth_D))

    def semi_norm_error(self, theta_D: np.ndarray) -> float:
        """‖θ − θ*‖ in the semi-norm of Σ_D, the second moments of the differences judged.

        The root mean square of how far log-odds are off on these judgements.
        """
        x_RD = self.examples.x_RD.double().numpy()
        off_R = x_RD @ (theta_D - self.truth_D)
        return float(np.sqrt(np.mean(off_R**2)))

    def likeliest(self) -> np.ndarray:
        """The maximum-likelihood model of all judgements, without privacy; Newton's method."""
        x_RD = self.examples.x_RD.double().numpy()
        theta_D = np.zeros(x_RD.shape[1])
        for _ in range(10):
            p_R = 1.0 / (1.0 + np.exp(-x_RD @ theta_D))
            curvature_DD = (x_RD * (p_R * (1.0 - p_R))[:, None]).T @ x_RD
            theta_D += np.linalg.solve(curvature_DD, x_RD.T @ (1.0 - p_R))
        return theta_D


def node_of(examples: PairExamples, source: Randomness) -> LocalGrid:
    """A grid of one node that hosts these users, whatever features it is asked for."""
    app = ClientApp()
    names = [f"user {user}" for user in range(len(examples.counts_U))]
    keys_N = np.array([user_key(name) for name in names], dtype=np.uint64)
    order_N = np.argsort(keys_N)
    sorted_N = keys_N[order_N]

    @app.query("registry")
    def registry(message: Message, context: Context) -> Message:
        return Message(
            messages.registry_reply(messages.RegistryEntry(0, keys_N, None)), reply_to=message
        )

    @app.train()
    def train(message: Message, context: Context) -> Message:
        asked = messages.UserSelection.of(message.content)
        users_S = np.sort(order_N[np.searchsorted(sorted_N, asked.names_S)])  # all are here
        work = messages.read_work(message.content, users_S)
        half = catalogue.node_halves()[str(work.parameters["strategy"])]
        sums = half.client_update(examples, work, keys_N[work.users_S], source)
        return Message(messages.sums_reply(sums), reply_to=message)

    return LocalGrid(app, 1, {})


class Training:
    """Users on a node, to train on with any settings, by the messages that users get; from
    ``start_D``, or zero."""

    def __init__(
        self, examples: PairExamples, source: Randomness, start_D: np.ndarray | None = None
    ) -> None:
        self._examples, self._source = examples, source
        zeros_D = np.zeros(examples.dimension, dtype=np.float32)
        self._start_D = zeros_D if start_D is None else start_D
        self.grid = node_of(examples, source)
        self._registry = Registry.ask(self.grid, source, features="{}")

    def run(
        self,
        config: RunConfig,
        *,
        source: Randomness | None = None,
        in_N: np.ndarray | None = None,
    ) -> tuple[CohortStrategy, Ledger]:
        """The strategy after its rounds, and the ledger that they were charged to.

        ``source`` takes the place of the population's own; all users are trained on, or those for
        whom ``in_N`` is true.
        """
        with self.begun(config, source=source, in_N=in_N) as (strategy, ledger):
            strategy.start(self.grid, num_rounds=config.rounds)
        return strategy, ledger

    @contextmanager
    def begun(
        self,
        config: RunConfig,
        *,
        source: Randomness | None = None,
        in_N: np.ndarray | None = None,
    ) -> Iterator[tuple[CohortStrategy, Ledger]]:
        """The strategy before its rounds, which go through ``grid``; arguments as of ``run``."""
        participants = Participants.all(self._registry)
        if in_N is not None:
            members_N, others_N = np.flatnonzero(in_N), np.flatnonzero(~in_N)
            participants = Participants(self._registry, members_N, others_N)
        context = RunContext(
            strategy=catalogue.named(config.strategy),
            config=config,
            participants=participants,
            source=source or self._source,
            features="{}",
            start_D=self._start_D,
            log=lambda line: None,
            grid=self.grid,
            once=lambda name, release: release().value,
        )
        with scratch_ledger(Adjacency(config.adjacency), config.delta) as ledger:
            if config.strategy in catalogue.solved():
                yield solved(context, self._examples, ledger), ledger
            else:
                yield build(context, ledger).strategy, ledger


# Strategies that solve for the model on the populations of ``research.reproductions.btl``, under
# ``replace-labels``.
#
# A population has features and no texts, so its public items are the features, turned so that they
# tell nothing of labels: by the sign of their first number.
#
# Legend: R rows (judgements), D dimensions.


def without_labels(examples: PairExamples) -> PairExamples:
    """The public half of pairs: each turned by the sign of its first number, labels all one."""
    turn_R = torch.where(examples.x_RD[:, 0] < 0, -1.0, 1.0).to(examples.x_RD.dtype)
    return PairExamples(
        examples.x_RD * turn_R[:, None], torch.ones_like(examples.y_R), examples.start_U
    )


def solved(context: RunContext, examples: PairExamples, ledger: Ledger) -> CohortStrategy:
    """The strategy that the settings name, as ``strategies.solved`` builds it over texts."""
    config, public = context.config, without_labels(examples)
    terms = {"users": context.users, "delta": config.delta}
    arguments = context.arguments(SolvedModel(context.dimension))
    adjacency = Adjacency(config.adjacency)
    if config.strategy == "label-moment":
        own = config.of(Solved)
        plan = LabelMomentPlan.for_epsilon(
            config.epsilon,
            rounds=config.rounds,
            adjacency=adjacency,
            clip=LabelClip(config.clip_norm or DEFAULT_CLIP),
            **terms,
        )
        solver = MomentSolver(public, ridge=own.ridge or None)
        return LabelMoment(plan, ledger, solver, **arguments)
    chosen = ObjectivePlan.for_epsilon(config.epsilon, adjacency=adjacency, **terms)
    return ObjectivePerturbation(chosen, ledger, public, **arguments)
