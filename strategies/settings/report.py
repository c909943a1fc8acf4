"""Settings of a report besides its figures: public texts, as the operator states them."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import OUTPUT, setting

#: Characters of a text.
_MOST = 200


def _is_line(text: str) -> bool:
    return len(text) <= _MOST and text.isprintable()


_LINE = {"panel": OUTPUT, "good": _is_line, "expected": f"one line of at most {_MOST} characters"}


@dataclass(frozen=True)
class ReportConfig:
    """State what a report says of a run beside its figures. All of it is public."""

    dataset_name: str = setting("", "Name of the data set, for the report. Public.", **_LINE)
    purpose: str = setting("", "Purpose of the training, for the report. Public.", **_LINE)
    operator: str = setting("", "Who is responsible for the run, for the report. Public.", **_LINE)
