"""Running candidates: one after the other in this process, or side by side on a Ray cluster.

Each is begun in a new folder whose name nothing else has, and is neither resumed nor repeated:
where its worker is lost, the candidate has failed, and so has the search. To repeat it until it
ends well would choose among its coins, if they or the data decide whether it does (a large cohort
that memory does not hold); the bound of a search does not cover that. Whoever resumes the search
says that they did not decide.
"""

import tempfile
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from murmuration.preference.data.judgements import InputError
from murmuration.sims.runtimes import execute as execution
from murmuration.sims.runtimes.flower import FlowerRunFailed
from murmuration.sims.runtimes.runtime import Runtime
from murmuration.sims.runtimes.sweep import Failed, Outcome, side_by_side
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import RunAborted

#: Runs configs, each in a new folder below its ``out``: places and outcomes as they end.
RunAll = Callable[[Iterable[RunConfig]], Generator[tuple[int, Outcome], None, None]]


class CandidateFailed(RuntimeError):
    """A candidate came to nothing, so the search did.

    Its number is for the operator alone: it tells of how many there are.
    """

    def __init__(self, place: int, why: str) -> None:
        super().__init__(
            f"candidate {place + 1} failed: {why}; nothing was released. If that does not "
            "depend on the data, mend it and continue with --resume. "
            "(operator only: keep the number secret)"
        )


def afresh(
    config: RunConfig, *, runtime: Runtime = Runtime.LOCAL, users_per_node: int | None = None
) -> Outcome:
    """Return the outcome of a run in a new folder below its ``out``; nothing of it is shown."""
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
    except (RunAborted, FlowerRunFailed) as error:
        return Failed(str(error))
    except InputError as error:
        return str(error)


def run_all(runtime: Runtime, users_per_node: int | None, cpus: int) -> RunAll:
    """Return how candidates are run: on ``ray`` as tasks of so many processors each, as many at a
    time as the cluster has room for."""

    def one_by_one(configs: Iterable[RunConfig]) -> Generator[tuple[int, Outcome], None, None]:
        for place, config in enumerate(configs):
            yield place, afresh(config, runtime=runtime, users_per_node=users_per_node)

    def on_ray(configs: Iterable[RunConfig]) -> Generator[tuple[int, Outcome], None, None]:
        run = partial(afresh, users_per_node=users_per_node)
        yield from side_by_side(run, configs, cpus, retries=0)

    return on_ray if runtime is Runtime.RAY else one_by_one
