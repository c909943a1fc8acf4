"""``murmuration deploy doctor``: what of a deployment is reachable, registered, version-matched.

And what of it strangers reach: it tries to list nodes and runs and to take an app's task as
somebody who knows the address and the CA certificate and has no key. From a server's folder that is
done by another account of the machine (as root); from a client's, by the account that runs it.
"""

import os
import re
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from murmuration.deploy.certificates import days_left
from murmuration.deploy.client import Client, connection, server_certificate
from murmuration.deploy.commands import EXECUTOR_SECRET, STATE_FILE
from murmuration.deploy.guard.peer import account_of
from murmuration.deploy.handed_over import SETTINGS
from murmuration.deploy.init import REGISTRATION, deployed_address
from murmuration.deploy.outsider import REFUSED, RUNTIME, tried, tried_as
from murmuration.deploy.proxies import way_around
from murmuration.deploy.register import public_keys
from murmuration.preference.data.errors import InputError
from murmuration.server.registration import read_registration
from murmuration.strategies.protocol.flower_internals import (
    ControlHttpClient,
    ListNodesRequest,
    RuntimeVersionHttpInterceptor,
)

#: An account that every system has and that owns nothing.
STRANGER = "nobody"
_BETWEEN = 1.0  # seconds between looks
_LOOKS = 20  # at whose a connection is


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, whether it is well, and what was seen."""

    what: str
    well: bool
    seen: str


def examine_until_well(folder: Path, seconds: float) -> list[Finding]:
    """The findings of ``examine`` once all is well, or after ``seconds``.

    Raises:
        InputError: as of ``examine``.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = examine(folder)
        if all(finding.well for finding in result) or time.monotonic() >= deadline:
            return result
        time.sleep(_BETWEEN)


def examine(folder: Path) -> list[Finding]:
    """Look at a deployment from its server's machine, or from a client's.

    Raises:
        InputError: the folder is neither a deployment nor a client's.
    """
    folder = folder.expanduser().absolute()
    if (folder / SETTINGS).exists():
        return _from_a_client(folder)
    server = folder / "server"
    address = deployed_address(server)
    result = [*_private(folder), _registration(server), _certificate(address, server)]
    result.append(_plain(address))
    if result[-2].well:
        result += [*_strangers(address, server), *_nodes(address, server, folder)]
    return result


def _from_a_client(folder: Path) -> list[Finding]:
    """Findings from attempts to connect with a client's address and CA certificate."""
    address = Client.load(folder).address
    result = [_certificate(address, folder), _plain(address)]
    if result[0].well and _runs_it(address):
        seen = "not tried: this account runs the server. Ask from another account or machine"
        result.append(Finding("without a key", True, seen))
    elif result[0].well:
        got = tried(address, (folder / "ca.crt").read_bytes())
        result += _outcomes("without a key", got, "right only for the account that runs the server")
    return result


def _runs_it(address: str) -> bool:
    """True if the listener at an address is a program of this account, on this machine."""
    with connection(address) as end:
        peer, here = end.getpeername()[:2], end.getsockname()[:2]
        for _ in range(_LOOKS):  # until it has taken the connection
            if (account := account_of(peer, here)) is not None:
                return account == os.geteuid()
            time.sleep(_BETWEEN / _LOOKS)
    return False


def _strangers(address: str, server: Path) -> list[Finding]:
    """Findings from attempts to connect without the executors' secret, by this and by another
    account."""
    certificate = (server / "ca.crt").read_bytes()
    got = tried(address, certificate)
    mine = {name: outcome for name, outcome in got.items() if name in RUNTIME}
    result = _outcomes("without a secret", mine, f"start it with server/{EXECUTOR_SECRET}")
    if os.geteuid() != 0:
        seen = "not tried: run this as root, or `deploy doctor` with a client's folder elsewhere"
        return [*result, Finding("other accounts", True, seen)]
    others = tried_as(STRANGER, address, certificate)
    return [*result, *_outcomes("other accounts", others, "start it by server/superlink.sh")]


def _outcomes(who: str, got: dict[str, str], mend: str) -> list[Finding]:
    """One line about all that was tried."""
    bad = [f"{name}: {outcome}" for name, outcome in got.items() if outcome != REFUSED]
    if bad:
        return [Finding(who, False, f"{'; '.join(bad)} ({mend})")]
    return [Finding(who, True, f"refused: {', '.join(got)}")]


def _private(folder: Path) -> list[Finding]:
    secret = [*folder.expanduser().rglob("*.key"), *folder.glob(f"server/{STATE_FILE}*")]
    keys = [path for path in secret if path.stat().st_mode & 0o077]
    well = not keys
    seen = "private" if well else f"others can read {keys[0]}: chmod 600 it"
    result = [Finding("keys", well, seen)]
    if (folder.expanduser() / "authority" / "ca.key").exists():
        result.append(Finding("authority", True, "ca.key is still on this machine; move it off"))
    return result


def _registration(server: Path) -> Finding:
    """Return whom nodes may host, as runs will read it."""
    try:
        nodes = read_registration(server / REGISTRATION).nodes
    except InputError as error:
        return Finding("users", False, str(error))
    most = sum(hosted.users for hosted in nodes.values())
    return Finding("users", True, f"{len(nodes)} keys are registered for at most {most} in all")


def _certificate(address: str, server: Path) -> Finding:
    try:
        shown = server_certificate(address, server / "ca.crt")
    except InputError as error:
        return Finding("SuperLink", False, str(error))
    if around := way_around(address):
        return Finding("SuperLink", False, around)
    left = days_left(shown)
    return Finding("SuperLink", left > 0, f"{address} answers; certificate has {left} days left")


def _plain(address: str) -> Finding:
    """Check that a connection without TLS gets no answer."""
    try:
        with connection(address) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answered = re.match(rb"HTTP/1\.\d 2\d\d", plain.recv(1000)) is not None
    except OSError:
        answered = False
    return Finding("without TLS", not answered, "answered!" if answered else "nothing is answered")


#: What Flower calls a node, as it reads beside a name.
_STATUS = {
    None: "not registered: run server/register.sh",
    "registered": "registered, and was never online: start its client",
}


def _nodes(address: str, server: Path, folder: Path) -> list[Finding]:
    certificate, mine = (server / "ca.crt").read_bytes(), version("flwr")
    try:
        # It sends our version; where a SuperLink refuses that, it ends the command (SystemExit).
        with ControlHttpClient.from_server_address(
            address, False, certificate, [RuntimeVersionHttpInterceptor(component_name="flwr-cli")]
        ) as client:
            nodes = list(client.ListNodes(ListNodesRequest()).nodes_info)
    except (Exception, SystemExit) as error:
        return [Finding("version", False, f"flwr {mine} was refused: {error}")]
    result, known = [Finding("version", True, f"the SuperLink answers flwr {mine}")], {}
    try:
        known = {key: name for name, key in public_keys(folder).items()}
    except InputError as error:
        result.append(Finding("clients", False, str(error)))
    present = {}
    for node in nodes:
        name = known.get(bytes(node.public_key)) or node.name or str(node.node_id)
        present[name] = node.status
    for name in sorted({*known.values(), *present}):
        status = present.get(name)
        result.append(
            Finding(name, status == "online", _STATUS.get(status, f"registered, {status}"))
        )
    return result
