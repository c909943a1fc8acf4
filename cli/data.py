"""``murmuration data``: a look at one's own judgements before a budget is spent."""

import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from murmuration.api.looking import data as look_at_data
from murmuration.api.looking import written_split
from murmuration.cli import about_data
from murmuration.cli.options import meaning
from murmuration.planning import advice, look
from murmuration.planning.plan import plan
from murmuration.preference.data.rows import InputError
from murmuration.preference.models import MODELS
from murmuration.reporting.live.tables import console as terminal
from murmuration.reporting.live.tables import table_of
from murmuration.strategies.settings import ROUNDS, Settings, usual_cohort
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE

_OWN = (
    "This is your own look at the data. No epsilon covers it: do not publish it, and do not "
    "treat anybody differently because of it. Numbers that you take from it into a run (users, "
    "group size, features) become public with that run: round them."
)
_LARGE = 0.2  # of all judgements: a user with more is named
_BAR = 40  # characters of the longest
_EXAMPLES = 5  # reasons for which rows would be refused


def data(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Judgements: a file, a folder, or whatever else `murmuration run --data` takes.",
        ),
    ],
    columns: about_data.Columns = None,
    user_column: about_data.UserColumn = None,
    one_user_per_row: about_data.OneUserPerRow = None,
    split: about_data.Split = None,
    data_config: about_data.DataConfig = None,
    kind: about_data.Kind = None,
    responses: about_data.Responses = None,
    labels: about_data.Labels = None,
    max_judgements: about_data.MaxJudgements = None,
    max_characters: about_data.MaxCharacters = None,
    scale: about_data.Scale = None,
    positive_from: about_data.PositiveFrom = None,
    no_prompt: about_data.NoPrompt = None,
    split_users: Annotated[
        float | None,
        typer.Option(help="Write the rows of this share of the users to a test file instead."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for train.jsonl and test.jsonl of --split-users.")
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help=f"{meaning('epsilon')} The one that you have in mind.", min=0.0)
    ] = Settings.epsilon,
) -> None:
    """Look at judgements before a budget is spent: what they hold, what a run would make of them.

    Everything goes to the terminal and nowhere else. It is exact, and for your eyes only. It ends
    with a `murmuration run` command.
    """
    if not epsilon > 0.0:
        raise InputError(f"--epsilon must be a positive number; got {epsilon}")
    source = about_data.located(source, split, data_config) or source
    columns = about_data.renamed(columns, user_column)
    if split_users is not None or out is not None:
        print(written_split(source, split_users, out, columns))
        return
    result = look_at_data(
        source,
        columns=columns,
        kind=kind,
        responses=responses,
        labels=labels,
        max_judgements=max_judgements,
        max_characters=max_characters,
        one_user_per_row=one_user_per_row,
        scale=scale,
        positive_from=positive_from,
        no_prompt=no_prompt,
    )
    console = terminal()
    console.print(_OWN, style="yellow")
    for title, body in (
        ("What the data hold", _there(result)),
        ("Judgements a user", _users(result)),
        ("Rules that a model must beat", _guesses(result)),
        ("Languages", _written(result)),
        ("Rows that would be refused", _refused(result)),
        ("Settings for a run", _run(result, epsilon)),
    ):
        console.print()
        console.print(Text(title, style="bold"))
        console.print(Padding(body, (0, 0, 0, 2), expand=False))
    console.print()
    console.print(Text("Command", style="bold"))
    print(_command(result, source, columns, epsilon))  # in one piece, to be copied


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _there(found: look.Look) -> Text:
    judgements, taken = found.judgements, found.taken
    ties = len(judgements) - int(look.decided(judgements).sum())
    listed = [
        field if field == column else f"{field} = {column}" for field, column in taken.items()
    ]
    unused = [column for column in found.columns if column not in taken.values()]
    several = found.schema.kind in ("top-1", "ranking")
    over = f", over at most {found.schema.responses} responses" if several else ""
    share, what = ties / max(1, len(judgements)), "ties"
    if found.schema.kind == "thumbs":
        share, what = float(judgements.y_R.mean()), "thumbs up"
    people = _counted(len(judgements.user_ids), "user")
    lines = [
        f"{_counted(len(judgements), 'judgement')} by {people}, "
        f"{_percent(share) if share else 'none'} of them {what}",
        f"kind: {found.schema.kind}{over}",
        f"columns used: {', '.join(listed) or 'none of these names'}",
        f"columns not used: {', '.join(unused) or 'none'}",
        *judgements.notes,
    ]
    kinds = found.kinds.items()
    others = {kind: rows for kind, rows in kinds if kind != found.schema.kind and rows}
    if others:
        told = ", ".join(f"{rows:,} as {kind}" for kind, rows in others.items())
        lines.append(f"rows of another kind: {told}. One run learns from one kind; see --kind")
    return Text("\n".join(lines))


