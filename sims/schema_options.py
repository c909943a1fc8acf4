"""Options that declare what judgements are; see `preference.schema`. None means: not given."""

from typing import Annotated

import click

from preference.schema import KINDS, LABELS, Schema
from sims.run_options import option

Kind = Annotated[
    str | None,
    option(
        "What each judgement is: pairs, top-1 (the best of several) or ranking. [default: pairs]",
        click_type=click.Choice(KINDS),
    ),
]
Responses = Annotated[
    int | None, option("top-1, ranking: the most responses of a judgement, 2 to 64.")
]
Labels = Annotated[
    str | None,
    option(
        "true, or randomized where every row has its flip_probability. [default: true]",
        click_type=click.Choice(LABELS),
    ),
]
MostJudgements = Annotated[
    int | None,
    option(f"Most judgements (or texts) of a user. [default: {Schema.most_judgements}]"),
]
MostCharacters = Annotated[
    int | None, option(f"Most characters of a text. [default: {Schema.most_characters}]")
]


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
