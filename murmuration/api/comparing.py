"""Strategies side by side, as programs ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from murmuration.api.quiet import quiet_libraries
from murmuration.api.rows import rows_written
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.in_memory import Source

if TYPE_CHECKING:
    from murmuration.api.config import TrainConfig
    from murmuration.planning.compare import StrategyComparison
    from murmuration.sims.runtimes.sweep import OnRun, Outcome
    from murmuration.strategies.config import RunConfig


def compare(
    strategies: str | Iterable[str] = ("uls", "nonprivate"),
    epsilon: float | Iterable[float] = (1.0, 3.0, 8.0),
    *,
    config: TrainConfig | None = None,
    out: str | os.PathLike[str],
    data: Source | None = None,
    test: Source | None = None,
    seeds: int = 3,
    runtime: Literal["local", "ray"] | str = "local",
    cpus_per_run: int = 1,
    progress: bool = False,
    **settings: object,
) -> StrategyComparison:
    """Run strategies at equal (epsilon, delta) and adjacency; a table and a plot with error bars.

        >>> from murmuration import compare
        >>> pair = {"prompt": "What now?", "chosen": "Save it.", "rejected": "Bet on it."}
        >>> rows = [{"user_id": f"user {n}", **pair} for n in range(200)]
        >>> comparison = compare(
        ...     epsilon=[1.0], out="runs/side-by-side", data=rows, users=160, rounds=2, seeds=1
        ... )
        >>> [(cell.strategy, cell.epsilon) for cell in comparison]
        [('uls', 1.0), ('nonprivate', None)]

    Args:
        strategies: One or several, by name, each with a variant or settings of its own, as in
            ``"aup:published"``, ``"uls:learning_rate=0.5:rounds=100"``. With ``adjacency=`` among
            them strategies that share none are compared, each under its own.
        epsilon: One or several privacy budgets.
        config: Settings that all runs share, but for epsilon and seed; ``settings`` override it.
        out: Folder for all runs, the table and the plot; existing runs are read.
        data: What to train on, as in ``train``.
        test: What to measure accuracy on, as in ``train``.
        seeds: Runs of each strategy and budget, each with another seed.
        runtime: local: one run after the other. ray: side by side, here or on the cluster at
            RAY_ADDRESS; all its machines must then see ``out`` and the files.
        cpus_per_run: With ray, processors of one run.
        progress: Whether to show the number of runs that have ended.
        **settings: As in ``train``.

    Returns:
        A cell for each strategy and budget: the results of its runs, or the reason why one failed.

    Raises:
        InputError: settings or data that a strategy cannot use, in a line for each; then nothing
            was run.
    """
    quiet_libraries()
    from murmuration.api.config import config_of
    from murmuration.planning.compare import compare as compare_configs
    from murmuration.sims.runtimes.sweep import on_cluster, one_by_one
    from murmuration.terminal.runs_progress import RunsProgress

    names = [strategies] if isinstance(strategies, str) else list(strategies)
    budgets = [epsilon] if isinstance(epsilon, int | float) else list(epsilon)
    folder = Path(out).expanduser()
    if seeds < 1 or not names or not budgets:
        raise InputError("--seeds must be at least 1, --strategies and --epsilons must name one")
    if runtime not in ("local", "ray"):
        raise InputError(f"runtime must be local or ray; got {runtime!r}")
    sources = {
        name: source for name, source in (("data", data), ("test", test)) if source is not None
    }
    base = config_of(sources, folder, config, settings)
    if folder.is_file() or (_entries(folder) and not (folder / "runs").is_dir()):
        raise InputError(f"--out {folder} holds something else; choose another folder")
    with rows_written(sources, folder, again=(folder / "runs").exists()):
        with RunsProgress() if progress else nullcontext() as shown:

            def run_all(configs: Sequence[RunConfig], on_run: OnRun) -> list[Outcome]:
                places = [Path(config.out) for config in configs]
                before = {place.name for place in places if (place / "result.json").exists()}
                if shown:
                    shown.begin(len(configs) - len(before), len(before))

                def say_new(name: str) -> None:
                    if name not in before:
                        on_run(name)

                if runtime == "ray":
                    return on_cluster(configs, say_new, cpus_per_run)
                return one_by_one(configs, say_new)

            on_run = shown or (lambda name: None)
            result = compare_configs(
                base, names, budgets, seeds, folder, on_run=on_run, run_all=run_all
            )
        result.write()
    return result


def _entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"private"} if folder.is_dir() else set()
