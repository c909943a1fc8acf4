"""A whole deployment on this machine, server and clients, each program as in real life."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from murmuration.client.agent.unix_socket import answers
from murmuration.deploy import commands
from murmuration.deploy.handed_over import AUTHORITY, KEY, POLICY
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.deploy.processes import (
    Program,
    agent_program,
    end_all,
    environment_of,
    node_folder,
    node_programs,
    state_beside,
    wait_for,
)
from murmuration.deploy.register import register
from murmuration.sims.population.population import Population, write
from murmuration.sims.runtimes.process_reaper import listens


def hand_out(
    folder: Path, deployment: Deployment, people: Population, names: Sequence[str], policy: str
) -> None:
    """Write a deployment, and to each named client in turn some of the users, with a policy."""
    write(folder / "population", people)
    write_deployment(folder / "deployment", deployment)
    with gzip.open(folder / "population" / "train.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    users = sorted({row["user_id"] for row in rows})
    for number, name in enumerate(names):
        mine = set(users[number :: len(names)])
        text = "".join(json.dumps(row) + "\n" for row in rows if row["user_id"] in mine)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        place = folder / "deployment" / "clients" / name / POLICY
        place.write_text(policy, encoding="utf-8")


class Site:
    """A deployment's programs on this machine.

    ``folder`` is one that ``write_deployment`` made; logs go to ``logs``. Used as a context.
    """

    def __init__(self, folder: Path, deployment: Deployment, logs: Path) -> None:
        self.folder, self.deployment, self.logs = folder, deployment, logs
        self.server = folder / "server"
        self.programs: dict[str, Program] = {}

    def __enter__(self) -> "Site":
        return self

    def __exit__(self, *_: object) -> None:
        end_all(list(reversed(self.programs.values())))

    def start(self, name: str, command: Sequence[str], **how: object) -> Program:
        """Start a program under a name; a former one of that name has ended or is ended."""
        if name in self.programs:
            self.programs[name].end()
        self.programs[name] = Program(command, self.logs / f"{name}.log", **how)  # type: ignore[arg-type]
        return self.programs[name]

    def start_superlink(self) -> Program:
        """The SuperLink, listening."""
        command = commands.superlink(self.server, self.deployment.bind, self.deployment.port)
        program = self.start("superlink", command, environment=environment_of(self.server))
        wait_for(
            lambda: listens(program.process.pid, self.deployment.port),
            120,
            "the SuperLink",
            program,
        )
        return program

    def start_superexec(self) -> Program:
        """Start the process that starts ServerApps."""
        command = commands.superexec(self.server, self.deployment.port)
        return self.start("superexec", command, environment=environment_of(self.server))

    def register(self) -> None:
        """Let the clients' keys in."""
        register(self.folder)

    def client(self, name: str) -> Path:
        """The folder that a client is handed."""
        return self.folder / "clients" / name

    def state(self, name: str) -> Path:
        """The state folder of a client, beside it."""
        return state_beside(self.client(name))

    def socket(self, name: str) -> Path:
        """The socket of a client's agent."""
        return self.logs / f"{name}.sock"

    def start_agent(self, name: str, data: Path, *, wait: bool = True) -> Path:
        """A client's agent, answering if ``wait``; its socket."""
        place, state, socket = self.client(name), self.state(name), self.socket(name)
        how = agent_program(place / POLICY, data, state, socket)
        program = self.start(f"{name}-agent", **how)
        if wait:
            wait_for(lambda: answers(socket), 300, f"the agent of {name}", program)
        return socket

    def start_node(self, name: str, socket: Path, port: int) -> Program:
        """A client's SuperNode, and the executor that starts apps for it."""
        place = self.client(name)
        work = node_folder({file: (place / file).read_bytes() for file in (KEY, AUTHORITY)})
        started = node_programs(work, self.deployment.address, socket, port, None)
        for part, how in started.items():
            self.start(f"{name}-{part}", scratch=work, **how)
        return self.programs[f"{name}-node"]
