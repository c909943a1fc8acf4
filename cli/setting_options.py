"""Options made from the declarations of settings, those of single strategies among them.

A setting's option has the setting's name, type, help and choices; None means: not given. Typer
reads a command's options from its signature, which is why one is made here.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import Field
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperOption

from murmuration.cli.about_data import option_of
from murmuration.privacy.plugins import more_elsewhere
from murmuration.strategies.settings.catalogue import (
    DECLARED,
    OWN,
    of_simulations,
    of_strategies,
    panel_of,
    planned_fields,
)
from murmuration.strategies.settings.declaration import MODEL, TRAINING, about, also_taken
from murmuration.strategies.settings.plan_options import plan_fields


class _StrategyName(click.Choice):
    """The name of a strategy; of others it is said where they may be."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            message = f"{error.message.removesuffix('.')}{more_elsewhere()}."
            raise click.BadParameter(message, ctx=ctx, param=param) from None


def of_setting(name: str, **more: Any) -> Any:
    """The option of a setting; keywords are typer's."""
    if name == "strategy":
        more |= {"click_type": _StrategyName(list(of_strategies()))}
    if name in ("strategy", "task"):
        more |= {"is_eager": True}  # known when --help is asked for
    if name == "delta":
        more |= {"parser": str, "metavar": "FLOAT"}  # a number, or a choice by name
    return option_of(DECLARED[name], **more)


def setting_parameters() -> list[inspect.Parameter]:
    """A command's parameters for all settings of a simulation, ordered by their panels."""
    return [
        _parameter(field, of_setting(field.name, rich_help_panel=panel_of(field)))
        for field in of_simulations()
    ]


def parameters_of(fields: "Iterable[Field[Any]]") -> list[inspect.Parameter]:
    """A command's parameters for fields that are declared like settings."""
    return [_parameter(field, option_of(field)) for field in fields]


def planned_parameters() -> list[inspect.Parameter]:
    """The parameters of a plan, where one number is solved for; of the others only the cohort has
    a default.
    """
    of_runs = [
        _parameter(each, of_setting(each.name, default=each.name == "cohort"))
        for each in planned_fields()
    ]
    return [*of_runs, *parameters_of(plan_fields())]


def _parameter(field: "Field[Any]", option: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    annotation = Annotated[type(field.default) | None, option]
    return inspect.Parameter(field.name, kind, default=None, annotation=annotation)


class RunCommand(TyperCommand):
    """A command whose ``--help`` shows what most runs need.

    ``--strategy NAME --help`` adds what that strategy can use, ``--task NAME --help`` what is about
    language models, ``--help-all`` everything.
    """

    #: Options that are no settings, and that most runs need.
    COMMON = frozenset({"config", "runtime", "user_column", "as_json", "help_all"})

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(
            TyperOption(
                param_decls=["--help-all"],
                callback=self._show_all,
                help="Show all options and exit.",
                default=False,
                is_flag=True,
                is_eager=True,
                expose_value=False,
            )
        )

    def get_help(self, ctx: click.Context) -> str:
        """The help, limited to what most runs and the named strategy and task need."""
        return self._help(ctx, self._shown(ctx.params))

    def _show_all(self, ctx: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked:
            typer.echo(self._help(ctx, {str(each.name) for each in self.params}), color=ctx.color)
            ctx.exit()

    def _help(self, ctx: click.Context, shown: set[str]) -> str:
        shown = shown - self._unusable(ctx.params.get("strategy"))
        for parameter in self.params:
            if isinstance(parameter, click.Option):
                parameter.hidden = parameter.name not in shown
        return super().get_help(ctx)

    def _shown(self, given: Mapping[str, Any]) -> set[str]:
        """The names of settings that most runs, the named strategy and the task need."""
        settings = DECLARED.values()
        shown = {*self.COMMON, *(field.name for field in settings if about(field).common)}
        if strategy := given.get("strategy"):
            shown |= {name for name, (_, names) in OWN.items() if strategy in names}
            shown |= {field.name for field in settings if panel_of(field) == TRAINING}
        if given.get("task"):
            shown |= {f.name for f in settings if panel_of(f) == MODEL or about(f).base}
        return shown

    @staticmethod
    def _unusable(strategy: str | None) -> set[str]:
        if strategy is None:
            return set()
        from murmuration.strategies import registry

        unusable = {name for name, (_, names) in OWN.items() if strategy not in names}
        if (named := registry.named(strategy)).rounds:
            unusable |= {f.name for f in DECLARED.values() if about(f).steps} | {"cohort"}
            unusable -= {*also_taken(named.settings)}
        return unusable
