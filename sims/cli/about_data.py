"""Options of commands by which judgements are declared.

Made from what every run is set by, and of no strategy: the owner's agent has them, too, which looks
at no strategy of another package that its owner's policy does not allow.
"""

from dataclasses import Field, fields
from typing import Annotated, Any

import click
import typer

from murmuration.preference.data.schema import Schema
from murmuration.strategies.settings import Settings, about


def option_of(declared: "Field[Any]", **more: Any) -> Any:
    """The option of a setting: its name, type, help and choices; keywords are typer's."""
    told, plain = about(declared), about(declared).help.replace("[", r"\[")  # which is markup
    if told.choices:
        more = {"click_type": click.Choice(told.choices), **more}
    of_bool = isinstance(declared.default, bool)
    names = [f"--{declared.name.replace('_', '-')}"] if of_bool else []
    return typer.Option(*names, help=plain, show_default=False, **more)


_OPTIONS = {field.name: option_of(field) for field in fields(Settings)}
Columns = Annotated[str | None, _OPTIONS["columns"]]
Kind = Annotated[str | None, _OPTIONS["kind"]]
Responses = Annotated[int | None, _OPTIONS["responses"]]
Labels = Annotated[str | None, _OPTIONS["labels"]]
MostJudgements = Annotated[int | None, _OPTIONS["most_judgements"]]
MostCharacters = Annotated[int | None, _OPTIONS["most_characters"]]


def schema(
    kind: str | None,
    responses: int | None,
    most_judgements: int | None,
    most_characters: int | None,
    labels: str | None = None,
) -> Schema:
    """The schema that options declare; InputError if they make no sense."""
    given = {
        "kind": kind,
        "responses": responses,
        "most-judgements": most_judgements,
        "most-characters": most_characters,
        "labels": labels,
    }
    return Schema.of({name: value for name, value in given.items() if value is not None})
