"""The page of a comparison: who won, how far from the reference, what was said, how it was judged.

Decisions:
- Answers are anybody's text, and may be written to do harm: every text is escaped by Jinja, what
  cannot be seen or turns the direction of reading is shown as what it is, and a policy in the page
  forbids scripts, addresses and any style but its own.
- One file, no script, nothing fetched. Plots are SVG in per cent of their width, with letters of
  fixed size: as readable on a phone as on a desk, and in the colours of the reader's choice.
- Pairs that are shown are drawn by the seed, not chosen.

Legend: T prompts, N answers to each.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any
from unicodedata import category

import numpy as np

from murmuration.alignment.comparison import Comparison, Side
from murmuration.reporting.jinja import html_templates

_SHOWN = 8  # prompts whose answers are shown
_MOST_LETTERS = 3000  # of a text that is shown
_STREAM = 0x70616765  # of which prompts are shown, apart from other draws of the seed
_OUTCOMES = {1.0: "wins", 0.5: "ties", 0.0: "loses"}
_TIGHT = "\u00a0"  # a space at which no line ends
_KEPT = "\n\u200c\u200d"  # the last two join letters, and pictures of several


@dataclass(frozen=True)
class Mark:
    """A figure and its interval on an axis, in per cent of its width."""

    at: float
    low: float
    high: float


def page(found: Comparison) -> str:
    """A comparison as HTML."""
    result = found.result
    names = short_names([side.model for side in (*found.sides, found.against)])
    rates = [model["win_rate"][0] for model in result["models"]]
    ordered = sorted(range(len(rates)), key=lambda k: (rates[k] is None, -(rates[k] or 0.0)))
    rows = [
        {
            "name": names[place],
            "said": _shares(result["models"][place]["win_rate"]),
            "mark": None
            if rates[place] is None
            else _mark(result["models"][place]["win_rate"], 0.0, 1.0),
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
        plot=_kl_plot(result["models"], names),
        samples=_samples(found, names),
        facts=_facts(result, names),
        style=_STYLE,
        policy=_policy(),
    )


def short_names(paths: Sequence[str]) -> list[str]:
    """As few of each path's last parts as tell them apart, two at least; a page is passed on."""
    parts = [PurePath(path).parts or (path,) for path in paths]
    count = 2
    different = len(set(paths))
    while len({each[-count:] for each in parts}) < different and count < max(map(len, parts)):
        count += 1
    return ["/".join(each[-count:]).removeprefix("//") for each in parts]


def visible(text: str) -> str:
    """A text without letters that cannot be seen or that turn the direction of reading: these are
    shown by their number. It is cut where it is very long."""
    cut = len(text) - _MOST_LETTERS
    shown = "".join(map(_seen, text[:_MOST_LETTERS]))
    return shown if cut <= 0 else f"{shown} … ({cut:,} characters more)"


def _seen(letter: str) -> str:
    if letter.isprintable() or letter in _KEPT:
        return letter
    blank = letter == "\t" or category(letter) == "Zs"
    return " " if blank else f"⟨U+{ord(letter):04X}⟩"


def _samples(found: Comparison, names: Sequence[str]) -> list[dict[str, Any]]:
    generator = np.random.default_rng([found.asked.seed.value, _STREAM])
    count = min(_SHOWN, len(found.asked.prompts))
    return [
        {
            "prompt": found.asked.prompts[place],
            "other": found.against.answers_TN[place][0],
            "answers": [
                _shown(side, names[k], place, found.wins[k]) for k, side in enumerate(found.sides)
            ],
        }
        for place in sorted(
            generator.choice(len(found.asked.prompts), count, replace=False).tolist()
        )
    ]


def _shown(side: Side, name: str, place: int, wins_TN: np.ndarray) -> dict[str, str]:
    outcome = _OUTCOMES[float(wins_TN[place, 0])]
    return {"name": name, "text": side.answers_TN[place][0], "outcome": outcome}


