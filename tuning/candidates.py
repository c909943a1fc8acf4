"""Running candidates: one after the other in this process, or side by side on a Ray cluster.

Each is begun in a new folder whose name nothing else has, and is neither resumed nor repeated. One
that fails, for whatever reason (its worker is lost, a large cohort does not fit into memory), is
the worst, and the others are run as if it had ended: the data may have decided that it fails, so
nothing else may follow from it. Repeating it until it succeeds would be a selection among its
random draws.
"""

import tempfile
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from murmuration.preference.data.errors import first_line
from murmuration.sims.runtimes import execute as execution
from murmuration.sims.runtimes.runtime import Runtime
from murmuration.sims.runtimes.sweep import Failed, Outcome, side_by_side
from murmuration.strategies.config import RunConfig

#: Runs configs, each in a new folder below its ``out``: places and outcomes as they end.
RunAll = Callable[[Iterable[RunConfig]], Generator[tuple[int, Outcome], None, None]]


class CandidateFailed(RuntimeError):
    """Every candidate of a search came to nothing; why one did is for the operator alone."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"every candidate failed, one because: {why}. Nothing was released, and the charge "
            "stays: mend it, and begin again with another --out. (operator only)"
        )


def afresh(
    config: RunConfig, *, runtime: Runtime = Runtime.LOCAL, users_per_node: int | None = None
) -> Outcome:
    """The outcome of a run in a new folder below its ``out``; its output is not shown."""
    # Alone below a folder of its own: a run looks at its neighbours, which may go at any moment.
    out = Path(tempfile.mkdtemp(dir=config.out)) / "run"
    try:
        return execution.execute(
            replace(config, out=str(out)),
            runtime=runtime,
            users_per_node=users_per_node,
            quiet=True,
            on_note=lambda line: None,
        )
    except Exception as error:  # whatever the data bring about, the other candidates are run
        return Failed(first_line(error))


def run_all(runtime: Runtime, users_per_node: int | None, cpus: int) -> RunAll:
    """The function that runs candidates: on ``ray`` as tasks of ``cpus`` processors each, as many
    at a time as the cluster has room for.
    """

    def one_by_one(configs: Iterable[RunConfig]) -> Generator[tuple[int, Outcome], None, None]:
        for place, config in enumerate(configs):
            yield place, afresh(config, runtime=runtime, users_per_node=users_per_node)

    def on_ray(configs: Iterable[RunConfig]) -> Generator[tuple[int, Outcome], None, None]:
        run = partial(afresh, users_per_node=users_per_node)
        yield from side_by_side(run, configs, cpus, retries=0)

    return on_ray if runtime is Runtime.RAY else one_by_one
