"""The metrics of a run, sent to a tracker of experiments while they are written.

Decisions:
- What is sent are the numbers that stand in the folder's ``metrics.jsonl``, which is for release,
  and nothing else: no setting, no output, nothing about the machine as far as libraries let one say
  so. One thread reads that file, wherever the run itself goes on.
- A tracker also learns when a line was sent, and with that how long rounds took.
- The last line is kept back until another follows or the run has ended: after a crash its round may
  be run again. ``tracking.json`` says what was sent, so a resumed run goes on where it ended.
- A tracker that fails is given up with one warning; the run does not notice.
"""

import contextlib
import importlib
import json
import math
import os
import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from murmuration.preference.data.rows import InputError
from murmuration.privacy.durable_files import replace_file
from murmuration.reporting.live.progress import Tail
from murmuration.reporting.live.tracker_names import CHOICES, NONE

STATE = "tracking.json"
PROJECT = "murmuration"
LOOKS_PER_SECOND = 2
#: How long a run that has ended waits for its tracker.
SECONDS_TO_END = 60.0


@dataclass(frozen=True)
class Channel:
    """A run in a tracker: ``send`` takes steps and what was measured, ``close`` ends it.

    ``close`` is told whether the run came to its end.
    """

    send: Callable[[Mapping[int, Mapping[str, float]]], None]
    close: Callable[[bool], None]


@dataclass(frozen=True)
class Sent:
    """What ``tracking.json`` holds: the tracker, the run's name and id there, the last step."""

    to: str
    name: str
    id: str = ""
    step: int = -1


def _tensorboard(folder: Path, sent: Sent) -> tuple[Channel, str]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard" / sent.name))

    def send(lines: Mapping[int, Mapping[str, float]]) -> None:
        for step, values in lines.items():
            for name, value in values.items():
                writer.add_scalar(name, value, step)
        writer.flush()

    return Channel(send, lambda ended: writer.close()), sent.name


def _wandb(folder: Path, sent: Sent) -> tuple[Channel, str]:
    import wandb  # pyright: ignore[reportMissingImports]

    # What it would send by itself: output of the terminal, use of the machine, code, packages.
    only_metrics = wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        save_code=False,
        silent=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    run_id = sent.id or uuid.uuid4().hex[:12]
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=run_id,
        name=sent.name,
        resume="allow",
        settings=only_metrics,
    )

    def send(lines: Mapping[int, Mapping[str, float]]) -> None:
        for step, values in lines.items():
            run.log(dict(values), step=step)

    return Channel(send, lambda ended: run.finish(exit_code=0 if ended else 1)), run_id


#: By name, how a run is begun there, or goes on; and the module that is needed. The string that
#: comes with a channel is the run's id for the next time.
TRACKERS: dict[str, tuple[Callable[[Path, Sent], tuple[Channel, str]], str]] = {
    "tensorboard": (_tensorboard, "tensorboard"),
    "wandb": (_wandb, "wandb"),
}


@contextmanager
def tracked(
    folder: Path | str,
    to: str | None,
    name: str | None = None,
    *,
    resume: bool = False,
    step: str = "round",
) -> Iterator[None]:
    """Send what is written to ``folder/metrics.jsonl`` while the ``with`` block is in progress.

    Args:
        folder: the run's, which need not exist yet.
        to: one of ``CHOICES``; None for none, or where a resumed run sent to before.
        name: of the run at the tracker. [default: the folder's]
        resume: whether lines that are there already are of this run.
        step: what counts the lines.

    Raises:
        InputError: the tracker's library is not installed, or a name that cannot be used.
    """
    folder = Path(folder)
    before = _sent(folder) if resume else None
    chosen = to or (before.to if before else NONE)
    if chosen == NONE:
        if name:
            raise InputError("--run-name names a run at a tracker: say which with --report-to")
        yield
        return
    if chosen not in TRACKERS:
        raise InputError(f"--report-to must be one of {', '.join(CHOICES)}; got {chosen!r}")
    if name is not None and not re.fullmatch(r"[\w-][\w .:=+-]{0,127}", name):
        raise InputError(
            "--run-name must be at most 128 letters, digits, spaces or . : = + -, and begin with a "
            f"letter, digit or -; got {name!r}"
        )
    _check_usable(chosen)
    sent = Sent(chosen, name or folder.absolute().name)
    if before and before.to == chosen:
        sent = replace(before, name=name or before.name)
    if not resume and (folder / "metrics.jsonl").exists():
        yield  # another run's folder, which is about to be refused
        return
    sender = _Sender(folder, sent, step)
    sender.start()
    ended = False
    try:
        yield
        ended = True
    finally:
        sender.end(ended)


