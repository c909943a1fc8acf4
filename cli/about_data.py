"""Options of commands by which judgements are declared.

Made from what every run is set by, and of no strategy: the owner's agent has them, too, which looks
at no strategy of another package that its owner's policy does not allow.
"""

import inspect
from collections.abc import Mapping
from dataclasses import Field
from typing import Annotated, Any

import click
import typer

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.schema import Schema
from murmuration.strategies.settings.declaration import DATA, about, declared, option
from murmuration.strategies.settings.run import Settings


def option_of(field: "Field[Any]", **more: Any) -> Any:
    """The option of a setting: its name, type, help and choices; keywords are typer's."""
    told, plain = about(field), about(field).help.replace("[", r"\[")  # which is markup
    if told.choices:
        more = {"click_type": click.Choice(told.names), **more}
    of_bool = isinstance(field.default, bool)
    names = [option(field.name)] if of_bool else []
    return typer.Option(*names, help=plain, show_default=False, **more)


_OPTIONS = {field.name: option_of(field) for field in declared(Settings)}
OneUserPerRow = Annotated[bool | None, _OPTIONS["one_user_per_row"]]
Columns = Annotated[str | None, _OPTIONS["columns"]]
Format = Annotated[str | None, _OPTIONS["format"]]
Kind = Annotated[str | None, _OPTIONS["kind"]]
Responses = Annotated[int | None, _OPTIONS["responses"]]
Labels = Annotated[str | None, _OPTIONS["labels"]]
MaxJudgements = Annotated[int | None, _OPTIONS["max_judgements"]]
MaxCharacters = Annotated[int | None, _OPTIONS["max_characters"]]
Scale = Annotated[str | None, _OPTIONS["scale"]]
PositiveFrom = Annotated[str | None, _OPTIONS["positive_from"]]
NoPrompt = Annotated[bool | None, _OPTIONS["no_prompt"]]
Ids = Annotated[str | None, _OPTIONS["ids"]]

UserColumn = Annotated[
    str | None,
    typer.Option(
        help="Column that says who judged: short for --columns user_id=NAME.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        help=r"Split of --data, as train_prefs: short for --data NAME#SPLIT. \[default: train on "
        "the hub, else the only one]",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
DataConfig = Annotated[
    str | None,
    typer.Option(
        help="Configuration of --data: short for --data NAME#CONFIG/SPLIT.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]


#: By their parameters, the options by which rows are declared, in the order of help.
ROWS: Mapping[str, Any] = {
    "columns": Columns,
    "user_column": UserColumn,
    "format": Format,
    "one_user_per_row": OneUserPerRow,
    "kind": Kind,
    "responses": Responses,
    "max_judgements": MaxJudgements,
    "max_characters": MaxCharacters,
    "labels": Labels,
    "scale": Scale,
    "positive_from": PositiveFrom,
    "no_prompt": NoPrompt,
    "ids": Ids,
}


def row_parameters(*without: str) -> list[inspect.Parameter]:
    """Return the parameters of ``ROWS`` but for some, for ``cli.options.add_parameters``."""
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in ROWS.items()
        if name not in without
    ]


def located(source: str | None, split: str | None, config: str | None) -> str | None:
    """A source with its split and configuration; InputError where there is no source for them."""
    from murmuration.preference.data.sources import with_parts

    if split is None and config is None:
        return source
    if not source:
        raise InputError("--split and --data-config are about --data: name it")
    return with_parts(source, split or "", config or "")


def declared_rows(options: Mapping[str, Any]) -> tuple[str, Schema]:
    """Return the columns and the schema that options of ``ROWS`` declare.

    Raises:
        InputError: they make no sense.
    """
    from murmuration.preference.data.loading import write_columns

    given = {name: value for name, value in options.items() if value is not None}
    columns = write_columns(given.pop("columns", None), given.pop("user_column", None))
    return columns, Schema.of({name.replace("_", "-"): value for name, value in given.items()})
