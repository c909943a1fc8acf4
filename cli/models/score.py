"""``murmuration score``: what a saved model thinks of answers, typed or in a file."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from murmuration.cli.options import Json, meaning
from murmuration.preference.data.loading import load_scorable
from murmuration.preference.data.rows import InputError
from murmuration.preference.language.likelihood import load_scorer
from murmuration.privacy.durable_files import replace_file
from murmuration.reporting.live.tables import console
from murmuration.reporting.live.terminal import Terminal

#: Rows that are read at a time, and texts that are scored: models make smaller batches of them.
_ROWS, _TEXTS = 1024, 256


def score(
    model: Annotated[str, typer.Argument(help="A model folder, as in RUN/model.")],
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
    as_json: Json = False,
) -> None:
    """Score responses to a prompt: the higher, the better liked. Only differences mean anything.

    A model of --task text, sft or policy gives the response's log-likelihood in nats instead.
    """
    if data:
        if prompt is not None or response:
            raise InputError("--data has prompts and responses: leave out --prompt and --response")
        if out is None:
            raise InputError("--data needs --out: a file for the rows with their scores")
        _score_rows(load_scorer(model, base), data, out, as_json)
        return
    if prompt is None or not response or out is not None:
        raise InputError("pass --prompt and --response, or --data and --out")
    scores = load_scorer(model, base).score_batch([prompt] * len(response), response)
    if as_json:
        print(json.dumps({"scores": [float(value) for value in scores]}))
        return
    table = Table("score", "response", box=None, pad_edge=False)
    for value, text in sorted(zip(scores, response, strict=True), reverse=True):
        table.add_row(f"{value:+.3f}", Text(text))  # whatever is in brackets is theirs
    Terminal().print(table)


def _score_rows(scorer: Any, data: str, out: Path, as_json: bool) -> None:
    """Rows with a ``score`` of each text, in the order they came; ``out`` is there whole or not.

    Raises:
        InputError: rows that have no such texts, or ``out`` is there already.
    """
    if out.exists():
        raise InputError(f"--out {out}: is there already; choose another name")
    started, counted = time.perf_counter(), {"rows": 0, "texts": 0, "pairs": 0, "right": 0.0}
    with _progress() as progress:
        lines = _scored(scorer, data, counted, progress)
        try:
            replace_file(out, (memoryview(line.encode()) for line in lines))
        except OSError as error:
            raise InputError(f"--out {out}: cannot be written: {error.strerror or error}") from None
    seconds = time.perf_counter() - started
    told: dict[str, Any] = {"out": str(out), "rows": counted["rows"], "texts": counted["texts"]}
    told["texts_per_second"] = round(counted["texts"] / seconds, 1)
    if counted["pairs"]:
        told["chosen_scores_higher"] = counted["right"] / counted["pairs"]
    if as_json:
        print(json.dumps(told))
        return
    print(f"{told['rows']} rows, {told['texts_per_second']:,} texts a second: {out}")
    if counted["pairs"]:
        share = told["chosen_scores_higher"]
        print(f"chosen scores higher in {share:.1%} of {counted['pairs']} pairs (ties count half)")


def _progress() -> Progress:
    """Texts and texts a second, at a terminal; how many there will be is not known before."""
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


def _scored(scorer: Any, data: str, counted: dict[str, Any], progress: Progress) -> Iterator[str]:
    rows = load_scorable(data)
    task, started = progress.add_task("", total=None, rows=0, speed=""), time.perf_counter()
    while part := list(islice(rows, _ROWS)):
        asked = [(prompt, text) for prompt, texts in part for text in texts.values()]
        found: list[float] = []
        for at in range(0, len(asked), _TEXTS):
            prompts, responses = zip(*asked[at : at + _TEXTS], strict=True)
            found += scorer.score_batch(prompts, responses).tolist()
            done = counted["texts"] + len(found)
            speed = done / (time.perf_counter() - started)
            told = {"rows": counted["rows"], "speed": f"{speed:,.0f} texts a second"}
            progress.update(task, completed=done, **told)
        scores = iter(found)
        for prompt, texts in part:
            row: dict[str, Any] = {"prompt": prompt, **texts}
            scored = {name: next(scores) for name in texts}
            if "chosen" in scored:
                row |= {f"score_{name}": value for name, value in scored.items()}
                counted["pairs"] += 1
                margin = scored["chosen"] - scored["rejected"]
                counted["right"] += 1.0 if margin > 0 else 0.5 if margin == 0 else 0.0
            else:
                row["score"] = scored["response"]
            counted["rows"] += 1
            counted["texts"] += len(texts)
            yield json.dumps(row, ensure_ascii=False) + "\n"