def _facts(result: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return how it was judged, in rows of a table."""
    judge, drawn = result["judge"], result["sampling"]
    found = [("Judge", judge["name"])]
    if judge["kind"] == "endpoint":
        found += [
            ("Asked at", judge["url"]),
            ("Pairs", f"{judge['pairs']:,}, of equal answers {judge['equal_answers']:,}"),
            ("Both orders agree", _share(judge["orders_agree"])),
            (
                "The answer that stands first wins",
                f"{_share(judge['first_place_wins'])} of verdicts that are no tie",
            ),
            (
                "Replies that were no verdict",
                f"{judge['malformed'] + judge['unreadable_replies']:,}",
            ),
            ("Verdicts", f"{judge['verdicts']:,}, asked for now {judge['asked_now']:,}"),
            ("Tokens in", f"{judge['tokens']['in']:,}"),
            ("Tokens out", f"{judge['tokens']['out']:,}"),
        ]
        if judge["without_token_counts"]:
            found.append(("Verdicts without token counts", f"{judge['without_token_counts']:,}"))
    cost = "none: it judged on this machine"
    if judge["kind"] == "endpoint":
        cost = "not known, as no --judge-price was given"
    if "cost" in judge:
        cost = f"{judge['cost']:.4g}, of that now {judge['cost_now']:.4g}"
    return [
        *found,
        ("Cost", cost),
        ("Prompts", result["prompts"]["source"]),
        ("Temperature, top-p", f"{drawn['temperature']:g}, {drawn['top_p']:g}"),
        ("Longest answer", f"{drawn['max_new_tokens']:,} tokens"),
        ("Seed", f"{result['seed']}"),
        *(
            (f"Privacy of {name}", each["promise"])
            for name, each in zip(names, (*result["models"], result["against"]), strict=True)
            if each.get("promise", "none stated") != "none stated"
        ),
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}{_TIGHT}%"


def _mark(figure: Sequence[float | None], least: float, most: float) -> Mark:
    value, low, high = (figure[0] if part is None else part for part in figure)
    return Mark(*(_place(part or 0.0, least, most) for part in (value, low, high)))


def _place(value: float, least: float, most: float) -> float:
    return round(100 * min(1.0, max(0.0, (value - least) / (most - least))), 3)


def _kl_plot(models: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any] | None:
    """Dots of win rate over log-ratio, for the models that have one; None without any."""
    known = [
        (name, model)
        for name, model in zip(names, models, strict=False)
        if model["kl"] and None not in (model["kl"][0], model["win_rate"][0])
    ]
    if not known:
        return None
    reach = [part for _, model in known for part in model["kl"] if part is not None]
    ticks = round_ticks(min(0.0, *reach), max(*reach, 0.1))
    rates = [part for _, model in known for part in model["win_rate"]]
    low, high = min(0.45, min(rates) - 0.02), max(0.55, max(rates) + 0.02)
    shares = [tick for tick in round_ticks(low, high) if low <= tick <= high]
    return {
        "x": [(_place(tick, ticks[0], ticks[-1]), f"{tick:g}") for tick in ticks],
        "y": [(100 - _place(tick, low, high), f"{100 * tick:.0f}{_TIGHT}%") for tick in shares],
        "none": (_place(0.0, ticks[0], ticks[-1]), 100 - _place(0.5, low, high)),
        "dots": [
            {
                "number": number,
                "name": name,
                "x": _mark(model["kl"], ticks[0], ticks[-1]),
                "y": _up(_mark(model["win_rate"], low, high)),
                "said": interval(model["kl"], "{:.2f}"),
            }
            for number, (name, model) in enumerate(known, start=1)
        ],
    }


def _up(mark: Mark) -> Mark:
    """The same on an axis that goes upwards, where a page counts downwards."""
    return Mark(*(100 - end for end in (mark.at, mark.high, mark.low)))


def round_ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers, equally far apart, around two numbers."""
    rough = (high - low) / 5
    unit = 10.0 ** np.floor(np.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough * 0.999)
    first, last = np.floor(low / step + 1e-9), np.ceil(high / step - 1e-9)
    return [float(round(step * k, 12)) for k in range(int(first), int(last) + 1)]


def interval(figure: Sequence[float | None], form: str) -> str:
    """Return a value and its interval, if it has one, each as ``form`` says."""
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
    """Return what the page may do: show itself, in its own style."""
    digest = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


_TEMPLATES = html_templates(
    Path(__file__).with_name("templates"),
    {"visible": visible, "figure": interval, "share": _share, "points": _points},
)
_PAGE = _TEMPLATES.get_template("comparison.html")
_STYLE = _TEMPLATES.get_template("comparison.css").render()
