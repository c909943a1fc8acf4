"""Settings of a run's output, and of waiting for its nodes."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import (
    OUTPUT,
    RUNTIME,
    positive_or_default,
    settings_in,
)

_changeable = settings_in(RUNTIME, changeable=True)
_of_output = settings_in(OUTPUT, common=True, changeable=True)
_setting = settings_in(OUTPUT)
_MOST = 200  # characters of a note


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """Settings of a run's output, and of waiting for its nodes."""

    seed: int = _changeable(
        -1,
        "Seed. It repeats a simulation exactly. [default: randomness from the operating system]",
        common=True,
        good=lambda value: value >= -1,
        expected="a non-negative integer, or left out",
    )
    out: str = _of_output("", "Where to write. Folder for the run. [default: runs/<time>]")
    resume: bool = _of_output(False, "Continue the run in --out.")
    timeout: float = _changeable(
        0.0,
        "Seconds to wait for the nodes of a round. [default: 600; a day in a simulation, where "
        "nobody is late]",
        good=positive_or_default,
        expected="a positive number of seconds",
    )
    min_nodes: float = _changeable(
        0.5,
        "Nodes that must be online before a round's cohort is drawn: a number, or a share.",
        good=lambda value: 0.0 <= value < 1.0 or (value > 0.0 and value % 1.0 == 0.0),
        expected="a number of nodes, or a share of them below 1",
        deployed=True,
    )
    registration: str = _changeable(
        "",
        "File that says which users deployed nodes may host. [default: one user each]",
        deployed=True,
    )
    note: str = _setting(
        "",
        "A sentence for the report, such as purpose and who is responsible. Public.",
        good=lambda text: len(text) <= _MOST and text.isprintable(),
        expected=f"one line of at most {_MOST} characters",
    )
