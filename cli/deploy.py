"""``murmuration deploy``: the same apps on separate machines. It writes and explains."""

import dataclasses
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import ReportTo, RunName, help_of
from murmuration.cli.setting_options import of_setting
from murmuration.deploy.certificates import write_new
from murmuration.deploy.client import (
    Client,
    checks,
    describe,
    run_client,
    run_node,
    server_line,
    spent,
)
from murmuration.deploy.doctor import examine
from murmuration.deploy.init import (
    REGISTRATION,
    Deployment,
    deployed_address,
    write_deployment,
)
from murmuration.deploy.processes import ended_by_signals
from murmuration.deploy.register import register
from murmuration.deploy.run import run_deployed
from murmuration.deploy.templates import client_units
from murmuration.deploy.terms import RUN, Terms, read_settings, usual_run
from murmuration.preference.data.judgements import InputError
from murmuration.reporting.live.tracking import tracked
from murmuration.server.registration import registration_for
from murmuration.strategies import registry
from murmuration.strategies.config import FORMER, RunConfig, refuse_seed

deploy = typer.Typer(
    help="Deploy on separate machines: write keys and commands, run a client, look after it.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="the deployment's folder")]


@deploy.command("init")
def init(
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
        float, typer.Option("--clip-norm", "--clip", help="clip norm of a user's gradient")
    ] = Terms.clip_norm,
    group_size: Annotated[
        int, typer.Option(help="most judgements (or texts) of a user in a round")
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


@deploy.command("client")
def client(
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
    columns: about_data.Columns = None,
    user_column: about_data.UserColumn = None,
    one_user_per_row: about_data.OneUserPerRow = None,
    kind: about_data.Kind = None,
    responses: about_data.Responses = None,
    max_judgements: about_data.MaxJudgements = None,
    max_characters: about_data.MaxCharacters = None,
    labels: about_data.Labels = None,
    scale: about_data.Scale = None,
    positive_from: about_data.PositiveFrom = None,
    no_prompt: about_data.NoPrompt = None,
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
) -> None:
    """Check folder, file, key and policy, say exactly what will leave this machine, then run the
    node. The policy is compared with the run that the operator means to make. --check asks nobody
    for anything, and writes nothing.
    """
    result = Client.load(folder, state, fingerprint)
    if (data is None) == (socket is None):
        raise InputError("give --data FILE, or --socket PATH of an agent that runs by itself")
    if data is None:
        with ended_by_signals():
            run_node(result, socket or Path(), port=port, node_user=node_user, say=_say)
        return
    schema = about_data.schema(
        kind,
        responses,
        max_judgements,
        max_characters,
        labels,
        one_user_per_row,
        scale,
        positive_from,
        no_prompt,
    )
    named = about_data.renamed(columns, user_column)
    judgements, lines, well = checks(result, data, named, schema)
    if not check:
        lines.append(server_line(result))
    typer.echo("\n".join([*lines, "", *describe(result, judgements), "", *spent(result), ""]))
    if node_user is None:
        typer.echo(
            "The server's code will run as you and could read whatever you can; --node-user, or "
            "the two system services, keep it from your file.",
            err=True,
        )
    if check:
        if not well:
            sys.exit(1)
        return
    with ended_by_signals():
        run_client(
            result,
            data,
            port=port,
            columns=named,
            schema=schema,
            node_user=node_user,
            say=_say,
        )


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
        try:
            typer.echo(f"wrote {write_new(folder.expanduser() / name, text.encode())}")
        except OSError as error:
            raise InputError(f"{folder / name} cannot be written: {error.strerror}") from None


@deploy.command("register")
def registered(
    folder: Folder,
    wait: Annotated[float, typer.Option(help="seconds to wait. For the SuperLink")] = 120.0,
) -> None:
    """Register every client's key that is not registered yet; safe to repeat."""
    register(folder, wait=wait, say=_say)


@deploy.command("doctor")
def doctor(
    folder: Folder,
    wait: Annotated[float, typer.Option(help="seconds to wait. Until all is well")] = 0.0,
) -> None:
    """Say what is reachable, registered and version-matched; exit 1 if something is not."""
    deadline = time.monotonic() + wait
    result = examine(folder)
    while not all(finding.well for finding in result) and time.monotonic() < deadline:
        time.sleep(1.0)
        result = examine(folder)
    width = max(len(finding.what) for finding in result)
    for finding in result:
        typer.echo(f"{'ok ' if finding.well else 'BAD'} {finding.what:<{width}}  {finding.seen}")
    if not all(finding.well for finding in result):
        sys.exit(1)


@deploy.command("run")
def run(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="where to write. The run's folder, on this machine")],
    users: Annotated[
        int | None,
        typer.Option(
            help="number of users. To plan for, a public constant "
            "\\[default: as in server/run.toml]",
            show_default=False,
        ),
    ] = None,
    setting: Annotated[
        list[str], typer.Option("--set", help="any setting of a run: --set rounds=50")
    ] = [],  # noqa: B006 (typer reads it once)
    timeout: Annotated[float, typer.Option(help=help_of("timeout"))] = 30.0,
    min_nodes: Annotated[
        float,
        typer.Option(
            "--min-nodes",
            "--least-nodes",
            help="registered nodes that must be online before each round: a number, or a share "
            "below 1",
        ),
    ] = 0.5,
    refresh: Annotated[
        int | None,
        typer.Option(
            help="rounds after which nodes are asked again whom they host; 0: never "
            "\\[default: 10, or 0 if the strategy takes one or two rounds]",
            show_default=False,
        ),
    ] = None,
    attempts: Annotated[int, typer.Option(help="most times to start or resume the run")] = 5,
    resume: Annotated[bool, of_setting("resume")] = False,
    accept_ledger_loss: Annotated[bool, of_setting("accept_ledger_loss")] = False,
    report_to: ReportTo = None,
    run_name: RunName = None,
) -> None:
    """Start a run on a deployment's SuperLink and resume it when it breaks."""
    chosen = parsed(setting)
    if users is not None:
        chosen["users"] = users
    server = folder.expanduser().absolute() / "server"
    address = deployed_address(server)
    settings = _settings(server / RUN, chosen)
    usual = 0 if settings.get("strategy") in registry.solved() else 10
    config = usual_run(
        {
            "out": str(out.expanduser().absolute()),
            "timeout": timeout,
            "min_nodes": min_nodes,
            "refresh": usual if refresh is None else refresh,
            "resume": resume,
            "accept_ledger_loss": accept_ledger_loss,
            **settings,
        }
    )
    if config.strategy == "els" and not config.group_size:
        raise InputError(
            "--set strategy=els: owners' agents tell nobody how many judgements users have, so the "
            "group size cannot be chosen from that; add --set group_size=N"
        )
    config = replace(config, registration=config.registration or str(server / REGISTRATION))
    refuse_seed(config)
    registration_for(config)  # what a run would be refused for is refused here
    with tracked(config.out, report_to, run_name, resume=config.resume):
        result = run_deployed(server, address, config, attempts=attempts, say=_say)
    for name in ("epsilon", "rounds", "heldout_accuracy", "heldout_error", "out"):
        typer.echo(f"{name:<18} {result.get(name)}")


