"""``murmuration privatize``: randomized labels in a file, with their channel recorded.

Everything in the written file but the labels depends on public things alone: rows come in the order
of users and items, responses of several in canonical order, and columns that are not part of a
judgement (a score, say, or a time) stay behind, because they may tell what the label no longer
does.
"""

import gzip
import json
import statistics
from pathlib import Path
from typing import Annotated, Any

import click
import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from murmuration.cli import about_data
from murmuration.cli.options import Json, help_of, meaning
from murmuration.client.labels.memory import Answer, LabelState, Spend
from murmuration.client.store import load_judged
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.public_items import canonical
from murmuration.preference.data.ratings import THUMBS_TELL
from murmuration.preference.data.sources import absolute
from murmuration.preference.operator_only import OperatorOnly
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.reporting.live.tables import console


def privatize(
    data: Annotated[
        str | None, typer.Option(help=f"{meaning('data')} As for `murmuration run --data`.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help=f"{meaning('epsilon')} Of a user, or of an item: see --level."),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            help="user: epsilon is for all labels of a user together. item: for each label.",
            click_type=click.Choice(["user", "item"]),
        ),
    ] = "user",
    cap: Annotated[
        int | None,
        typer.Option(
            help="Most labels of a user that are ever released, now and later. \\[default: at user "
            "level, as many as they have now; at item level, any number]",
            show_default=False,
            min=1,
        ),
    ] = None,
    delta: Annotated[
        float,
        typer.Option(
            help=f"{meaning('delta')} At user level it allows a larger epsilon for each label."
        ),
    ] = 0.0,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Where state is kept. The file that remembers which labels were released; keep "
            "it, and keep it private."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help=f"{meaning('out')} A .jsonl or .jsonl.gz file.")
    ] = None,
    columns: about_data.Columns = None,
    user_column: about_data.UserColumn = None,
    one_user_per_row: about_data.OneUserPerRow = None,
    split: about_data.Split = None,
    data_config: about_data.DataConfig = None,
    on_bad_rows: Annotated[
        str,
        typer.Option(help=help_of("on_bad_rows"), click_type=click.Choice(["refuse", "skip"])),
    ] = "refuse",
    kind: about_data.Kind = None,
    responses: about_data.Responses = None,
    max_judgements: about_data.MaxJudgements = None,
    max_characters: about_data.MaxCharacters = None,
    show_state: Annotated[
        Path | None, typer.Option(help="Show what each user has spent, by a state file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Randomize the labels of judgements, once and for all, and record how likely each is false.

    The file can be trained on like any other, as `murmuration run --labels randomized`: losses take
    the flip probabilities from it. Running this again with the same state gives the same answers.
    """
    if show_state is not None:
        _show(show_state, as_json)
        return
    if data is None or epsilon is None or state is None or out is None:
        raise InputError("privatize needs --data, --epsilon, --state and --out (or --show-state)")
    try:
        promise = LabelPromise(epsilon, level, cap or 0, delta)  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(str(error)) from None
    if not out.name.endswith((".jsonl", ".jsonl.gz")):
        raise InputError(f"--out {out}: the file that is written must be named .jsonl or .jsonl.gz")
    judgements = load_judged(
        absolute(about_data.located(data, split, data_config) or data),
        about_data.renamed(columns, user_column),
        "skip" if on_bad_rows == "skip" else "refuse",
        about_data.schema(
            kind,
            responses,
            max_judgements,
            max_characters,
            one_user_per_row=one_user_per_row,
        ),
    )
    if judgements.thumbs:
        raise InputError(f"{data}: {THUMBS_TELL}")
    for note in judgements.notes:
        console().print(str(OperatorOnly(note)), markup=False)
    try:
        answer = LabelState(state).answer(judgements, promise, Randomness(None))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"--epsilon {epsilon:g}: {error}") from None
    if not len(answer.rows_N):
        raise InputError(
            f"{data}: every user has released as many labels as they may; nothing is written"
        )
    lines = _lines(judgements, answer)
    # Without the time in its head, so that the same answers are the same file.
    _write(out, gzip.compress(lines, mtime=0) if out.suffix == ".gz" else lines)
    result = _result(judgements, answer, promise, out, state)
    if as_json:
        print(json.dumps(result))
    else:
        _print(result, promise)


def _lines(judgements: Judgements, answer: Answer) -> bytes:
    """The rows told, as JSON lines."""
    rows = []
    labels, start_U = answer.labels, answer.labels.start_U
    flips_N = labels.flips_N.tolist()
    for index, user in sorted(enumerate(judgements.user_ids), key=lambda pair: pair[1]):
        for label in range(start_U[index], start_U[index + 1]):
            row = int(answer.rows_N[label])
            told = {"user_id": user, "prompt": judgements.prompts[row]}
            told |= _stated(judgements, row, int(labels.answers_N[label]))
            rows.append({**told, "flip_probability": flips_N[label]})
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _stated(judgements: Judgements, row: int, best: int) -> dict[str, Any]:
    """Responses and the answer, in the columns of the data."""
    shown = canonical(judgements.responses[row])
    if judgements.kind == "pairs":
        return {"chosen": shown[best], "rejected": shown[1 - best]}
    return {"responses": list(shown), "best": best}


def _write(out: Path, data: bytes) -> None:
    try:
        if out.exists():
            if out.read_bytes() != data:
                raise InputError(f"--out {out} holds something else; choose another file")
            return
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, data)
    except OSError as error:
        raise InputError(f"--out {out} cannot be used: {error.strerror}") from None


def _result(
    judgements: Judgements, answer: Answer, promise: LabelPromise, out: Path, state: Path
) -> dict[str, Any]:
    flips = answer.labels.flips_N.tolist()
    return {
        "out": str(out),
        "state": str(state),
        "users": int(np.count_nonzero(np.diff(answer.labels.start_U))),
        "labels": len(flips),
        "fresh": answer.fresh,
        "left_out": len(judgements) - len(flips),
        "set_aside": judgements.left_out,
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "privacy_level": promise.level,
        "cap": promise.cap or None,
        "adjacency": Adjacency.REPLACE_LABELS.value,
        "flip_probability": {
            "smallest": min(flips),
            "median": statistics.median(flips),
            "largest": max(flips),
        },
        "randomness": "operating system",
    }


def _print(result: dict[str, Any], promise: LabelPromise) -> None:
    flips = result["flip_probability"]
    known = result["labels"] - result["fresh"]
    whom = "all labels of a user together" if promise.level == "user" else "each label by itself"
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in {
        "written": f"{result['labels']} labels of {result['users']} users to {result['out']}",
        "promise": f"{promise}: {whom}",
        "public": "prompts, responses and how many judgements somebody gave (replace-labels)",
        "flipped": f"with probability {flips['smallest']:.3g} to {flips['largest']:.3g}, "
        f"median {flips['median']:.3g}",
        "told": f"{result['fresh']} for the first time, {known} as before",
        "left out": f"{result['left_out']} judgements beyond what a user may tell, "
        f"{result['set_aside']} bad rows",
        "state": f"{result['state']}: keep it, and keep it to yourself; without it nothing "
        "may be told again",
    }.items():
        table.add_row(name, Text(text))
    console().print(table)


def _show(path: Path, as_json: bool) -> None:
    if not path.exists():
        raise InputError(f"--show-state {path}: there is no such file")
    spends = LabelState(path).spends()
    if as_json:
        print(json.dumps({"state": str(path), "users": [_account(spend) for spend in spends]}))
        return
    table = Table(
        "user", "spent", "promise", "told", "may tell", "each label", box=None, pad_edge=False
    )
    for spend in spends:
        table.add_row(
            Text(spend.user_id),
            f"epsilon {spend.epsilon:.4g}",
            str(spend.promise),
            str(len(spend.items)),
            "any number" if spend.labels is None else str(spend.labels),
            f"epsilon {spend.per_label:.4g}",
        )
    console().print(table)


def _account(spend: Spend) -> dict[str, Any]:
    """One user's ledger."""
    return {
        "user_id": spend.user_id,
        "privacy_level": spend.promise.level,
        "epsilon": spend.promise.epsilon,
        "delta": spend.promise.delta,
        "cap": spend.promise.cap or None,
        "epsilon_per_label": spend.per_label,
        "epsilon_spent": spend.epsilon,
        "may_tell": spend.labels,
        "told": len(spend.items),
        "items": list(spend.items),
    }
