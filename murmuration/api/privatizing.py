"""Randomized labels in a file, with their channel recorded, as programs ask for them.

Everything in the written file except the labels depends on public data alone: rows come in the
order of users and items, responses of several in canonical order, and columns that are not part of
a judgement (a score, say, or a time) stay behind, because they may reveal what the label no longer
does.
"""

from __future__ import annotations

import gzip
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from murmuration.api.quiet import quiet_libraries
from murmuration.api.rows import stated_rows
from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.preference.data.in_memory import Source, located_rows
from murmuration.strategies.settings.data import row_fields
from murmuration.strategies.settings.from_python import takes

if TYPE_CHECKING:
    from rich.table import Table

    from murmuration.client.labels.memory import Answer, Spend
    from murmuration.preference.data.judgements import Judgements
    from murmuration.privacy.mechanisms.randomized_response import LabelPromise


@dataclass(frozen=True, kw_only=True)
class PrivatizedLabels:
    """A file of randomized labels. As text it is what ``murmuration privatize`` prints.

    Attributes:
        path: the file.
        state: the file that records which labels were released.
        promise: for the labels of a user.
        users: the number with labels in the file.
        labels: their number.
        fresh: the number of these that are released for the first time.
        left_out: judgements beyond what a user may release.
        set_aside: bad rows.
        flip_probability: of the labels: the smallest, median and largest.
        notes: about the judgements, for their owner and nobody else.
    """

    path: Path
    state: Path
    promise: LabelPromise
    users: int
    labels: int
    fresh: int
    left_out: int
    set_aside: int
    flip_probability: dict[str, float]
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """The output of ``murmuration privatize --json``."""
        from murmuration.privacy.adjacency import Adjacency

        return {
            "out": str(self.path),
            "state": str(self.state),
            "users": self.users,
            "labels": self.labels,
            "fresh": self.fresh,
            "left_out": self.left_out,
            "set_aside": self.set_aside,
            "epsilon": self.promise.epsilon,
            "delta": self.promise.delta,
            "cap": self.promise.cap or None,
            "adjacency": Adjacency.REPLACE_LABELS.value,
            "flip_probability": self.flip_probability,
            "randomness": "operating system",
        }

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        flips = self.flip_probability
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, text in {
            "written": f"{self.labels} labels of {self.users} users to {self.path}",
            "promise": f"{self.promise}: all labels of a user together",
            "public": "prompts, responses and how many judgements somebody gave (replace-labels)",
            "flipped": f"with probability {flips['smallest']:.3g} to {flips['largest']:.3g}, "
            f"median {flips['median']:.3g}",
            "told": f"{self.fresh} for the first time, {self.labels - self.fresh} as before",
            "left out": f"{self.left_out} judgements beyond what a user may tell, "
            f"{self.set_aside} bad rows",
            "state": f"{self.state}: keep it, and keep it to yourself; without it nothing "
            "may be told again",
        }.items():
            table.add_row(name, Text(text))
        return table

    def __str__(self) -> str:
        from murmuration.terminal.tables import as_text

        return as_text(self)


