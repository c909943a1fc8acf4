"""A Flower app with Flower's own differential privacy, and our accountant behind it.

python examples/flower_accountant.py --out runs/accounted

A hundred clients in this process hold a number each, and FedAvg learns their mean. Ours are the
lines with `PldAccountant` and `accountant`.
"""

import argparse
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import NeighboringRelation, PrivacyConfig, SamplingMethod, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from murmuration.flower import PldAccountant, run_local

CLIENTS = 100
client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Step half of the way to this client's number."""
    (mean,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    own = (1 + int(context.node_config["partition-id"])) / CLIENTS
    moved = ArrayRecord([mean + 0.5 * (own - mean)])
    answer = {"arrays": moved, "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(answer), reply_to=message)


def server_app(out: Path, rounds: int) -> ServerApp:
    """The app: at most ε = 8 at δ = 1e-5, all of which stands in ``out``/ledger.jsonl."""
    app = ServerApp()

    @app.main()
    def main(grid, context):
        relation, sampling = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
        config = PrivacyConfig(1e-5, CLIENTS, relation, sampling, max_epsilon=8.0)
        accountant = PldAccountant(config, ledger=out / "ledger.jsonl")
        strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(min_available_nodes=CLIENTS, fraction_evaluate=0.0), 4.0, 1.0, CLIENTS,
            accountant=accountant,
        )  # fmt: skip
        result = strategy.start(grid, ArrayRecord([np.zeros(1)]), num_rounds=rounds)
        spent = accountant.get_privacy_spent()
        print(f"mean {result.arrays.to_numpy_ndarrays()[0][0]:.3f}, epsilon {spent.epsilon:.3f}")

    return app


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/accounted"))
    given = parser.parse_args()
    given.out.mkdir(parents=True)
    server = server_app(given.out, given.rounds)
    run_local({}, nodes=CLIENTS, server_app=server, client_app=client_app)


if __name__ == "__main__":
    main()
