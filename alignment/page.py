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
from pathlib import PurePath
from typing import Any
from unicodedata import category

import numpy as np
from jinja2 import Environment, StrictUndefined

from murmuration.alignment.comparison import Comparison, Side

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
    """How it was judged, in rows of a table."""
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
                "said": _interval(model["kl"], "{:.2f}"),
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


def _interval(figure: Sequence[float | None], form: str) -> str:
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
    """What the page may do: show itself, in its own style."""
    digest = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


_STYLE = """:root { color-scheme: light dark; --paper: #f6f7f8; --card: #ffffff; --ink: #1f252b;
  --soft: #5b6670; --line: #dfe3e8; --main: #17698c; --second: #c8641b; --good: #1b6e3c;
  --bad: #a3352b; --alarm: #8a4208; --alarm-paper: #fff4e5; --alarm-line: #e0a052; }
@media (prefers-color-scheme: dark) { :root { --paper: #12171c; --card: #1a2027; --ink: #dde3e9;
  --soft: #98a4b0; --line: #303943; --main: #62b6d9; --second: #f0a35e; --good: #7cc798;
  --bad: #ef9a90; --alarm: #f3c089; --alarm-paper: #2b2116; --alarm-line: #8d6130; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
  sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.1rem 4rem; }
main > p, main > ul { max-width: 46rem; }
.eyebrow { margin: 0; color: var(--soft); font-size: .85rem; letter-spacing: .04em; }
h1 { margin: .2rem 0 1rem; font-size: clamp(1.5rem, 5vw, 2.2rem); line-height: 1.15;
  font-weight: 650; letter-spacing: -.015em; text-wrap: balance; overflow-wrap: anywhere; }
h2 { margin: 2.6rem 0 .6rem; font-size: 1.15rem; font-weight: 650; }
h3 { margin: 0; font-size: .85rem; font-weight: 600; color: var(--soft); overflow-wrap: anywhere; }
p { margin: .6rem 0; }
p.lead { font-size: 1.1rem; }
li + li { margin-top: .35rem; }
aside { margin: 1.4rem 0; padding: .8rem 1rem; background: var(--alarm-paper); color: var(--alarm);
  border-left: 4px solid var(--alarm-line); border-radius: 4px; font-size: .95rem; }
aside ul { margin: 0; padding-left: 1.1rem; }
figure { margin: 1.2rem 0 2rem; padding: 1rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; }
figcaption { margin-top: .8rem; color: var(--soft); font-size: .9rem; max-width: 46rem; }
svg { display: block; width: 100%; overflow: visible; }
svg text { font-size: 13px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .faint { stroke: var(--line); } svg .half { stroke: var(--soft); stroke-dasharray: 3 3; }
svg .reach { stroke: var(--main); stroke-width: 3; stroke-linecap: round; }
svg .thin { stroke: var(--main); stroke-width: 1.5; opacity: .65; }
svg .dot { fill: var(--main); stroke: var(--card); stroke-width: 2; }
svg .one { fill: var(--second); }
svg .named { fill: var(--ink); font-weight: 600; }
.bar { display: grid; grid-template-columns: minmax(7rem, 15rem) 1fr 12.5rem;
  gap: 0 1rem; align-items: center; }
.bar + .bar { border-top: 1px solid var(--line); }
.bar b { font-weight: 600; overflow-wrap: anywhere; }
.bar span { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
.bar.axis { border-top: 1px solid var(--line); }
.plot { padding: .6rem 1rem 2.6rem 3rem; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .95rem; line-height: 1.4; }
th, td { padding: .5rem .8rem .5rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: baseline; }
th { font-weight: 500; color: var(--soft); }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { overflow-wrap: anywhere; white-space: normal; min-width: 8rem; }
table.facts th { width: 34%; }
article { margin: 1rem 0; padding: 1rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; }
article > p.said { margin: 0 0 .9rem; font-weight: 600; }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 13rem), 1fr));
  gap: 1rem; }
.said { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; margin: .3rem 0 0;
  overflow: hidden; }
.wins { color: var(--good); } .loses { color: var(--bad); }
.empty { color: var(--soft); font-style: italic; }
ol.key { margin: .8rem 0 0; padding-left: 1.4rem; font-size: .95rem; overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 640px) { .bar { grid-template-columns: 1fr auto; padding: .5rem 0; }
  .bar svg { grid-row: 2; grid-column: 1 / -1; } .bar.axis { padding: 0; }
  .bar.axis svg { grid-row: 1; }
  .plot { padding-right: .3rem; } }
@media print { body { background: none; } main { padding: 0; }
  figure, aside, tr, article { break-inside: avoid; } }
"""

