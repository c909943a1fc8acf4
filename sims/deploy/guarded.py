"""Flower's SuperLink or SuperNode, started so that its port answers few.

    python -m murmuration.sims.deploy.guarded superlink|supernode OPTION…

The options are those of ``flower-superlink`` and ``flower-supernode``. Fleet, control and runtime
interface share one TCP port there. The fleet interface asks SuperNodes for a signature; the control
interface asks nobody for anything; in the runtime interface, who has an app's token (which stands
in that app's command line, for every account to see) speaks for the app. So here everything but the
fleet interface is answered to the account alone that the program runs as, on this machine; whose a
connection is the kernel says (``sims.deploy.peer``). A SuperNode's port answers nobody else at all.

It is done here, and not by a proxy in front or by the firewall, because either would leave the port
behind it to the other accounts of the machine, or need root. It relies on Flower's serving its
interfaces with uvicorn, so another version of Flower than was tried is not started.

The program's files are for its account alone (umask), and what nodes sent is erased from the
SuperLink's state when it starts and when it ends (``sims.deploy.server_state``).
"""

import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import uvicorn

from murmuration.preference.data.judgements import InputError
from murmuration.sims.deploy import peer
from murmuration.sims.deploy.server_state import erase_leftovers

TRIED = "1.41."
#: The one interface that other accounts and machines may speak to, by program.
OPEN = {"superlink": ("/v1/fleet/",), "supernode": ()}
REFUSAL = b"only the account that runs this program may ask for that, on its own machine\n"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)


class Guarded:
    """An ASGI app: what starts with one of ``open_paths`` for all, all else for ``account``."""

    def __init__(self, app: App, open_paths: tuple[str, ...], account: int) -> None:
        self._app, self._open, self._account = app, open_paths, account

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "lifespan" or self._may(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": REFUSAL})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _may(self, scope: Scope) -> bool:
        if scope["type"] == "http" and scope["path"].startswith(self._open):
            return True
        other, here = scope.get("client"), scope.get("server")
        if not other or not here or here[1] is None:
            return False
        return peer.account_of(tuple(other), tuple(here)) == self._account


def guard_all(open_paths: tuple[str, ...], account: int) -> None:
    """From now on uvicorn serves nothing that is not guarded.

    Outermost, where the address is the connection's own: further in, uvicorn believes the
    X-Forwarded-For of whoever is on this machine.
    """
    load = uvicorn.Config.load

    def guarded(self: uvicorn.Config) -> None:
        load(self)
        self.loaded_app = Guarded(cast(App, self.loaded_app), open_paths, account)

    uvicorn.Config.load = guarded


def main(program: str, options: list[str]) -> None:
    """Run it; InputError where its port could not be guarded."""
    if not version("flwr").startswith(TRIED):
        raise InputError(
            f"flwr {version('flwr')}: guarding its port was tested only with {TRIED}*; "
            f"install 'flwr=={TRIED}*'"
        )
    os.umask(0o077)
    if peer.can_tell():
        guard_all(OPEN[program], os.geteuid())
    elif program == "superlink":
        raise InputError(
            "this system does not say which account a connection comes from, and Flower takes "
            "commands to the SuperLink without a key: run the server of a deployment on Linux"
        )
    else:
        log.warning("every account of this machine can speak to this SuperNode's port")
    sys.argv = [f"flower-{program}", *options]
    if program == "supernode":
        from flwr.supernode.cli import flower_supernode

        flower_supernode()
        return
    from flwr.superlink.cli import flower_superlink

    state = Path(options[options.index("--database") + 1])
    erase_leftovers(state)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn stops, then raises it again
    try:
        flower_superlink()
    finally:
        erase_leftovers(state)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except InputError as error:
        sys.exit(f"error: {error}")
