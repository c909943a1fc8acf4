"""A Flower ServerApp of your own around one of our strategies, with a model that is saved.

python examples/own_server_app.py --out runs/own-server-app

The strategy is an ordinary `flwr.serverapp.Strategy`. The plan fixes the sampling, the clipping,
the noise and the accounting; the ledger is on disk before any noise is drawn. Nodes run our
ClientApp unchanged. Two of them, hosting the embedded population, are in this process here; in a
Flower app name the object that `server_app` returns in `[tool.flwr.app.components]`.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from flwr.app import Context, RecordDict
from flwr.serverapp import ServerApp

from murmuration import RewardModel
from murmuration.client.app import app as client_app
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.base import Participants
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.steps.optimizers import OptimizerSettings, ServerOptimizer
from murmuration.strategies.uls import Uls, UlsPlan


def server_app(out: Path, rounds: int) -> ServerApp:
    """The app: one run of ULS at epsilon 3, whose model goes to ``out``/model."""
    app = ServerApp()

    @app.main()
    def main(grid, context):
        features = HashingFeatures()
        described = json.dumps(features.to_config())
        source = Randomness(seed=None)
        registry = Registry.ask(grid, source, features=described)
        plan = UlsPlan.for_epsilon(
            3.0,
            users=2500,  # nominal and public: whoever is there, this fixes the sampling probability
            cohort=500,
            rounds=rounds,
            delta=1e-5,
            adjacency=Adjacency.ADD_REMOVE,
            clip=UserClip(0.1),
            group_size=16,
        )
        optimizer = ServerOptimizer(
            OptimizerSettings(kind="sgd", rate=50.0, rounds=plan.rounds),
            np.zeros(features.dimension, dtype=np.float32),
        )
        with Ledger(
            out / "ledger.jsonl", adjacency=plan.adjacency, delta=plan.delta, budget=3.0
        ) as ledger:
            strategy = Uls(
                plan,
                ledger,
                participants=Participants.all(registry),
                optimizer=optimizer,
                source=source,
                features=described,
                log=lambda line: None,
            )
            strategy.start(grid, num_rounds=plan.rounds)
        RewardModel(optimizer.result_D, features).save(out / "model")

    return app


def main() -> None:
    """Run it on two simulated nodes, then score an answer with the saved model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/own-server-app"))
    given = parser.parse_args()
    given.out.mkdir(parents=True)
    config = {"data": "murmuration.population:train"}
    nodes = LocalGrid(client_app, 2, config)
    context = Context(1, 0, {}, RecordDict(), config)
    server_app(given.out, given.rounds)(nodes, context)
    model = RewardModel.load(given.out / "model")
    for answer in ("Put it into your emergency fund first.", "Book the trip, you only live once!"):
        print(f"{model.score('A bonus came. What now?', answer):+.3f}  {answer}")


if __name__ == "__main__":
    main()
