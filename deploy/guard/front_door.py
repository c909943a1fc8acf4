"""The fleet's routes of a SuperLink: for registered keys, and for so much at a time.

Flower parses a body before it asks whose it is. Here the sender is known first, from the headers
that Flower's SuperNodes sign (``flwr-public-key``, ``flwr-timestamp``, ``flwr-signature``), and a
body is read only then, as far as such a body may reach. What is signed is the time alone: this
authenticates a sender, not a request, and a copy of the headers is good for 305 seconds. TLS keeps
them from others.

A node that sends too much gets status 503, since Flower's nodes try again after that and after
nothing else.
"""

import asyncio
import binascii
import gc
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import anyio
from fastapi import HTTPException, Request
from google.protobuf.message import DecodeError
from starlette.datastructures import Headers

from murmuration.deploy.guard.connections import CONNECTION, BoundedConnection
from murmuration.strategies.protocol.flower_internals import (
    API_ERROR_MAP,
    CHUNK_BYTES,
    KEY_HEADER,
    ActivateNodeRequest,
    ApiErrorCode,
    FlowerError,
    LinkState,
    PushMessagesRequest,
    authenticate_node,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The one part of a SuperLink's port that other accounts and machines may speak to.
FLEET = "/v1/fleet/"
#: Where SuperNodes begin, and Flower's error for those who may not: they show it to their owner,
#: and end without a word after a 401.
BEGINNING = {
    f"{FLEET}activate-node": ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED,
    f"{FLEET}register-node": ApiErrorCode.FLEET_SUPERNODE_REGISTRATION_DISABLED,
}
PUSH_MESSAGES, PUSH_OBJECT = f"{FLEET}push-messages", f"{FLEET}push-object"
#: The most bytes of a body: one chunk of an array, and what Flower writes around it.
OBJECT_BYTES = CHUNK_BYTES + 64 * 2**10
#: Of any other request. A reply's list of chunks is here: 3,600 of them, 18 GiB, at most.
BODY_BYTES = 256 * 2**10
BODY_SECONDS = 60.0
#: What one node may send in so many seconds, where each request counts as so many at least.
WINDOW_BYTES, WINDOW_SECONDS, LEAST_BYTES = 2**30, 600.0, 8 * 2**10
#: Bytes of bodies in memory, of one node and of all; others wait. Flower has up to five copies.
NODE_BYTES, ALL_BYTES = 2 * OBJECT_BYTES, 16 * OBJECT_BYTES
#: Of one node: requests that wait, connections.
WAITING, CONNECTIONS = 32, 16
_CHECKS = 4  # threads that look keys up and verify signatures


async def refuse(scope: Scope, send: Send, status: int, reason: str) -> None:
    """Answer with a status and a line, and close the connection, whatever is still to come."""
    if isinstance(connection := scope.get(CONNECTION), BoundedConnection):
        connection.hang_up()
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    if status == 503:
        headers.append((b"retry-after", b"30"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{reason}\n".encode()})


class Refused(Exception):
    """A request that is answered with ``status`` and a line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ByteBudget:
    """A budget of bytes for bodies in memory; a request that finds too few left waits."""

    def __init__(self, size: int) -> None:
        self._left, self._returned = size, asyncio.Condition()

    @asynccontextmanager
    async def take(self, size: int) -> AsyncIterator[None]:
        """Have ``size`` bytes within the block."""
        async with self._returned:
            await self._returned.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            self._left += size
            async with self._returned:
                self._returned.notify_all()


@dataclass
class Allowance:
    """One node's use of its limits, in this window and now."""

    bodies: ByteBudget = field(default_factory=partial(ByteBudget, NODE_BYTES))
    waiting: int = 0
    connections: set[BoundedConnection] = field(default_factory=set)
    began: float = -WINDOW_SECONDS
    used: int = 0

    def admit(self, connection: BoundedConnection | None, now: float) -> None:
        """Count a request before its body is read.

        Raises:
            Refused: there are too many of the node's, or it has sent too much.
        """
        if connection is not None:
            self.connections = {other for other in self.connections if other.open}
            self.connections.add(connection)
        if now - self.began >= WINDOW_SECONDS:
            self.began, self.used = now, 0
        if len(self.connections) > CONNECTIONS or self.waiting >= WAITING:
            raise Refused(503, "too many requests of this node at a time")
        if self.used >= WINDOW_BYTES:
            raise Refused(503, f"this node has sent too much in {WINDOW_SECONDS:g} seconds")

    async def read(self, receive: Receive, most: int) -> bytes:
        """Return a request's body.

        Raises:
            Refused: it is longer than ``most``, or too slow.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the request ended early")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise _too_long(most)
        except TimeoutError:
            raise Refused(408, f"the body did not come in {BODY_SECONDS:g} seconds") from None
        finally:
            self.used += max(len(body), LEAST_BYTES)
        return bytes(body)


class FrontDoor:
    """An ASGI app: ``app`` for requests of registered nodes, within their bounds.

    ``linkstate`` is the SuperLink's state, which has the registered keys.
    """

    def __init__(self, app: App, linkstate: LinkState) -> None:
        self._app, self._state = app, linkstate
        self._allowances: dict[int, Allowance] = {}
        self._bodies = ByteBudget(ALL_BYTES)
        self._checks = anyio.CapacityLimiter(_CHECKS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        try:
            node = await self._sender(scope)
            connection = cast(BoundedConnection | None, scope.get(CONNECTION))
            if connection is not None:
                connection.recognised = True
            allowance = self._allowances.setdefault(node, Allowance())
            allowance.admit(connection, asyncio.get_running_loop().time())
            most = _most(scope)
            allowance.waiting += 1
            try:
                async with allowance.bodies.take(most), self._bodies.take(most):
                    await self._pass_on(node, allowance, most, scope, receive, send=send)
                    if most > BODY_BYTES:  # refusals of Flower's leave bodies in circles
                        gc.collect()
            finally:
                allowance.waiting -= 1
        except Refused as refused:
            await refuse(scope, send, refused.status, str(refused))

    async def _sender(self, scope: Scope) -> int:
        """Return the node that signed a request's headers; Refused where that is none."""
        headers = Headers(scope=scope)
        try:
            key = b64decode(headers[KEY_HEADER], validate=True)
            if node := await anyio.to_thread.run_sync(
                self._verified, key, headers, limiter=self._checks
            ):
                return node
        except (KeyError, binascii.Error, ValueError, HTTPException):
            pass
        if code := BEGINNING.get(scope["path"]):
            raise Refused(API_ERROR_MAP[code].http_status_code, _in_flowers_form(code))
        raise Refused(401, "only SuperNodes with a registered key may ask for that")

    def _verified(self, key: bytes, headers: Headers) -> int | None:
        node = self._state.get_node_id_by_public_key(key)
        if node is None:
            return None
        # Flower's own check of signature and time, of a request that names no other key.
        claim = SimpleNamespace(protobuf_request=ActivateNodeRequest(public_key=key))
        authenticate_node(cast(Request, SimpleNamespace(headers=headers, state=claim)))
        return node

    async def _pass_on(
        self,
        node: int,
        allowance: Allowance,
        most: int,
        scope: Scope,
        receive: Receive,
        *,
        send: Send,
    ) -> None:
        body: bytes | None = await allowance.read(receive, most)
        if scope["path"] == PUSH_MESSAGES and not _own_replies(body, node):
            raise Refused(403, "a node may send its own replies, and no other messages")

        async def again() -> MutableMapping[str, Any]:
            nonlocal body
            if body is None:
                return await receive()
            whole, body = body, None
            return {"type": "http.request", "body": whole, "more_body": False}

        try:
            await self._app(scope, again, send)
        finally:
            # Flower's parsed copy, which a connection has as long as it is open, and we know it.
            scope["state"].clear()


def _most(scope: Scope) -> int:
    """The most bytes of a request's body: its declared length, if that is allowed.

    Raises:
        Refused: it says that it is longer than such a body may be.
    """
    most = OBJECT_BYTES if scope["path"] == PUSH_OBJECT else BODY_BYTES
    length = Headers(scope=scope).get("content-length", "")
    if not length.isdigit():
        return most
    if int(length) > most:
        raise _too_long(most)
    return int(length)


def _in_flowers_form(code: int) -> str:
    details = "Its key is not registered there, or its clock and the server's differ."
    error = FlowerError(code, "", public_details=details)
    return json.dumps(error.to_json(API_ERROR_MAP[code].public_message))


def _too_long(most: int) -> Refused:
    return Refused(413, f"a body of at most {most} bytes is read here")


def _own_replies(body: bytes, node: int) -> bool:
    """True if all messages are replies of this node; Flower checks only the sender."""
    try:
        messages = PushMessagesRequest.FromString(body).messages_list
    except DecodeError:
        return True  # which Flower refuses
    return all(
        message.metadata.src_node_id == node and message.metadata.reply_to_message_id
        for message in messages
    )
