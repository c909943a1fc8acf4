"""``murmuration agent``: keep a user's data from the node's app, and answer for it by a policy."""

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import add_parameters, meaning
from murmuration.client.agent.agent import Agent, serve
from murmuration.client.agent.policy import Policy
from murmuration.client.store import UserStore, load_for_node
from murmuration.preference.escaping import get_logger
from murmuration.privacy import extensions


def agent(
    *,
    data: Annotated[Path, typer.Option(help=f"{meaning('data')} Of this machine's users.")],
    policy: Annotated[Path, typer.Option(help="what may leave: policy.toml")],
    state: Annotated[
        Path,
        typer.Option(
            help="where state is kept. A private folder: the owner's ledger, and which labels were "
            "released"
        ),
    ],
    socket: Annotated[
        Path, typer.Option(help="the agent's socket. Where the SuperNode's app finds it")
    ],
    group: Annotated[
        str | None, typer.Option(help="let this group use the socket, not only its owner")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="let this user use the socket instead of its owner (as root)")
    ] = None,
    **rows: Any,
) -> None:
    """Answer a node's requests, within its owner's policy.

    A row that cannot be used is skipped, and reported here; its user and all others stay.

    Runs until you end it. Start it as the only system user that can read the data, and not as the
    SuperNode's user; give the SuperNode's node-config nothing but agent="SOCKET".
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    get_logger("murmuration.agent")  # in one line each
    rules = Policy.load(policy)
    columns, schema = about_data.declared_rows(rows)
    extensions.restrict(rules.extensions)
    hosted = load_for_node(str(data.expanduser().absolute()), columns, schema=schema)
    store = UserStore(hosted, place=-1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serve(Agent(store, rules, state.expanduser()), socket.expanduser(), group=group, user=user)


add_parameters(agent, about_data.row_parameters(), before="group")
