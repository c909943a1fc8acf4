"""``murmuration winrate``: whose answers a judge likes better, and a page to look at."""

from pathlib import Path
from typing import Annotated

import typer

from murmuration.alignment.api.judging import PAGE
from murmuration.alignment.api.judging import winrate as compare_answers
from murmuration.alignment.commands.sampling import MaxNewTokens, Temperature, TopP, WriterServer
from murmuration.alignment.comparisons.text import comparison_text
from murmuration.alignment.judges import POPULATION
from murmuration.cli.options import LIMIT, PROMPTS, Generations, Json, System, meaning, print_json
from murmuration.preference.language.generation import Sampling
from murmuration.sims.population.prompts import NAMES
from murmuration.terminal.tables import console

_DEFAULT = Sampling()


def winrate(
    *,
    models: Annotated[
        list[str],
        typer.Argument(
            help="Model folders, as in RUN/model, bases, or .jsonl files of answers.",
            metavar="MODEL...",
        ),
    ],
    against: Annotated[
        str,
        typer.Option(
            help="The model that they are compared with: likewise a folder, base or file."
        ),
    ],
    prompts: Annotated[
        str,
        typer.Option(
            help=rf"{PROMPTS} \[default: those of a file of answers, else {NAMES[0]}]",
            show_default=False,
        ),
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            help=rf"{LIMIT} \[default: all; 2000 of the population]",
            show_default=False,
            min=2,
        ),
    ] = None,
    judge: Annotated[
        str,
        typer.Option(
            help="`population` for the embedded population's truth, the folder of a reward model, "
            "another package's judge by its name, or an OpenAI-compatible address up to /v1, whose "
            "key, if it needs one, is in MURMURATION_JUDGE_KEY."
        ),
    ] = POPULATION,
    judge_model: Annotated[
        str, typer.Option(help="Which model judges, behind an address.", metavar="NAME")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help=f"{meaning('out')} Folder for result, answers, verdicts and a page."),
    ] = None,
    samples: Generations = 1,
    kl: Annotated[
        bool, typer.Option("--kl/--no-kl", help="Estimate each model's KL divergence from OTHER.")
    ] = True,
    temperature: Temperature = _DEFAULT.temperature,
    top_p: TopP = _DEFAULT.top_p,
    max_new_tokens: MaxNewTokens = _DEFAULT.max_new_tokens,
    seed: Annotated[
        int, typer.Option(help=f"{meaning('seed')} Of prompts, answers and intervals.", min=0)
    ] = 0,
    writer: WriterServer = "",
    system: System = None,
    as_json: Json = False,
) -> None:
    """Compare models' answers: how often each wins, by a judge.

    An answer that the embedded population's truth cannot read loses.
    """
    comparison = compare_answers(
        models,
        against=against,
        prompts=prompts,
        limit=limit,
        judge=judge,
        judge_model=judge_model,
        out=out,
        samples=samples,
        kl=kl,
        sampling=Sampling(temperature, top_p, max_new_tokens),
        seed=seed,
        writer=writer,
        system=system,
        progress=True,
    )
    if as_json:
        print_json(comparison.result)
        return
    # In a pipe as wide as it needs to be: models are named by their paths.
    console(width=1000).print(comparison_text(comparison.result))
    if out:
        print(f"look at {out / PAGE}")
