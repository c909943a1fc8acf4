"""A connection to the SuperLink, bounded before anybody knows whose it is.

Uvicorn waits for a request's head for ever, takes a head of any length, keeps trailers as headers,
and counts connections without asking whose they are. Here a head comes whole within seconds and
64 KiB, a request has at most the bytes that a node may send, its trailers are dropped, and of the
connections whose sender has not been recognised the oldest gives way: strangers use up no more
than their own places.

The log of refused requests is bounded too (``FewRefusals``), or strangers would fill the disk.

What Python does before a connection is handed over (the TLS handshake, given up after 60 s) is not
counted here.
"""

import asyncio
import logging
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Connections at a time, of all; uvicorn answers further requests with status 503.
CONNECTIONS = 1024
#: Of these, connections whose sender has not been recognised (yet).
STRANGERS = 128
HEAD_SECONDS = 10.0
HEAD_BYTES = 64 * 2**10
#: One request of a node as it is on the wire, with chunked framing and trailers.
REQUEST_BYTES = 6 * 2**20
#: What is logged of refused requests and broken connections: lines per second, and of a path.
LOGGED_LINES, LOGGED_PATH = 5, 200
_ANSWER_SECONDS = 0.05  # that an answer has to leave this process
#: Where the ASGI scope has the connection that a request came by.
CONNECTION = "murmuration.connection"


class BoundedConnection(HttpToolsProtocol):
    """Uvicorn's protocol with the bounds of this module.

    ``recognised`` is set once the sender is known, ``unbounded`` if it is the account that the
    program runs as.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.recognised = self.unbounded = False
        self._since, self._bytes, self._in_head = 0.0, 0, True
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def open(self) -> bool:
        """True if data can still be received or sent."""
        return not self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, at the cost of the stranger who has been here longest if there are too many."""
        super().connection_made(transport)
        self._since = time.monotonic()
        self._expect_head()
        strangers = [
            other
            for other in self.connections
            if isinstance(other, BoundedConnection) and not other.recognised and other.open
        ]
        if len(strangers) > STRANGERS:
            min(strangers, key=lambda other: other._since).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless it is too much."""
        if not self.open:
            return
        self._bytes += len(data)
        super().data_received(data)
        most = HEAD_BYTES if self._in_head else REQUEST_BYTES
        if self._bytes > most and not self.unbounded:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Begin a request, the first or a further one."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        self._bytes = 0
        self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head. A trailer, which uvicorn would add to them, is nobody's."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the app."""
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_timer()
        super().connection_lost(exc)

    def hang_up(self) -> None:
        """Read no further, and close when an answer that is being written is out.

        Closing alone would decrypt whatever the other side still sends, for as long as it likes.
        """
        if self.open:
            self.flow.pause_reading()
            self.loop.call_later(_ANSWER_SECONDS, self.transport.abort)

    def _expect_head(self) -> None:
        self._in_head = True
        self._stop_timer()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class FewRefusals(logging.Filter):
    """Lets through all of uvicorn's logs that is well, and a few lines a second of the rest."""

    def __init__(self) -> None:
        super().__init__()
        self._second, self._lines = 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Write every line, with paths cut."""
        if isinstance(record.args, tuple) and record.name == "uvicorn.access":
            client, method, path, version, status = record.args
            record.args = client, method, str(path)[:LOGGED_PATH], version, status
            if isinstance(status, int) and status < 400:
                return True
        elif record.levelno < logging.WARNING:
            return True
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= LOGGED_LINES
