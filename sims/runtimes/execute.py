"""A run in one of the runtimes of simulation, with a live view."""

import contextlib
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from murmuration.client.app import app as client_app
from murmuration.client.store import forget_changed, load
from murmuration.preference.choices import WORDS
from murmuration.preference.data.errors import InputError, RowsError
from murmuration.preference.data.files import progress
from murmuration.preference.data.loading import Data
from murmuration.preference.escaping import visible
from murmuration.preference.features import frozen_states
from murmuration.privacy.accounting.terms import Caveat, caveat_sentences
from murmuration.privacy.disclosure import OperatorOnly, Public, Shown, on_terminal
from murmuration.privacy.figures import counted, duration
from murmuration.privacy.plugins import brought
from murmuration.server.app import app as server_app
from murmuration.server.evaluation import on_bad_rows
from murmuration.server.record.result import Result
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.record.run_files import former_nodes
from murmuration.server.record.run_folder import check_free
from murmuration.server.record.run_lock import RunInUse, RunLock
from murmuration.server.run import check_run
from murmuration.sims.runtimes import Runtime
from murmuration.sims.runtimes.local import LocalGrid, run_local
from murmuration.sims.runtimes.others_test import check_others
from murmuration.sims.runtimes.ray_cluster import Workers
from murmuration.sims.runtimes.ray_grid import run_ray
from murmuration.sims.runtimes.shown_prompts import PLACE, keep
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.registry import named

#: Hears a line that the operator should read.
OnNote = Callable[[Public[str] | OperatorOnly], None]
#: What suits so many users at so large an epsilon, in a sentence; empty if nothing is known.
Advice = Callable[[int, float], str]
#: Sums of single nodes are hidden among so many, unless it is said how many users a node has.
_MASKING_NODES = 5


class _NotShown(nullcontext[None]):
    """A live view where there is none: it says what the operator should know, and nothing else."""

    def stage(self, text: Shown[str] | OperatorOnly) -> None:
        """Say nothing."""

    def note(self, text: Shown[str] | OperatorOnly) -> None:
        """Print a line."""
        print(visible(on_terminal(text)), file=sys.stderr)


def execute(
    config: RunConfig,
    *,
    runtime: Runtime = Runtime.LOCAL,
    users_per_node: int | None = None,
    workers: Workers = Workers(),  # noqa: B008  frozen
    quiet: bool = False,
    on_note: OnNote | None = None,
    advice: Advice | None = None,
) -> dict[str, Any]:
    """Run a config in a runtime, with a live view on stderr unless ``quiet``; its result.

    ``on_note`` hears what the operator should know, instead of the terminal. Among that is
    ``advice`` on linear rewards.

    Raises:
        InputError: data or settings that cannot be used.
        RunAborted: a node failed.
    """
    folder = Path(config.out)
    if not config.resume:
        with contextlib.suppress(OSError):  # which the run itself will name
            check_free(Path(os.path.realpath(folder)))  # before anything is loaded, or said
    if config.resume:
        with RunDirectory(config) as begun:  # refuses other settings
            if (result := begun.finished()) is not None:
                if not (folder / PLACE).exists():  # it was killed when all but this was done
                    keep(folder, _prompts(config))
                return result.to_json()
    shown = brought("murmuration.live").get("run")
    live = shown.load()(config) if shown else _NotShown()
    note = on_note or live.note
    try:
        with nullcontext() if quiet else live, nullcontext() if quiet else _pace(live):
            live.stage(Public(f"loading {WORDS[config.task].rows}"))
            forget_changed(config.data)
            nodes = _nodes(config, runtime, users_per_node, note, advice)
            doing = "computing features" if config.task == "reward" else "reading texts"
            live.stage(Public(doing))
            settings = config.to_run_config()
            if runtime is Runtime.LOCAL:
                run_local(settings, nodes=nodes, server_app=server_app, client_app=client_app)
            else:
                live.stage(Public("starting Ray"))
                run_ray(
                    settings,
                    _load(config),
                    nodes=nodes,
                    workers=workers,
                    server_app=server_app,
                    client_app=client_app,
                )
            _keep_prompts(config, folder)
    except (KeyboardInterrupt, RunAborted) as error:
        # The command-line library turns the first into exit code 130, without a word.
        ended = "interrupted" if isinstance(error, KeyboardInterrupt) else "aborted"
        begun = (folder / "config.json").exists()
        again = f"; continue with: murmuration run --resume --out {shlex.quote(str(folder))}"
        if not quiet:
            print(ended + (again if begun else ""), file=sys.stderr)
        raise
    result = Result.read(folder)
    assert result is not None  # or the run has raised
    return result.to_json()


