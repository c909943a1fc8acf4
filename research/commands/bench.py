"""``murmuration bench``: how fast it is, as ratios within one run on the machine at hand."""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from murmuration.cli.options import Json, print_json
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.checkpoint import MINILM
from murmuration.research.bench import accounting as bench_accounting
from murmuration.research.bench import aligning, breakdown, growth, kept_states, language_model
from murmuration.research.bench import board as bench_board
from murmuration.research.bench import encoder as bench_encoder
from murmuration.research.bench import gpu as bench_gpu
from murmuration.research.bench import memory as bench_memory
from murmuration.research.bench import rivals as bench_rivals
from murmuration.research.bench import writing as bench_writing
from murmuration.research.bench.language_model import LmBench
from murmuration.research.bench.node import SETTINGS, measure
from murmuration.research.bench.rivals import NoRival
from murmuration.research.bench.setting import Setting, machine
from murmuration.terminal.terminal import Terminal

bench = typer.Typer(
    help="Measure speed on this machine, beside what limits it.", no_args_is_help=True
)


_WIDTH = 120  # of the widest table
_REPETITIONS = 3  # of what takes a while

_Quick = Annotated[
    bool, typer.Option("--quick", help="Few repetitions: only to see that it works.")
]
_QuickFew = Annotated[
    bool,
    typer.Option("--quick", help="Few repetitions: only to see that it works. And few users."),
]
_TrlToo = Annotated[
    bool,
    typer.Option(
        "--rivals", help="Also measure rivals. That is, TRL's trainer, if it is installed."
    ),
]
_Base = Annotated[
    str,
    typer.Option(
        help="The base: a folder, or a hub name. In place of a random one.", show_default=False
    ),
]
_Layers = Annotated[
    str,
    typer.Option(
        "--lora-layers",
        help="Which layers of --base LoRA changes: all, last:4, or 9-12. Several by commas.",
    ),
]
_Answers = Annotated[int, typer.Option(help="How many answers are written.", min=1)]
_Longest = Annotated[
    int, typer.Option("--max-new-tokens", help="The most tokens of an answer.", min=1)
]
_Point = TypeVar("_Point")


@bench.command()
def users(
    as_json: Json = False,
    quick: _Quick = False,
    rivals: Annotated[
        bool,
        typer.Option(
            "--rivals",
            help="Also measure rivals. That is, pfl-research, in an environment of its own (made "
            "on first use), and Flower.",
        ),
    ] = False,
) -> None:
    """Users a second in a node beside the plain tensor limit, and what a round costs on top."""
    console, about = _begin(as_json)
    once = partial(measure, repetitions=5 if quick else 40)
    rows = _rows(console, SETTINGS, once, lambda s: f"{s.runtime}, {_size(s)}")
    floor = _rivals(rows, console) if rivals else {}
    columns = ("d", "cohort", "runtime", "users_per_second", "node_users_per_second")
    columns += ("limit_users_per_second", "node_share_of_limit", "overhead_ms")
    columns += ("rival_users_per_second", "ratio") * rivals
    console.print(_plain("users a second, medians", columns, rows))
    for name, rate in floor.items():
        console.print(f"{name}: {rate:,.0f} users/s", highlight=False)
    _end(as_json, "users", about, rows=rows, **floor)


@bench.command()
def rounds(
    as_json: Json = False,
    quick: _Quick = False,
    out: Annotated[Path | None, typer.Option(help="Where to write. The plot's file.")] = None,
) -> None:
    """Measure a round's time as users, cohort, dimensions and judgements grow."""
    points = [
        (kind, point)
        for kind, some in growth.GROWTH.items()
        for point in (some[:2] if quick else some)
    ]

    def grown(point: tuple[str, Setting]) -> dict[str, Any]:
        return {"grows": point[0], **growth.measure(point[1], rounds=5 if quick else 40)}

    columns = ("grows", "users", "cohort", "d", "judgements_each", "round_ms")
    console, about = _begin(as_json)
    rows = _rows(console, points, grown, lambda point: point[0])
    console.print(_plain("milliseconds a round, medians", columns, rows))
    if out is not None:
        by_kind = {kind: [r for r in rows if r["grows"] == kind] for kind in growth.GROWTH}
        growth.plot(by_kind).savefig(out, dpi=150)
    _end(as_json, "rounds", about, rows=rows)


