"""The server's optimizer: post-processing of released updates, so it costs no privacy.

SGD with momentum or Adam on a cosine schedule with warm-up; then an average of the last iterates.
State can be saved and restored exactly. The steps are those of ``torch.optim``, whose classes load
torch's compiler, more than a second at every start.

Legend: D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murmuration.preference.choices import OPTIMIZERS
from murmuration.privacy.continual.toeplitz import Workload
from murmuration.strategies.aup.schedule import Phase

if TYPE_CHECKING:
    import torch

#: The share of rounds in which the step size rises.
WARMUP = 0.05
_SQUARES = 0.99  # Adam's β₂


@dataclass(frozen=True)
class OptimizerSettings:
    """Public settings of the server optimizer.

    ``kind`` is one of ``OPTIMIZERS``, ``rate`` the peak step size, ``averaging`` the share of last
    rounds whose iterates are averaged (0: the last one).
    """

    kind: str
    rate: float
    rounds: int
    momentum: float = 0.9
    averaging: float = 0.25

    def __post_init__(self) -> None:
        if self.kind not in OPTIMIZERS:
            raise ValueError(
                f"the optimizer must be one of {', '.join(OPTIMIZERS)}; got {self.kind!r}"
            )
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"the learning rate must be positive, got {self.rate}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")
        if not 0 <= self.averaging <= 1:
            raise ValueError(f"averaging is a share of the rounds, in [0, 1]; got {self.averaging}")

    def factor(self, round_: int) -> float:
        """The schedule f_t at round 1, 2, …: linear warm-up times cosine decay."""
        rising = min(1.0, round_ / max(1.0, WARMUP * self.rounds))
        done = min(1.0, (round_ - 1) / self.rounds)
        return rising * 0.5 * (1.0 + math.cos(math.pi * done))


def workload(settings: OptimizerSettings) -> Workload:
    """The linear map from the rounds' releases to SGD's iterates and result, for correlated noise.

    θ after each round, and the result, which is the average of the last ones. The result counts as
    much as all iterates together; a step size that is the same in all rounds does not matter.
    """
    rounds = settings.rounds
    behind_TT = np.subtract.outer(np.arange(rounds), np.arange(rounds))
    momentum_TT = np.where(behind_TT >= 0, settings.momentum ** np.maximum(behind_TT, 0.0), 0.0)
    factor_T = np.array([settings.factor(t) for t in range(1, rounds + 1)])
    iterates_TT = np.cumsum(factor_T[:, None] * momentum_TT, axis=0)
    averaged = np.arange(1, rounds + 1) > rounds * (1 - settings.averaging)
    averaged[-1] = True
    result_T = iterates_TT[averaged].mean(axis=0)
    iterates_TT /= np.linalg.norm(iterates_TT)
    return Workload.of_matrix(np.vstack([iterates_TT, result_T / np.linalg.norm(result_T)]))


class ServerOptimizer:
    """Applies released averaged gradients to θ."""

    def __init__(self, settings: OptimizerSettings, theta_D: np.ndarray) -> None:
        import torch

        self.settings = settings
        self.theta = torch.tensor(theta_D, dtype=torch.float64)
        self._average = torch.zeros_like(self.theta)
        self._averaged = self._steps = 0
        names = {"sgd": ("mean",) if settings.momentum else (), "adam": ("mean", "square")}
        self._moments = {name: torch.zeros_like(self.theta) for name in names[settings.kind]}

    @property
    def theta_D(self) -> np.ndarray:
        """The current iterate, which the next round's gradients are taken at; float32."""
        return self.theta.numpy().astype(np.float32)

    @property
    def result_D(self) -> np.ndarray:
        """The model to hand out: the average of the last iterates once there is one; float32."""
        if self._averaged:
            return (self._average / self._averaged).numpy().astype(np.float32)
        return self.theta_D

    def rate(self, round_: int | None = None) -> float:
        """The step size of a round, or its peak."""
        return self.settings.rate * (1.0 if round_ is None else self.settings.factor(round_))

    def step(self, round_: int, gradient_D: np.ndarray) -> None:
        """Take one descent step with the released gradient of ``round_`` (1, 2, …)."""
        import torch

        grad_D = torch.from_numpy(np.asarray(gradient_D, dtype=np.float64))
        rate, self._steps = self.rate(round_), self._steps + 1
        if self.settings.kind == "adam":
            self._adam(grad_D, rate)
        elif self._moments:
            # Dampened momentum: a step has the same length in the long run at any momentum.
            momentum = self.settings.momentum
            mean_D = self._moments["mean"].mul_(momentum).add_(grad_D, alpha=1.0 - momentum)
            self.theta.add_(mean_D, alpha=-rate)
        else:
            self.theta.add_(grad_D, alpha=-rate)
        if round_ > self.settings.rounds * (1 - self.settings.averaging):
            self._average += self.theta
            self._averaged += 1

    def _adam(self, grad_D: torch.Tensor, rate: float) -> None:
        """A step of ``torch.optim.Adam``, with the momentum as β₁."""
        mean_D, square_D, momentum = *self._moments.values(), self.settings.momentum
        mean_D.lerp_(grad_D, 1.0 - momentum)
        square_D.mul_(_SQUARES).addcmul_(grad_D, grad_D, value=1.0 - _SQUARES)
        spread_D = (square_D.sqrt() / (1.0 - _SQUARES**self._steps) ** 0.5).add_(1e-8)
        self.theta.addcdiv_(mean_D, spread_D, value=-rate / (1.0 - momentum**self._steps))

    def state(self) -> dict[str, np.ndarray]:
        """The state that a resumed run needs, as arrays, which are valid until the next step.

        They are long, so they share the optimizer's memory. Before averaging begins there is no
        average.
        """
        return {
            "theta": self.theta.numpy(),
            **({"average": self._average.numpy()} if self._averaged else {}),
            "averaged": np.array([self._averaged]),
            "steps": np.array([self._steps]),
            **{f"moment.{name}": value.numpy() for name, value in self._moments.items()},
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        import torch

        self.theta.copy_(torch.from_numpy(state["theta"]))
        self._average.zero_()
        if "average" in state:
            self._average.copy_(torch.from_numpy(state["average"]))
        self._averaged, self._steps = int(state["averaged"][0]), int(state["steps"][0])
        for name, moment_D in self._moments.items():
            moment_D.copy_(torch.from_numpy(state[f"moment.{name}"]))


# The optimizer of AUP-RLHF: plain gradient steps in phases, each handing on its average.
#
# Source: AUP-RLHF, Algorithm 1 and Algorithm 2, lines 16 and 21: a constant step size in each
# phase, no momentum, no warm-up; what a phase hands on is the average of the points that its
# gradients were taken at. Post-processing of releases, like every optimizer here.
#
# Legend: D dimensions.


@dataclass(frozen=True)
class PhasedSettings(OptimizerSettings):
    """A constant step size in each phase; ``rate`` is the largest of them."""

    phases: tuple[Phase, ...] = ()

    @classmethod
    def of(cls, phases: tuple[Phase, ...]) -> PhasedSettings:
        """The settings of Algorithm 2 for these phases."""
        rounds, rate = sum(phase.rounds for phase in phases), max(phase.rate for phase in phases)
        return cls("sgd", rate, rounds, momentum=0.0, averaging=0.0, phases=phases)

    def factor(self, round_: int) -> float:
        """This round's step size over the largest."""
        for phase in self.phases:
            if round_ <= phase.rounds:
                return phase.rate / self.rate
            round_ -= phase.rounds
        return 0.0


class PhasedSgd(ServerOptimizer):
    """Steps of ``PhasedSettings``; each phase starts from the average of the one before.

    A phase that was ``halted`` averages the iterates up to then; its other rounds change nothing.
    """

    def __init__(self, phases: tuple[Phase, ...], theta_D: np.ndarray) -> None:
        super().__init__(PhasedSettings.of(phases), theta_D)
        self.halted = False
        self._ends = np.cumsum([phase.rounds for phase in phases]).tolist()

    def step(self, round_: int, gradient_D: np.ndarray) -> None:
        """Take one step, unless the phase was halted; at the phase's end, continue from its
        average.
        """
        if not self.halted:
            self._average += self.theta
            self._averaged += 1
            super().step(round_, gradient_D)
        if round_ in self._ends:
            if self._averaged:
                self.theta.copy_(self._average / self._averaged)
            self._average.zero_()
            self._averaged, self.halted = 0, False

    def state(self) -> dict[str, np.ndarray]:
        """Also whether the phase was halted."""
        return {**super().state(), "halted": np.array([self.halted])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self.halted = bool(state["halted"][0])


# A model that is solved for instead of trained: in place of an optimizer where rounds are few.
#
# A strategy of one or two rounds releases statistics once and computes the model from them, which
# is post-processing. There is no step size and no schedule, only the model so far.
#
# Legend: D dimensions.


class SolvedModel:
    """θ in float64; ``start_D``, or zero, until it is solved for."""

    def __init__(self, dimension: int, start_D: np.ndarray | None = None) -> None:
        import torch

        self.theta = torch.zeros(dimension, dtype=torch.float64)
        if start_D is not None:
            self.theta += torch.from_numpy(start_D)

    @property
    def theta_D(self) -> np.ndarray:
        """The model so far; float32."""
        return self.theta.numpy().astype(np.float32)

    @property
    def result_D(self) -> np.ndarray:
        """The model to hand out; float32."""
        return self.theta_D

    def rate(self, round_: int | None = None) -> None:
        """There are no steps."""

    def set(self, theta_D: np.ndarray) -> float:
        """Take a solution; how far it is from the model before. ValueError if it is not finite."""
        import torch

        if not np.isfinite(theta_D).all():
            raise ValueError("the solution is not finite")
        moved = float(np.linalg.norm(theta_D - self.theta.numpy()))
        self.theta.copy_(torch.from_numpy(np.asarray(theta_D, dtype=np.float64)))
        return moved

    def state(self) -> dict[str, np.ndarray]:
        """θ."""
        return {"theta": self.theta.numpy().copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        import torch

        self.theta.copy_(torch.from_numpy(state["theta"]))
