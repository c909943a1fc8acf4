"""Ask every node at registration whether it would refuse the run, before its first random draw."""

from collections.abc import Collection

from flwr.serverapp import Grid

from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.protocol import plan_query
from murmuration.strategies.protocol.plan_query import Answers

#: Seconds, at least, that owners' agents have: each accounts for the plan, which it does once.
PATIENCE = 120.0


def check_refusals(grid: Grid, strategy: CohortStrategy, round_: int) -> None:
    """Show the owners of all nodes what will be asked from ``round_`` on, and count who refuses.

    A run that goes on goes on without those who refuse. Nothing is charged, here or there. Nobody
    is asked in a simulation, whose nodes have no owners.

    Raises:
        RunAborted: too few would answer.
    """
    registry = strategy.participants.registry
    if not registry.simulated:
        answers = _shown(grid, strategy, registry.nodes, round_)
        answers.check(registry, strategy.min_nodes, masked=strategy.masked)


def show_newcomers(
    grid: Grid, strategy: CohortStrategy, before: Collection[int], round_: int
) -> None:
    """Show the same to the owners of nodes that were not there ``before``; the run goes on."""
    registry = strategy.participants.registry
    new = [node for node in registry.nodes if node not in before]
    if new and not registry.simulated:
        _shown(grid, strategy, new, round_)


def _shown(grid: Grid, strategy: CohortStrategy, nodes: Collection[int], round_: int) -> Answers:
    """The answers of nodes to the planned requests from ``round_`` on; they go to the private
    log."""
    parties = len(strategy.participants.registry.nodes) if strategy.masked else 0
    answers = plan_query.ask(
        grid,
        nodes,
        strategy.asked_with(round_),
        parties=parties,
        timeout=max(strategy.timeout, PATIENCE),
        slow=strategy.slow,
    )
    for node, why in answers.silent.items():
        strategy.log({"round": round_, "node": node, "said nothing to the plan": why})
    refusing = {str(node): rule for node, rule in answers.refusing.items()}
    strategy.log({"round": round_, "shown the plan": len(nodes), "would refuse": refusing})
    return answers
