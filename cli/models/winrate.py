"""``murmuration winrate``: whose answers a judge likes better, and a page to look at."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from murmuration.alignment.comparison import (
    Asked,
    Comparison,
    Side,
    answer_lines,
    compare,
    is_answers,
    mark_told,
    prompts_in,
    says_nothing,
    write_sides,
)
from murmuration.alignment.judges import POPULATION, judge_of
from murmuration.cli.models.sampling import MaxNewTokens, Temperature, TopP
from murmuration.cli.options import GENERATIONS, LIMIT, PROMPTS, Json, meaning
from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.generation import PublicSeed, Sampling
from murmuration.privacy.durable_files import replace_file
from murmuration.reporting.live.tables import console, table_of
from murmuration.sims.population.prompts import NAMES, prompts_of

_DEFAULT = Sampling()
RESULT, PAGE, VERDICTS, ANSWERS = "result.json", "page.html", "verdicts.jsonl", "answers"


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
            "or an OpenAI-compatible address up to /v1, whose key, if it needs one, is in "
            "MURMURATION_JUDGE_KEY."
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
    sampling = Sampling(temperature, top_p, max_new_tokens)
    if out:
        _check_ours(out)
    with console(stderr=True).status("loading") as status:

        def said(text: str) -> None:
            status.update(escape(text))

        judging = judge_of(
            judge,
            model=judge_model,
            price=_price(judge_price),
            kept=out / VERDICTS if out else None,
            progress=lambda done, of: said(f"{done:,} of {of:,} verdicts"),
        )
        files = [path for path in (against, *models) if is_answers(path)]
        if files and not prompts:
            source, asked_prompts = files[0], prompts_in(files[0], limit)
        else:
            source = prompts or NAMES[0]
            asked_prompts = prompts_of(source, limit, seed)
        asked = Asked(
            models, against, asked_prompts, source, samples, sampling, kl=kl, seed=PublicSeed(seed)
        )
        sides, other = write_sides(asked, said, _keeper(out, asked.prompts))
        said("judging")
        found = compare(asked, sides, other, judging)
    if out:
        _write(out, found)
    if as_json:
        print(json.dumps(found.result))
    else:
        _tell(found, out)


def _price(text: str) -> tuple[float, float] | None:
    if not text:
        return None
    try:
        come, go = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--judge-price {text!r}: write IN,OUT, as in 0.5,1.5") from None
    return come, go


def _check_ours(out: Path) -> None:
    """InputError for a folder that holds anything but an earlier comparison."""
    if not out.exists():
        return
    others = (
        sorted({path.name for path in out.iterdir()} - {RESULT, PAGE, VERDICTS, ANSWERS})
        if out.is_dir()
        else [out.name]
    )
    if others:
        raise InputError(
            f"--out {out} is there already, and holds {others[0]}: choose another folder, or one "
            "of an earlier comparison"
        )


def _keeper(out: Path | None, prompts: Sequence[str]) -> Callable[[int, Side], None]:
    """What puts answers into the folder as soon as they are there, in the place of former ones."""

    def keep(place: int, side: Side) -> None:
        if not out:
            return
        try:
            if not place:  # what an earlier comparison found is about other answers
                for name in (RESULT, PAGE):
                    (out / name).unlink(missing_ok=True)
                shutil.rmtree(out / ANSWERS, ignore_errors=True)
            (out / ANSWERS).mkdir(parents=True, exist_ok=True)
            lines = answer_lines(prompts, side.answers_TN, mark_told(side.model))
            replace_file(out / _answers_file(place), lines)
        except OSError as error:
            raise InputError(f"--out {out} cannot be written: {error.strerror}") from None

    return keep


def _answers_file(place: int) -> str:
    return f"{ANSWERS}/{place or 'against'}.jsonl"


def _write(out: Path, found: Comparison) -> None:
    from murmuration.alignment.page import page

    try:
        replace_file(out / PAGE, page(found).encode())
        replace_file(out / RESULT, json.dumps(found.result, indent=2).encode() + b"\n")
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}") from None


def _tell(found: Comparison, out: Path | None) -> None:
    result, said = found.result, console()
    truth = "reward" in result["against"]
    headings = {"model": "model", "wins": "wins", "ties": "ties", "words": "words"}
    if truth:
        headings |= {"reward": "true reward, of what can be read", "unreadable": "cannot be read"}
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