def _users(found: look.Look) -> Group:
    judgements = found.judgements
    counts_U = judgements.counts_U
    bins = look.histogram(counts_U)
    most, width = max(users for _, users in bins), max(len(name) for name, _ in bins)
    lines = []
    for name, users in bins:
        bar = "█" * max(1 if users else 0, round(_BAR * users / most))
        lines.append(f"{name:>{width}}  {bar} {users:,}")
    parts = [f"{_percent(part)} by {whom}" for whom, part in look.shares(counts_U).items()]
    lines.append(f"of all judgements: {', '.join(parts)}")
    told = [Text("\n".join(lines))]
    largest = int(counts_U.argmax())
    share = counts_U[largest] / max(1, len(judgements))
    if share > _LARGE and len(counts_U) > 1:
        told.append(
            Text(
                f"One user, {judgements.user_ids[largest]!r}, made {_percent(share)} of all "
                "judgements. uls counts them as one user like anybody else, els keeps no more of "
                "them than --group-size: most of these rows will hardly matter. Is it one person?",
                style="yellow",
            )
        )
    if len(counts_U) > 1 and int(counts_U.max()) == 1:
        told.append(
            Text(
                "Every judgement has a user of its own. If people judged more than once, the "
                "column of user_id is not who they are, and epsilon would protect rows, not "
                "people.",
                style="yellow",
            )
        )
    return Group(*told)


def _guesses(found: look.Look) -> Group | Text:
    judgements = found.judgements
    chance, longer = look.guessing(judgements), look.longer_wins(judgements)
    if found.schema.kind == "thumbs":
        return Text(
            "of what a person liked and what they did not, guessing picks the liked one in 50.0 %"
        )
    if not chance.rows:
        return Text("nothing to compare: no judgement over several responses without a tie")
    rows = [
        {
            "rule": name,
            "pooled": _percent(guess.pooled),
            "by_user": _percent(guess.by_user),
        }
        for name, guess in (("guessing", chance), ("the longer response wins", longer))
    ]
    heads = {"rule": "right about", "pooled": "of judgements", "by_user": "by user, on average"}
    near = (
        f"{_percent(look.nearly_equal(judgements))} are between responses of nearly equal length. "
        "A model is only worth what it adds to these rules."
    )
    return Group(table_of(rows, heads), Text(near))


def _written(found: look.Look) -> Text:
    scripts, languages = look.written_in(found.judgements)
    lines = [f"script, by most letters: {_parts(scripts)}"]
    if languages:
        lines.append(f"language of texts in Latin letters, by frequent words: {_parts(languages)}")
    return Text("\n".join(lines))


def _parts(counter: Counter[str]) -> str:
    total = max(1, counter.total())
    return ", ".join(f"{name} {_percent(n / total)}" for name, n in counter.most_common(5))


