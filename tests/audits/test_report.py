"""All audits in turn, and their page."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.audits import report
from murmuration.audits.auditing import Measured, Target
from murmuration.audits.report import audit_all, distinct, failed, page
from murmuration.audits.targets import TARGETS
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.theorems import COMES_OR_GOES
from murmuration.research.audits.faults import FAULTS

TEMPLATE = Path(__file__).parents[2] / "audits" / "templates" / "audits.md"
UNDER = Target("stays under", lambda task: Measured(1.0, 0.5, 10, 1e-5))
OVER = Target("goes over", lambda task: Measured(1.0, 1.5, 10, 1e-5), adjacencies=COMES_OR_GOES)


@pytest.fixture
def few(monkeypatch):
    return lambda targets: monkeypatch.setattr(report, "TARGETS", targets)


def test_of_relations_with_the_same_inputs_one_is_audited():
    assert distinct(UNDER) == [Adjacency.ADD_REMOVE, Adjacency.REPLACE]
    assert distinct(OVER) == [Adjacency.ADD_REMOVE]
    labels = replace(UNDER, adjacencies=frozenset({Adjacency.REPLACE_LABELS}))
    assert distinct(labels) == [Adjacency.REPLACE_LABELS]


def test_everything_is_audited_and_written(few):
    few({"under": UNDER, "over": replace(OVER, sound=False)})
    said = []
    audits, faults = audit_all(5, 0.99, said.append, {"noise": FAULTS["noise"]})
    assert [row["verdict"] for row in audits] == [
        "consistent",
        "consistent",
        "violated, as documented",
    ]
    assert [row["verdict"] for row in faults] == ["caught"]
    assert said == [*audits, *faults]
    assert failed(audits, faults) == []
    text = page(audits, faults, 5, 0.99)
    assert "--seed 5" in text
    assert "| `under` | stays under | 1 | 0.5 | 0.5 | 1e-05 | 10 |" in text
    assert "| `over` | goes over | 1 | 1.5, violated, as documented | – | 1e-05 | 10 |" in text
    assert FAULTS["noise"].about in text
    assert "99%" in text
    assert "## Seeded faults" not in page(audits, [], 5, 0.99)


def test_what_a_missing_library_is_needed_for_is_left_out(few):
    few({"under": replace(UNDER, needs="no_such_library")})
    faults = {"noise": replace(FAULTS["noise"], needs="no_such_library")}
    assert audit_all(5, 0.99, lambda row: None, faults) == ([], [])


def test_what_fails_is_named(few):
    missed = replace(FAULTS["noise"], measure=lambda task: Measured(1.0, 0.9, 10, 1e-5))
    few({"over": OVER})
    audits, faults = audit_all(5, 0.99, lambda row: None, {"noise": missed})
    assert failed(audits, faults) == ["over", "noise"]


# What the page says around its tables.


def test_commands_exist():
    for line in TEMPLATE.read_text(encoding="utf-8").splitlines():
        if line.startswith("    murmuration audit ") and "--all" not in line:
            assert line.split()[2] in TARGETS


def test_links_lead_somewhere():
    page = Path(__file__).parents[2] / "docs" / "explanation"
    links = re.findall(r"\]\(([^)]+)\)", TEMPLATE.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (page / link).exists()] == []
