"""A second opinion on the same training by dp-accounting, the field's reference.

Not all of a run has an event there: hold-outs, choices, parts, noise on a grid and randomized
labels are counted by rules of ours (``recompute.RULES``). So both accountants compute the training
alone, and the figures say what each one counts. ``recompute`` computes dp-accounting's, and is
handed out as a script that needs nothing of ours.
"""

import dataclasses
import inspect
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from murmuration.privacy.accounting import accountant, events, recompute
from murmuration.privacy.accounting.composition import composition
from murmuration.privacy.accounting.events import Event, MixtureGaussian, ParallelEvent
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.durable_files import replace_file

#: The largest groups whose mixtures dp-accounting is asked about at the end of a run: seconds.
MOST_GROUP = 32
#: Beyond, its distributions take gigabytes.
_MOST_EPSILON = 100.0

EVENTS, SCRIPT = "events.json", "recompute.py"


@dataclass(frozen=True)
class SecondOpinion:
    """Epsilon of the training alone by both accountants.

    Attributes:
        library: dp-accounting, and its version.
        ours: our figure; None where nothing of the run has an event there.
        theirs: dp-accounting's; None where it was not evaluated.
        why: why not, in words; else empty.
        by_our_rules: what dp-accounting has no event for, and the rule that counts it.
    """

    library: str
    ours: float | None
    theirs: float | None
    why: str
    by_our_rules: tuple[str, ...]

    @property
    def difference(self) -> float | None:
        """The difference between the two."""
        if self.ours is None or self.theirs is None:
            return None
        return abs(self.ours - self.theirs) if self.ours != self.theirs else 0.0

    @property
    def warning(self) -> str | None:
        """A warning if they disagree; None if they agree."""
        if self.difference is None or self.difference <= recompute.TOLERANCE:
            return None
        return (
            f"TWO ACCOUNTANTS DISAGREE about the training alone: epsilon = {self.ours:.6g} here, "
            f"{self.theirs:.6g} by {self.library}. Find out why before you rely on either: "
            "murmuration ledger FOLDER --events writes what both were given. With very many rounds "
            "at a tiny delta, dp-accounting's rounding alone can do it."
        )

    def to_json(self) -> dict[str, Any]:
        """The entry of a ``result.json``."""
        fields = dataclasses.asdict(self) | {"difference": self.difference}
        fields["by_our_rules"] = list(self.by_our_rules)
        return {name: None if value == math.inf else value for name, value in fields.items()}


def of_run(
    run: Iterable[tuple[Event, int]],
    *,
    adjacency: Adjacency,
    delta: float,
    most_group: int = MOST_GROUP,
) -> SecondOpinion:
    """The results of both accountants for the training of one run."""
    charges = list(run)
    stated = _told(charges)
    rules = tuple(recompute.by_our_rules(stated))
    ours, interval = training_epsilon(charges, adjacency=adjacency, delta=delta)
    theirs, why = None, ""
    if ours is None:
        why = "nothing of this run has an event there"
    elif not ours <= _MOST_EPSILON:
        why = f"epsilon is over {_MOST_EPSILON:g}, which it takes gigabytes for"
    elif (group := max(map(_group, charges))) > most_group:
        why = (
            f"groups of {group}, over {most_group}, take it long: murmuration ledger FOLDER "
            "--events writes a script that does it"
        )
    else:
        try:
            theirs = recompute.epsilon(
                stated, adjacency=adjacency.value, delta=delta, interval=interval
            )
        except Exception as error:  # TypeError, too, of mixtures whose tail it cannot place
            why = f"it could not be asked: {error}"  # a run that has ended ends all the same
    return SecondOpinion(_library(), ours, theirs, why, rules)


def training_epsilon(
    run: Iterable[tuple[Event, int]], *, adjacency: Adjacency, delta: float
) -> tuple[float | None, float]:
    """Our epsilon of what dp-accounting has events for, or None, and the grid that it is on."""
    parts = [
        [(events.from_json(dict(event)), times) for event, times in part]
        for part in recompute.training(_told(run))
    ]
    parts = [part for part in parts if part]
    if not parts:
        return None, accountant.INTERVAL
    most, interval = 0.0, accountant.INTERVAL
    for part in parts:
        most = max(most, accountant.epsilon(part, adjacency=adjacency, delta=delta))
        total = composition(part, adjacency=adjacency)
        interval = min(interval, total.removed.interval if total else interval)
    return most, interval


def write_events(
    folder: Path, run: Iterable[tuple[Event, int]], *, adjacency: Adjacency, delta: float
) -> tuple[Path, Path]:
    """Write the events of a run, and the script that recomputes them without us; return both."""
    charges = list(run)
    ours, interval = training_epsilon(charges, adjacency=adjacency, delta=delta)
    whole = accountant.epsilon(charges, adjacency=adjacency, delta=delta)
    document = {
        "adjacency": adjacency.value,
        "delta": delta,
        "interval": interval,
        "epsilon": whole if math.isfinite(whole) else None,
        "training_epsilon": ours,
        "charges": [{"event": event, "times": times} for event, times in _told(charges)],
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    written = folder / EVENTS, folder / SCRIPT
    for path, content in zip(written, (text, inspect.getsource(recompute)), strict=True):
        replace_file(path, content.encode())
    return written


def _told(run: Iterable[tuple[Event, int]]) -> list[tuple[dict[str, Any], int]]:
    return [(events.to_json(event), times) for event, times in run]


def _group(charge: tuple[Event, int]) -> int:
    event, _ = charge
    while isinstance(event, ParallelEvent | DiscretizedGaussian):
        event = event.event
    return event.group_size if isinstance(event, MixtureGaussian) else 1


def _library() -> str:
    try:
        return f"dp-accounting {version('dp-accounting')}"
    except PackageNotFoundError:
        return "dp-accounting"
