"""The commands, units and explanations that ``murmuration deploy init`` writes."""

import getpass
import shlex
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from murmuration.client.isolated import LOOPBACK, OFFLINE, python

#: Variables of a SuperNode and its executor; the server's programs have one more.
NODE_ENVIRONMENT = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
    "FLWR_TELEMETRY_ENABLED": "0",
}
#: The only setting of a SuperNode's app: the place of the agent's socket.
SOCKET = "/run/murmuration/agent.sock"
#: What a SuperLink or SuperNode and its executor know, and nobody else. Mode 0600.
EXECUTOR_SECRET = "superexec.key"
#: Where the SuperLink keeps runs, nodes' keys and, while a run goes on, what nodes sent.
STATE_FILE = "state.db"
DATA, STATE, ETC = "/var/lib/murmuration/judgements.jsonl", "/var/lib/murmuration/state", "/etc"
#: What a SuperNode keeps that is a system service: its logs.
NODE_STATE = "/var/lib/murmuration-node"
_TEXTS = Path(__file__).with_name("templates")


def server_environment(server: Path) -> dict[str, str]:
    """Variables that the server's programs need."""
    return {**NODE_ENVIRONMENT, "FLWR_HOME": str(server / "flwr")}


def superlink(server: Path, bind: str, port: int) -> list[str]:
    """The SuperLink: TLS, node authentication, state on disk, the ServerApp in another process.

    With ``--isolation process`` a SuperLink that is killed does not take the ServerApp with it, and
    gives the ServerApp's task to nobody but an executor that knows the secret. To other accounts
    and machines its port answers what SuperNodes need and nothing else (``deploy.guarded``).
    """
    return [
        *guarded("superlink"),
        *("--host", bind, "--port", str(port)),
        *("--database", str(server / STATE_FILE)),
        *("--ssl-ca-certfile", str(server / "ca.crt")),
        *("--ssl-certfile", str(server / "server.crt")),
        *("--ssl-keyfile", str(server / "server.key")),
        "--enable-supernode-auth",
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(server / EXECUTOR_SECRET)),
        "--disable-runtime-dependency-installation",
    ]


def superexec(server: Path, port: int) -> list[str]:
    """The command that starts the ServerApp of each run."""
    return [
        tool("flower-superexec"),
        *("--runtime-api-address", f"127.0.0.1:{port}"),
        *("--root-certificates", str(server / "ca.crt")),
        *("--superexec-auth-secret-file", str(server / EXECUTOR_SECRET)),
    ]


def supernode(place: Path, address: str, socket: str, port: int) -> list[str]:
    """A SuperNode whose app gets nothing except the place of the agent's socket.

    Its port on this machine answers the account that it runs as (``deploy.guarded``), and
    gives tasks to nobody but an executor that knows the secret: under ``--isolation subprocess``,
    Flower's default, a SuperNode would ask for none.
    """
    return [
        *guarded("supernode"),
        *("--superlink", address),
        *("--root-certificates", str(place / "ca.crt")),
        *("--auth-supernode-private-key", str(place / "node.key")),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", f'agent="{socket}"'),
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(place / EXECUTOR_SECRET)),
    ]


def node_executor(place: Path, port: int) -> list[str]:
    """The command that starts the ClientApp at a SuperNode; they talk over the loopback address."""
    return [
        tool("flower-superexec"),
        "--insecure",
        *("--runtime-api-address", f"127.0.0.1:{port}"),
        *("--superexec-auth-secret-file", str(place / EXECUTOR_SECRET)),
    ]


def server_files(server: Path, bind: str, port: int) -> dict[str, str]:
    """Scripts and units of the server's folder, by name."""
    first, second = superlink(server, bind, port), superexec(server, port)
    direct = dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(LOOPBACK))  # they call each other
    environment, user = {**server_environment(server), **direct}, getpass.getuser()
    of_unit = {**environment, "PATH": f"{programs()}:/usr/local/bin:/usr/bin:/bin"}
    after = "After=murmuration-superlink.service\n"
    return {
        "superlink.sh": _script("The SuperLink: clients connect to it.", first, environment),
        "superexec.sh": _script("Starts the ServerApp of each run.", second, environment),
        "murmuration-superlink.service": _unit("SuperLink of a murmuration", first, of_unit, user),
        "murmuration-superexec.service": _unit(
            "ServerApps of a murmuration", second, of_unit, user, more=after
        ),
    }


