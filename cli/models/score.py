"""``murmuration score``: what a saved model thinks of answers, typed or in a file."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from murmuration.api.scoring import Scored, ignores_prompt, score_rows
from murmuration.api.scoring import score as score_responses
from murmuration.cli.options import Json, System, meaning, print_json
from murmuration.preference.data.errors import InputError
from murmuration.terminal.tables import console
from murmuration.terminal.terminal import Terminal


def score(
    *,
    model: Annotated[str, typer.Argument(help="A model folder, as in RUN/model, or a base.")],
    prompt: Annotated[str | None, typer.Option(help="The prompt.")] = None,
    response: Annotated[
        list[str] | None, typer.Option(help="A response; repeat to compare several.")
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help=f"{meaning('data')} Instead of --prompt: rows of prompt and response, or of "
            "prompt, chosen and rejected; a file, folder or data set, as for murmuration run."
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help=f"{meaning('out')} With --data: the rows with their scores, JSON lines."),
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            help=f"{meaning('base')} That, or the encoder, which the model was made on, where it "
            "is not found by itself."
        ),
    ] = "",
    system: System = None,
    as_json: Json = False,
) -> None:
    """Score responses to a prompt: the higher, the better liked.

    Only differences mean anything. A model of --task text, sft or policy, and a base, gives the
    response's log-likelihood in nats instead.
    """
    if data:
        if prompt is not None or response:
            raise InputError("--data has prompts and responses: leave out --prompt and --response")
        if out is None:
            raise InputError("--data needs --out: a file for the rows with their scores")
        _score_rows(model, data, out, as_json, base=base, system=system)
        return
    if prompt is None or not response or out is not None:
        raise InputError("pass --prompt and --response, or --data and --out")
    scores = score_responses(model, prompt, response, base=base, system=system)
    if as_json:
        print_json({"scores": [float(value) for value in scores]})
        return
    table = Table("score", "response", box=None, pad_edge=False)
    for value, text in sorted(zip(scores, response, strict=True), reverse=True):
        table.add_row(f"{value:+.3f}", Text(text))  # whatever is in brackets is theirs
    Terminal().print(table)
    if ignores_prompt(model):
        Terminal().print("This model ignores the prompt: it reads the response alone.", style="dim")


def _score_rows(
    model: str, data: str, out: Path, as_json: bool, *, base: str, system: str | None
) -> None:
    with _progress() as progress:
        task = progress.add_task("", total=None, rows=0, speed="")

        def show(scored: Scored) -> None:
            speed = f"{scored.texts / scored.seconds:,.0f} texts per second"
            progress.update(task, completed=scored.texts, rows=scored.rows, speed=speed)

        scored = score_rows(model, data, out, base=base, system=system, on_progress=show)
    speed = round(scored.texts / scored.seconds, 1) if scored.seconds else 0.0
    result: dict[str, Any] = {"out": str(out), "rows": scored.rows, "texts": scored.texts}
    result["texts_per_second"] = speed
    if scored.pairs:
        result["chosen_scores_higher"] = scored.right / scored.pairs
    if as_json:
        print_json(result)
        return
    print(f"{scored.rows} rows, {speed:,} texts per second: {out}")
    if scored.pairs:
        share = scored.right / scored.pairs
        print(f"chosen scores higher in {share:.1%} of {scored.pairs} pairs (ties count half)")


def _progress() -> Progress:
    """A display of texts and texts per second, on a terminal; the total is not known beforehand."""
    to = console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("scoring: {task.completed:,} texts in {task.fields[rows]:,} rows"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        console=to,
        transient=True,  # the end is told in words
        disable=not to.is_terminal,
    )
