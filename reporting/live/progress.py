"""The progress of a run, from the ``metrics.jsonl`` that it writes, in this process or another."""

import math
import time
from collections.abc import Callable
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from murmuration.privacy.figures import duration, share_text
from murmuration.privacy.promise import epsilon_text

_FIGURES = ("epsilon", "heldout_accuracy", "heldout_loss")


class RoundProgress:
    """The progress of a run, from the lines of its metrics.

    Speed is the number of rounds after the first new ones seen, over the time from those to the
    last. Rounds already in the file do not count.

    Args:
        rounds: planned number of rounds, at least 1.
        epsilon_target: the budget; None for a run without privacy.
        label: the text before the bar.
        clock: monotonic seconds.

    Attributes:
        bar: to be drawn.
        task: the bar's: rounds ``completed`` of a ``total``, ``speed`` in rounds a second.
    """

    def __init__(
        self,
        rounds: int,
        epsilon_target: float | None,
        label: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = "" if epsilon_target is None else f" of {epsilon_target:g}"
        self._figures: dict[str, float | None] = dict.fromkeys(_FIGURES)
        self.bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(32),
            TextColumn("round {task.completed:,} of {task.total:,}"),
            auto_refresh=False,
            get_time=clock,
            speed_estimate_period=math.inf,  # a round may take an hour
        )
        self._id = self.bar.add_task(label, total=rounds)
        (self.task,) = self.bar.tasks

    def add(self, lines: list[dict[str, Any]], *, anew: bool) -> bool:
        """Take in lines, in the order in which they were written; whether there were new rounds.

        ``anew``: they are the file as it was found, rather than added to it.
        """
        result = [line for line in lines if type(line.get("round")) is int]
        if anew:
            self._figures = dict.fromkeys(_FIGURES)
            self.bar.reset(self._id, completed=result[-1]["round"] if result else 0)
        elif result:
            self.bar.update(self._id, completed=result[-1]["round"])
        for line in result:
            known = {
                name: value for name in _FIGURES if (value := _number(line.get(name))) is not None
            }
            self._figures |= {"epsilon": None, **known}  # what is not measured in every round stays
        return bool(result) and not anew

    def known(self, *, ended: bool = False) -> list[str]:
        """ε, accuracy and, unless the run has ended, time left: those that are known."""
        epsilon, accuracy, loss = (self._figures[name] for name in _FIGURES)
        texts = [
            None if epsilon is None else f"ε {epsilon_text(epsilon)}{self._target}",
            None if accuracy is None else f"held-out {share_text(accuracy)}",
            None if loss is None else f"{loss:.2f} nats a token",
            None if ended else self.left,
        ]
        return [text for text in texts if text]

    @property
    def left(self) -> str | None:
        """The time left for the remaining rounds, if known."""
        left = self.task.time_remaining
        if not left:
            return None
        return f"{left:.0f} s left" if left < 60 else f"{duration(left)} left"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
