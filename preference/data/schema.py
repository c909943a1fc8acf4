"""The declared schema of a source of judgements: public constants, fixed before any data are seen.

The kind of judgements that a run learns from, and the most responses of one, decide the arithmetic
for all users. Taken from the rows, it would let one user decide it for all others. So it is
declared: on the command line of a simulation, by the owner of a deployed node, and by default
pairs. A row that is something else is a bad row, and its user's alone.

The same holds for the memory and time that one user may take at a node: the most judgements (or
texts) of a user, and the longest text, are public limits.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, get_args

from murmuration.preference.choices import MOST_RESPONSES, Kind
from murmuration.preference.data.errors import InputError

#: What `--kind` and `--labels` may name.
KINDS: tuple[Kind, ...] = get_args(Kind)
LABELS = ("true", "randomized")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_SCALE = re.compile(rf"{_NUMBER.pattern}\.\.{_NUMBER.pattern}")


@dataclass(frozen=True)
class Schema:
    """The declaration. InputError, naming the option, for one that makes no sense.

    Attributes:
        kind: of every judgement.
        responses: K, the most responses of a judgement; 0 stands for the two of a pair. Of thumbs
            2 as well: the response, and having none.
        labels: `true`, or `randomized` where every row says with which probability its label is
            false. True labels may be randomized on demand; these are told as they are.
        max_judgements: of one user that a node keeps, the first ones; texts likewise.
        max_characters: of a text.
        one_user_per_row: whether each row counts as a user of its own, for want of better: what is
            promised is then promised to single rows.
        scale: `FROM..TO`, if labels are numbers: of a single response from bad to good, of two
            from the first to the second; what is in the middle is neither. `FROM` may be the
            larger number, as of grades of which 1 is the best. Empty: labels are words, and numbers
            are bad rows.
        positive_from: the least number that is a thumb up, if it is not what lies above the middle.
        no_prompt: whether rows without a prompt have none: nothing of their texts is taken for it.
        format: of the system that exported the rows (`preference.data.formats`); empty: ours.
        pair_thumbs: whether pairs are made of single ratings, which no node does. Set by the run:
            not where labels alone are protected, as which pairs there are tells what they were.
    """

    kind: Kind = "pairs"
    responses: int = 0
    _: KW_ONLY
    labels: str = "true"
    max_judgements: int = 10_000
    max_characters: int = 100_000
    one_user_per_row: bool = False
    scale: str = ""
    positive_from: str = ""
    no_prompt: bool = False
    format: str = ""
    pair_thumbs: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"--kind must be one of {', '.join(KINDS)}; got {self.kind!r}")
        if self.kind in ("pairs", "thumbs") and not self.responses:
            object.__setattr__(self, "responses", 2)
        if self.kind == "thumbs" and self.responses != 2:
            raise InputError("--responses is about several; --kind thumbs has one: leave it out")
        if self.kind == "pairs" and self.responses != 2:
            raise InputError(
                f"--responses {self.responses}: pairs have two; more need --kind top-1 or ranking"
            )
        if not 2 <= self.responses <= MOST_RESPONSES:
            raise InputError(
                f"--kind {self.kind} needs --responses, the most responses of a judgement, 2 to "
                f"{MOST_RESPONSES}; got {self.responses}"
            )
        if self.labels not in LABELS:
            raise InputError(f"--labels must be one of {', '.join(LABELS)}; got {self.labels!r}")
        if self.labels == "randomized" and self.kind in ("ranking", "thumbs"):
            what = "rankings" if self.kind == "ranking" else "thumbs"
            raise InputError(f"--labels randomized is about single choices, not about {what}")
        for name in ("max_judgements", "max_characters"):
            if getattr(self, name) < 1:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"{option} must be at least 1; got {getattr(self, name)}")

        if self.scale and not (_SCALE.fullmatch(self.scale) and self.bounds[0] < self.bounds[1]):
            raise InputError(
                "--scale must be LOW..HIGH, as 1..5 or -3..3, or HIGH..LOW where the lowest is the "
                f"best; got {self.scale!r}"
            )
        if self.positive_from and not _NUMBER.fullmatch(self.positive_from):
            raise InputError(f"--positive-from must be a number; got {self.positive_from!r}")
        if self.positive_from and self.falling:
            raise InputError(
                f"--positive-from is a least number, and on --scale {self.scale} less is better: "
                "leave one out"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest label of the scale; all numbers, if none is declared."""
        start, _, end = self.scale.partition("..")
        low, high = sorted((float(start), float(end))) if self.scale else (-math.inf, math.inf)
        return low, high

    @property
    def falling(self) -> bool:
        """True if lower labels of the declared scale are better."""
        start, _, end = self.scale.partition("..")
        return bool(self.scale) and float(start) > float(end)

    @classmethod
    def of(cls, settings: Mapping[str, bool | int | float | str]) -> "Schema":
        """The one that a run config or a node-config declares, under the names of the options.

        What it does not name is as in ``Schema()``.

        Raises:
            InputError: a value of the wrong type, or a declaration that makes no sense.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            key = field.name.replace("_", "-")
            value = settings.get(key, field.default)
            if type(value) is not type(field.default):
                raise InputError(f"setting {key!r} must be a {type(field.default).__name__}")
            values[field.name] = value
        return cls(**values)

    @property
    def options(self) -> str:
        """The command-line options that declare it, without defaults."""
        given = []
        for field in fields(self):
            value = getattr(self, field.name)
            implied = field.name == "responses" and self.kind in ("pairs", "thumbs")
            if value != field.default and not implied and field.name != "pair_thumbs":
                option = f"--{field.name.replace('_', '-')}"
                given += [option if value is True else f"{option} {value}"]
        return " ".join(given)


#: What is declared where nobody says otherwise.
PAIRS = Schema()
