"""What a run shows: a live view while it goes on, and a summary at its end.

The view is on standard error; standard output belongs to the result. It knows nothing but the run's
``metrics.jsonl``, so it is the same for a run in this process and for one in another. A thread
looks at the file eight times a second. Where standard error is no terminal, or in continuous
integration, plain lines take the place of the bar: one for every tenth of the rounds, and one for
every ten seconds in which something happened.
"""

import contextlib
import math
import os
import shlex
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from murmuration.privacy.adjacency import Adjacency
from murmuration.server.reporting.figures import (
    about,
    delta_text,
    duration,
    epsilon_text,
    in_words,
    loss_text,
    says_next_tokens,
    share_text,
    task_of,
)
from murmuration.server.reporting.report import error_words
from murmuration.sims.runtimes.progress import Progress, Tail

_LOOKS_PER_SECOND = 8
_SECONDS_BETWEEN_LINES = 10.0


class LiveView:
    """Shows a run while the ``with`` block is in progress.

    Args:
        folder: the run directory; it need not exist yet.
        rounds: planned number of rounds, at least 1.
        cohort: nominal number of users in a round.
        epsilon_target: the budget; None for a run without privacy.
        label: what the run is, in a few words.
    """

    def __init__(
        self, folder: Path, rounds: int, cohort: int, epsilon_target: float | None, label: str
    ) -> None:
        self._tail = Tail(Path(folder) / "metrics.jsonl")
        self._progress = Progress(rounds, cohort, epsilon_target)
        self._label = label
        self._console = Console(stderr=True)
        self._stage = ""
        self._spinner = Spinner("dots", style="cyan")
        self._live: Live | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="live view", daemon=True)
        self._said_stage, self._said_round, self._said_at = "", 0, -math.inf  # in plain lines

    def stage(self, text: str) -> None:
        """Say what goes on while no rounds arrive; the next round takes its place."""
        self._stage = text

    def note(self, text: str) -> None:
        """A line that stays, above the bar. Another console would draw over the bar."""
        self._console.print(text, style="yellow", markup=False, highlight=False)

    def __enter__(self) -> "LiveView":
        self._plain = not _interactive(self._console)
        self._look(last=False)  # rounds that are there already are not this run's
        try:
            if not self._plain:
                self._live = Live(
                    self._frame(),
                    console=self._console,
                    auto_refresh=False,
                    redirect_stdout=sys.stdout.isatty(),
                )
                self._live.start(refresh=True)
            self._thread.start()
        except BaseException:  # Ctrl-C too must not leave a terminal without its cursor
            self._stop_live()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._over.set()
            self._thread.join(2.0)
            self._look(last=True)
        finally:
            self._stop_live()

    def _stop_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError, ValueError):  # standard error may be closed by now
                live.stop()

    def _follow(self) -> None:
        while not self._over.wait(1 / _LOOKS_PER_SECOND):
            self._look(last=False)

    def _look(self, *, last: bool) -> None:
        stage = self._stage
        lines, anew = self._tail.read()
        moved = self._progress.add(lines, anew=anew, now=time.monotonic())
        if moved and stage == self._stage:
            self._stage = stage = ""
        try:
            if self._live is not None:
                self._live.update(self._frame(last=last), refresh=True)
            elif self._plain:
                self._say(stage, last=last)
        except (OSError, ValueError):  # nobody is reading: the run itself goes on
            self._over.set()

    def _say(self, stage: str, *, last: bool) -> None:
        progress, now = self._progress, time.monotonic()
        tenths = [10 * done // progress.rounds for done in (self._said_round, progress.round)]
        waited = now - self._said_at >= _SECONDS_BETWEEN_LINES
        if stage and stage != self._said_stage and not last:
            self._said_stage, text = stage, stage
        elif progress.round != self._said_round and (tenths[0] != tenths[1] or waited or last):
            counted = f"round {progress.round:,} of {progress.rounds:,}"
            text = ", ".join([counted, *progress.known(ended=last)])
            self._said_round = progress.round
        else:
            return
        self._said_at = now
        print(f"{self._label}: {text}", file=self._console.file, flush=True)

    def _frame(self, *, last: bool = False) -> RenderableType:
        progress = self._progress
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            Text(self._label, style="bold"),
            ProgressBar(progress.rounds, min(progress.round, progress.rounds), width=32),
            Text(f"round {progress.round:,} of {progress.rounds:,}"),
        )
        known = Text("  ·  ", style="dim").join(
            Text(text, style="cyan" if text.startswith("ε") else "")
            for text in progress.known(ended=last)
        )
        rows: list[RenderableType] = [grid, *([known] if known else [])]
        if self._stage and not last:
            self._spinner.update(text=Text(f"{self._stage} …", style="dim"))
            rows.append(self._spinner)
        return Group(*rows)


