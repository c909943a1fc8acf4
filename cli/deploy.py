"""``murmuration deploy``: the same apps on separate machines. It writes and explains."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from murmuration.cli.deployments.client import client
from murmuration.cli.deployments.init import init
from murmuration.cli.deployments.run import run
from murmuration.deploy.certificates import write_new
from murmuration.deploy.commands import client_units
from murmuration.deploy.doctor import examine_until_well
from murmuration.deploy.register import register
from murmuration.preference.data.errors import disk_errors_as

deploy = typer.Typer(
    help="Deploy on separate machines: keys, commands, clients.",
    no_args_is_help=True,
)
deploy.command("init")(init)
deploy.command("client")(client)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="the deployment's folder")]


@deploy.command("units")
def units(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="where to write them: /etc/systemd/system")
    ],
) -> None:
    """Write a client's agent and SuperNode as two systemd units; start nothing.

    They run as users of their own, murmuration-agent and murmuration-node.
    """
    for name, text in client_units().items():
        with disk_errors_as(f"{folder / name} cannot be written"):
            typer.echo(f"wrote {write_new(folder.expanduser() / name, text.encode())}")


@deploy.command("register")
def registered(
    folder: Folder,
    wait: Annotated[float, typer.Option(help="seconds to wait. For the SuperLink")] = 120.0,
) -> None:
    """Register every client's key that is not registered yet; safe to repeat."""
    register(folder, wait=wait, say=partial(typer.echo, err=True))


@deploy.command("doctor")
def doctor(
    folder: Folder,
    wait: Annotated[float, typer.Option(help="seconds to wait. Until all is well")] = 0.0,
) -> None:
    """Check that everything is reachable, registered and of matching versions; exit 1 if not."""
    findings = examine_until_well(folder, wait)
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        typer.echo(f"{'ok ' if finding.well else 'BAD'} {finding.what:<{width}}  {finding.seen}")
    if not all(finding.well for finding in findings):
        sys.exit(1)


deploy.command("run")(run)
