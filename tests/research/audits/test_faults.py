"""Every seeded fault is caught by its audit, and named truthfully."""

from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.audits.auditing import Task
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.faults import FAULTS

_TESTS = Path(__file__).parents[2]
_SLOW = {"sensitivity", "coins-of-the-server", "counted-twice"}


def found_in(fault):
    task = Task(fault.adjacency, fault.epsilon, fault.trials, Randomness(7))
    return fault.measure(task)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in _SLOW else ()) for n in FAULTS]
)
def test_the_audit_catches_it(name):
    fault = FAULTS[name]
    if name == "shuffled":
        fault = replace(fault, trials=40_000)
    found = found_in(fault)
    assert found.lower > found.claimed, f"{name}: {found}"


@pytest.mark.parametrize("name", FAULTS)
def test_the_test_that_is_named_exists(name):
    file, what = FAULTS[name].test.split("::")
    text = (_TESTS.parent / file).read_text(encoding="utf-8")
    assert what in text, f"{file} has no {what}"
