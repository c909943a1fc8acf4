"""``murmuration deploy run``: a run on a deployment, followed until it is over."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli.options import ReportTo, help_of
from murmuration.cli.setting_options import of_setting
from murmuration.deploy.init import deployed_address
from murmuration.deploy.processes import ended_by_signals
from murmuration.deploy.run import deployed_config, run_deployed
from murmuration.deploy.terms import parse_settings
from murmuration.privacy.plugins import brought
from murmuration.sims.runtimes.tracking import tracked


def run(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the deployment's folder")],
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
            help="registered nodes that must be online before each round: a number, or a share "
            "below 1",
        ),
    ] = 0.5,
    attempts: Annotated[int, typer.Option(help="most times to start or resume the run")] = 5,
    resume: Annotated[bool, of_setting("resume")] = False,
    report_to: ReportTo = None,
) -> None:
    """Start a run on a deployment's SuperLink and resume it when it breaks."""
    options: dict[str, Any] = {
        "out": str(out.expanduser().absolute()),
        "timeout": timeout,
        "min_nodes": min_nodes,
        "resume": resume,
    }
    settings = parse_settings(setting) | ({} if users is None else {"users": users})
    server = folder.expanduser().absolute() / "server"
    address = deployed_address(server)
    config = deployed_config(server, options, settings)
    say = partial(typer.echo, err=True)
    with ended_by_signals(), tracked(config.out, report_to):
        result = run_deployed(server, address, config, attempts=attempts, say=say)
    for name in ("epsilon", "rounds", "heldout_accuracy", "heldout_error", "out"):
        if name in result and result[name] is not None:
            typer.echo(f"{name:<18} {result[name]}")
    for name, text in _released(result).items():
        typer.echo(f"{name:<18} {text}")


def _released(result: Mapping[str, Any]) -> dict[str, str]:
    """The pages of a run without a model, by name; they are written beside its report."""
    if page := brought("murmuration.pages").get(str(result.get("strategy"))):
        from murmuration.api.run import Run

        return {"page": str(page.load()(Run.load(str(result["out"]))))}
    return {}