def check_begins(config: RunConfig) -> None:
    """Raise InputError for a run that could not begin, or go on; nothing of it is charged.

    It is begun in a folder that goes again, up to where its rounds would be. A node that fails
    there may not fail in the run.
    """
    if (Path(config.out) / "config.json").exists():
        with RunDirectory(replace(config, resume=True)):  # refuses other settings
            return
    with TemporaryDirectory() as folder, contextlib.suppress(RunAborted):
        config = replace(config, out=str(Path(folder) / Path(config.out).name))
        nodes = _nodes(config, Runtime.LOCAL, None, lambda line: None)
        check_run(config, LocalGrid(client_app, nodes, config.to_run_config()))


@contextlib.contextmanager
def _pace(live: Any) -> Iterator[None]:
    """Show how far this process is with reading rows, tokenizing texts and computing features; of
    the last also, as a line that stays, how fast that was."""
    handler, before = logging.Handler(), replace(frozen_states.pace)
    mark = str(OperatorOnly(""))  # which each line has
    handler.emit = lambda record: live.stage(OperatorOnly(record.getMessage().removeprefix(mark)))
    progress.log.addHandler(handler)
    try:
        yield
        read = frozen_states.pace.since(before)
        if read.texts:
            took = duration(read.seconds)
            live.note(OperatorOnly(f"features: {read.texts:,} texts read in {took}, {read.rate}"))
    finally:
        progress.log.removeHandler(handler)


def _load(config: RunConfig) -> Data:
    """The operator's own data, as the nodes will load them."""
    return load(config.data, config.columns, on_bad_rows(config), config.task, config.schema)


def _prompts(config: RunConfig) -> Iterable[str]:
    """The prompts that the run's users were shown; none of their own texts."""
    return _load(config).prompts


def _keep_prompts(config: RunConfig, folder: Path) -> None:
    """Note privately, in a run that has ended, what its users were shown.

    A process that has the folder meanwhile resumes a finished run, and notes it itself.
    """
    try:
        with contextlib.suppress(RunInUse), contextlib.closing(RunLock(folder)):
            keep(folder, _prompts(config))
    except OSError as error:
        raise InputError(
            f"--out {folder}: the prompts that users were shown cannot be recorded: "
            f"{error.strerror}; mend that, and continue with --resume"
        ) from None


def check_data(config: RunConfig, data: Data) -> None:
    """InputError, before anything is charged, for data that a simulation cannot be of."""
    thumbs = config.kind == "thumbs"
    if config.task == "reward" and not (thumbs or data.decided):
        raise RowsError(f"{config.data}: every judgement is a tie, there is nothing to learn")
    check_others(config, data)


def _nodes(
    config: RunConfig,
    runtime: Runtime,
    users_per_node: int | None,
    note: OnNote,
    advice: Advice | None = None,
) -> int:
    """The number of nodes (0: one for each worker); loads and checks their data."""
    data = _load(config)
    check_data(config, data)
    for text in data.notes:
        note(OperatorOnly(text))
    if data.set_aside:
        first, rows = data.set_aside[0], counted(data.left_out, "skipped row")
        note(OperatorOnly(f"{rows}, the first: {first}"))
    users = len(data.user_ids)
    linear = config.task == "reward" and not config.base and not named(config.strategy).features
    begins = config.private and linear and not (config.start or config.resume)
    if advice and begins and (line := advice(config.trained_on(users), config.epsilon)):
        note(Public(line) if config.users else OperatorOnly(line))
    if config.private and config.delta * config.trained_on(users) >= 1:
        note(Public(*caveat_sentences([Caveat.LARGE_DELTA])))
    if users_per_node is not None and users_per_node < 1:
        raise InputError(f"--users-per-node must be at least 1; got {users_per_node}")
    former = former_nodes(Path(config.out)) if config.resume else None
    if users_per_node is None and former is not None:
        return former
    if users_per_node is None and runtime is Runtime.RAY:
        return 0
    if users_per_node is None:
        if config.secure_aggregation:
            return min(_MASKING_NODES, users)
        return 1  # which computes everything in one batch
    return -(-users // users_per_node)