@bench.command()
def where(as_json: Json = False, quick: _Quick = False) -> None:
    """Measure the parts of a round's time, through the local runtime."""
    console, about = _begin(as_json)
    local = [setting for setting in SETTINGS if setting.runtime == "local"]
    once = partial(breakdown.measure, rounds=5 if quick else 200)
    rows = _rows(console, local, once, _size)
    of = {_size(setting): row["parts_ms"] for setting, row in zip(local, rows, strict=True)}
    parts = [{"part": p, **{one: of[one].get(p, 0.0) for one in of}} for p in rows[-1]["parts_ms"]]
    parts.append({"part": "together", **{one: sum(ms.values()) for one, ms in of.items()}})
    console.print(_plain("milliseconds a round, medians", ("part", *of), parts))
    _end(as_json, "where", about, rows=rows)


@bench.command()
def accounting(as_json: Json = False, quick: _Quick = False) -> None:
    """Measure the time to find the noise for a budget, beside dp-accounting."""
    once = partial(bench_accounting.measure, repetitions=1 if quick else 5)
    columns = ("task", "rounds", "noise_multiplier", "calibration_seconds", "rival_seconds")
    title = "a calibration, beside one evaluation of dp-accounting"
    console, about = _begin(as_json)
    rows = _rows(console, bench_accounting.TASKS, once, lambda task: task.name)
    console.print(_plain(title, (*columns, "ratio"), rows))
    _end(as_json, "accounting", about, rows=rows)


@bench.command()
def memory(as_json: Json = False, quick: _Quick = False) -> None:
    """The most memory a whole run takes as the number of users grows: d = 384, cohort 1,000; and
    with texts, about as many for each as on Stack Overflow: a small language model, cohort 50.
    """
    console, about = _begin(as_json)
    once = partial(bench_memory.measure_memory, rounds=5 if quick else 1000)
    points = bench_memory.POINTS[: 1 if quick else None]
    rows = _rows(console, points, once, lambda point: f"{point.users:,} users")
    once = partial(bench_memory.measure_memory, rounds=2 if quick else 40)
    texts = [bench_memory.QUICK] if quick else bench_memory.TEXT_POINTS
    text_rows = _rows(console, texts, once, lambda point: f"{point.users:,} users with texts")
    columns = ("users", "judgements_each", "cohort", "d", "rounds", "round_ms")
    columns += ("seconds", "peak_mib", "own_mib")
    console.print(_plain("whole runs, each in a process of its own", columns, rows))
    columns = ("users", "texts", "cohort", "rounds", "round_ms", "read_seconds", "before_seconds")
    console.print(_plain("of users' texts", (*columns, "peak_mib", "own_mib"), text_rows))
    _end(as_json, "memory", about, rows=rows, text_rows=text_rows)


@bench.command()
def board(as_json: Json = False, quick: _Quick = False) -> None:
    """Time murmuration rank as voters grow, over reading the file of their votes."""
    points = product(bench_board.VOTERS[: 1 if quick else None], bench_board.FORMS)
    columns = ("form", "voters", "votes", "items", "seconds", "cpu_seconds", "peak_mib")
    title = "whole commands, each in a process of its own"
    console, about = _begin(as_json)
    rows = _rows(console, points, lambda point: bench_board.measure(*point), str)
    console.print(_plain(title, (*columns, "floor_seconds", "over_floor"), rows))
    _end(as_json, "board", about, rows=rows)


@bench.command()
def features(
    as_json: Json = False,
    quick: _Quick = False,
    encoder: Annotated[
        str, typer.Option(help="minilm, or the folder or hub name of an encoder.")
    ] = MINILM,
) -> None:
    """Measure texts per second of an encoder: together over one at a time, and from its cache."""
    console, about = _begin(as_json)
    times, lengths = 1 if quick else _REPETITIONS, bench_encoder.WORDS[: 1 if quick else None]

    def once(words: int) -> dict[str, Any]:
        return bench_encoder.measure_encoder(encoder, words, 300, times)

    rows = _rows(console, lengths, once, lambda words: f"texts of about {words} words")
    columns = ("words", "alone_texts_per_second", "texts_per_second", "ratio")
    columns += ("kept_texts_per_second", "same_bits")
    console.print(_plain(f"texts per second, {encoder}", columns, rows))
    _end(as_json, "features", about, rows=rows)


