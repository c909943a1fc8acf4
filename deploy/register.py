"""``murmuration deploy register``: which clients' keys a SuperLink accepts.

It waits for a SuperLink that is only starting, and registers what is not registered: to run it a
second time, or after one client more was made, does no harm.
"""

import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization.ssh import load_ssh_public_key

from murmuration.deploy.init import deployed_address
from murmuration.preference.data.errors import InputError
from murmuration.privacy.regular_files import read_regular
from murmuration.strategies.protocol.flower_internals import (
    ControlHttpClient,
    ListNodesRequest,
    RegisterNodeRequest,
    public_key_to_bytes,
)

#: Seconds between tries.
PAUSE = 1.0


def register(
    folder: Path, *, wait: float = 120.0, say: Callable[[str], None] = lambda text: None
) -> list[str]:
    """Register every key in ``folder/clients/*/node.pub`` that is not yet; whose these were.

    Raises:
        InputError: a file holds no key, there is none, or the SuperLink did not take them within
            ``wait`` seconds.
    """
    folder = folder.expanduser().absolute()
    address = deployed_address(folder / "server")
    certificate = (folder / "server" / "ca.crt").read_bytes()
    keys = public_keys(folder)
    deadline, waiting, added = time.monotonic() + wait, False, list[str]()
    while True:
        try:
            with ControlHttpClient.from_server_address(address, False, certificate, []) as client:
                nodes = client.ListNodes(ListNodesRequest()).nodes_info
                known = {bytes(node.public_key) for node in nodes}
                for name, key in keys.items():
                    if key in known:
                        say(f"{name}: registered" + (" now" if name in added else " before"))
                        continue
                    # Noted first: if the reply is lost, the next look finds the key there.
                    added.append(name)
                    client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
                    known.add(key)
                    say(f"{name}: registered now")
            return list(dict.fromkeys(added))
        except Exception as error:  # it is starting, or was away for a moment
            if time.monotonic() > deadline:
                raise InputError(
                    f"the SuperLink at {address} did not take the keys within {wait:g} seconds: "
                    f"{error or type(error).__name__}"
                ) from None
            if not waiting:
                say(f"waiting for the SuperLink at {address}")
                waiting = True
            time.sleep(PAUSE)


def public_keys(folder: Path) -> dict[str, bytes]:
    """The clients' public keys, as Flower holds them, by name; InputError where there is none."""
    result: dict[str, bytes] = {}
    for path in sorted(folder.glob("clients/*/node.pub")):
        try:
            key = load_ssh_public_key(read_regular(path))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is no public key: {error}") from None
        if not isinstance(key, EllipticCurvePublicKey):
            raise InputError(f"{path} is not a client's key: make one with ssh-keygen -t ecdsa")
        result[path.parent.name] = public_key_to_bytes(key)
    if not result:
        raise InputError(f"there is no client in {folder / 'clients'}")
    return result
