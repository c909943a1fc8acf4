"""One strategy on a synthetic population, through the messages and ledgers that users get."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from privacy.adjacency import Adjacency
from privacy.ledger import Ledger
from privacy.randomness import Randomness
from server.build import build
from server.config import RunConfig
from server.setting import Setting
from sims.btl import Population, node_of
from strategies.cohort import Registry
from strategies.rounds import Participants


def error_of(people: Population, settings: RunConfig, strategy: str, seed: int) -> float:
    """‖θ̂ − θ*‖ of a strategy with these settings; everybody takes part."""
    config, source = (
        replace(settings, strategy=strategy, seed=seed, test="the true model"),
        Randomness(seed),
    )
    grid = node_of(people.examples, source)
    participants = Participants.all(Registry.ask(grid, source, features="{}"))
    setting = Setting(
        config=config,
        participants=participants,
        source=source,
        features="{}",
        dimension=people.examples.dimension,
        log=lambda line: None,
        grid=grid,
        once=lambda name, release: release(),
    )
    with (
        tempfile.TemporaryDirectory(prefix=f"btl-{os.getpid()}-") as folder,
        Ledger(
            Path(folder) / "ledger.jsonl",
            adjacency=Adjacency(config.adjacency),
            delta=config.delta,
            budget=None,
        ) as ledger,
    ):
        built = build(setting, ledger).strategy
        built.start(grid, num_rounds=config.rounds)
        return people.error(built.optimizer.result_D)
