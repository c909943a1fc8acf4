"""Choosing settings privately, as programs call it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.api.quiet import quiet_libraries
from murmuration.api.rows import rows_written
from murmuration.api.run import Run
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.in_memory import Source
from murmuration.server.record.run_files import read_json
from murmuration.sims.runtimes import Runtime

if TYPE_CHECKING:
    from murmuration.api.config import TrainConfig
    from murmuration.strategies.config import RunConfig
    from murmuration.tuning.search import Search


def tune(
    data: Source | None = None,
    *,
    config: TrainConfig | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    expected_runs: float = 10.0,
    eta: float = 0.0,
    test: Source | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    runtime: Runtime | str = Runtime.LOCAL,
    users_per_node: int | None = None,
    cpus_per_run: int = 1,
    progress: bool = False,
    **settings: object,
) -> Run:
    """Choose settings privately, within one epsilon: train candidates, release only the best one.

    A secret random number of candidates is run, each with a setting drawn from the grid. The one
    with the best private score is released, for ``epsilon`` in all, and nothing of the others is
    shown or kept (Papernot and Steinke 2022).

        >>> from murmuration import tune
        >>> pair = {"prompt": "What now?", "chosen": "Save it.", "rejected": "Bet on it."}
        >>> rows = [{"user_id": f"user {n}", **pair} for n in range(200)]
        >>> best = tune(rows, grid={"clip_norm": [0.05, 0.2]}, expected_runs=2, rounds=2,
        ...             users=160, out="runs/tuned")
        >>> best.promise.epsilon <= 3
        True

    Args:
        data: Judgements, as of ``train``.
        config: Settings that all candidates share; ``settings`` override it.
        grid: Values to choose from, by the name of the setting.
        expected_runs: The expected number of candidates; their actual number is secret.
        eta: Shape of their number: 0 logarithmic, 1 geometric. A smaller value costs less, and more
            often runs only a few candidates.
        test: Judgements of other users, declared public, to score candidates on. Without it, the
            score is the noisy accuracy on the candidate's held-out users.
        out: Folder; without it a new one below ``runs``.
        resume: Continue the search in ``out``, with its settings and data.
        runtime: Of each candidate, as of ``train``. ray: each in one process, side by side, here or
            on the cluster at RAY_ADDRESS; all its machines must then see ``out`` and the files.
        users_per_node: Users on each simulated node.
        cpus_per_run: With ray, processors of one candidate.
        progress: Whether to show progress.
        **settings: The settings of ``murmuration run``, with underscores.

    Returns:
        The winner, in ``out``.

    Raises:
        InputError: a setting, grid or data that cannot be used.
        CandidateFailed: every candidate failed; nothing was released.
    """
    quiet_libraries()
    from murmuration.api.config import as_written, run_folder
    from murmuration.server.record.run_folder import check_free
    from murmuration.tuning.candidates import run_all
    from murmuration.tuning.search import begun_with, run_search

    if resume and (out is None or grid is not None or settings or test is not None or config):
        raise InputError("--resume: give --out, and no settings: they are those of the search")
    chosen = {**(config.given if config else {}), **as_written(settings)}
    folder = run_folder(out or chosen.pop("out", None))
    if resume:
        former = begun_with(folder)
        chosen, grid = former["settings"], former["grid"]
        expected_runs, eta = former["expected_runs"], former["eta"]
        seed = read_json(folder / "private" / "seed.json").get("seed", -1)
        chosen |= {"seed": int(seed)}
    elif grid is None:
        raise InputError("--grid: name a setting and its values, as in --grid clip_norm=0.05,0.1")
    else:
        check_free(Path(os.path.realpath(folder)))
    sources = {name: value for name, value in (("data", data), ("test", test)) if value is not None}
    search, given = _search(
        sources, folder, grid or {}, chosen, expected_runs=expected_runs, eta=eta
    )
    public = {
        "settings": given,
        "grid": dict(grid or {}),
        "expected_runs": expected_runs,
        "eta": eta,
    }
    with rows_written(sources, folder, again=resume):
        _refuse_lineage(search.configs)
        with _shown(search) if progress else nullcontext():
            result = run_search(
                search,
                folder,
                run_all(Runtime(runtime), users_per_node, cpus_per_run),
                beside=public,
                resume=resume,
            )
    return Run(folder, result)


def _search(
    sources: Mapping[str, Source],
    folder: Path,
    grid: Mapping[str, Sequence[Any]],
    settings: dict[str, Any],
    *,
    expected_runs: float,
    eta: float,
) -> tuple[Search, dict[str, Any]]:
    """A search, and the settings that all its candidates share, without a seed."""
    from murmuration.api.config import make_config
    from murmuration.api.rows import locate
    from murmuration.privacy.selection.stopping_time import StoppingTime
    from murmuration.tuning.grid import points
    from murmuration.tuning.search import Search

    given = settings | {name: locate(source, name, folder) for name, source in sources.items()}
    combinations = points(grid)
    if both := sorted(set(given) & set(combinations[0])):
        raise InputError(f"--grid {both[0]}: it is given beside the grid, too; leave one out")
    try:
        stopping = StoppingTime.with_mean(expected_runs, eta)
    except ValueError as error:
        raise InputError(f"--expected-runs, --eta: {error}") from None
    configs = [make_config({**given, **point, "out": str(folder)}) for point in combinations]
    search = Search([replace(config, out="") for config in configs], combinations, stopping)
    shared = {name: value for name, value in given.items() if name not in ("seed", "out")}
    shared |= {name: getattr(configs[0], name) for name in ("data", "test", "items", "start")}
    return search, {name: value for name, value in shared.items() if value != ""}


def _refuse_lineage(configs: Sequence[RunConfig]) -> None:
    """InputError for features that were trained on users, or rows that private models made."""
    from murmuration.preference.features.hashing import parse_features
    from murmuration.preference.kinds.starting import is_folder_of_a_model
    from murmuration.server.record.lineage import lineage_of, lineage_of_start
    from murmuration.server.record.marks import marks_in

    first = configs[0]  # of what no grid varies
    if is_folder_of_a_model(first.start) and lineage_of_start(first.start, first.base_privacy).runs:
        raise InputError(
            f"--start {first.start}: a search is not of a start that was trained on users"
        )
    for option, source in (("--data", first.data), ("--test", first.test)):
        if marks_in(source):
            raise InputError(f"{option} {source}: a search is not of rows that private models made")
    for features, items in {(config.features, config.items) for config in configs}:
        path = str(parse_features(features, items=items).get("path", ""))
        if path and lineage_of("--features", path, configs[0].base_privacy).runs:
            raise InputError(
                f"--features {features}: a search is not of features that were trained on users"
            )


def _shown(search: Search) -> Any:
    """A progress display that shows only that the search goes on: the number of runs and their
    progress are secret.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn

    from murmuration.terminal.terminal import Terminal

    console = Terminal(stderr=True)
    text = (
        f"searching {len(search.configs)} settings; how many runs there are is secret "
        f"({search.stopping.mean:.3g} on average)"
    )
    if not console.is_terminal:
        console.print(text, highlight=False, soft_wrap=True)
        return nullcontext()
    shown = Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), console=console,
        transient=True,
    )  # fmt: skip
    shown.add_task(text, total=None)
    return shown