@bench.command()
def lm(
    as_json: Json = False,
    quick: _QuickFew = False,
    sizes: Annotated[
        str, typer.Option(help=f"Model sizes, comma-separated: {', '.join(language_model.SIZES)}.")
    ] = "16M",
    judgements: Annotated[
        str, typer.Option(help="Judgements of each user. Comma-separated.")
    ] = "4",
    users: Annotated[int, typer.Option(help="Number of users.", min=1)] = 64,
    rivals: _TrlToo = False,
) -> None:
    """Clipping every user's gradient of a language model, over plain batched training."""
    console, about = _begin(as_json)
    rows = []
    for size, each in product(_of(sizes, language_model.SIZES), _of(judgements)):
        chosen = language_model.SIZES[size]
        chosen = replace(chosen, users=4 if quick else users, judgements=int(each))
        for train in ("lora", "full"):
            with console.status(f"{size}, {train}, judgements per user: {each}"):
                call = partial(language_model.measure, chosen, train, 1 if quick else 5)
                row, rivals = _beside_trl(console, call, rivals)
            rows.append({"size": size, **row})
    columns = ("size", "train", "judgements", "plain_ms_a_judgement", "ours_ratio", "loop_ratio")
    console.print(_plain("over plain training", columns + ("trl_ratio",) * rivals, rows))
    _end(as_json, "lm", about, rows=rows)


@bench.command()
def gpu(
    as_json: Json = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Few repetitions: only to see that it works. And small models."
        ),
    ] = False,
    seconds: Annotated[
        float, typer.Option(help="How long it may take; Ctrl-C ends it earlier.", min=1.0)
    ] = 300.0,
) -> None:
    """Users' gradients of language models on the device that is there, over plain training."""
    console, about = _begin(as_json)
    about |= bench_gpu.device()
    console.print(about["device"], highlight=False)
    rows: list[dict[str, Any]] = []
    columns = ("model", "train", "way", "users", "tokens_per_second", "over_plain")
    columns += ("share_of_peak", "round_s", "memory_gib")
    try:
        for row in bench_gpu.measure(seconds, quick):
            rows.append(row)
            console.print(*(f"{name}={_figure(value)}" for name, value in row.items()))
    except KeyboardInterrupt:
        console.print("stopped: these rows are done", style="yellow")
    console.print(_plain("users' gradients, over plain training", columns, rows))
    _end(as_json, "gpu", about, rows=rows)


@bench.command()
def states(
    as_json: Json = False,
    quick: _QuickFew = False,
    base: _Base = "",
    layers: _Layers = "all,last:1",
    rivals: _TrlToo = False,
    data: Annotated[
        str,
        typer.Option(
            help="The judgements (or other rows) to read. 1,000 of them are measured instead of "
            "random texts, with --once-per-text beside; --base must be named."
        ),
    ] = "",
) -> None:
    """LoRA in the last layers from states that are kept, over a plain loop through all layers."""
    console, about = _begin(as_json)
    sizes = LmBench(users=4 if quick else 16, judgements=1)
    rows, times = [], 1 if quick else _REPETITIONS
    if data and not base:
        raise InputError("--data needs --base, which reads it")
    if data:
        columns = ("task", "layers", "judgements", "texts", "plain_ms_a_judgement")
        columns += ("ours_ratio", "isolated_padding", "shared_ratio", "shared_padding")
        columns += ("once_ms_a_judgement", "once_ratio")
        what = "of people who judged the same texts"
    else:
        columns = ("task", "layers", "states_ms_a_text", "found_ms_a_text", "plain_ms_a_judgement")
        columns += ("ours_ms_a_judgement", "ours_ratio", "shared_ratio")
        what = "from states that are kept"
    for task, chosen in product(language_model.TASKS, layers.split(",")):
        call = partial(kept_states.measure, sizes, chosen, task, times, base)
        if data:
            call = partial(kept_states.measure_people, data, chosen, task, times, base)
        with console.status(f"{task}, {chosen}"):
            row, rivals = _beside_trl(console, call, rivals)
        rows.append(row)
    console.print(_plain(what, columns + ("trl_ratio",) * rivals, rows))
    _end(as_json, "states", about, **({"data": data} if data else {}), rows=rows)


@bench.command()
def writing(
    as_json: Json = False,
    quick: _Quick = False,
    base: _Base = "",
    answers: _Answers = 32,
    max_new_tokens: _Longest = 32,
) -> None:
    """Measure tokens a second that a model writes, over plain transformers' batched generate."""
    console, about = _begin(as_json)
    setting = bench_writing.WritingBench(base, answers, max_new_tokens)
    with console.status(base or "random weights"):
        rows = bench_writing.measure_writing(setting, (8, 32), 1 if quick else _REPETITIONS)
    columns = ("prompts", "max_new_tokens", "batch_size", "plain_tokens_per_second")
    columns += ("ours_tokens_per_second", "ratio")
    console.print(_plain("tokens a second, over plain generate", columns, rows))
    _end(as_json, "writing", about, base=base, rows=rows)


