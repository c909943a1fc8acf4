"""The participants of a run: at its start, and after users have come and gone.

Users may come and go in a deployment (``RunConfig.comes_and_goes``). The number N that fixes the
sampling probability is then a public constant that was stated before, and stays; so do the
denominator and what everybody is charged. Users who come later are sampled with the same
probability from then on; those who are away count as zero, and stay charged; those who return are
asked again at once.
"""

from flwr.serverapp import Grid

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.registration import registration_for
from murmuration.strategies import registry as catalogue
from murmuration.strategies.base import CohortStrategy, Participants
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import wait_until_online
from murmuration.strategies.protocol.users import Registry, RegistryError

#: Rounds after which nodes are asked again whom they host.
REFRESH = 10


def participants(
    config: RunConfig, grid: Grid, folder: RunDirectory, features: str
) -> Participants:
    """The participants at the start: all users on at least ``min_nodes`` nodes.

    Raises:
        RunAborted: fewer are online.
        RegistryError: there are too few nodes or users or, in a run where nobody may come or go, a
            node failed.
    """
    wait_until_online(grid, config.min_nodes, config.timeout)
    return _ask(config, grid, folder, features)


def refresh(
    config: RunConfig, grid: Grid, folder: RunDirectory, strategy: CohortStrategy, round_: int
) -> None:
    """Ask again who is there, and let the strategy go on with them."""
    try:
        strategy.participants = _ask(
            config, grid, folder, strategy.features, round_=round_, before=strategy
        )
    except RegistryError as error:  # the round goes on with who was there before
        folder.log_private({"round": round_, "not refreshed": str(error)})


def _ask(
    config: RunConfig,
    grid: Grid,
    folder: RunDirectory,
    features: str,
    *,
    round_: int = 1,
    before: CohortStrategy | None = None,
) -> Participants:
    def absent(node: int, why: str) -> None:
        folder.log_private({"round": round_, "node": node, "not registered": why})

    def beyond(node: int, why: str) -> None:
        folder.log_private({"round": round_, "node": node, "claims refused": why})

    strategy = catalogue.named(config.strategy)
    registry = answers = Registry.ask(
        grid,
        Randomness(int.from_bytes(folder.secret("registry salt"), "little")),
        features=features,
        model=config.model,
        schema=config.schema,
        group_size=config.group_size,
        shared_passes=config.shared_passes,
        trains=not strategy.local,
        counts=Adjacency(config.adjacency).counts_are_public,
        timeout=config.timeout,
        absent=absent if config.comes_and_goes else None,
        former=before.participants.registry if before else None,
        slow=before.slow if before else None,
        registration=registration_for(config, grid),
        beyond=beyond,
    )
    if strategy.true_labels:
        registry = answers.with_true_labels()
    for node in sorted(answers.entries.keys() - registry.entries.keys()):
        absent(node, "its labels were randomized before they came to it (flip_probability)")
    if registry.barred_N is not None and (barred := int(registry.barred_N.sum())):
        folder.log_private({"round": round_, "hosted twice, or moved": barred})
    if not config.comes_and_goes:
        folder.write_private("nodes.json", {"nodes": len(registry.nodes)})
    if config.test or not config.heldout:
        return Participants.all(registry)
    if min(config.trained_on(len(registry)), config.measured_on(len(registry))) < 1:
        raise RegistryError(
            f"too few users ({len(registry)}) to hold out a share of {config.heldout:g} of them; "
            "pass --test with judgements of others"
        )
    train, out = registry.hold_out(config.heldout, folder.secret("hold-out coins"))
    folder.log_private({"round": round_, "trained on": len(train), "held out": len(out)})
    return Participants(registry, train, out, config.heldout)