_JINJA = Environment(
    autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_JINJA.filters |= {
    "visible": visible,
    "count": "{:,}".format,
    "figure": _interval,
    "share": _share,
    "points": _points,
}
_PAGE = _JINJA.from_string("""\
{% macro said(text) %}
{% if text.strip() %}
<p class="said" dir="auto">{{ text|visible }}</p>
{% else %}
<p class="empty">It says nothing.</p>
{% endif %}
{% endmacro %}
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Who wins against {{ other|visible }}</title>
<style>{{ style|safe }}</style>
</head>
<body>
<main>
<p class="eyebrow">Murmuration · comparison of models</p>
<h1>
{% if rows[0].mark is none %}
Nothing can be read: there is no win rate against {{ other|visible }}
{% elif rows[0].figures.win_rate[1] > 0.5 %}
{{ rows[0].name|visible }} wins {{ rows[0].figures.win_rate[0]|share }} against {{ other|visible }}
{% elif rows[0].figures.win_rate[2] < 0.5 %}
{{ "No model wins" if rows|length > 1 else rows[0].name|visible ~ " does not win" }}
against {{ other|visible }}
{% else %}
No clear winner against {{ other|visible }}
{% endif %}
</h1>
<p class="lead">
{{ result.prompts.count|count }} prompts
{%- if result.prompts.different < result.prompts.count %}, {{ result.prompts.different|count }} of
them different{% endif %}, {{ result.samples|count }} answer
{{- "s" if result.samples > 1 else "" }} of each model to each.
{{ result.judge.how|visible }}
</p>

<h2>How often each wins</h2>
<figure>
{% for row in rows %}
<div class="bar"><b>{{ row.name|visible }}</b>
<svg height="34" role="img" aria-label="{{ row.said }}">
{% for at in (0, 25, 50, 75, 100) %}
<line class="{{ 'half' if at == 50 else 'faint' }}" x1="{{ at }}%" x2="{{ at }}%" y1="0" y2="34"/>
{% endfor %}
{% if row.mark is not none %}
<line class="reach" x1="{{ row.mark.low }}%" x2="{{ row.mark.high }}%" y1="17" y2="17"/>
<circle class="dot" cx="{{ row.mark.at }}%" cy="17" r="6"/>
{% endif %}
</svg>
<span>{{ row.said }}</span></div>
{% endfor %}
<div class="bar axis"><b></b>
<svg height="22" aria-hidden="true">
{% for at, anchor in ((0, "start"), (25, "middle"), (50, "middle"), (75, "middle"), (100, "end")) %}
<text x="{{ at }}%" y="16" text-anchor="{{ anchor }}">{{ at }}&nbsp;%</text>
{% endfor %}
</svg>
<span></span></div>
<figcaption>Share of prompts on which a model's answer wins against that of {{ other|visible }}; a
tie is half a win. Lines are 95 % intervals over prompts; in the middle neither is better.
</figcaption>
</figure>

<div class="scroll"><table>
<tr><th scope="col">model</th><th scope="col">wins</th><th scope="col">ties</th>
<th scope="col">losses</th><th scope="col">words</th>
{% if result.against.reward is defined %}
<th scope="col">true reward, of what can be read</th><th scope="col">cannot be read</th>
{% endif %}
</tr>
{% for row in rows %}
<tr><td class="name">{{ row.name|visible }}</td><td>{{ row.figures.wins|count }}</td>
<td>{{ row.figures.ties|count }}</td><td>{{ row.figures.losses|count }}</td>
<td>{{ "%.1f"|format(row.figures.words) }}</td>
{% if result.against.reward is defined %}
<td>{{ row.figures.reward|figure("{:+.2f}") }}</td><td>{{ row.figures.unreadable[0]|share }}</td>
{% endif %}
</tr>
{% endfor %}
<tr><td class="name">{{ other|visible }}</td><td></td><td></td><td></td>
<td>{{ "%.1f"|format(result.against.words) }}</td>
{% if result.against.reward is defined %}
<td>{{ result.against.reward|figure("{:+.2f}") }}</td>
<td>{{ result.against.unreadable[0]|share }}</td>
{% endif %}
</tr>
</table></div>

{% if beside %}
<h2>Beside {{ first|visible }}</h2>
<p>How much more often each wins than the model that was named first, on the same prompts.</p>
<div class="scroll"><table>
{% for each in beside %}
<tr><th scope="row">{{ each.name|visible }}</th><td>{{ each.figure|points }}</td></tr>
{% endfor %}
</table></div>
{% endif %}

{% if plot %}
<h2>What it took</h2>
<figure>
<div class="plot"><svg height="260" role="img" aria-label="win rate over log-ratio">
{% for at, label in plot.y %}
<line class="faint" x1="0" x2="100%" y1="{{ at }}%" y2="{{ at }}%"/>
<text x="-8" y="{{ at }}%" dy="4" text-anchor="end">{{ label }}</text>
{% endfor %}
{% for at, label in plot.x %}
<text x="{{ at }}%" y="100%" dy="20" text-anchor="middle">{{ label }}</text>
{% endfor %}
<text x="50%" y="100%" dy="42" text-anchor="middle">mean log-ratio, nats</text>
{% for dot in plot.dots %}
<line class="thin" x1="{{ dot.x.low }}%" x2="{{ dot.x.high }}%"
 y1="{{ dot.y.at }}%" y2="{{ dot.y.at }}%"/>
<line class="thin" x1="{{ dot.x.at }}%" x2="{{ dot.x.at }}%"
 y1="{{ dot.y.low }}%" y2="{{ dot.y.high }}%"/>
{% endfor %}
<circle class="one" cx="{{ plot.none[0] }}%" cy="{{ plot.none[1] }}%" r="5"/>
{% for dot in plot.dots %}
<circle class="dot" cx="{{ dot.x.at }}%" cy="{{ dot.y.at }}%" r="6"/>
<text class="named" x="{{ dot.x.at }}%" y="{{ dot.y.at }}%" dx="9" dy="-8">{{ dot.number }}</text>
{% endfor %}
</svg></div>
<ol class="key">
{% for dot in plot.dots %}
<li>{{ dot.name|visible }}: {{ dot.said }} nats</li>
{% endfor %}
</ol>
<figcaption>Win rate, upwards, over how far each model has gone from {{ other|visible }} (the dot at
0 and 50 %): the mean of log π − log π₀ of its own answers, with 95 % intervals. Further to the left
and higher is better.</figcaption>
</figure>
{% endif %}

<h2>What they said</h2>
<p>{{ samples|length }} of {{ result.prompts.count|count }} prompts, drawn by the seed, with the
first answer of each model.</p>
{% for sample in samples %}
<article>
<p class="said" dir="auto">{{ sample.prompt|visible }}</p>
<div class="side">
{% for answer in sample.answers %}
<section><h3>{{ answer.name|visible }} ·
<span class="{{ answer.outcome }}">{{ answer.outcome }}</span></h3>
{{ said(answer.text) }}</section>
{% endfor %}
<section><h3>{{ other|visible }}</h3>
{{ said(sample.other) }}</section>
</div>
</article>
{% endfor %}

<h2>Before you rely on this</h2>
<aside><ul>
{% for text in result.caveats %}
<li>{{ text|visible }}</li>
{% endfor %}
</ul></aside>

<h2>How it was judged</h2>
<table class="facts">
{% for name, value in facts %}
<tr><th scope="row">{{ name }}</th><td class="name">{{ value|visible }}</td></tr>
{% endfor %}
</table>
<footer>Exact figures stand in result.json, all answers in answers/.</footer>
</main>
</body>
</html>
""")