@bench.command()
def align(
    as_json: Json = False,
    quick: _Quick = False,
    base: _Base = "",
    layers: _Layers = "all",
    answers: _Answers = 32,
    max_new_tokens: _Longest = 32,
) -> None:
    """Measure a step of align, over a step of TRL's own trainer."""
    settings = [
        aligning.AlignBench(base, chosen, answers, max_new_tokens) for chosen in layers.split(",")
    ]
    console, about = _begin(as_json)
    once = partial(aligning.measure_step, repetitions=1 if quick else _REPETITIONS)
    rows = _rows(console, settings, once, lambda setting: f"{base or 'random'}, {setting.layers}")
    columns = ("layers", "answers", "max_new_tokens", "plain_s_a_step", "ours_s_a_step")
    columns += ("plain_ms_a_token", "ours_ms_a_token", "ratio")
    console.print(_plain("a step of align, over TRL's", columns, rows))
    _end(as_json, "align", about, base=base, rows=rows)


def _begin(as_json: bool) -> tuple[Console, dict[str, Any]]:
    about, console = machine(), Terminal(stderr=as_json)
    if console.width < _WIDTH:  # a cut figure is worse than a wrapped line
        console.width = _WIDTH
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    line = f"{about['cpu']}, {about['cores']} cores, load {about['load']:.1f}; {versions}"
    console.print(f"{date.today().isoformat()}, {line}", highlight=False, soft_wrap=True)
    if about["load"] > about["cores"] / 2:
        console.print("others are using this machine: repeat when it is quiet", style="yellow")
    return console, about


def _end(as_json: bool, name: str, about: dict[str, Any], **figures: Any) -> None:
    if as_json:
        today = date.today().isoformat()
        print_json({"name": name, "machine": about, "date": today, **figures})


def _rows(
    console: Console,
    points: Iterable[_Point],
    measure: Callable[[_Point], dict[str, Any]],
    name: Callable[[_Point], str],
) -> list[dict[str, Any]]:
    rows = []
    for point in points:
        with console.status(name(point)):
            rows.append(measure(point))
    return rows


def _size(setting: Setting) -> str:
    return f"d = {setting.dimension:,}, {setting.cohort:,} users"


def _beside_trl(
    console: Console, call: Callable[..., dict[str, Any]], rivals: bool
) -> tuple[dict[str, Any], bool]:
    """A row, with TRL's figures if they are wanted and it is installed; and whether it has them."""
    try:
        return call(rivals=rivals), rivals
    except NoRival as reason:
        console.print(f"without TRL: {reason}", style="yellow")
        return call(), False


def _rivals(rows: list[dict[str, Any]], console: Console) -> dict[str, float]:
    """Add pfl-research to the rows; Flower's own rates by name."""
    try:
        with console.status("installing pfl-research"):
            python = bench_rivals.pfl_environment()
        rates: dict[Setting, float] = {}
        for setting, row in zip(SETTINGS, rows, strict=True):
            same = replace(setting, runtime="local")
            with console.status(f"pfl-research: d = {row['d']:,}, {row['cohort']:,}"):
                if same not in rates:
                    rates[same] = bench_rivals.pfl_users_per_second(python, same)
            ratio = row["users_per_second"] / rates[same]
            row.update(rival=bench_rivals.PFL, rival_users_per_second=rates[same], ratio=ratio)
    except NoRival as reason:
        console.print(f"without pfl-research: {reason}", style="yellow")
    result = {}
    for name, each in (("flower_runtime", None), ("flower_one_user_a_node", 1)):
        try:
            with console.status(name):
                result[name] = bench_rivals.flower_users_per_second(SETTINGS[0], each)
        except NoRival as reason:
            console.print(f"without {name}: {reason}", style="yellow")
    return result


def _of(listed: str, known: Container[str] | None = None) -> list[str]:
    """The listed names; a typer error for an unknown one or, without ``known``, one that is no
    number.
    """
    names = [name.strip() for name in listed.split(",")]
    for name in names:
        if name not in known if known is not None else not (name.isdecimal() and int(name)):
            raise typer.BadParameter(repr(name))
    return names


def _plain(title: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    """A table of figures under the names that they have in the JSON."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        values = (row.get(column, "") for column in columns)
        table.add_row(*(_figure(value) for value in values))
    return table


def _figure(value: float | str | None) -> str:
    """Three figures of a fraction, and all of a whole number."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else value or ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
