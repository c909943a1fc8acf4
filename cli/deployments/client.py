"""``murmuration deploy client``: show the client's files and what will leave, then run the
client.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import add_parameters
from murmuration.deploy.client import Client, run_client, run_node
from murmuration.deploy.disclosure import report
from murmuration.deploy.processes import ended_by_signals
from murmuration.preference.data.errors import InputError


def client(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the client's folder")],
    data: Annotated[
        Path | None,
        typer.Option(help="the judgements (or other rows) to read. Of this machine's users"),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            help="the agent's socket. Instead of --data, of a running agent: run only the node"
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="only check and report; run nothing")
    ] = False,
    port: Annotated[
        int, typer.Option(help="port to listen on. Of the SuperNode, on this machine only")
    ] = 9094,
    node_user: Annotated[
        str | None, typer.Option(help="run the server's code as this user (needs root)")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="where state is kept. A folder of your own: ledger, keys, logs "
            "\\[default: DIR-state, beside DIR]",
            show_default=False,
        ),
    ] = None,
    fingerprint: Annotated[
        str, typer.Option(help="SHA-256 of the authority that must have signed DIR, if you know it")
    ] = "",
    **rows: Any,
) -> None:
    """Check folder, file, key and policy, say exactly what will leave this machine, then run the
    node. The policy is compared with the run that the operator means to make. --check asks nobody
    for anything, and writes nothing.
    """
    say = partial(typer.echo, err=True)
    handed_over = Client.load(folder, state, fingerprint)
    if (data is None) == (socket is None):
        raise InputError("give --data FILE, or --socket PATH of an agent that runs by itself")
    if data is None:
        with ended_by_signals():
            run_node(
                handed_over,
                socket or Path(),
                port=port,
                node_user=node_user,
                say=say,
            )
        return
    columns, schema = about_data.declared_rows(rows)
    text, allowed = report(handed_over, data, columns, schema, ask_server=not check)
    typer.echo(text)
    if node_user is None:
        typer.echo(
            "The server's code will run as you and could read whatever you can; --node-user, or "
            "the two system services, keep it from your file.",
            err=True,
        )
    if check:
        sys.exit(0 if allowed else 1)
    with ended_by_signals():
        run_client(
            handed_over,
            data,
            port=port,
            columns=columns,
            schema=schema,
            node_user=node_user,
            say=say,
        )


add_parameters(client, about_data.row_parameters(), before="port")