def _check_usable(tracker: str) -> None:
    """InputError where it is not installed; asks who has not logged in, before the run begins."""
    _, module = TRACKERS[tracker]
    if tracker == "wandb":  # which reports on its own use to its makers otherwise, from its import
        os.environ["WANDB_ERROR_REPORTING"] = "false"
    try:
        result = importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"--report-to {tracker} needs {module}: pip install 'murmuration-rlhf[{tracker}]'"
        ) from None
    if tracker == "wandb" and os.environ.get("WANDB_MODE", "online") == "online":
        try:
            result.login()
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            raise InputError(
                f"--report-to wandb: log in first (wandb login), or set WANDB_MODE=offline: {said}"
            ) from None


def _sent(folder: Path) -> Sent | None:
    """Return what was sent before; None where nothing is known of it."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        result = Sent(**json.loads((folder / STATE).read_text(encoding="utf-8")))
        if result.to in TRACKERS and type(result.step) is int:
            return result
    return None


class _Sender:
    """Reads lines and sends them, in one thread."""

    def __init__(self, folder: Path, sent: Sent, step: str) -> None:
        self._folder, self._sent, self._step = folder, sent, step
        self._tail = Tail(folder / "metrics.jsonl")
        self._waiting: dict[int, dict[str, float]] = {}
        self._channel: Channel | None = None
        self._over, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, ended: bool) -> None:
        """Send what is left, and close; ``ended``: the run came to its end."""
        self._ended = ended
        self._over.set()
        self._thread.join(SECONDS_TO_END)
        if self._thread.is_alive():
            _warn(f"{self._sent.to} has not answered for {SECONDS_TO_END:.0f} s; it is left behind")

    def _run(self) -> None:
        try:
            while not self._over.wait(1 / LOOKS_PER_SECOND):
                self._look(last=False)
            self._look(last=self._ended)
            if self._channel is not None:
                self._channel.close(self._ended)
        except (Exception, SystemExit) as error:  # whatever a library does
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            _warn(f"--report-to {self._sent.to} failed, the run goes on without it: {said}")

    def _look(self, *, last: bool) -> None:
        lines, _ = self._tail.read()
        for line in lines:
            step = line.get(self._step)
            if type(step) is int and step > self._sent.step:
                self._waiting = {at: of for at, of in self._waiting.items() if at < step}
                self._waiting[step] = _numbers(line, self._step)
        ready = dict(self._waiting)
        if ready and not last:
            ready.pop(max(ready))
        if not ready:
            return
        if self._channel is None:
            begin, _ = TRACKERS[self._sent.to]
            self._channel, run_id = begin(self._folder, self._sent)
            self._keep(replace(self._sent, id=run_id))
        before = self._sent
        self._keep(replace(before, step=max(ready)))  # first: nothing is sent twice
        try:
            self._channel.send(ready)
        except BaseException:
            self._keep(before)
            raise
        self._waiting = {at: of for at, of in self._waiting.items() if at not in ready}

    def _keep(self, sent: Sent) -> None:
        self._sent = sent
        text = json.dumps(asdict(sent)) + "\n"
        replace_file(self._folder / STATE, text.encode())


def _numbers(line: Mapping[str, Any], step: str) -> dict[str, float]:
    """Its finite numbers, without what counts it."""
    return {
        name: float(value)
        for name, value in line.items()
        if name != step and type(value) in (int, float) and math.isfinite(value)
    }


def _warn(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"warning: {text}", file=sys.stderr, flush=True)
