"""``murmuration score``: what a saved model thinks of an answer."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from murmuration.preference.language.likelihood import load_scorer


def score(
    model: Annotated[str, typer.Argument(help="A model folder, as in RUN/model.")],
    prompt: Annotated[str, typer.Option(help="The prompt.")],
    response: Annotated[list[str], typer.Option(help="A response; repeat to compare several.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Score responses to a prompt: the higher, the better liked. Only differences mean anything.

    A model of --task text, sft or policy gives the response's log-likelihood in nats instead.
    """
    scores = load_scorer(model).score([prompt] * len(response), response)
    if as_json:
        print(json.dumps({"scores": [float(value) for value in scores]}))
        return
    table = Table("score", "response", box=None, pad_edge=False)
    for value, text in sorted(zip(scores, response, strict=True), reverse=True):
        table.add_row(f"{value:+.3f}", Text(text))  # whatever is in brackets is theirs
    Console().print(table)
