"""Compare the files of a run with its ledger, and decide what follows if they disagree.

A round is charged before it is released, a checkpoint and the private log know the ledger's head at
their time, and the folder's lock knows that there was a ledger. So a ledger that lacks a round
which was done, or does not have these heads in its past, has lost something, however well its lines
fit together. An older state of the whole folder is not detected here; a head that was kept
elsewhere (``murmuration ledger --expect``) shows it.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from murmuration.privacy.accounting.chained_record import Head
from murmuration.privacy.accounting.ledger_lines import Account
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.server.record import checkpoints
from murmuration.server.record.checkpoints import Checkpoint
from murmuration.server.record.run_files import (
    HEAD,
    PRIVATE_LOG,
    read_json,
    read_metrics,
    read_private_log,
)
from murmuration.strategies.config import CHECK

#: The name in ``released.json`` of releases after the last round; all others came before
#: the first.
HELD_OUT_FIGURES = "held-out figures"


@dataclass(frozen=True)
class Done:
    """The traces of a run besides its ledger.

    Attributes:
        checkpoint: the last one.
        rounds: those that left metrics, or a line in the private log.
        released: whether something was released before the first round.
        noted: the ledger's head, as the private log had it last.
    """

    checkpoint: Checkpoint | None
    rounds: tuple[int, ...] = ()
    released: bool = False
    noted: Head | None = None

    @classmethod
    def of(cls, folder: Path) -> "Done":
        """Read the traces in a run's folder; InputError for a damaged file."""
        rounds, noted = [line["round"] for line in read_metrics(folder)], None
        for line in read_private_log(folder):
            with suppress(KeyError, ValueError):
                noted = Head.parse(str(line[HEAD]))
                rounds.append(line["round"])
        return cls(
            checkpoints.load(folder),
            tuple(rounds),
            bool({*read_json(folder / "released.json")} - {HELD_OUT_FIGURES, CHECK}),
            noted,
        )

    @property
    def last(self) -> int:
        """The last round that was done."""
        return max([self.checkpoint.round if self.checkpoint else 0, *self.rounds])


def missing(
    path: Path, account: Account, has_been_at: Callable[[Head], bool], done: Done
) -> str | None:
    """The reason why a ledger is not the one that these traces belong to; None if it is."""
    checkpoint = done.checkpoint
    if checkpoint and not has_been_at(checkpoint.head):
        return (
            f"{path} was rolled back or replaced: the checkpoint after round "
            f"{checkpoint.round} knows it with {checkpoint.head.index} lines, and other ones"
        )
    if (first := account.first_uncharged()) <= done.last:
        return (
            f"{path} was rolled back or replaced: it has no charge for round {first}, and "
            f"{done.last} rounds were done"
        )
    # The hold-out's assignment is on the ledger too, and pays for nothing.
    before = [c for c in account.charges if c.round == 0 and not isinstance(c.event, HoldOut)]
    if done.released and not before:
        return (
            f"{path} was rolled back or replaced: it has no charge for what stands in released.json"
        )
    if done.noted and not has_been_at(done.noted):
        return (
            f"{path} was rolled back or replaced: {path.parent / PRIVATE_LOG} knows it with "
            f"{done.noted.index} lines, and other ones"
        )
    return None
