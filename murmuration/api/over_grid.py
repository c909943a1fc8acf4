"""Training over the nodes of a Flower run, as a ServerApp of one's own calls it."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid

from murmuration.api.run import Run
from murmuration.server.app import train_over
from murmuration.server.training import OnMetrics


def train(
    grid: Grid, context: Context, *, on_round: OnMetrics | None = None, **settings: object
) -> Run:
    """Train a private model over the nodes of a Flower run, which answer with ``client_app``.

    Who is asked, what is clipped, the noise and the accounting follow from the settings, and each
    release is in the ledger before its noise is drawn. Over a network nodes count as registered
    for, a seed is refused, and a reply that cannot be decoded is its node's loss.

        >>> from flwr.serverapp import ServerApp
        >>> from murmuration.flower import client_app, run_local, train
        >>> app = ServerApp()
        >>> @app.main()
        ... def main(grid, context):
        ...     print(train(grid, context, rounds=2).result["rounds"])
        >>> config = {"data": "murmuration.population:train", "epsilon": 3.0, "out": "runs/over"}
        >>> run_local(config, nodes=2, server_app=app, client_app=client_app)
        2

    Args:
        grid: as a ServerApp gets it.
        context: as a ServerApp gets it. Its run config has the settings of ``murmuration run``.
        on_round: A function that hears each round's released metrics, by name: ``round``,
            ``epsilon``, where it was measured ``heldout_accuracy``, and others. Without it about
            ten rounds are logged.
        **settings: Settings that take the place of those of the run config, with underscores.

    Returns:
        The finished run. Without ``out`` its folder is below ``~/murmuration-runs``.

    Raises:
        InputError: a setting or data that cannot be used.
        RunAborted: nodes failed, or were not there; the run can be resumed.
    """
    result = train_over(grid, context, settings, on_round)
    return Run(Path(result["out"]), result)
