"""The page of a comparison: who won, how far from the reference, what was said, how it was judged.

Decisions:
- Answers are untrusted texts, and may be written to do harm: every text is escaped by Jinja, what
  cannot be seen or turns the direction of reading is shown as what it is, and a policy in the page
  forbids scripts, addresses and any style but its own.
- One file, no script, nothing fetched. Bars are SVG in per cent of their width, with letters of
  fixed size: as readable on a phone as on a desk, and in the colours of the reader's choice.
- Pairs that are shown are drawn by the seed, not chosen.

Legend: T prompts, N answers to each.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from murmuration.alignment.comparisons.comparison import Comparison, Side
from murmuration.preference.escaping import visible
from murmuration.reporting.jinja import html_templates

_SHOWN = 8  # prompts whose answers are shown
_MOST_LETTERS = 3000  # of a text that is shown
_STREAM = 0x70616765  # of which prompts are shown, apart from other draws of the seed
_OUTCOMES = {1.0: "wins", 0.5: "ties", 0.0: "loses"}
_TIGHT = "\u00a0"  # a space at which no line ends


@dataclass(frozen=True)
class Mark:
    """A figure and its interval on an axis, in per cent of its width."""

    at: float
    low: float
    high: float


def page(comparison: Comparison) -> str:
    """The comparison as an HTML page."""
    result = comparison.result
    names = short_names([side.model for side in (*comparison.sides, comparison.against)])
    rates = [model["win_rate"][0] for model in result["models"]]
    ordered = sorted(range(len(rates)), key=lambda k: (rates[k] is None, -(rates[k] or 0.0)))
    rows = [
        {
            "name": names[place],
            "label": _shares(result["models"][place]["win_rate"]),
            "mark": None if rates[place] is None else _mark(result["models"][place]["win_rate"]),
            "figures": result["models"][place],
        }
        for place in ordered
    ]
    return _PAGE.render(
        result=result,
        rows=rows,
        other=names[-1],
        beside=[
            {"name": names[place], "figure": each["win_rate_difference"]}
            for place, each in enumerate(result["beside_the_first"], start=1)
        ],
        first=names[0],
        promises=[
            (name, each.get("promise", "none stated"))
            for name, each in zip(names, (*result["models"], result["against"]), strict=True)
        ],
        samples=_samples(comparison, names),
        style=_STYLE,
        policy=_policy(),
    )


def short_names(paths: Sequence[str]) -> list[str]:
    """The shortest endings of paths that differ, of two parts at least."""
    parts = [PurePath(path).parts or (path,) for path in paths]
    count = 2
    different = len(set(paths))
    while len({each[-count:] for each in parts}) < different and count < max(map(len, parts)):
        count += 1
    return ["/".join(each[-count:]).removeprefix("//") for each in parts]


def shown_text(text: str) -> str:
    """The text with invisible and direction-changing characters escaped, cut if it is very long."""
    cut = len(text) - _MOST_LETTERS
    shown = visible(text[:_MOST_LETTERS]).replace("\t", " ")
    return shown if cut <= 0 else f"{shown} … ({cut:,} characters more)"


def _samples(comparison: Comparison, names: Sequence[str]) -> list[dict[str, Any]]:
    prompts = comparison.asked.prompts
    generator = np.random.default_rng([comparison.asked.seed.value, _STREAM])
    count = min(_SHOWN, len(prompts))
    return [
        {
            "prompt": prompts[place],
            "other": comparison.against.answers_TN[place][0],
            "answers": [
                _shown(side, names[k], place, comparison.wins[k])
                for k, side in enumerate(comparison.sides)
            ],
        }
        for place in sorted(generator.choice(len(prompts), count, replace=False).tolist())
    ]


def _shown(side: Side, name: str, place: int, wins_TN: np.ndarray) -> dict[str, str]:
    outcome = _OUTCOMES[float(wins_TN[place, 0])]
    return {"name": name, "text": side.answers_TN[place][0], "outcome": outcome}


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}{_TIGHT}%"


def _mark(figure: Sequence[float | None]) -> Mark:
    value, low, high = (figure[0] if part is None else part for part in figure)
    return Mark(*(round(100 * (part or 0.0), 3) for part in (value, low, high)))


def interval(figure: Sequence[float | None], form: str) -> str:
    """A value and its interval, if it has one, each formatted by ``form``."""
    value, low, high = ("–" if part is None else form.format(part) for part in figure)
    return value if figure[1] is None else f"{value} ({low} to {high})"


def _shares(figure: Sequence[float | None], form: str = "{:.1f}", unit: str = "%") -> str:
    """A share and its interval in per cent, or a difference in points."""
    if figure[0] is None:
        return "nothing can be read"
    value, low, high = (None if part is None else form.format(100 * part) for part in figure)
    return f"{value}{_TIGHT}{unit}" + ("" if low is None else f" ({low} to {high})")


def _points(figure: Sequence[float | None]) -> str:
    return _shares(figure, "{:+.1f}", "points")


def _policy() -> str:
    """The page's Content-Security-Policy: its own style and nothing else."""
    digest = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


_TEMPLATES = html_templates(
    Path(__file__).parents[1] / "templates",
    {"visible": shown_text, "figure": interval, "share": _share, "points": _points},
)
_PAGE = _TEMPLATES.get_template("comparison.html")
_STYLE = _TEMPLATES.get_template("comparison.css").render()
