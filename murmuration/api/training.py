"""Training, as programs call it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from murmuration.api.quiet import quiet_libraries
from murmuration.api.rows import rows_written
from murmuration.api.run import Run
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.in_memory import Source, with_rows
from murmuration.sims.runtimes import Runtime
from murmuration.strategies.settings.from_python import warn

if TYPE_CHECKING:
    from murmuration.api.config import TrainConfig
    from murmuration.sims.runtimes.execute import OnNote
    from murmuration.sims.runtimes.ray_cluster import Workers
    from murmuration.sims.runtimes.tracking import Report
    from murmuration.strategies.config import RunConfig


def train(
    data: Source | None = None,
    *,
    config: TrainConfig | None = None,
    test: Source | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    runtime: Runtime | str = Runtime.LOCAL,
    users_per_node: int | None = None,
    workers: Workers | None = None,
    progress: bool | None = None,
    report_to: str | Report | None = None,
    **settings: object,
) -> Run:
    """Train a private reward model, or a language model with ``task``, in simulation.

    It does what ``murmuration run`` does, with the same defaults. Each note about the data or the
    result is a ``UserWarning``.

        >>> from murmuration import train
        >>> pair = {"prompt": "What now?", "chosen": "Save it.", "rejected": "Bet on it."}
        >>> rows = [{"user_id": f"user {n}", **pair} for n in range(200)]
        >>> run = train(rows, epsilon=3, rounds=2, users=160, out="runs/example")
        >>> run.promise.private
        True
        >>> run.model.score("What now?", "Save it.") > run.model.score("What now?", "Bet on it.")
        True

    Args:
        data: Judgements (or texts): a path, the name of a data set on the hub, a data frame of
            pandas or polars, a ``datasets.Dataset``, rows (mappings from column to value), or a
            function that gives one of these. Rows in memory are written into ``private/`` of the
            run's folder. Without it, the embedded population.
        config: Settings of the run; ``settings`` override it.
        test: Judgements of other users to measure accuracy on, declared public; as ``data``.
            Without it, a share of the users is held out.
        out: Folder for the run; without it a new one below ``runs``.
        resume: Continue the run in ``out``, with its settings and data.
        runtime: local: this process. ray: actors, here or on the cluster at RAY_ADDRESS.
        users_per_node: Users on each simulated node; by default as suits the runtime.
        workers: With ray, the number of workers, and the resources of each.
        progress: Whether to show a bar; by default in a notebook only.
        report_to: A function that is called with each round's number and its metrics for release
            (name to number), and with nothing else, to send them to a tracker; or its place, as
            ``module:function``.
        **settings: The settings of ``murmuration run``, with underscores.

    Returns:
        The finished run.

    Raises:
        InputError: a setting or data that cannot be used.
        RunAborted: a node failed.
    """
    quiet_libraries()
    from murmuration.api.config import config_of
    from murmuration.privacy.disclosure import on_terminal
    from murmuration.server.record.run_folder import check_free

    try:
        runtime = Runtime(runtime)
    except ValueError:
        raise InputError(f"runtime must be one of {', '.join(Runtime)}; got {runtime!r}") from None
    if resume and config is not None:
        raise InputError("a run that is resumed has settings of its own: leave out config")
    if resume and out is None:
        raise InputError("resume needs out, the folder of the run to continue")
    sources = {
        name: source for name, source in (("data", data), ("test", test)) if source is not None
    }
    place = Path(out) if out is not None else None
    made = config_of(sources, place, config, {**settings, "resume": resume})
    folder = Path(made.out)
    if not resume:
        check_free(Path(os.path.realpath(folder)))
    notes: list[str] = []
    names: Mapping[str, str] = {}
    try:
        with rows_written(sources, folder, again=resume) as names:
            run = train_config(
                made,
                runtime=runtime,
                users_per_node=users_per_node,
                workers=workers,
                progress=in_notebook() if progress is None else progress,
                on_note=lambda line: notes.append(on_terminal(line)),
                report_to=report_to,
            )
        notes += run.result["warnings"]
        return run
    finally:
        for text in dict.fromkeys(notes):
            warn(with_rows(text, names))


def train_config(
    config: RunConfig,
    *,
    runtime: Runtime = Runtime.LOCAL,
    users_per_node: int | None = None,
    workers: Workers | None = None,
    progress: bool = False,
    on_note: OnNote | None = None,
    report_to: str | Report | None = None,
) -> Run:
    """Run a config, as ``train`` does; notes go to the terminal, or to ``on_note``."""
    from murmuration.planning.advice import start_for
    from murmuration.sims.runtimes.execute import execute
    from murmuration.sims.runtimes.ray_cluster import Workers
    from murmuration.sims.runtimes.tracking import tracked
    from murmuration.terminal.terminal import Terminal

    to_read = progress and Terminal().is_terminal  # of a log nobody takes advice
    with tracked(config.out, report_to):
        result = execute(
            config,
            runtime=runtime,
            users_per_node=users_per_node,
            workers=workers or Workers(),
            quiet=not progress,
            on_note=on_note,
            advice=start_for if to_read else None,
        )
    return Run(Path(config.out), result)


def in_notebook() -> bool:
    """True in a notebook."""
    from murmuration.terminal.terminal import Terminal

    return Terminal().is_jupyter
