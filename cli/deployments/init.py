"""``murmuration deploy init``: certificates, keys, commands and units of a deployment."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from murmuration.deploy.init import Deployment, write_deployment
from murmuration.deploy.terms import Terms


def init(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a new folder")],
    host: Annotated[
        list[str], typer.Option(help="name or address of the server; repeat for others")
    ],
    clients: Annotated[
        str, typer.Option(help="clients, and how many users each may host (1): alice,bob:200")
    ],
    port: Annotated[int, typer.Option(help="port to listen on. Of the SuperLink")] = 8100,
    users: Annotated[
        int,
        typer.Option(
            help="number of users. To plan for, a public constant; 0: all that the clients may "
            "host",
            show_default=False,
        ),
    ] = 0,
    cohort: Annotated[
        int,
        typer.Option(
            help="expected users in a round. 0: a fifth, at least 100 (or all), at most 500",
            show_default=False,
        ),
    ] = 0,
    epsilon: Annotated[float, typer.Option(help="privacy budget. Of one run")] = Terms.epsilon,
    delta: Annotated[float, typer.Option(help="delta of the promise. Of one run")] = Terms.delta,
    rounds: Annotated[int, typer.Option(help="rounds of training. Of one run")] = Terms.rounds,
    clip_norm: Annotated[
        float, typer.Option("--clip-norm", help="clip norm of a user's gradient")
    ] = Terms.clip_norm,
    group_size: Annotated[
        int, typer.Option(help="most judgements, texts or votes of a user in a round")
    ] = Terms.group_size,
    repeats: Annotated[
        int, typer.Option(help="how often a node answers the same round, if the server crashes")
    ] = Terms.repeats,
) -> None:
    """Write certificates, one key for each client, commands and units; start nothing.

    The numbers are those of a usual run: `deploy run` takes them from here, and every client's
    policy is written to allow one run by them.
    """
    deployment = Deployment.of(host, port, clients)
    terms = Terms(
        users=users or deployment.hosted,
        cohort=cohort,
        epsilon=epsilon,
        delta=delta,
        rounds=rounds,
        clip_norm=clip_norm,
        group_size=group_size,
        repeats=repeats,
    )
    written = write_deployment(folder, replace(deployment, terms=terms))
    base = folder.expanduser().absolute()
    for path in written:
        secret = "  (secret, 0600)" if path.suffix == ".key" else ""
        typer.echo(f"wrote {path.relative_to(base)}{secret}")
    typer.echo(f"\n{(base / 'README.md').read_text(encoding='utf-8')}")
