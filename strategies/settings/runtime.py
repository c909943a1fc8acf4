"""Settings of a run's output, of waiting for its nodes, and of its report besides figures."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import (
    OUTPUT,
    RUNTIME,
    positive_or_default,
    setting,
)


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """Settings of a run's output, and of waiting for its nodes."""

    seed: int = setting(
        -1,
        "Seed. It repeats a simulation exactly. [default: randomness from the operating system]",
        panel=RUNTIME,
        common=True,
        good=lambda value: value >= -1,
        expected="a non-negative integer, or left out",
        changeable=True,
    )
    out: str = setting(
        "",
        "Where to write. Folder for the run. [default: runs/<time>]",
        panel=OUTPUT,
        common=True,
        changeable=True,
    )
    resume: bool = setting(
        False, "Continue the run in --out.", panel=OUTPUT, common=True, changeable=True
    )
    timeout: float = setting(
        0.0,
        "Seconds to wait for the nodes of a round. [default: 600; a day in a simulation, where "
        "nobody is late]",
        panel=RUNTIME,
        good=positive_or_default,
        expected="a positive number of seconds",
        changeable=True,
    )
    min_nodes: float = setting(
        0.5,
        "Nodes that must be online before a round's cohort is drawn: a number, or a share.",
        panel=RUNTIME,
        good=lambda value: 0.0 <= value < 1.0 or (value > 0.0 and value % 1.0 == 0.0),
        expected="a number of nodes, or a share of them below 1",
        deployed=True,
        changeable=True,
    )
    registration: str = setting(
        "",
        "File that says which users deployed nodes may host. [default: one user each]",
        panel=RUNTIME,
        deployed=True,
        changeable=True,
    )


#: Characters of a text.
_MOST = 200


def _is_line(text: str) -> bool:
    """Return whether a text is one short line that a page can show."""
    return len(text) <= _MOST and text.isprintable()


_LINE = {"panel": OUTPUT, "good": _is_line, "expected": f"one line of at most {_MOST} characters"}


@dataclass(frozen=True)
class ReportConfig:
    """State what a report says of a run beside its figures. All of it is public."""

    dataset_name: str = setting("", "Name of the data set, for the report. Public.", **_LINE)
    note: str = setting(
        "",
        "A sentence for the report, such as purpose and who is responsible. Public.",
        **_LINE,
    )
