"""The results of a survey, as a page and as numbers.

Decisions:
- Every number has the interval that noise leaves. What noise alone could have made is not shown as
  if it had been seen, and nothing is shown below zero; the raw numbers are in the JSON.
- All of it is post-processing of one release, so both files may be published.
- Topics are strangers' texts: Jinja escapes them, and each stands in a direction of its own.
- One file, no script, nothing fetched from anywhere, light or dark as the reader has it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.privacy.accounting.terms import Trust
from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.figures import CONFIDENCE, points_of_error, share_text
from murmuration.reporting.evidence import attack_rows
from murmuration.reporting.facts import facts
from murmuration.reporting.jinja import html_templates
from murmuration.surveying.release import Share, SurveyRelease

PAGE, NUMBERS = "survey.html", "survey.json"
_QUANTILE_NAMES = {
    0.25: "first quartile",
    0.5: "median",
    0.75: "third quartile",
    0.9: "90th percentile",
}


@dataclass(frozen=True)
class Line:
    """An answer as it is shown; ``percent`` is the length of its bar."""

    answer: str
    text: str
    percent: float


@dataclass(frozen=True)
class Section:
    """A question on the page: answers beyond the noise, and a note about the others."""

    question: str
    lines: Sequence[Line]
    others: str


def write_survey(folder: Path, release: SurveyRelease, result: Mapping[str, Any]) -> Path:
    """Write ``survey.json`` and, last, ``survey.html``, which is returned.

    Args:
        folder: of the run.
        release: what the run released.
        result: the figures of its ``result.json``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    promised = {"promise": facts(result)["claim"], "adjacency": result["adjacency"]}
    numbers = {**promised, **in_numbers(release)}
    text = json.dumps(numbers, indent=2, allow_nan=False, ensure_ascii=False)
    replace_file(folder / NUMBERS, f"{text}\n".encode())
    replace_file(folder / PAGE, page(release, result).encode())
    return folder / PAGE


def in_numbers(release: SurveyRelease) -> dict[str, Any]:
    """A survey as JSON: counts as released, which noise can make negative; shares and intervals are
    None if nothing was learnt.
    """
    return {
        "epsilon": release.epsilon,
        "delta": release.delta,
        "confidence": CONFIDENCE,
        "noise_std": release.noise,
        "learnt_nothing": release.learnt_nothing,
        "users": {
            "with_judgements": release.users,
            "error": release.users_error,
            "stated": release.stated_users,
        },
        "judgements_of_quantiles": {
            str(part): None if release.learnt_nothing else [*release.quantile(part)]
            for part in _QUANTILE_NAMES
        },
        "questions": [
            {
                "name": question.name,
                "question": question.text,
                "answers": [_in_numbers(share) for share in shares],
            }
            for question, shares in release.shares.items()
        ],
    }


def _in_numbers(share: Share) -> dict[str, Any]:
    known = math.isfinite(share.share)
    return {
        "answer": share.answer,
        "users": share.count,
        "share": share.share if known else None,
        "low": share.low if known else None,
        "high": share.high if known else None,
        "within_noise": share.within_noise,
    }


def page(release: SurveyRelease, result: Mapping[str, Any]) -> str:
    """The page as HTML."""
    run, promise = facts(result), result["promise"]
    return _PAGE.render(
        run,
        sections=sections(release),
        users=users_text(release),
        quantiles=quantile_lines(release),
        stated=release.stated_users,
        nothing=release.learnt_nothing,
        noise=math.ceil(release.users_error),
        questions=len(release.questionnaire.questions),
        attacker=attack_rows(run),
        confidence=CONFIDENCE,
        promised=f"{promise['statement']}; caveats: {', '.join(promise['caveats']) or 'none'}",
        trusted="; ".join(Trust(name).sentence for name in promise["trust"]),
    )


def users_text(release: SurveyRelease) -> str:
    """The number of users with judgements, with its interval."""
    return f"{max(0.0, release.users):,.0f} ± {math.ceil(release.users_error):,}"


def quantile_lines(release: SurveyRelease) -> dict[str, str]:
    """Quantiles of judgements per user, by name; empty if nothing was learnt."""
    if release.learnt_nothing:
        return {}
    return {name: _range(*release.quantile(part)) for part, name in _QUANTILE_NAMES.items()}


def _range(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return f"{least}" if least == most else f"{least} to {most}"


def sections(release: SurveyRelease) -> list[Section]:
    """The questions for the page; empty if nothing was learnt."""
    if release.learnt_nothing:
        return []
    return [
        Section(
            question.text,
            [_line(share) for share in shares if not share.within_noise],
            _others([share for share in shares if share.within_noise]),
        )
        for question, shares in release.shares.items()
    ]


def _line(share: Share) -> Line:
    shown = min(1.0, share.share)
    text = f"{share_text(shown)} ± {points_of_error(share.error)}"
    return Line(share.answer, text, round(100 * shown, 1))


def _others(shares: Sequence[Share]) -> str:
    """A note about answers that noise alone could have made."""
    if not shares:
        return ""
    most = share_text(max(share.high for share in shares))
    listed = ", ".join(share.answer for share in shares)
    return f"within the noise, {'each ' if len(shares) > 1 else ''}at most {most}: {listed}"


_PAGE = html_templates(Path(__file__).with_name("templates")).get_template("survey.html.md")
