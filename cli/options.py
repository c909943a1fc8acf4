"""Options of commands: those that several commands have, and those made from settings.

One name has one meaning, unit and type in every command, which its help begins with; what a command
adds stands behind it. A setting's option has the setting's name, type, help and choices; None
means: not given. A former name is read for one version, and shown nowhere: it is declared as an
option's second name, or as its setting's ``former``.
"""

import copy
import inspect
from collections.abc import Mapping
from dataclasses import Field, fields
from importlib.metadata import entry_points
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperOption

from murmuration.cli.about_data import option_of
from murmuration.reporting.live.tracker_names import CHOICES
from murmuration.strategies.settings import (
    ENTRY_POINTS,
    MODEL,
    OF_STRATEGIES,
    OF_STRATEGY,
    OUTPUT,
    PANELS,
    TRAINING,
    Settings,
    about,
    by_setting,
    parse_delta,
)

#: What help begins with, of options that are no settings.
JSON = "Print the result as one JSON line."
OUT = "Where to write."
WHERE = "Where it runs."
SEED = "Seed."
USERS = "Number of users."
GENERATIONS = "Answers to each prompt."
LIMIT = "How many prompts, from the first."
REWARD = "A saved reward model, as in RUN/model."
REWARD_PRIVACY = (
    "Privacy cost of the reward, where its folder does not record it: `public`, or the ledgers of "
    "its runs, comma-separated."
)
PROMPTS = (
    "Public prompts: a file (or other source, as --data of a run) with `prompt` in each row, or "
    "`population:seen` or `population:unseen` for fresh ones of the embedded population."
)
PROMPTS_PUBLIC = "Declare that the prompts were public before any user saw them."
BASE = "The base: a folder, or a hub name."
AUDIT = "A file with what `murmuration audit TARGET --json` printed."

Json = Annotated[bool, typer.Option("--json", help=JSON)]
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


def of_strategies() -> Mapping[str, type]:
    """Return the settings of each strategy by its name: ours, and those of other packages.

    Only where another package brings one are strategies imported to say so.
    """
    if not entry_points(group=ENTRY_POINTS):
        return OF_STRATEGIES
    from murmuration.strategies import registry

    return {name: strategy.settings for name, strategy in registry.strategies().items()}


#: What single strategies declare: by name the field, and which strategies have it.
OWN = by_setting(of_strategies())
_DECLARED = {field.name: field for field in fields(Settings)} | {
    name: field for name, (field, _) in OWN.items()
}


def of_setting(name: str, **more: Any) -> Any:
    """Return the option of a setting; keywords are typer's."""
    if name == "strategy":
        more |= {"click_type": click.Choice(list(of_strategies()))}
    if name in ("strategy", "task"):
        more |= {"is_eager": True}  # known when --help is asked for
    if name == "delta":
        more |= {"parser": parse_delta, "metavar": "FLOAT"}
    return option_of(_DECLARED[name], **more)


def help_of(name: str) -> str:
    """Return the help of a setting for a command that has another default."""
    return about(_DECLARED[name]).help.partition("[default")[0].strip()


def panel_of(declared: "Field[Any]") -> str:
    """Return the panel of ``--help`` in which a setting stands."""
    _, names = OWN.get(declared.name, (declared, ()))
    return f"{OF_STRATEGY} {', '.join(names)}" if names else about(declared).panel


def setting_parameters() -> list[inspect.Parameter]:
    """Return a command's parameters for all settings of a simulation, ordered by their panels."""
    offered = [field for field in _DECLARED.values() if not about(field).deployed]
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


class RenamedOption(TyperOption):
    """An option that is also read under its former names, which no help shows."""

    def __init__(self, declared: TyperOption) -> None:
        self.__dict__.update(declared.__dict__)
        self.opts, self.secondary_opts = declared.opts[:1], declared.secondary_opts[:1]
        self.former = copy.copy(declared)
        self.former.name = f"former {declared.name}"
        self.former.opts = declared.opts[1:]
        self.former.secondary_opts = declared.secondary_opts[1:]

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser read both, each to a place of its own."""
        super().add_to_parser(parser, ctx)
        self.former.add_to_parser(parser, ctx)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        """Return what was given under either name; a click.UsageError if both were."""
        assert self.name and self.former.name
        if self.former.name in opts:
            if self.name in opts:
                former = self.former.opts[0]
                raise click.UsageError(
                    f"{former} is the former name of {self.opts[0]}: give one of them", ctx
                )
            opts = {**opts, self.name: opts[self.former.name]}
        return super().consume_value(ctx, opts)


def with_former_names(parameter: click.Parameter) -> click.Parameter:
    """Return a command's parameter so that all its names but the first are hidden."""
    if isinstance(parameter, TyperOption) and len(parameter.opts) > 1:
        return RenamedOption(parameter)
    return parameter


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
        """Return help as of any command, on what most runs, and those named, need."""
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
        """Return the names of what most runs need, and the strategy and the task that are named."""
        declared = _DECLARED.values()
        shown = {*self.COMMON, *(field.name for field in declared if about(field).common)}
        if strategy := given.get("strategy"):
            shown |= {name for name, (_, names) in OWN.items() if strategy in names}
            shown |= {field.name for field in declared if panel_of(field) == TRAINING}
        if given.get("task"):
            shown |= {f.name for f in declared if panel_of(f) == MODEL or about(f).base}
        return shown

    @staticmethod
    def _unusable(strategy: str | None) -> set[str]:
        """Return the names of settings that the strategy named cannot use."""
        if strategy is None:
            return set()
        from murmuration.strategies import registry

        unusable = {name for name, (_, names) in OWN.items() if strategy not in names}
        if registry.named(strategy).rounds:
            unusable |= {f.name for f in _DECLARED.values() if about(f).steps} | {"cohort"}
        return unusable