def parsed(settings: list[str]) -> dict[str, Any]:
    """``name=value`` texts as settings of a run; InputError for a name or value that is none."""
    fields = {field.name: field for field in dataclasses.fields(RunConfig)}
    result: dict[str, Any] = {}
    for text in settings:
        name, separator, value = text.partition("=")
        written = name.strip().replace("-", "_")
        field = fields.get(FORMER.get(written, written))
        if not separator or field is None:
            raise InputError(f"--set {text}: use NAME=VALUE with one of {', '.join(fields)}")
        kind = type(field.default)
        try:
            result[field.name] = value == "true" if kind is bool else kind(value)
        except ValueError:
            raise InputError(f"--set {text}: {name} must be a {kind.__name__}") from None
        if kind is bool and value not in ("true", "false"):
            raise InputError(f"--set {text}: {name} is true or false")
    return result


def _settings(path: Path, chosen: dict[str, Any]) -> dict[str, Any]:
    """``chosen`` settings, and for the others those of the deployment.

    Of another strategy than the deployment's only who is there and what it may cost.
    """
    usual = read_settings(path)
    if chosen.get("strategy", usual.get("strategy")) != usual.get("strategy"):
        kept = ("users", "cohort", "epsilon", "delta", "adjacency")
        usual = {name: usual[name] for name in kept if name in usual}
    return {**usual, **chosen}


def _say(text: str) -> None:
    typer.echo(text, err=True)
