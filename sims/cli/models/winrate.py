"""``murmuration winrate``: whose answers the embedded population likes better, by its truth."""

import json
from math import isnan
from typing import Annotated, Any

import click
import typer

from murmuration.preference.language.generation import Sampling, Writer
from murmuration.sims.population.population import Population
from murmuration.sims.population.win_rate import Estimate, Worth, win_rate, worth
from murmuration.sims.runtimes.tables import console, table_of

#: Topics by what they are called here, as splits of the population.
TOPICS = {"seen": "test", "unseen": "unseen-topics"}
_DEFAULT = Sampling()


def winrate(
    model: Annotated[str, typer.Argument(help="A model folder, as in RUN/model, or a base.")],
    against: Annotated[str, typer.Option(help="Another one, or a base.")],
    prompts: Annotated[int, typer.Option(help="How many fresh prompts.", min=2)] = 2000,
    topics: Annotated[
        str,
        typer.Option(help="Those of training, or others.", click_type=click.Choice([*TOPICS])),
    ] = "seen",
    temperature: Annotated[float, typer.Option(help="0: likeliest.")] = _DEFAULT.temperature,
    top_p: Annotated[float, typer.Option(help="Likeliest tokens alone.")] = _DEFAULT.top_p,
    max_new_tokens: Annotated[
        int, typer.Option(help="After so many an answer breaks off.")
    ] = _DEFAULT.max_new_tokens,
    seed: Annotated[int, typer.Option(help="Of prompts and answers.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Compare two language models' answers by the embedded population's true reward.

    Each answers every prompt once. An answer that cannot be read has no reward, and loses.
    """
    sampling = Sampling(temperature, top_p, max_new_tokens)
    asked = list(Population().prompts(TOPICS[topics], prompts, seed))
    found: list[Worth] = []
    with console(stderr=True).status("loading") as status:
        for place, path in enumerate((model, against)):
            writer = Writer.load(path)

            def progress(done: int, of: int, path: str = path) -> None:
                status.update(f"{path}: {done:,} of {of:,} answers")

            # Each with draws of its own: with the same ones, like models would say the same.
            found.append(worth(asked, writer.write(asked, sampling, (seed, place), progress)))
    wins = win_rate(*found)
    if as_json:
        models = [
            _figures(path, worth) for path, worth in zip((model, against), found, strict=True)
        ]
        print(
            json.dumps(
                {"prompts": prompts, "topics": topics, "models": models, "win_rate": _numbers(wins)}
            )
        )
        return
    rows = [
        {
            "model": path,
            "reward": _said(side.reward, "+.3f"),
            "unreadable": _said(side.unreadable, ".1%"),
            "words": float(side.words_P.mean()),
        }
        for path, side in zip((model, against), found, strict=True)
    ]
    headings = {
        "model": "model",
        "reward": "true reward, of what can be read",
        "unreadable": "cannot be read",
        "words": "words",
    }
    out = console()
    out.print(table_of(rows, headings))
    out.print(
        f"{model} wins {_said(wins, '.1%')} of {prompts:,} prompts on {topics} topics", markup=False
    )


def _figures(path: str, side: Worth) -> dict[str, Any]:
    return {
        "model": path,
        "reward": _numbers(side.reward),
        "unreadable": _numbers(side.unreadable),
        "why_not": side.why_not,
        "words": float(side.words_P.mean()),
    }


def _numbers(figure: Estimate) -> list[float | None]:
    """Figure and interval for JSON, which has no nan."""
    return [None if isnan(part) else part for part in figure]


def _said(figure: Estimate, form: str) -> str:
    value, low, high = ("–" if isnan(part) else format(part, form) for part in figure)
    return value if isnan(figure.low) else f"{value} ({low} to {high})"
