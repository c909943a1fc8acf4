"""``murmuration respond``: what a language model writes to many prompts."""

import json
from pathlib import Path
from typing import Annotated

import typer

from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.privacy.durable_files import replace_file
from murmuration.sims.population.prompts import prompts_of
from murmuration.sims.runtimes.tables import console

_DEFAULT = Sampling()


def respond(
    model: Annotated[str, typer.Argument(help="A model folder, as in RUN/model, or a base.")],
    prompts: Annotated[
        str,
        typer.Option(
            help="A file (or other source, as --data of a run) with `prompt` in each row, or "
            "`population:seen` or `population:unseen` for fresh ones of the embedded population."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The .jsonl file to write: `prompt`, `response`.")],
    limit: Annotated[
        int | None,
        typer.Option(
            help="Only the first so many prompts. [default: all; 2000 of the population]",
            show_default=False,
            min=1,
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Responses to each prompt.", min=1)] = 1,
    temperature: Annotated[float, typer.Option(help="0: likeliest.")] = _DEFAULT.temperature,
    top_p: Annotated[float, typer.Option(help="Likeliest tokens alone.")] = _DEFAULT.top_p,
    max_new_tokens: Annotated[
        int, typer.Option(help="After so many a response breaks off.")
    ] = _DEFAULT.max_new_tokens,
    seed: Annotated[
        int, typer.Option(help="Of the population's prompts and of all draws.", min=0)
    ] = 0,
) -> None:
    """Write responses to prompts with a language model that says the next token."""
    sampling = Sampling(temperature, top_p, max_new_tokens)
    if out.exists():
        raise InputError(f"--out {out} is there already; choose another file")
    asked = prompts_of(prompts, limit, seed)
    with console(stderr=True).status("loading") as status:
        writer, found = Writer.load(model), []
        for sample in range(samples):

            def progress(done: int, of: int, before: int = sample * len(asked)) -> None:
                status.update(f"{before + done:,} of {samples * of:,} responses")

            found.append(writer.write(asked, sampling, (seed, sample), progress))
    rows = (
        {"prompt": prompt, "response": response}
        for prompt, *responses in zip(asked, *found, strict=True)
        for response in responses
    )
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, lines.encode())
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}") from None
    print(f"wrote {samples * len(asked):,} responses to {out}")
