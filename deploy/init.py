"""The files of ``murmuration deploy init``: a folder for the server and one for each client.

    DIR/README.md                what everything is, and what to do next
    DIR/authority/               the CA's key and certificate; keep the key off-line
    DIR/server/                  certificate and key, connection, commands, units, run.toml: a usual
                                 run's numbers, and nodes.toml: whom each client may host
    DIR/clients/NAME/            to hand to NAME: CA certificate, key, policy, settings, and a list
                                 of these, signed (``deploy.handed_over``)

Nothing is started, and nothing that exists is written over.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w

from murmuration.deploy import commands, handed_over
from murmuration.deploy.certificates import (
    Authority,
    certificate_pem,
    client_key,
    executor_secret,
    key_pem,
    write_new,
)
from murmuration.deploy.commands import EXECUTOR_SECRET
from murmuration.deploy.handed_over import (
    AUTHORITY,
    KEY,
    POLICY,
    PUBLIC,
    README,
    SETTINGS,
    fingerprint_of,
)
from murmuration.deploy.terms import RUN, Terms
from murmuration.preference.data.errors import InputError, disk_errors_as

CONNECTION = "deployed"
CLIENT_NAME = r"[a-z0-9][a-z0-9-]{0,31}"
#: In the server's folder: whom each key may host (``server.registration``).
REGISTRATION = "nodes.toml"


@dataclass(frozen=True)
class Deployment:
    """The machines of a deployment, and their addresses. InputError for names that cannot be
    folders or hosts.

    ``hosts`` are the names and addresses under which clients reach the server, the first one being
    the one they use; ``clients`` the names of the nodes, and ``users`` the most users whom each of
    them may host; 1 if it is not named there. ``terms`` are the numbers of a usual run, by default
    of all whom they may host.
    """

    hosts: tuple[str, ...]
    port: int
    clients: tuple[str, ...]
    users: Mapping[str, int] = field(default_factory=dict)
    terms: Terms | None = None

    def __post_init__(self) -> None:
        if not self.hosts or not all(self.hosts):
            raise InputError("name at least one --host: where clients reach the server")
        if not 1 <= self.port <= 65535:
            raise InputError(f"--port must be 1 to 65535; got {self.port}")
        bad = [name for name in self.clients if not re.fullmatch(CLIENT_NAME, name)]
        if bad:
            raise InputError(
                f"client {bad[0]!r}: use small letters, digits and hyphens, 32 at most"
            )
        if len(set(self.clients)) < len(self.clients) or not self.clients:
            raise InputError("name the clients, each once: --clients alice,bob")
        few = [name for name, users in self.users.items() if users < 1]
        if few or not set(self.users).issubset(self.clients):
            name = next(iter(few or set(self.users).difference(self.clients)))
            raise InputError(f"client {name!r}: say how many users it may host: --clients bob:200")

    @classmethod
    def of(cls, hosts: Sequence[str], port: int, clients: str) -> "Deployment":
        """From ``alice,bob:200``: clients, with the most users whom one may host if not 1."""
        names, users = [], dict[str, int]()
        for text in filter(None, map(str.strip, clients.split(","))):
            name, separator, number = text.partition(":")
            names.append(name)
            if separator:
                users[name] = int(number) if re.fullmatch("[0-9]{1,9}", number) else 0
        return cls(tuple(hosts), port, tuple(names), users)

    @property
    def usual(self) -> Terms:
        """The numbers of a usual run."""
        return self.terms or Terms(users=self.hosted)

    @property
    def hosted(self) -> int:
        """The most users that all clients together may host."""
        return sum(self.users.get(name, 1) for name in self.clients)

    @property
    def bind(self) -> str:
        """The address on which the SuperLink listens: all, unless clients are on this machine
        too."""
        return self.hosts[0] if self.hosts[0] in ("127.0.0.1", "::1") else "0.0.0.0"

    @property
    def address(self) -> str:
        """The address to which clients connect."""
        host = self.hosts[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def deployed_address(server: Path) -> str:
    """The address of a deployment's SuperLink; InputError if the folder is not a server's."""
    try:
        settings = tomllib.loads((server / "flwr" / "config.toml").read_text(encoding="utf-8"))
        return str(settings["superlink"][CONNECTION]["address"])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{server.parent} is not a deployment's folder: {error}") from None


def write_deployment(folder: Path, deployment: Deployment) -> list[Path]:
    """Write everything below ``folder``; the files, in the order of writing.

    Raises:
        InputError: the folder is not empty or cannot be written.
    """
    folder = folder.expanduser().absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} is not empty: keys are never written over; choose another folder"
        )
    with disk_errors_as(f"{folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        return _write(folder, deployment)


def _write(folder: Path, deployment: Deployment) -> list[Path]:
    authority = Authority.new("murmuration")
    ca = certificate_pem(authority.certificate)
    key, certificate = authority.server(list(deployment.hosts))
    server, address = folder / "server", deployment.address
    run = deployment.usual.run_text()
    files: dict[str, str | bytes] = {
        "authority/ca.key": key_pem(authority.key),
        "authority/ca.crt": ca,
        "server/ca.crt": ca,
        "server/server.key": key_pem(key),
        "server/server.crt": certificate_pem(certificate),
        f"server/{EXECUTOR_SECRET}": executor_secret(),
        "server/flwr/config.toml": _connection(server, deployment),
        f"server/{RUN}": run,
    }
    for name, text in commands.server_files(server, deployment.bind, deployment.port).items():
        files[f"server/{name}"] = text
    registered = {}
    for name in deployment.clients:
        private, public = client_key()
        users = deployment.users.get(name, 1)
        registered[name] = {"key": f"../clients/{name}/node.pub", "users": users}
        settings = {"name": name, "superlink": address, "users": users}
        own = {
            KEY: private,
            PUBLIC: public,
            AUTHORITY: ca,
            SETTINGS: tomli_w.dumps(settings).encode(),
            RUN: run.encode(),
            POLICY: deployment.usual.policy_text().encode(),
            README: commands.template("client.md").format(name=name, address=address).encode(),
        }
        own |= handed_over.signed(own, authority.key)
        files |= {f"clients/{name}/{file}": content for file, content in own.items()}
    files |= {
        f"server/{REGISTRATION}": commands.template("nodes.toml") + tomli_w.dumps(registered),
        "server/register.sh": commands.register(folder),
        "README.md": commands.readme(
            address,
            deployment.hosts,
            deployment.clients,
            fingerprint_of(authority.certificate),
        ),
    }
    return [
        write_new(folder / name, content.encode() if isinstance(content, str) else content)
        for name, content in files.items()
    ]


def _connection(server: Path, deployment: Deployment) -> str:
    """The entry by which ``flwr`` finds the SuperLink from its own machine."""
    entry = {"address": deployment.address, "root-certificates": str(server / "ca.crt")}
    return tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: entry}})
