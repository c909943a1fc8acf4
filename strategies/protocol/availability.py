"""Availability of nodes, and the end of a run that lacks them.

Availability is checked over all registered nodes *before* a round's cohort is sampled. Once a
cohort is asked, nothing depends on who of it answers: the round is released, or the run ends.
Otherwise users who can answer would be in a released round more often than their sampling
probability (0.292 instead of 0.2 with 20 nodes of one user, 8 of them online, if half of those
asked had to answer).

A run ends (``RunAborted``) where it would go on without learning:

- too few owners' policies allow what it is going to ask (``strategies.protocol.plan_query``):
  before any sampling;
- fewer nodes are online than ``min_nodes``, and the others do not come in time;
- no user who was asked in a round answers, or, in three rounds in a row, for fewer than half of the
  users who were asked;
- in a simulation, where nothing fails but by mistake: as soon as a node fails or is late.

The kind of reason is public. The number of nodes and their messages may depend on data: in a
simulation they are shown to the user who started the run; otherwise they go to the private log
alone, except for the name of an owner's rule, which is one of a public list.
"""

import math
import time
from collections.abc import Collection, Mapping
from enum import StrEnum

from flwr.serverapp import Grid

from murmuration.strategies.protocol.messages import OWNER_REFUSES, OWNER_RULES

#: So many rounds in a row may be answered for fewer than half of the users asked.
_POOR_ROUNDS = 3
LOOKS = 0.5  # seconds between looks at who is online


class Reason(StrEnum):
    """Why a run ended, in kind."""

    NODE_FAILED = "a node failed"
    NO_ANSWERS = "no answers"
    FEW_ANSWERS = "too few answers"
    FEW_NODES = "too few nodes"
    REFUSED = "refused by the owners' policies"


_SENTENCES = {
    Reason.NODE_FAILED: "a node could not answer what was asked",
    Reason.NO_ANSWERS: "nobody who was asked answered",
    Reason.FEW_ANSWERS: "in three rounds in a row fewer than half of those who were asked answered",
    Reason.FEW_NODES: "fewer nodes than --min-nodes were online, and no others came in time",
    Reason.REFUSED: "the owners of the nodes do not allow what was asked",
}


class RunAborted(RuntimeError):
    """A run that ended before its last round, and learnt too little to have a result.

    Args:
        reason: its kind; public.
        told: the message for the user who started it: a simulated node's error, or an owner's rule.
        private: exact counts and texts, for the private log.
        rules: of the owners' policies, by which nodes refuse before anything is asked; public.
    """

    def __init__(
        self,
        reason: Reason,
        told: str = "",
        private: Mapping[str, object] | None = None,
        rules: Collection[str] = (),
    ) -> None:
        sentence = _SENTENCES[reason]
        if rules:
            sentence = (
                "too few owners of nodes allow what would be asked; refused by the rules "
                f"{', '.join(rules)}: nothing was drawn, asked or charged"
            )
        super().__init__(f"the run was aborted, {reason}: {told or sentence}")
        self.reason, self.sentence = reason, sentence
        self.private: Mapping[str, object] = private or ({"why": told} if told else {})


class Attendance:
    """The share of the users asked whose answers came, round by round."""

    def __init__(self) -> None:
        self._poor: list[Mapping[str, object]] = []  # the last rounds, if they had too few
        self.begin(0)

    def begin(self, asked: int) -> None:
        """Begin a round in which ``asked`` users are asked."""
        self._asked, self._counted = asked, 0
        self._heard, self._refusals, self._failures = False, 0, 0

    def counted(self, users: int) -> None:
        """Count answers for ``users`` users."""
        self._counted += users
        self._heard = True

    def heard(self, anybody: bool) -> None:
        """Record whether anybody answered the last of several requests of a round."""
        self._heard = anybody

    def failed(self, why: str) -> None:
        """A node's answer cannot be counted, or none came."""
        if OWNER_REFUSES in why:
            self._refusals += 1
        else:
            self._failures += 1

    @property
    def anybody(self) -> bool:
        """True if anybody answered, or nobody was asked."""
        return self._heard or not self._asked

    def check_any(self) -> None:
        """Raise RunAborted if users were asked in this round, and nobody answered."""
        if not self.anybody:
            refused = self._refusals and not self._failures
            reason = Reason.REFUSED if refused else Reason.NO_ANSWERS
            raise RunAborted(reason, private=self._figures())

    def end(self) -> None:
        """End the round.

        Raises RunAborted if nobody answered, or if for the third time in a row too few did.
        """
        self.check_any()
        if not self._asked:
            return  # which says nothing about who would have answered
        poor = 2 * self._counted < self._asked
        self._poor = [*self._poor, self._figures()] if poor else []
        if len(self._poor) >= _POOR_ROUNDS:
            raise RunAborted(Reason.FEW_ANSWERS, private={"rounds": self._poor})

    def _figures(self) -> Mapping[str, object]:
        return {
            "users asked": self._asked,
            "users counted": self._counted,
            "nodes that refused": self._refusals,
            "nodes that failed": self._failures,
        }


def needed(least: float, registered: int) -> int:
    """The number of nodes that ``least`` requires: a number or, below 1, a share of those
    registered.
    """
    # Not a node more for the last bit of a product.
    return math.ceil(least * registered - 1e-9 if 0 < least < 1 else least)


def wait_until_online(
    grid: Grid, least: float, timeout: float, registered: Collection[int] | None = None
) -> None:
    """Wait until enough of the ``registered`` nodes are online (None: of any).

    ``least`` is a number of nodes or, below 1, a share of those registered (of any: one node); 0
    waits for nobody.

    Raises:
        RunAborted: they are not after ``timeout`` seconds.
    """
    if not least:
        return
    enough = math.ceil(least) if registered is None else needed(least, len(registered))
    deadline = time.monotonic() + timeout
    while True:
        online = set(grid.get_node_ids())
        result = len(online if registered is None else online.intersection(registered))
        if result >= enough:
            return
        if time.monotonic() > deadline:
            private = {"nodes online": result, "nodes needed": enough, "seconds": timeout}
            raise RunAborted(Reason.FEW_NODES, private=private)
        time.sleep(LOOKS)


def failed_node(reason: str, simulated: bool, **where: object) -> RunAborted:
    """The error that ends a run which cannot continue without a node; ``reason`` is from
    ``exchange``.
    """
    if simulated:
        return RunAborted(Reason.NODE_FAILED, f"a node of this simulation failed: {reason}")
    private = {**where, "why": reason}
    if OWNER_REFUSES not in reason:
        return RunAborted(Reason.NODE_FAILED, private=private)
    rule = reason.partition(f"{OWNER_REFUSES} (")[2].partition(")")[0]
    told = f"{_SENTENCES[Reason.REFUSED]} (by the rule {rule})" if rule in OWNER_RULES else ""
    return RunAborted(Reason.REFUSED, told, private)
