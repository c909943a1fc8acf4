"""An attack: more than a SuperLink can hold, from somebody without a key, or from a node.

    python flood.py strangers HOST:PORT CA.CRT
    python flood.py node HOST:PORT CA.CRT NODE.KEY

Strangers make 1,500 requests of 64 MiB and 10,000 small ones. A node sends 40 bodies of 64 MiB in
pieces, 300 of one chunk of an array each, which is more than a node may send, and 2,000 small
requests. Only at loopback addresses; each request is made once, and what is not over after ten
minutes is left out. Prints how each kind was answered (0: the connection was closed), how many
bytes went out, and how long it took.
"""

import http.client
import ipaddress
import json
import ssl
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

MIB = 2**20
AT_ONCE, SECONDS = 16, 600.0
PROTOBUF = {"content-type": PROTOBUF_MEDIA_TYPE}
Headers = Callable[[], dict[str, str]]


class Target:
    """A SuperLink at a loopback address; counts what is sent there, and what is answered."""

    def __init__(self, address: str, certificate: Path) -> None:
        host, _, port = address.rpartition(":")
        if not ipaddress.ip_address(host).is_loopback:
            raise SystemExit(f"{host} is another machine's: this floods loopback addresses only")
        self._host, self._port = host, int(port)
        self._context = ssl.create_default_context(cafile=certificate)
        self._end = time.monotonic() + SECONDS

    def send(self, path: str, pieces: Iterator[bytes], length: int, headers: dict[str, str]):
        """One request, sent as far as it is taken; its status and how many bytes went out.

        Without a ``length`` it goes in pieces.
        """
        sent = 0

        def counted() -> Iterator[bytes]:
            nonlocal sent
            for piece in pieces:
                yield piece
                sent += len(piece)

        if length:
            headers = {**headers, "content-length": str(length)}
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=60, context=self._context
        )
        with closing(connection):
            try:
                chunked = not length
                connection.request(
                    "POST", f"/v1/fleet/{path}", counted(), headers, encode_chunked=chunked
                )
            except OSError:
                pass  # refused before all was sent: there may be an answer
            try:
                return connection.getresponse().status, sent
            except (OSError, http.client.HTTPException):
                return 0, sent

    def many(self, count: int, path: str, body: bytes, times: int, headers: Headers, *, whole=True):
        """So many requests, side by side: their statuses, bytes and seconds."""
        statuses, began, sent = Counter[int](), time.monotonic(), 0

        def one(_: int) -> tuple[int, int] | None:
            if time.monotonic() > self._end:
                return None
            length = len(body) * times if whole else 0
            return self.send(path, iter([body] * times), length, headers())

        with ThreadPoolExecutor(AT_ONCE) as threads:
            for done in threads.map(one, range(count)):
                if done is not None:
                    statuses[done[0]] += 1
                    sent += done[1]
        seconds = round(time.monotonic() - began, 1)
        return {"answered": dict(statuses), "MiB sent": round(sent / MIB), "seconds": seconds}


def strangers(target: Target) -> dict[str, object]:
    """Whoever has the address and the certificate."""

    def headers() -> dict[str, str]:
        return PROTOBUF

    return {
        "large": target.many(1_500, "push-object", bytes(MIB), 64, headers),
        "small": target.many(10_000, "pull-messages", b"x", 1, headers),
    }


def node(target: Target, key: EllipticCurvePrivateKey) -> dict[str, object]:
    """Whoever has a registered key."""
    public = b64encode(public_key_to_bytes(key.public_key())).decode()

    def signed() -> dict[str, str]:
        at = now().isoformat()
        return {
            **PROTOBUF,
            FLEET_HTTP_PUBLIC_KEY_HEADER: public,
            TIMESTAMP_HEADER: at,
            FLEET_HTTP_SIGNATURE_HEADER: b64encode(sign_message(key, at.encode())).decode(),
        }

    chunk = PushObjectRequest(run_id=1, object_id="0" * 64, object_content=bytes(5 * MIB))
    body = chunk.SerializeToString()
    return {
        "too long": target.many(40, "push-object", bytes(MIB), 64, signed, whole=False),
        "too much": target.many(300, "push-object", body, 1, signed),
        "too many": target.many(2_000, "pull-messages", b"x", 1, signed),
    }


if __name__ == "__main__":
    site = Target(sys.argv[2], Path(sys.argv[3]))
    if sys.argv[1] == "strangers":
        print(json.dumps(strangers(site)))
    else:
        private = load_ssh_private_key(Path(sys.argv[4]).read_bytes(), None)
        assert isinstance(private, EllipticCurvePrivateKey)
        print(json.dumps(node(site, private)))
