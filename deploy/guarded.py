"""Flower's SuperLink or SuperNode, started so that its port answers few.

    python -m murmuration.deploy.guarded superlink|supernode OPTION…

The options are those of ``flower-superlink`` and ``flower-supernode``. Fleet, control and runtime
interface share one TCP port there. The fleet interface asks SuperNodes for a signature; the control
interface asks nobody for anything; in the runtime interface, who has an app's token (which stands
in that app's command line, for every account to see) speaks for the app. So here everything but the
fleet interface is answered to the account alone that the program runs as, on this machine; whose a
connection is the kernel says (``deploy.guard.peer``). A SuperNode's port answers nobody else at
all. The SuperLink's fleet interface is answered to registered keys, within bounds, and no body is
read before (``deploy.guard.front_door``); so are connections bounded
(``deploy.guard.connections``).

It is done here, and not by a proxy in front or by the firewall, because either would leave the port
behind it to the other accounts of the machine, or need root. All is HTTP: ports for gRPC, which
variables would open beside it, stay closed. It relies on Flower's serving its interfaces with
uvicorn, so another version of Flower than was tried is not started.

The program's files are for its account alone (umask). What nodes sent is erased from the
SuperLink's state when a run ends, and when it starts and ends itself
(``deploy.guard.server_state``).
"""

import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import cast

import uvicorn

from murmuration.deploy.guard import peer
from murmuration.deploy.guard.connections import (
    CONNECTION,
    CONNECTIONS,
    BoundedConnection,
    FewRefusals,
)
from murmuration.deploy.guard.front_door import (
    FLEET,
    App,
    FrontDoor,
    Receive,
    Scope,
    Send,
    refuse,
)
from murmuration.deploy.guard.server_state import erase_leftovers, start_erasing
from murmuration.preference.data.errors import InputError
from murmuration.strategies.protocol.flower_internals import (
    GRPC_SWITCHES,
    TRIED,
    linkstate_factory,
)

_MMAP_THRESHOLD, _ARENAS = -3, -8  # of mallopt, in malloc.h
REFUSAL = "only the account that runs this program may ask for that, on its own machine"

log = logging.getLogger(__name__)


class Guarded:
    """An ASGI app: the fleet interface by ``fleet``, if there is one, all else for ``account``."""

    def __init__(self, app: App, fleet: App | None, account: int) -> None:
        self._app, self._fleet, self._account = app, fleet, account

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._fleet and scope["type"] == "http" and scope["path"].startswith(FLEET):
            await self._fleet(scope, receive, send)
        elif self._may(scope):
            if isinstance(connection := scope.get(CONNECTION), BoundedConnection):
                connection.recognised = connection.unbounded = True
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await refuse(scope, send, 403, REFUSAL)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _may(self, scope: Scope) -> bool:
        other, here = scope.get("client"), scope.get("server")
        if not other or not here or here[1] is None:
            return False
        return peer.account_of(tuple(other), tuple(here)) == self._account


def guard_all(program: str, account: int) -> None:
    """Make uvicorn serve only guarded apps from now on, as a superlink or a supernode.

    Outermost, where the address is the connection's own: further in, uvicorn believes any local
    sender's X-Forwarded-For.
    """
    load = uvicorn.Config.load

    def guarded(self: uvicorn.Config) -> None:
        load(self)
        app, fleet = cast(App, self.loaded_app), None
        self.http_protocol_class, self.ws_protocol_class = BoundedConnection, None
        self.limit_concurrency = CONNECTIONS
        for name in ("uvicorn.access", "uvicorn.error"):
            logging.getLogger(name).addFilter(FewRefusals())
        if program == "superlink":
            factory = linkstate_factory(self.app)
            fleet = FrontDoor(app, factory.state())
            start_erasing(factory.state(), Path(factory.database))
            gc.freeze()  # what is there to stay: to look for garbage takes milliseconds then
        self.loaded_app = Guarded(app, fleet, account)

    uvicorn.Config.load = guarded


def main(program: str, options: list[str]) -> None:
    """Run it; InputError where its port could not be guarded."""
    if not version("flwr").startswith(TRIED):
        raise InputError(
            f"flwr {version('flwr')}: guarding its port was tested only with "
            f"{' and '.join(f'{tried}*' for tried in TRIED)}; install 'flwr=={TRIED[-1]}*'"
        )
    os.umask(0o077)
    for name in GRPC_SWITCHES:
        os.environ.pop(name, None)
    if peer.can_tell():
        guard_all(program, os.geteuid())
    elif program == "superlink":
        raise InputError(
            "this system does not say which account a connection comes from, and Flower takes "
            "commands to the SuperLink without a key: run the server of a deployment on Linux"
        )
    else:
        log.warning("every account of this machine can speak to this SuperNode's port")
    sys.argv = [f"flower-{program}", *options]
    if program == "supernode":
        from murmuration.strategies.protocol.flower_internals import flower_supernode

        flower_supernode()
        return
    from murmuration.strategies.protocol.flower_internals import flower_superlink

    open_files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # as many as may be had
        enough = max(open_files, 4 * CONNECTIONS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(enough, most), most))
    _give_memory_back()
    state = Path(options[options.index("--database") + 1])
    erase_leftovers(state)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn stops, then raises it again
    try:
        flower_superlink()
    finally:
        erase_leftovers(state)


def _give_memory_back() -> None:
    """Let glibc return the memory of a body to the system when it is free, and not keep it."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 2**18)
        mallopt(_ARENAS, 2)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except InputError as error:
        sys.exit(f"error: {error}")
