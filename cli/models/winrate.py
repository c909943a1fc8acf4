"""``murmuration winrate``: whose answers a judge likes better, and a page to look at."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.alignment.comparison import Comparison, says_nothing
from murmuration.alignment.judges import POPULATION
from murmuration.api.judging import PAGE
from murmuration.api.judging import winrate as compare_answers
from murmuration.cli.models.sampling import MaxNewTokens, Temperature, TopP
from murmuration.cli.options import GENERATIONS, LIMIT, PROMPTS, Json, meaning
from murmuration.preference.data.rows import InputError
from murmuration.preference.language.generation import Sampling
from murmuration.reporting.live.tables import console, table_of
from murmuration.sims.population.prompts import NAMES

_DEFAULT = Sampling()


def winrate(
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
    judge_price: Annotated[
        str,
        typer.Option(help="Price of a million tokens in and out, as IN,OUT.", metavar="IN,OUT"),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help=f"{meaning('out')} Folder for result, answers, verdicts and a page."),
    ] = None,
    samples: Annotated[
        int, typer.Option("--num-generations", "--samples", help=GENERATIONS, min=1)
    ] = 1,
    kl: Annotated[
        bool, typer.Option("--kl/--no-kl", help="Estimate each model's KL divergence from OTHER.")
    ] = True,
    temperature: Temperature = _DEFAULT.temperature,
    top_p: TopP = _DEFAULT.top_p,
    max_new_tokens: MaxNewTokens = _DEFAULT.max_new_tokens,
    seed: Annotated[
        int, typer.Option(help=f"{meaning('seed')} Of prompts, answers and intervals.", min=0)
    ] = 0,
    as_json: Json = False,
) -> None:
    """Compare models' answers with another's: how often each wins, by a judge.

    An answer that the embedded population's truth cannot read loses.
    """
    comparison = compare_answers(
        models,
        against=against,
        prompts=prompts,
        limit=limit,
        judge=judge,
        judge_model=judge_model,
        judge_price=_price(judge_price),
        out=out,
        samples=samples,
        kl=kl,
        sampling=Sampling(temperature, top_p, max_new_tokens),
        seed=seed,
        progress=True,
    )
    if as_json:
        print(json.dumps(comparison.result))
    else:
        _tell(comparison, out)


def _price(text: str) -> tuple[float, float] | None:
    if not text:
        return None
    try:
        come, go = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--judge-price {text!r}: write IN,OUT, as in 0.5,1.5") from None
    return come, go


def _tell(found: Comparison, out: Path | None) -> None:
    result, said = found.result, console()
    truth = "reward" in result["against"]
    headings = {"model": "model", "wins": "wins", "ties": "ties", "words": "words"}
    if truth:
        headings |= {
            "reward": "true reward, of valid generations",
            "unreadable": "invalid generations",
        }
    if any(model["kl"] for model in result["models"]):
        headings["kl"] = "log-ratio, nats"
    rows = [_row(model, result) for model in (*result["models"], result["against"])]
    said.print(table_of(rows, headings))
    count, of = result["prompts"]["count"], result["prompts"]["source"]
    for model in result["models"]:
        wins = _wins(model, result)
        said.print(
            f"{model['model']} wins {wins} against "
            f"{result['against']['model']}, of {count:,} prompts of {of}",
            markup=False,
        )
    said.print(f"judge: {result['judge']['how']}", markup=False)
    for text in result["caveats"]:
        said.print(f"- {text}", markup=False)
    if "cost" in result["judge"]:
        judged = result["judge"]
        said.print(f"cost: {judged['cost']:g}, of which now {judged['cost_now']:g}", markup=False)
    if out:
        said.print(f"look at {out / PAGE}", markup=False)


def _wins(model: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if says_nothing(model, result):
        return "– (nothing can be read)"
    return _said(model["win_rate"], ".1%")


def _row(model: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    row = {"model": model["model"], "words": model["words"]}
    row |= {"wins": "", "ties": "", "kl": ""}
    if "win_rate" in model:  # not the one that they are compared with
        pairs = model["wins"] + model["ties"] + model["losses"]
        row["wins"] = _wins(model, result)
        row["ties"] = format(model["ties"] / pairs, ".1%")
        row["kl"] = _said(model["kl"], ".2f") if model["kl"] else "–"
    if "reward" in result["against"]:
        row["reward"] = _said(model["reward"], "+.3f")
        row["unreadable"] = _said(model["unreadable"], ".1%")
    return row


def _said(figure: Sequence[float | None], form: str) -> str:
    value, low, high = ("–" if part is None else format(part, form) for part in figure)
    return value if figure[1] is None else f"{value} ({low} to {high})"