def _refused(found: look.Look) -> Text:
    judgements = found.judgements
    left_out, rows = judgements.left_out, len(judgements) + judgements.left_out
    if not left_out:
        return Text("no row")
    told = sum(times for times, _ in found.reasons.values())
    lines = [
        f"{left_out:,} of {_counted(rows, 'row')} ({_percent(left_out / rows)}); "
        + (
            "the command below leaves them out (--on-bad-rows skip). Why"
            if found.few_left_out
            else "too many to be left out: what they hold has not been understood. Why"
        )
        + (f", of the first {told:,}:" if told < left_out else ":")
    ]
    for times, first in list(found.reasons.values())[:_EXAMPLES]:
        lines.append(f"{times:>5,} like {first}")
    if len(found.reasons) > _EXAMPLES:
        lines.append(f"      and {len(found.reasons) - _EXAMPLES:,} other reasons")
    return Text("\n".join(lines), style="yellow")


def _trained_on(found: look.Look) -> int:
    """A round figure for the users who would be trained on, where a fifth is held out."""
    there = len(found.judgements.user_ids)
    return advice.round_figure(max(1, round((1.0 - Settings.heldout) * there)))


def _run(found: look.Look, epsilon: float) -> Group:
    judgements, users = found.judgements, _trained_on(found)
    delta, cohort = advice.delta_for(users), usual_cohort(users)
    counts_U = judgements.counts_U
    read = int(counts_U.clip(max=DEFAULT_GROUP_SIZE).sum()) / max(1, int(counts_U.sum()))
    whole = float((counts_U <= DEFAULT_GROUP_SIZE).mean())
    median = int(sorted(counts_U.tolist())[len(counts_U) // 2])
    lines = [
        f"users: {users:,} to train on (a fifth of them is held out; rounded). cohort: {cohort:,}",
        f"delta: {delta:g}; it must be below 1 / users = {1 / users:.2g}",
        f"group size: with {DEFAULT_GROUP_SIZE}, the default of uls, a round can read all of "
        f"{_percent(whole)} of the users, and {_percent(read)} of all judgements. The median user "
        f"has {median:,}; els takes about that as its group size",
    ]
    rows = []
    for budget in sorted({1.0, 3.0, 8.0, epsilon}):
        numbers = plan(
            epsilon=budget,
            users=users,
            cohort=cohort,
            rounds=ROUNDS,
            delta=delta,
            heldout=Settings.heldout,
        )
        noise = numbers["noise_multiplier"]
        features = advice.features_for(users, budget)
        rows.append(
            {
                "epsilon": f"{budget:g}",
                "noise": f"{noise:.3g}",
                "mean": f"{noise / cohort:.3g}",
                "features": f"{features.name}: {features.why}",
            }
        )
    heads = {
        "epsilon": "ε",
        "noise": "noise of a round's sum",
        "mean": "of its average",
        "features": "--features",
    }
    below = (
        f"Noise is in clip norms, for each coordinate, by uls over {ROUNDS} rounds. Twice as many "
        "people about halve it. Try other numbers with `murmuration plan`; with --optimize it "
        "finds a group size for a compute budget."
    )
    return Group(Text("\n".join(lines)), table_of(rows, heads), Text(below))


def _command(found: look.Look, source: str, columns: str, epsilon: float) -> str:
    """A command that trains on what was looked at."""
    users = _trained_on(found)
    place = shlex.quote(source)
    parts = [f"murmuration run --data {place}"]
    if columns:
        parts.append(f"--columns {shlex.quote(columns)}")
    if found.schema.options:
        parts.append(found.schema.options)
    if found.schema.kind in MODELS:
        parts.append(f"--model {found.schema.kind}")
    elif found.schema.responses > 2:
        parts.append("--model plackett-luce")
    if found.judgements.left_out and found.few_left_out:
        parts.append("--on-bad-rows skip")
    features = advice.features_for(users, epsilon).name
    if features != Settings.features and advice.works(features):
        parts.append(f"--features {features}")
    parts.append(f"--epsilon {epsilon:g} --delta {advice.delta_for(users):g} --users {users}")
    name = "first"
    while Path("runs", name).exists():
        name += "-again"
    parts.append(f"--out runs/{name}")
    return " \\\n  ".join(parts)
