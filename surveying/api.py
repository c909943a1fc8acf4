"""The Python function for a survey of users' judgements."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.api.rows import Source
from murmuration.api.run import Run
from murmuration.api.training import train
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.public_names import as_source
from murmuration.sims.runtimes.runtime import Runtime
from murmuration.strategies.settings.from_python import of_strategy, takes
from murmuration.surveying.release import SurveyRelease

if TYPE_CHECKING:
    from rich.console import Group


_STRATEGY = "survey"
#: What is asked where nothing is named.
EMBEDDED = "murmuration.population:train"


@dataclass(frozen=True, repr=False)
class Survey:
    """A survey that was released. As text it is what ``murmuration survey`` prints.

    Attributes:
        run: the run that it came from, with its promise and its ledger.
        page: the answers as one HTML file.
    """

    run: Run
    page: Path

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Survey:
        """Load the survey of a finished run, and write its page again.

        Args:
            folder: of the run, wherever it took place.

        Raises:
            InputError: there is none, or it asked nothing.
        """
        run = Run.load(folder)
        return cls(run, write_page(run))

    @cached_property
    def release(self) -> SurveyRelease:
        """The noisy sums from which everything is computed."""
        return SurveyRelease.of_result(self.run.result, self.run.path)

    def to_json(self) -> dict[str, Any]:
        """The output of ``murmuration survey --json``: the run's result, the page, the answers."""
        from murmuration.surveying.page import in_numbers

        return {
            **self.run.result,
            "page": str(self.page),
            "answers": in_numbers(self.release),
        }

    def __repr__(self) -> str:
        from murmuration.surveying.page import users_text

        return f"Survey({str(self.run.path)!r}, {users_text(self.release)} users with judgements)"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        from murmuration.surveying.page import quantile_lines, sections, users_text

        facts = Table(box=None, pad_edge=False, show_header=False)
        facts.add_row("Users with judgements", users_text(self.release))
        if self.release.stated_users is not None:
            facts.add_row("Users stated", f"{self.release.stated_users:,}")
        for name, judgements in quantile_lines(self.release).items():
            facts.add_row(f"Judgements per user, {name}", judgements)
        parts: list[Table | Text] = [facts]
        for section in sections(self.release):
            parts.append(Text(f"\n{section.question}", style="bold"))
            table = Table(box=None, pad_edge=False, show_header=False)
            for line in section.lines:
                table.add_row(Text(line.answer), line.text)
            parts += [table, *([Text(section.others, style="dim")] if section.others else [])]
        lines = [
            "",
            str(self.run.promise),
            *(f"! {text}" for text in self.run.result["warnings"]),
            str(self.page),
        ]
        return Group(*parts, *map(Text, lines))

    def __str__(self) -> str:
        from murmuration.terminal.tables import as_text

        return as_text(self)


@takes(partial(of_strategy, _STRATEGY))
def survey(
    data: Source | None = None,
    *,
    topics: str | os.PathLike[str] | Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    runtime: Runtime | str = Runtime.LOCAL,
    users_per_node: int | None = None,
    progress: bool | None = None,
    **settings: object,
) -> Survey:
    """Release statistics of users' judgements with user-level differential privacy.

    The numbers of users and of judgements per user, ties, lengths, languages, topics, and how often
    the longest response is preferred. Each user is one bounded vector; the sum of all is released
    once, with noise, and everything is computed from that.

        >>> from murmuration import survey
        >>> pair = {"prompt": "What now?", "chosen": "Save it.", "rejected": "Bet it all."}
        >>> rows = [{"user_id": f"user {n}", **pair} for n in range(400)]
        >>> answers = survey(rows, epsilon=2, delta=1e-5, users=400, out="runs/survey")
        >>> abs(answers.release.users - 400) < 50
        True

    Args:
        data: Judgements, as of ``train``. Without it the embedded population.
        topics: The public list of topics, each ``"name: word, word"``: lines, a file with one per
            line, or a ``.json`` file. Without it topics are not asked about.
        out: Folder for the run and the page; without it a new one below ``runs``.
        resume: Continue the run in ``out``, with its settings and data.
        runtime: As of ``train``.
        users_per_node: As of ``train``.
        progress: As of ``train``.
        **settings: As of ``train``. ``users`` is their number, as a public figure.

    Returns:
        The answers, and the run that they came from.

    Raises:
        InputError: a setting or data that cannot be used; or nothing was learnt, because the noise
            exceeds the number of users.
        RunAborted: a node failed.
    """
    given: dict[str, Any] = {"strategy": _STRATEGY, "heldout": 0.0, **settings}
    if given["strategy"] != _STRATEGY:
        raise InputError("a survey is made by --strategy survey: leave out --strategy")
    if topics is not None:
        given["topics"] = as_source(topics)
    run = train(
        EMBEDDED if data is None and not resume else data,
        out=out,
        resume=resume,
        runtime=runtime,
        users_per_node=users_per_node,
        progress=progress,
        **given,
    )
    result = Survey(run, write_page(run))
    if result.release.learnt_nothing:
        raise InputError(
            f"nothing was learnt: {result!r} are within the noise, and the release is charged all "
            f"the same. Its page is {result.page}"
        )
    return result


def write_page(run: Run) -> Path:
    """Write the answers of a finished run beside its report; the page.

    Raises:
        InputError: it asked nothing, or the files cannot be written.
    """
    from murmuration.surveying.page import write_survey

    return write_survey(run.path, SurveyRelease.of_result(run.result, run.path), run.result)
