"""A Flower ServerApp of your own: it trains privately, and then does what you like with the model.

python examples/own_server_app.py --out runs/own-server-app

`train` is a whole run: sampling, clipping, noise and accounting follow from the settings, and the
ledger is on disk before any noise is drawn. Nodes run our ClientApp unchanged. Two of them, hosting
the embedded population, are in this process here. In a Flower app name `app` and our `client_app`
in `[tool.flwr.app.components]`, as `murmuration init app` does.
"""

import argparse
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from murmuration.flower import client_app, run_local, train

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train at epsilon 3, and score two answers."""
    run = train(grid, context, epsilon=3.0, clip_norm=0.1)
    print(run.promise)
    for answer in ("Put it into your emergency fund first.", "Book the trip, you only live once!"):
        print(f"{run.model.score('A bonus came. What now?', answer):+.3f}  {answer}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/own-server-app"))
    given = parser.parse_args()
    settings = {
        "data": "murmuration.population:train",
        "test": "murmuration.population:test",
        "delta": 1e-5,
        "users": 2500,  # nominal and public: this fixes the sampling probability
        "rounds": given.rounds,
        "out": str(given.out),
    }
    run_local(settings, nodes=2, server_app=app, client_app=client_app)
