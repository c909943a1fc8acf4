"""Who would refuse a run: every node is asked when it registers, before the run's first coin."""

from collections.abc import Collection

from flwr.serverapp import Grid

from murmuration.server.run_directory import RunDirectory
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import plan_query
from murmuration.strategies.protocol.plan_query import Answers

#: Seconds, at least, that owners' agents have: each accounts for the plan, which it does once.
PATIENCE = 120.0


def check_refusals(
    config: RunConfig, grid: Grid, folder: RunDirectory, strategy: CohortStrategy, done: int
) -> None:
    """Show the owners of all nodes what will be asked after round ``done``, and count who refuses.

    A run that goes on goes on without those who refuse. Nothing is charged, here or there. Nobody
    is asked in a simulation, whose nodes have no owners.

    Raises:
        RunAborted: too few would answer.
    """
    registry = strategy.participants.registry
    if registry.simulated or done >= config.rounds:
        return
    answers = _shown(config, grid, folder, strategy, registry.nodes, done + 1)
    answers.check(registry, config.min_nodes, masked=config.secure_aggregation)


def show_newcomers(
    config: RunConfig,
    grid: Grid,
    folder: RunDirectory,
    strategy: CohortStrategy,
    before: Collection[int],
    round_: int,
) -> None:
    """Show the same to the owners of nodes that were not there ``before``; the run goes on."""
    registry = strategy.participants.registry
    new = [node for node in registry.nodes if node not in before]
    if new and not registry.simulated:
        _shown(config, grid, folder, strategy, new, round_)


def _shown(
    config: RunConfig,
    grid: Grid,
    folder: RunDirectory,
    strategy: CohortStrategy,
    nodes: Collection[int],
    round_: int,
) -> Answers:
    """What nodes say of what will be asked from ``round_`` on; it goes to the private log."""
    parties = len(strategy.participants.registry.nodes) if config.secure_aggregation else 0
    answers = plan_query.ask(
        grid,
        nodes,
        strategy.asked_with(round_),
        parties=parties,
        timeout=max(config.timeout, PATIENCE),
        slow=strategy.slow,
    )
    for node, why in answers.silent.items():
        folder.log_private({"round": round_, "node": node, "said nothing to the plan": why})
    refusing = {str(node): rule for node, rule in answers.refusing.items()}
    line = {"round": round_, "shown the plan": len(nodes), "would refuse": refusing}
    folder.log_private(line)
    return answers
