"""Synthetic users who judge by a Bradley–Terry–Luce model that is known, and a node to host them.

Features have length one and are spread evenly over d dimensions, θ* has length two, and every user
has m judgements of pairs drawn for them. The node is given the features as they are, so nothing has
to be put into texts and taken out again.

Legend: N users, R rows (judgements), D dimensions.
"""

from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from preference.examples import PairExamples
from preference.policies import semi_norm
from privacy.randomness import Randomness, user_key
from sims.local import LocalGrid
from strategies import messages
from strategies.catalogue import NODE_HALVES

#: ‖θ*‖.
NORM = 2.0


@dataclass(frozen=True, eq=False)
class Population:
    """Users with their judgements, and the model they judge by."""

    examples: PairExamples
    truth_D: np.ndarray

    @classmethod
    def draw(cls, seed: int, *, users: int, each: int, dimension: int) -> "Population":
        """``users`` users with ``each`` judgements."""
        generator = np.random.default_rng([2024, seed])

        def directions(rows: int) -> np.ndarray:
            x_RD = generator.standard_normal((rows, dimension))
            return x_RD / np.linalg.norm(x_RD, axis=1, keepdims=True)

        truth_D = NORM * directions(1)[0]
        x_RD = directions(users * each) - directions(users * each)
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
        return semi_norm(theta_D - self.truth_D, x_RD.T @ x_RD / len(x_RD))

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

    @app.query("registry")
    def registry(message: Message, context: Context) -> Message:
        return Message(
            messages.registry_reply(messages.RegistryEntry(0, keys_N, None)), reply_to=message
        )

    @app.train()
    def train(message: Message, context: Context) -> Message:
        asked = messages.Asked.of(message.content)
        users_S = np.flatnonzero(np.isin(keys_N, asked.names_S))
        work = messages.read_work(message.content, users_S)
        half = NODE_HALVES[str(work.parameters["strategy"])]
        sums = half(examples, work, keys_N[work.users_S], source)
        return Message(messages.sums_reply(sums), reply_to=message)

    return LocalGrid(app, 1, {})