def _interactive(console: Console) -> bool:
    """Whether there is a terminal to draw on; FORCE_COLOR asks for colours, not for a bar."""
    return (
        console.file.isatty() and console.is_terminal and not console.is_dumb_terminal
    ) and os.environ.get("CI", "").lower() in ("", "0", "false")


def summary(result: Mapping[str, Any]) -> RenderableType:
    """A panel with the figures of ``result.json``, and under it a command to copy."""
    out = _short(Path(result["out"]))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _summary_rows(result, out):
        grid.add_row(name, text)
    warnings = Table.grid(padding=(0, 1))
    for text in [*([result["stopped"]] if result["stopped"] else []), *result["warnings"]]:
        warnings.add_row()
        warnings.add_row(Text("!", style="bold yellow"), Text(text, style="yellow"))
    panel = Panel(
        Group(grid, warnings) if warnings.row_count else grid,
        title=Text(f"murmuration · {result['strategy']}"),
        title_align="left",
        box=box.ROUNDED,
        border_style="cyan" if result["private"] else "yellow",
        padding=(1, 2),
        expand=False,
    )
    command = (
        f"murmuration score {shlex.quote(str(out / 'model'))} --prompt 'Spend or save?' \\\n"
        "  --response 'Put it aside.' --response 'Treat yourself!'"
    )
    head = result.get("ledger_head", "none: the run is of an earlier version")
    kept = f"Keep this head of the ledger elsewhere (murmuration ledger --expect):\n  {head}"
    return Group(panel, Text(command, overflow="fold"), Text(kept, overflow="fold"))


def _summary_rows(result: Mapping[str, Any], out: Path) -> list[tuple[str, Text]]:
    if result["private"]:
        claim = Text.assemble(
            (f"ε {epsilon_text(result['epsilon'])}", "bold cyan"),
            f" of {result['epsilon_target']:g}, δ {delta_text(result['delta'])}, for "
            + ("single judgements" if result.get("privacy_level") == "item" else "whole users")
            + ("" if result.get("proven", True) else " as published: claimed, not proven"),
        )
        sentence = in_words(Adjacency(result["adjacency"]).sentence, task_of(result))
        rows = [("privacy", claim), (result["adjacency"], Text(sentence))]
        if (seen := result.get("epsilon_against_server")) is not None:
            who = f"if {result['noise_parties']} of the nodes in each sum add their noise"
            rows.insert(1, ("the server", Text(f"ε {epsilon_text(seen)} of what it saw, {who}")))
    else:
        rows = [("privacy", Text("none", style="bold yellow"))]
    users, told = result["heldout_users"], result["heldout_accuracy"] is not None
    if not told:
        accuracy = Text("not measured")
    else:
        of = "next tokens" if says_next_tokens(result) else "judgements"
        by_user = f", {share_text(result['heldout_accuracy_by_user'], users)}"
        accuracy = Text.assemble(
            (share_text(result["heldout_accuracy"], users), "bold"),
            f" of {of}{by_user if result['test_is_public'] else ''} by user, ± "
            f"{error_words(result)} ({users:,} users "
            f"{'tested on' if result['test_is_public'] else 'held out'})",
        )
    done, planned, speed = result["rounds"], result["rounds_planned"], result["users_per_second"]
    rounds = f"{done:,}" if done == planned else f"{done:,} of {planned:,}"
    pace = f" ({about(speed)} users/s)" if speed else ""
    trained = (
        f"{result['users']:,} users, {result['cohort']:,} expected in a round; {rounds} rounds in "
        f"{duration(result['seconds_training'])}{pace}"
    )
    return [
        *rows,
        *([("loss", Text(loss_text(result)))] if told and says_next_tokens(result) else []),
        ("accuracy", accuracy),
        ("trained on", Text(trained)),
        ("model", Text(str(out / "model"))),
        ("report", Text(str(out / "report.html"))),
    ]


def _short(path: Path) -> Path:
    """Relative to where we are, if it lies below."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):
        return path
