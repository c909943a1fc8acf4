"""The optimizer of AUP-RLHF: plain gradient steps in phases, each handing on its average.

Source: AUP-RLHF, Algorithm 1 and Algorithm 2, lines 16 and 21: a constant step size in each phase,
no momentum, no warm-up; what a phase hands on is the average of the points that its gradients were
taken at. Post-processing of releases, like every optimizer here.

Legend: D dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from strategies.aup_schedule import Phase
from strategies.optimizer import OptimizerSettings, ServerOptimizer


@dataclass(frozen=True)
class PhasedSettings(OptimizerSettings):
    """A constant step size in each phase; ``rate`` is the largest of them."""

    phases: tuple[Phase, ...] = ()

    @classmethod
    def of(cls, phases: tuple[Phase, ...]) -> "PhasedSettings":
        """The settings of Algorithm 2 for these phases."""
        rounds, rate = sum(phase.rounds for phase in phases), max(phase.rate for phase in phases)
        return cls("sgd", rate, rounds, momentum=0.0, warmup=0.0, averaging=0.0, phases=phases)

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
        """One step, unless the phase was halted; at its end, over to its average."""
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
