"""Options of commands by which judgements are declared.

Made from what every run is set by, and of no strategy: the owner's agent has them, too, which looks
at no strategy of another package that its owner's policy does not allow.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import Field
from typing import Annotated, Any

import click
import typer

from murmuration.api.rows import stated_rows
from murmuration.preference.data.schema import Schema
from murmuration.strategies.settings.data import row_fields
from murmuration.strategies.settings.declaration import DATA, about, option


def option_of(field: "Field[Any]", *, default: bool = True, **more: Any) -> Any:
    """The option of a setting: its name, type, help and choices; keywords are typer's.

    Without ``default``, help does not state what is used if the option is left out.
    """
    declared_as, words = about(field), about(field).help
    if not default:
        words = words.partition("[default")[0]
    if declared_as.choices:
        more = {"click_type": click.Choice(declared_as.names), **more}
    if isinstance(kind := more.get("click_type"), click.Choice):
        # In the words, where there is room: the column of types is narrow.
        words, more["metavar"] = _with_choices(words, list(kind.choices)), "NAME"
    of_bool = isinstance(field.default, bool)
    names = [option(field.name)] if of_bool else []
    plain = words.rstrip().replace("[", r"\[")  # which is markup
    return typer.Option(*names, help=plain, show_default=False, **more)


def _with_choices(words: str, choices: list[str]) -> str:
    """An option's help, with the names that it takes."""
    if all(re.search(rf"\b{re.escape(choice)}\b", words) for choice in choices):
        return words
    before, default, after = words.partition("[default")
    return f"{before}One of {', '.join(choices)}. {default}{after}".rstrip()


UserColumn = Annotated[
    str | None,
    typer.Option(
        help="Column that says who judged: short for --columns user_id=NAME.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]


def row_parameters(*without: str) -> list[inspect.Parameter]:
    """A command's parameters that declare rows, without some."""
    result = []
    for field in row_fields(*without):
        annotation = Annotated[type(field.default) | None, option_of(field)]
        result.append(_parameter(field.name, annotation))
        if field.name == "columns":
            result.append(_parameter("user_column", UserColumn))
    return result


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def declared_rows(options: Mapping[str, Any]) -> tuple[str, Schema]:
    """The columns and the schema that options of ``row_parameters`` declare.

    Raises:
        InputError: they are not consistent.
    """
    columns, declared = stated_rows(options)
    return columns, Schema.of({option(name)[2:]: value for name, value in declared.items()})
