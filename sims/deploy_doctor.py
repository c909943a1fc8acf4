"""``murmuration deploy doctor``: what of a deployment is reachable, registered, version-matched."""

import re
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from cryptography.hazmat.primitives.serialization.ssh import load_ssh_public_key
from flwr.proto.control_pb2 import ListNodesRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import bytes_to_public_key

from preference.judgements import InputError
from sims.certificates import public_line
from sims.deploy_client import server_certificate
from sims.deploy_run import deployed_address


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, whether it is well, and what was seen."""

    what: str
    well: bool
    seen: str


def examine(folder: Path) -> list[Finding]:
    """Look at a deployment from its server's machine.

    Raises:
        InputError: the folder is no deployment.
    """
    server = folder.expanduser().absolute() / "server"
    address = deployed_address(server)
    found = [*_private(folder), _certificate(address, server), _plain(address)]
    if found[-2].well:
        found += _nodes(address, server, folder)
    return found


def _private(folder: Path) -> list[Finding]:
    keys = [path for path in folder.expanduser().rglob("*.key") if path.stat().st_mode & 0o077]
    well = not keys
    seen = "private" if well else f"others can read {keys[0]}: chmod 600 it"
    found = [Finding("keys", well, seen)]
    if (folder.expanduser() / "authority" / "ca.key").exists():
        found.append(Finding("authority", True, "ca.key is still on this machine; move it off"))
    return found


def _certificate(address: str, server: Path) -> Finding:
    try:
        shown = server_certificate(address, server / "ca.crt")
    except InputError as error:
        return Finding("SuperLink", False, str(error))
    left = (shown.not_valid_after_utc - datetime.now(UTC)).days
    return Finding("SuperLink", left > 0, f"{address} answers; certificate has {left} days left")


def _plain(address: str) -> Finding:
    """Whether somebody who does not speak TLS gets anything."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answered = re.match(rb"HTTP/1\.\d 2\d\d", plain.recv(1000)) is not None
    except (OSError, ssl.SSLError):
        answered = False
    return Finding("without TLS", not answered, "answered!" if answered else "nothing is answered")


def _nodes(address: str, server: Path, folder: Path) -> list[Finding]:
    certificate, mine = (server / "ca.crt").read_bytes(), version("flwr")
    try:
        # This interceptor makes the SuperLink refuse a version that it does not go with.
        with ControlHttpClient.from_server_address(
            address, False, certificate, [RuntimeVersionHttpInterceptor(component_name="flwr-cli")]
        ) as client:
            nodes = list(client.ListNodes(ListNodesRequest()).nodes_info)
    except Exception as error:
        return [Finding("version", False, f"flwr {mine} was refused: {error}")]
    found = [Finding("version", True, f"the SuperLink goes with flwr {mine}")]
    known = {}
    for path in sorted(folder.expanduser().glob("clients/*/node.pub")):
        key = load_ssh_public_key(path.read_bytes())
        known[public_line(key).strip()] = path.parent.name  # type: ignore[arg-type]
    present = {}
    for node in nodes:
        name = _owner(bytes(node.public_key), known) or node.name or str(node.node_id)
        present[name] = node.status
    for name in sorted({*known.values(), *present}):
        status = present.get(name)
        seen = f"registered, {status}" if status else "not registered: run server/register.sh"
        found.append(Finding(name, status == "online", seen))
    return found


def _owner(public: bytes, known: dict[bytes, str]) -> str:
    try:
        return known.get(public_line(bytes_to_public_key(public)).strip(), "")
    except ValueError:
        return ""
