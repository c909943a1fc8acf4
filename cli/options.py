"""Options of commands, made from the declarations of settings.

A setting's option has the setting's name, type, help and choices; None means: not given. Typer
reads a command's options from its signature, which is why one is made here.
"""

import inspect
from dataclasses import Field, fields
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand

from murmuration.cli.about_data import option_of
from murmuration.reporting.live.tracking import CHOICES
from murmuration.strategies import registry
from murmuration.strategies.config import OWN_SETTINGS, RunConfig, parse_delta
from murmuration.strategies.settings import OF_STRATEGY, OUTPUT, PANELS, about

#: Of commands that write ``metrics.jsonl``.
ReportTo = Annotated[
    str | None,
    typer.Option(
        help="Send the metrics for release (metrics.jsonl), and nothing else, to a tracker: "
        "tensorboard (into --out), wandb, mlflow or trackio. A resumed run goes on there. "
        r"\[default: none]",
        click_type=click.Choice(CHOICES),
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
RunName = Annotated[
    str | None,
    typer.Option(
        help=r"--report-to: the run's name there. \[default: that of its folder]",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]


def of_setting(name: str, **more: Any) -> Any:
    """The option of a setting; keywords are typer's."""
    declared = next(field for field in fields(RunConfig) if field.name == name)
    if name == "strategy":
        # Known when --help is asked for.
        more |= {"click_type": click.Choice(list(registry.strategies())), "is_eager": True}
    if name == "delta":
        more |= {"parser": parse_delta}
    return option_of(declared, **more)


def panel_of(declared: "Field[Any]") -> str:
    """The panel of ``--help`` in which a setting stands."""
    _, names = OWN_SETTINGS.get(declared.name, (declared, ()))
    return f"{OF_STRATEGY} {', '.join(names)}" if names else about(declared).panel


def setting_parameters() -> list[inspect.Parameter]:
    """Parameters of a command for every setting of a simulation, in the order of the panels."""
    offered = [field for field in fields(RunConfig) if not about(field).deployed]
    order = {panel: place for place, panel in enumerate(PANELS)}
    offered.sort(key=lambda field: order.get(panel_of(field), len(PANELS)))  # else as declared
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                type(field.default) | None,
                of_setting(field.name, rich_help_panel=panel_of(field)),
            ],
        )
        for field in offered
    ]


class WithStrategyHelp(TyperCommand):
    """A command whose ``--strategy NAME --help`` shows only what that strategy can use."""

    def get_help(self, ctx: click.Context) -> str:
        """As for any command, after hiding what is of other strategies."""
        if (name := ctx.params.get("strategy")) in registry.strategies():
            steps = {field.name for field in fields(RunConfig) if about(field).steps} | {"cohort"}
            without = steps if registry.named(name).rounds else set()
            for parameter in self.params:
                _, names = OWN_SETTINGS.get(parameter.name or "", (None, (name,)))
                usable = name in names and parameter.name not in without
                if not usable and isinstance(parameter, click.Option):
                    parameter.hidden = True
        return super().get_help(ctx)
