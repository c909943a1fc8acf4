"""A deployment on this machine with judgements for every client: for tests of whole deployments."""

import gzip
import json
import socket
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from murmuration.client.app import app as client_app
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.deploy.processes import state_beside, wait_for
from murmuration.deploy.run import run_deployed
from murmuration.preference.reward import RewardModel
from murmuration.research.stress.site import Site
from murmuration.server.run import run_training
from murmuration.sims.population.population import Population, write
from murmuration.sims.runtimes.app_bundle import write_bundle
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig

POLICY = """\
strategies = ["uls"]
adjacency = "zero-out"
max_epsilon = 8.5
delta = 1e-3
max_clip = 0.1
max_group_size = 500
max_rounds = 20
"""


def free_ports(count: int) -> list[int]:
    """Ports of this machine on which nobody listens, all different."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def free_port() -> int:
    return free_ports(1)[0]


def seeded_app(folder: Path, seed: int) -> Path | None:
    """Our app, whose ServerApp draws from a seed; None, which is our own, if it is negative."""
    if seed < 0:
        return None
    if not folder.exists():
        write_bundle(folder, {})
        with (folder / "murmuration" / "server" / "app.py").open("a") as code:
            code.write(
                "\n\nimport dataclasses\n\n\n"
                "def run_training(config, *more, _run=run_training, **named):\n"
                f"    return _run(dataclasses.replace(config, seed={seed}), *more, **named)\n"
            )
    return folder


class World:
    """A deployment with judgements for every client."""

    def __init__(
        self, folder: Path, clients: tuple[str, ...], users: int, policy: str = POLICY
    ) -> None:
        self.folder = folder
        self.deployment = Deployment(
            ("127.0.0.1",), free_port(), clients, dict.fromkeys(clients, users)
        )
        write(folder / "population", Population(users=users, test_users=20, unseen_users=10))
        write_deployment(folder / "d", self.deployment)
        with gzip.open(folder / "population" / "train.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in file]
        names = sorted({row["user_id"] for row in rows})
        for number, name in enumerate(clients):
            mine = {user for i, user in enumerate(names) if i % len(clients) == number}
            text = "".join(json.dumps(row) + "\n" for row in rows if row["user_id"] in mine)
            self.data(name).write_text(text)
            self.data(name).chmod(0o600)
            (self.client(name) / "policy.toml").write_text(policy)
        self.ports = [free_port() for _ in clients]

    def client(self, name):
        return self.folder / "d" / "clients" / name

    def state(self, name):
        return state_beside(self.client(name))

    def data(self, name):
        return self.folder / f"{name}.jsonl"

    def config(self, out, **changes):
        settings = {
            "data": "",
            "test": str(self.folder / "population" / "test.jsonl.gz"),
            "adjacency": "zero-out",
            "epsilon": 8.0,
            "delta": 1e-3,
            "group_size": 500,
            "clip_norm": 0.1,
            "out": str(self.folder / out),
            "timeout": 120.0,
            "min_nodes": len(self.deployment.clients),
        }
        return RunConfig(**{**settings, **changes})

    @contextmanager
    def running(self):
        with Site(self.folder / "d", self.deployment, self.folder / "logs") as site:
            site.start_superlink()
            site.start_superexec()
            for name in self.deployment.clients:
                site.start_agent(name, self.data(name), wait=False)
            site.register()
            for name, port in zip(self.deployment.clients, self.ports, strict=True):
                wait_for(
                    site.socket(name).is_socket, 300, "an agent", site.programs[f"{name}-agent"]
                )
                site.start_node(name, site.socket(name), port)
            yield site

    def run(self, site, config):
        """A run; with a seed, which no deployment takes, by an app that was changed for it."""
        app = seeded_app(self.folder / f"app-{config.seed}", config.seed)
        config = replace(config, seed=-1)
        address = self.deployment.address
        return run_deployed(site.server, address, config, attempts=1, app_dir=app)

    def simulated(self, config):
        """The same plan, with every node in this process."""
        grid = LocalGrid(client_app, len(self.deployment.clients), config.to_run_config())
        for context, name in zip(grid._contexts.values(), self.deployment.clients, strict=True):
            context.node_config = {"data": str(self.data(name))}
        run_training(config, grid)
        return RewardModel.load(Path(config.out) / "model").theta_D
