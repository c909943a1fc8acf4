"""dp-accounting is there for developers; whoever has not got it reads what to install."""

import sys
import tomllib
from pathlib import Path

import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.sims.audits import report
from murmuration.sims.audits.faults import FAULTS, NEED
from murmuration.sims.bench.accounting import TASKS, measure
from murmuration.sims.oracle import NEEDED, dp_accounting
from murmuration.sims.reproductions.aup_tables import rdp_multiplier

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())


def test_it_is_named_as_the_development_group_names_it():
    assert NEEDED in PROJECT["dependency-groups"]["dev"]
    assert not any(name.startswith("dp-acc") for name in PROJECT["project"]["dependencies"])


@pytest.mark.parametrize(
    "use",
    [
        dp_accounting,
        lambda: measure(TASKS[0], repetitions=1),
        lambda: rdp_multiplier(1.0, 1e-5, 0.1, 10),
    ],
    ids=["itself", "bench accounting", "aup-tables"],
)
def test_without_it_one_line_says_what_to_install(monkeypatch, use):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match=r"^this needs dp-accounting: pip install '[^\n]*'$"):
        use()


def test_faults_whose_library_is_missing_are_left_out(monkeypatch):
    audited = []

    def noted(name, *_):
        audited.append(name)
        return {}

    monkeypatch.setattr(report, "TARGETS", {})
    monkeypatch.setattr(report, "fault_row", noted)
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    report.audit_all(0, 0.95, lambda row: None)
    assert audited == [name for name in FAULTS if name not in NEED]
    assert NEED["counted-once"] == "dp_accounting"
