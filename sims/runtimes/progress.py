"""How far a run is, from the ``metrics.jsonl`` that it writes, in this process or another.

Only what is new is read. A last line without its end is kept until the rest arrives. A file that
was replaced, which is what a resumed run does after dropping rounds it will repeat, or cut short,
is read from its start again.
"""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.server.reporting.figures import about, duration, epsilon_text, share_text


class Tail:
    """The lines of ``path``, as they come; the file need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None
        self._absent = False  # at the last call: all that is in it at the next one is new
        self._offset = 0
        self._torn = b""

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The objects that were added since the last call, and whether they are the file as it was
        found: at the first call, or after it was replaced or cut short.

        Lines that are not JSON objects are left out; a file that cannot be read has none.
        """
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                found = identity != self._file or status.st_size < self._offset
                if found:
                    self._offset, self._torn = 0, b""
                anew = found and not self._absent
                self._file, self._absent = identity, False
                file.seek(self._offset)
                data = file.read()
        except OSError:
            self._absent = self._file is None
            return [], False
        self._offset += len(data)
        *complete, self._torn = (self._torn + data).split(b"\n")
        return [found for line in complete if (found := _object(line)) is not None], anew


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@dataclass
class Progress:
    """How far a run is, from the lines of its metrics.

    Speed is the nominal cohort times the rounds that followed the first new round seen, over the
    time from that round to the last. Rounds that stood in the file before do not count.
    """

    rounds: int
    cohort: int
    epsilon_target: float | None
    round: int = 0
    epsilon: float | None = None
    accuracy: float | None = None
    loss: float | None = None
    first_new: tuple[int, float] | None = None
    last_new: tuple[int, float] | None = None

    def add(self, lines: list[dict[str, Any]], *, anew: bool, now: float) -> bool:
        """Take in new lines; whether there were new rounds.

        Args:
            lines: in the order in which they were written.
            anew: whether they are the file as it was found, rather than added to it.
            now: seconds on a clock that only goes forward.
        """
        if anew:
            self.round, self.epsilon, self.accuracy, self.loss = 0, None, None, None
            self.first_new = self.last_new = None
        found = [line for line in lines if type(line.get("round")) is int]
        for line in found:
            self.round = line["round"]
            self.epsilon = _number(line.get("epsilon"))
            accuracy = _number(line.get("heldout_accuracy"))
            self.accuracy = self.accuracy if accuracy is None else accuracy
            loss = _number(line.get("heldout_loss"))
            self.loss = self.loss if loss is None else loss
        if not found or anew:
            return False
        self.last_new = (self.round, now)
        self.first_new = self.first_new or self.last_new
        return True

    @property
    def seconds_a_round(self) -> float | None:
        """None until new rounds have been seen at two different times."""
        if self.first_new is None or self.last_new is None:
            return None
        rounds = self.last_new[0] - self.first_new[0]
        seconds = self.last_new[1] - self.first_new[1]
        return seconds / rounds if rounds > 0 and seconds > 0 else None

    def known(self, *, ended: bool = False) -> list[str]:
        """ε, accuracy, speed and, unless the run has ended, time left: those that are known."""
        pace = self.seconds_a_round
        target = "" if self.epsilon_target is None else f" of {self.epsilon_target:g}"
        texts = [
            None if self.epsilon is None else f"ε {epsilon_text(self.epsilon)}{target}",
            None if self.accuracy is None else f"held-out {share_text(self.accuracy)}",
            None if self.loss is None else f"{self.loss:.2f} nats a token",
            None if pace is None else f"{about(self.cohort / pace)} users/s",
            None if ended else self.left(),
        ]
        return [text for text in texts if text]

    def left(self) -> str | None:
        """How much longer the rounds will take, at this pace."""
        pace = self.seconds_a_round
        if pace is None or self.round >= self.rounds:
            return None
        seconds = math.ceil(pace * (self.rounds - self.round))
        return f"{seconds} s left" if seconds < 60 else f"{duration(seconds)} left"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
