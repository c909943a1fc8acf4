"""Settings of a run's data and their declaration."""

from dataclasses import Field, dataclass
from functools import partial
from typing import Any

from murmuration.preference.choices import FORMAT_NAMES
from murmuration.preference.data.public_names import whole_path
from murmuration.preference.data.schema import KINDS, LABELS, Schema
from murmuration.strategies.settings.declaration import DATA, declared, settings_in

_setting = settings_in(DATA)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Settings of a run's data and their declaration."""

    data: str = _setting(
        "murmuration.population:train",
        "The judgements (or other rows) to read. A .jsonl, .json, .csv, .parquet or .arrow file "
        "(also .gz), a folder of them, package.module:function, or a hub name; NAME#SPLIT for one "
        "split. Default: the embedded population.",
        common=True,
    )
    test: str = _setting(
        "",
        "Judgements of other users to measure accuracy on, declared public; named as --data is. "
        "Without it, a share of the users is held out.",
        common=True,
    )
    columns: str = _setting(
        "", "Columns of other names, as field=column: user_id=annotator,chosen=better,…"
    )
    format: str = _setting(
        "",
        f"Form in which another system exported the rows: {', '.join(FORMAT_NAMES)}, or one of an "
        "installed package. [default: our own]",
    )
    on_bad_rows: str = _setting(
        "refuse",
        "refuse (default) or skip: leave out rows that cannot be used.",
        good=lambda value: value in ("refuse", "skip"),
        expected="refuse or skip",
    )
    kind: str = _setting(
        "pairs",
        "What each judgement is: pairs, top-1 (the best of several), ranking, or thumbs (one "
        "response, liked or not). [default: pairs, which are also made of thumbs]",
        common=True,
        choices=KINDS,
    )
    responses: int = _setting(0, "Most responses of a judgement. top-1, ranking: 2 to 64.")
    labels: str = _setting(
        "true",
        "true, or randomized, if every row has its flip_probability. [default: true]",
        choices=LABELS,
    )
    max_judgements: int = _setting(
        Schema.max_judgements,
        f"Most judgements (or texts) of a user. [default: {Schema.max_judgements}]",
    )
    max_characters: int = _setting(
        Schema.max_characters, f"Most characters of a text. [default: {Schema.max_characters}]"
    )
    one_user_per_row: bool = _setting(
        False,
        "There is no column of users: each row counts as a user of its own, and only single rows "
        "are protected.",
    )
    scale: str = _setting(
        "",
        "Labels that are numbers, as LOW..HIGH: thumbs are up above the middle (1..5), and of two "
        "responses the first won below it (-3..3). HIGH..LOW where the lowest is the best. "
        "[default: labels are words, and numbers are bad rows]",
    )
    positive_from: str = _setting("", "Least number of a label that is a thumb up, as 4 of 1 to 5.")
    no_prompt: bool = _setting(
        False, "Rows without a prompt have none. [default: it is what their texts share in front]"
    )
    items: str = _setting(
        "",
        "A public list of responses that come back, for --features strengths; of ranking what is "
        "voted on. A file with one a line, or a .json file with an array.",
        pinned=partial(whole_path, "--items", "item"),
    )
    heldout: float = _setting(
        0.2,
        "Share of users held out when there is no --test; 0: nobody, and no accuracy is measured. "
        "[default: 0.2]",
        # As ``privacy.mechanisms.hold_out`` can.
        good=lambda value: value == 0.0 or 2.0**-11 <= value < 1.0,
        expected="a share from 0.0005 to below 1, or 0",
    )


#: By which rows are declared wherever they are read.
_OF_ROWS = (
    "columns", "format", "one_user_per_row", "kind", "responses", "max_judgements",
    "max_characters", "labels", "scale", "positive_from", "no_prompt",
)  # fmt: skip


def row_fields(*without: str) -> list[Field[Any]]:
    """The settings that declare rows, without some."""
    fields = {field.name: field for field in declared(DataConfig)}
    return [fields[name] for name in _OF_ROWS if name not in without]
