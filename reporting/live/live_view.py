"""Terminal output of a run: a live view in progress, and a summary at its end.

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
import threading
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from murmuration.privacy.disclosure import OperatorOnly, Shown, on_terminal
from murmuration.privacy.figures import counted, share_text
from murmuration.reporting.facts import facts
from murmuration.reporting.live.progress import RoundProgress
from murmuration.sims.runtimes.tail import Tail
from murmuration.strategies.config import RunConfig
from murmuration.terminal.terminal import Terminal

LOOKS_PER_SECOND = 8
SECONDS_BETWEEN_LINES = 10.0


class LiveView:
    """Shows a run while the ``with`` block is in progress.

    ``folder`` is the run's, which need not exist yet; ``progress`` is of no round so far.
    """

    def __init__(self, folder: Path, progress: RoundProgress) -> None:
        self._tail, self._progress = Tail(folder / "metrics.jsonl"), progress
        self._console = Terminal(stderr=True)
        self._stage = ""
        self._spinner = Spinner("dots", style="cyan")
        self._live: Live | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="live view", daemon=True)
        self._said_stage, self._said_round, self._said_at = "", 0, -math.inf  # in plain lines

    def stage(self, text: Shown[str] | OperatorOnly) -> None:
        """Show a text until the next round arrives."""
        self._stage = on_terminal(text)

    def note(self, text: Shown[str] | OperatorOnly) -> None:
        """A line that stays, above the bar. Another console would draw over the bar."""
        line = on_terminal(text)
        self._console.print(line, style="yellow", highlight=False, soft_wrap=True)

    def __enter__(self) -> "LiveView":
        self._plain = not _interactive(self._console)
        self._look(last=False)  # rounds that are there already are not this run's
        try:
            if not self._plain:
                self._live = Live(
                    self._frame(),
                    console=self._console,
                    auto_refresh=False,
                    redirect_stdout=Terminal().is_terminal,
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
        while not self._over.wait(1 / LOOKS_PER_SECOND):
            self._look(last=False)

    def _look(self, *, last: bool) -> None:
        stage = self._stage
        lines, anew = self._tail.read()
        moved = self._progress.add(lines, anew=anew)
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
        now, task = time.monotonic(), self._progress.task
        done, total = task.completed, task.total or 1
        another_tenth = 10 * self._said_round // total != 10 * done // total
        waited = now - self._said_at >= SECONDS_BETWEEN_LINES
        if stage and stage != self._said_stage and not last:
            self._said_stage, text = stage, stage
        elif done != self._said_round and (another_tenth or waited or last):
            counted = f"round {done:,} of {total:,}"
            text = ", ".join([counted, *self._progress.known(ended=last)])
            self._said_round = done
        else:
            return
        self._said_at = now
        self._console.print(f"{task.description}: {text}", highlight=False, soft_wrap=True)

    def _frame(self, *, last: bool = False) -> RenderableType:
        rows: list[RenderableType] = [self._progress.bar.get_renderable()]
        if known := self._progress.known(ended=last):
            texts = (Text(text, style="cyan" if text[0] == "ε" else "") for text in known)
            rows.append(Text("  ·  ", style="dim").join(texts))
        if self._stage and not last:
            self._spinner.update(text=Text(f"{self._stage} …", style="dim"))
            rows.append(self._spinner)
        return Group(*rows)


def of_run(config: RunConfig) -> LiveView:
    """The view of a run with these settings."""
    target = config.epsilon if config.private else None
    return LiveView(Path(config.out), RoundProgress(config.rounds, target, config.strategy))


def _interactive(console: Console) -> bool:
    """True if progress can be drawn: on a terminal, or in a notebook with widgets.

    FORCE_COLOR asks for colours, not for a bar.
    """
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return (
        console.file.isatty() and console.is_terminal and not console.is_dumb_terminal
    ) and os.environ.get("CI", "").lower() in ("", "0", "false")


def summary(result: Mapping[str, Any]) -> RenderableType:
    """A panel with the figures of ``result.json``, and under it a command to copy."""
    run, out = facts(result), _short(Path(result["out"]))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, *text in [
        *_privacy(run),
        *_accuracy(run),
        *([_IGNORES_PROMPT] if run["features"].get("kind") == "hashing" else []),
        ("trained on", _training(run)),
        ("model", str(out / "model")),
        ("report", str(out / "report.html")),
    ]:
        grid.add_row(name, Text.assemble(*text))
    warnings = Table.grid(padding=(0, 1))
    for text in [*([run["stopped"]] if run["stopped"] else []), *run["warnings"]]:
        warnings.add_row()
        warnings.add_row(Text("!", style="bold yellow"), Text(text, style="yellow"))
    panel = Panel(
        Group(grid, warnings) if warnings.row_count else grid,
        title=Text(f"murmuration · {run['strategy']}"),
        title_align="left",
        box=box.ROUNDED,
        border_style="cyan" if run["accounted"] else "yellow",
        padding=(1, 2),
        expand=False,
    )
    prompt, first, second = (
        _EMBEDDED if run["test"].startswith("murmuration.population:") else _OTHERS
    )
    command = (
        f"murmuration score {shlex.quote(str(out / 'model'))} --prompt '{prompt}' \\\n"
        f"  --response '{first}' --response '{second}'"
    )
    head = (
        "To check later that the ledger is intact (murmuration ledger --expect), keep elsewhere:\n"
        f"  {run['ledger_head']}"
    )
    return Group(panel, Text(command, overflow="fold"), Text(head, overflow="fold"))


#: A prompt and two responses to score, by whose judgements a run learnt from.
_EMBEDDED = "Spend or save?", "Put it aside.", "Treat yourself!"
_OTHERS = "A prompt", "One response", "Another"
#: A row's name, and what stands in it: texts, or with a style.
_Row = tuple[str | tuple[str, str], ...]
#: Of hashed words (``preference.features.hashing``).
_IGNORES_PROMPT: _Row = (
    "reads",
    "the response alone; it ignores the prompt (--features smollm2, minilm and --base read both)",
)


def _privacy(run: Mapping[str, Any]) -> Iterator[_Row]:
    if not run["accounted"]:
        yield "privacy", ("none", "bold yellow")
        return
    yield "privacy", (run["claim"], "bold cyan"), f"; budget ε = {run['epsilon_target']:g}"
    if run["seen_by_server"]:
        seen = f"ε {run['seen_by_server']} of what it saw, {run['who_adds_noise']}"
        yield "the server", seen
    yield run["adjacency"], run["sentence"]


def _accuracy(run: Mapping[str, Any]) -> Iterator[_Row]:
    if (moved := run["policy"].get("moved")) is not None:
        yield "moved", f"{moved:.2g} nats a token from its base, where it writes"
    if run["heldout_accuracy"] is None:
        yield "accuracy", f"not measured. {run['why_unmeasured']}"
        return
    if run["next_tokens"]:
        yield "loss", run["loss_text"]
    public = run["test_is_public"]
    yield (
        "accuracy",
        (run["accuracy_text"], "bold"),
        f" of {_judged(run)}"
        f"{', ' + run['by_user_text'] if public else ''} by user, ± {run['error_text']} "
        f"({_tested(run)})",
    )
    if start := (run["baselines"] or {}).get("start"):
        gain, error = 100 * start["gain"], 100 * start["error"]
        chance = ", within chance" if abs(gain) <= 2 * error else ""
        above = f"; the model is {gain:+.1f} ± {error:.1f} points above{chance}"
        yield "its start", f"{share_text(start['by_user'])} by user{above}"
    if run["tenths_text"]:
        few = "" if public else f"; with few {run['words'].rows} each, chance alone does as much"
        yield "over users", run["tenths_text"] + few


def _judged(run: Mapping[str, Any]) -> str:
    if run["next_tokens"]:
        return "next tokens"
    return "pairs of a user's thumbs up and down" if run["thumbs"] else "judgements"


def _tested(run: Mapping[str, Any]) -> str:
    """The users of the accuracy; for a test, why some of its users are missing."""
    users, there = run["heldout_users"], run["test_users"] or 0
    if not run["test_is_public"]:
        return f"{counted(users, 'user')} held out"
    if users >= there or run["next_tokens"]:
        return f"{counted(users, 'user')} tested on"
    others = "the other" if there - users == 1 else "the others"
    thumbs = run["thumbs"]
    alike = (
        f"thumbs of {others} are all alike" if thumbs else f"judgements of {others} are all ties"
    )
    return f"{users:,} of {there:,} test users; the {alike}"


def _training(run: Mapping[str, Any]) -> str:
    done, planned = run["rounds"], run["rounds_planned"]
    rounds = ("" if done == planned else f"{done:,} of ") + counted(planned, "round")
    pace = f" ({run['speed_text']} users/s)" if run["speed_text"] else ""
    everybody = run["cohort"] >= run["users"]
    drawn = "all of them" if everybody else f"{run['cohort']:,} expected"
    users = counted(run["users"], "user")
    return f"{users}, {drawn} in a round; {rounds} in {run['time_text']}{pace}"


def _short(path: Path) -> Path:
    """Relative to where we are, if it lies below."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):
        return path
