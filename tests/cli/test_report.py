"""``murmuration report``: what it writes where, and what it refuses."""

import json
from pathlib import Path

import pytest

from murmuration.server.record.run_lock import RunLock


@pytest.fixture
def ran(cli, crowd, crowd_test, tmp_path, quick_runs):
    """A function: the folder of a small run."""

    def run(name, *options):
        out = tmp_path / name
        code, _, lines = cli(
            *("run", "--data", crowd, "--test", crowd_test, "--rounds", 2, "--cohort", 10),
            *("--delta", "1e-3", "--epsilon", 2, "--seed", 424242, "--out", out, *options),
        )
        assert code == 0, lines
        return out

    return run


def test_the_report_of_a_run_is_written_again(cli, ran, crowd):
    out = ran("a")
    (out / "report.html").unlink(missing_ok=True)
    code, text, _ = cli("report", out, "--json")
    assert code == 0
    page = Path(json.loads(text)["page"]).read_text(encoding="utf-8")
    result = json.loads((out / "result.json").read_text())
    assert "Length baseline" in page and "What an attacker could do with it" in page
    assert f"{100 * result['baselines']['longer_wins']:.1f} %" in page
    assert result["versions"]["flwr"] in page and "gradient sum" in page
    assert str(Path(crowd).parent) not in page and str(out.parent) not in page
    assert "424242" not in page, "the seed is a secret"


def test_a_held_out_run_has_no_baselines(cli, crowd, tmp_path, quick_runs):
    out = tmp_path / "h"
    options = ("--rounds", 2, "--cohort", 10, "--delta", "1e-3", "--epsilon", 4, "--out", out)
    assert cli("run", "--data", crowd, "--test", "", *options)[0] == 0
    assert json.loads((out / "result.json").read_text())["baselines"] is None
    assert cli("report", out)[0] == 0
    for page in ("report.html", "model/README.md"):
        text = (out / page).read_text(encoding="utf-8").lower()
        assert "length baseline" not in text and "pairs of" not in text


def test_a_twin_stands_beside_in_private_only(cli, refusal, ran):
    out, twin = ran("a"), ran("n", "--strategy", "nonprivate")
    cli("report", out)
    before = (out / "report.html").read_bytes()
    code, text, _ = cli("report", out, "--nonprivate", twin, "--json")
    path = Path(json.loads(text)["page"])
    assert code == 0 and path.parent == out / "private"
    page = path.read_text(encoding="utf-8")
    assert "Without privacy" in page and "not publish this page" in page.lower().replace("do ", "")
    assert (out / "report.html").read_bytes() == before
    assert "not a finished run without privacy" in refusal("report", out, "--nonprivate", out)


def test_several_runs_are_compared(cli, refusal, ran, tmp_path):
    a, b = ran("a"), ran("b", "--adjacency", "zero-out")
    page = tmp_path / "both.html"
    code, text, _ = cli("report", a, b, "--out", page)
    assert code == 0 and "differ in adjacency" in " ".join(text.split())
    assert "differ in adjacency" in page.read_text(encoding="utf-8")
    page.write_text("mine")
    assert "something else" in refusal("report", a, b, "--out", page)
    assert page.read_text() == "mine"


def test_a_run_in_use_is_left_alone(refusal, ran):
    out = ran("a")
    lock = RunLock(out)
    assert "in use" in refusal("report", out)
    lock.close()


def test_an_audit_is_of_the_mechanism(cli, ran, tmp_path):
    out, audit = ran("a"), tmp_path / "audit.json"
    said = {"target": "uls", "adjacency": "add-remove", "epsilon_claimed": 1.0}
    audit.write_text(json.dumps({**said, "epsilon_lower": 0.71, "confidence": 0.95}))
    assert cli("report", out, "--audit", audit)[0] == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "0.71" in page and "not of this run" in page


def test_no_run(refusal, tmp_path):
    assert "no run in it" in refusal("report", tmp_path)