def client_units() -> dict[str, str]:
    """The agent and the SuperNode as two system services, by name.

    The owner's own installation writes them: nothing of a folder that they were handed is in them.
    """
    etc, main = f"{ETC}/murmuration", ("-m", "murmuration.cli.main")
    agent = [
        *python(*main, "agent", "--data", DATA, "--policy", f"{etc}/policy.toml"),
        *("--state", STATE, "--socket", SOCKET, "--group", "murmuration-node"),
    ]
    node = [
        *python(*main, "deploy", "client", etc, "--socket", SOCKET),
        *("--state", NODE_STATE),
    ]
    return {
        "murmuration-agent.service": _unit(
            "murmuration's agent: the only one who reads the judgements",
            agent,
            OFFLINE,
            user="murmuration-agent",
            group="murmuration-node",
            service="RuntimeDirectory=murmuration\nStateDirectory=murmuration\n"
            "StateDirectoryMode=0700\nPrivateNetwork=yes\n",
        ),
        "murmuration-node.service": _unit(
            "SuperNode of a murmuration: runs what the server sends",
            node,
            NODE_ENVIRONMENT,
            user="murmuration-node",
            group="murmuration-node",
            more="After=murmuration-agent.service\nRequires=murmuration-agent.service\n",
            service="StateDirectory=murmuration-node\nStateDirectoryMode=0700\n"
            "InaccessiblePaths=-/var/lib/murmuration\n",
        ),
    }


def register(folder: Path) -> str:
    """A script that registers the clients' keys at the SuperLink; it can be run repeatedly."""
    return _script(
        "Registers every client's public key that is not registered yet; waits for the SuperLink.",
        python("-m", "murmuration.cli.main", "deploy", "register", str(folder)),
        server_environment(folder / "server"),
    )


def readme(address: str, hosts: Sequence[str], clients: Sequence[str], fingerprint: str) -> str:
    """The README of a deployment's folder: its files, and the next steps."""
    listed = "\n".join(f"   - `clients/{name}/` → {name}'s machine" for name in clients)
    names = {"address": address, "hosts": ", ".join(hosts), "fingerprint": fingerprint}
    return template("server.md").format(**names, listed=listed)


def template(name: str) -> str:
    """A template of this room, with placeholders."""
    return (_TEXTS / name).read_text(encoding="utf-8")


def tool(name: str) -> str:
    """A program beside this interpreter, or its bare name."""
    path = programs() / name
    return str(path) if path.exists() else name


def programs() -> Path:
    """The folder of the programs of this interpreter's packages; they find each other there."""
    return Path(sysconfig.get_path("scripts"))


def guarded(name: str) -> list[str]:
    """Return the command of one of Flower's programs, started so that its port answers few."""
    return python("-m", "murmuration.deploy.guarded", name)


def _script(comment: str, command: list[str], environment: dict[str, str]) -> str:
    exports = "".join(f"export {name}={shlex.quote(v)}\n" for name, v in environment.items())
    # Flower's programs start each other by name, whatever environment is active.
    exports += f'export PATH={shlex.quote(str(programs()))}:"$PATH"\n'
    return f"#!/bin/sh\n# {comment}\n{exports}exec {shlex.join(command)}\n"


def _unit(
    description: str,
    command: list[str],
    environment: dict[str, str],
    user: str,
    *,
    group: str = "",
    more: str = "",
    service: str = "",
) -> str:
    variables = "".join(f'Environment="{name}={v}"\n' for name, v in environment.items())
    of_group = f"Group={group}\n" if group else ""
    # In a unit a percent sign introduces a specifier; ours are written as they are.
    return template("unit.service").format(
        description=description,
        more=more,
        user=user,
        of_group=of_group,
        service=service,
        variables=variables,
        command=shlex.join(command),
    )