@takes(lambda: row_fields("labels"), optional=True)
def privatize(
    data: Source,
    epsilon: float,
    *,
    state: str | os.PathLike[str],
    out: str | os.PathLike[str],
    cap: int | None = None,
    delta: float = 0.0,
    on_bad_rows: Literal["refuse", "skip"] = "refuse",
    **rows: Any,
) -> PrivatizedLabels:
    """Randomize the labels of judgements, once and for all, and record how likely each is false.

    The file can be trained on like any other, with ``labels="randomized"``: losses take the flip
    probabilities from it. Doing this again with the same state gives the same answers.

        >>> from murmuration import privatize
        >>> pair = {"prompt": "What now?", "chosen": "Save it.", "rejected": "Bet on it."}
        >>> rows = [{"user_id": f"user {n}", **pair} for n in range(20)]
        >>> written = privatize(rows, 1.0, state="state.json", out="randomized.jsonl")
        >>> written.labels, written.fresh, round(written.flip_probability["median"], 3)
        (20, 20, 0.269)
        >>> privatize(rows, 1.0, state="state.json", out="randomized.jsonl").fresh
        0

    Args:
        data: Judgements, as of ``train``.
        epsilon: Of all labels of a user together.
        state: The file that remembers which labels were released; keep it, and keep it private.
        out: The ``.jsonl`` or ``.jsonl.gz`` file to write.
        cap: Most labels of a user that are ever released, now and later; by default as many as they
            have now.
        delta: It allows a larger epsilon for each label.
        on_bad_rows: refuse the file, or skip the rows.
        **rows: What is declared of them, as of ``train``.

    Returns:
        What was written.

    Raises:
        InputError: what cannot be used, and why.
    """
    quiet_libraries()
    import numpy as np

    from murmuration.client.labels.memory import LabelState
    from murmuration.client.store import load_judged
    from murmuration.preference.data.schema import Schema
    from murmuration.preference.data.sources import absolute
    from murmuration.privacy.mechanisms.randomized_response import LabelPromise
    from murmuration.privacy.mechanisms.randomness import Randomness

    path, memory = Path(out), Path(state)
    try:
        promise = LabelPromise(epsilon, cap or 0, delta)
    except ValueError as error:
        raise InputError(str(error)) from None
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise InputError(
            f"--out {path}: the file that is written must be named .jsonl or .jsonl.gz"
        )
    columns, declared = stated_rows(rows, "labels")
    options = {name.replace("_", "-"): value for name, value in declared.items()}
    # Which pairs there are would tell what the ratings were.
    schema = Schema.of({**options, "pair-thumbs": False})
    with located_rows(data) as source:
        judgements = load_judged(absolute(source), columns, on_bad_rows, schema)
        try:
            answer = LabelState(memory).answer(judgements, promise, Randomness(None))
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"--epsilon {epsilon:g}: {error}") from None
        if not len(answer.rows_N):
            raise InputError(
                f"{source}: every user has released as many labels as they may; nothing is written"
            )
    _write(path, judgements, answer)
    flips = answer.labels.flips_N.tolist()
    return PrivatizedLabels(
        path=path,
        state=memory,
        promise=promise,
        users=int(np.count_nonzero(np.diff(answer.labels.start_U))),
        labels=len(flips),
        fresh=answer.fresh,
        left_out=len(judgements) - len(flips),
        set_aside=judgements.left_out,
        flip_probability={
            "smallest": min(flips),
            "median": statistics.median(flips),
            "largest": max(flips),
        },
        notes=judgements.notes,
    )


def labels_released(state: str | os.PathLike[str]) -> list[Spend]:
    """The budget that each user has spent, from a state file; InputError if there is none."""
    from murmuration.client.labels.memory import LabelState

    path = Path(state)
    if not path.exists():
        raise InputError(f"--show-state {path}: there is no such file")
    return LabelState(path).spends()


def _rows(judgements: Judgements, answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield the released rows, in the columns of the data."""
    from murmuration.preference.data.public_items import canonical

    labels, start_U = answer.labels, answer.labels.start_U
    flips_N = labels.flips_N.tolist()
    for index, user in sorted(enumerate(judgements.user_ids), key=lambda pair: pair[1]):
        for label in range(start_U[index], start_U[index + 1]):
            row, best = int(answer.rows_N[label]), int(labels.answers_N[label])
            shown = canonical(judgements.responses[row])
            stated: dict[str, Any] = {"responses": list(shown), "best": best}
            if judgements.kind == "pairs":
                stated = {"chosen": shown[best], "rejected": shown[1 - best]}
            prompt = judgements.prompts[row]
            yield {"user_id": user, "prompt": prompt, **stated, "flip_probability": flips_N[label]}


def _write(path: Path, judgements: Judgements, answer: Answer) -> None:
    from murmuration.privacy.durable_files import replace_file
    from murmuration.privacy.strict_json import json_lines

    content = json_lines(_rows(judgements, answer))
    if path.suffix == ".gz":  # without the time in its head: the same answers are the same file
        content = gzip.compress(content, mtime=0)
    with disk_errors_as(f"--out {path} cannot be used"):
        if path.exists():
            if path.read_bytes() != content:
                raise InputError(f"--out {path} holds something else; choose another file")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
