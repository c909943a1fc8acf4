"""``murmuration tune``: options, and what is said of a search."""

import json

import pytest

from murmuration.tuning import calibration


@pytest.mark.usefixtures("quick_runs")
def test_a_search_says_what_it_cost_and_what_would_have_been_claimed(
    cli, crowd, tmp_path, monkeypatch
):
    monkeypatch.setattr(calibration, "_HALVINGS", 3)
    given = ["--data", crowd, "--grid", "clip_norm=0.05,0.4", "--expected-runs", 1.5, "--seed", 2]
    given += ["--epsilon", 4, "--delta", 1e-3, "--rounds", 2, "--cohort", 10, "--users", 40]
    code, out, err = cli("tune", *given, "--out", tmp_path / "t")
    assert code == 0, err
    assert "for the whole search" in out and "which is false" in out
    assert "chosen:\n  clip_norm = 0." in out
    assert [line for line in err if "how many runs there are is secret" in line]
    code, out, _ = cli("tune", "--resume", "--out", tmp_path / "t", "--json")
    figures = json.loads(out)["outcome"]["search"]
    assert code == 0
    assert figures["candidate_epsilon"] < figures["epsilon"] <= 4.0
    assert figures["every_setting_once_epsilon"] > figures["candidate_epsilon"]
    code, out, _ = cli("ledger", tmp_path / "t")
    assert code == 0 and "candidate: " in out and "{" not in out


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "--grid"),
        (["--resume"], "--out"),
        (["--resume", "--out", "nowhere", "--grid", "clip_norm=1,2"], "no settings"),
        (["--resume", "--out", "nowhere"], "there is no search"),
        (["--grid", "clip_norm=1,2", "--strategy", "els"], "cannot be searched"),
    ],
)
def test_what_cannot_be_searched_is_one_line(cli, tmp_path, monkeypatch, given, why):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("tune", *given)
    assert code == 2 and out == ""
    assert len(err) == 1 and why in err[0]
    assert list(tmp_path.iterdir()) == []
