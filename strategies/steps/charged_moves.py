"""Only a release moves a model: where its parameters changed, the round has a charge.

A strategy may come from another package, whose author can forget the ledger. So the caller compares
the model before and after each round. A round that moved it and was not charged ends the run, and
the ledger says ε = ∞ from then on. Rounds that were charged and moved nothing are accepted: a test
that fails costs the same as one that passes.

Steps take plain arrays, not values that only a charge returns. θ also moves where nothing is
charged in that call (averages at the end of a phase, momentum, a solve from several releases,
``restore``), and a strategy holds the optimizer: such a type would be one more thing to pass
through, and what this file checks would still have to be.

The presence of a charge does not show that the noise was added: that is the mechanism's
responsibility (``privacy.mechanisms``), and not checked here.
"""

import hashlib
from collections.abc import Mapping

import numpy as np

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.ledger_lines import LedgerError
from murmuration.privacy.accounting.terms import Caveat
from murmuration.strategies.steps.optimizers import ServerOptimizer, SolvedModel

#: What the ledger has of it.
UNCHARGED = "model moved without a charge"


class UnchargedMove(LedgerError):
    """The model moved by something that nothing was charged for."""


class ChargedMoves:
    """Compares a model between rounds.

    Raises:
        UnchargedMove: the ledger knows of such a move already: nothing can mend that.
    """

    def __init__(self, name: str, model: ServerOptimizer | SolvedModel, ledger: Ledger) -> None:
        self._name, self._model, self._ledger = name, model, ledger
        self._digest = _digest(model)
        self._checked = 0
        for charge in ledger.charges:
            if charge.covers == UNCHARGED:
                raise self._error(f"in round {charge.round}")

    def check(self, round_: int) -> None:
        """Accept how the model moved in a round.

        Raises:
            UnchargedMove: it moved, and nothing was charged for the round since the last one was
                checked: a charge made ahead, or before a round was run again, pays for no draw of
                this round. One of ``Ledger.charge_once`` does.
        """
        granted = self._ledger.granted[self._checked :]
        self._checked += len(granted)
        if self._moved() and all(charge.round != round_ for charge in granted):
            self._end(round_, f"in round {round_}")

    def check_still(self, round_: int) -> None:
        """UnchargedMove if the model moved after ``round_``, the last that was checked."""
        if self._moved():
            self._end(round_, f"after round {round_}")

    def check_restored(self, state: Mapping[str, np.ndarray], round_: int) -> None:
        """UnchargedMove unless the model is that of a checkpoint after ``round_``."""
        self._moved()
        if not np.array_equal(state.get("theta", ()), self._model.theta.numpy()):
            self._end(round_, f"when round {round_} was restored")

    def _moved(self) -> bool:
        before, self._digest = self._digest, _digest(self._model)
        return before != self._digest

    def _end(self, round_: int, when: str) -> None:
        self._ledger.note_unprotected(round_, UNCHARGED)
        self._ledger.note(Caveat.UNCHARGED.value)
        raise self._error(when)

    def _error(self, when: str) -> UnchargedMove:
        return UnchargedMove(
            f"--strategy {self._name} moved the model {when} and charged nothing for it: ε = ∞, as "
            f"{self._ledger.path} says now. Nothing was handed out; mend the strategy, which must "
            "release what it steps by (privacy.mechanisms), and begin again with another --out"
        )


def _digest(model: ServerOptimizer | SolvedModel) -> bytes:
    """SHA-256 of the iterate and of the model that would be handed out."""
    digest = hashlib.sha256(np.ascontiguousarray(model.theta_D).data)
    digest.update(np.ascontiguousarray(model.result_D).data)
    return digest.digest()
