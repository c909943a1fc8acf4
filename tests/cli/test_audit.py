"""``murmuration audit``."""

import json

import pytest

import murmuration.audits.report
import murmuration.audits.targets
from murmuration.audits.auditing import Measured, Target
from murmuration.research.audits import faults

KEYS = {"target", "adjacency", "epsilon_claimed", "epsilon_lower", "confidence", "trials"}


def test_one_target(cli):
    asked = ("audit", "randomized-response", "--epsilon", 2, "--trials", 20_000, "--seed", 1)
    code, out, err = cli(*asked, "--json")
    found = json.loads(out)
    assert (code, err) == (0, [])
    assert KEYS | {"verdict"} <= set(found)
    assert found["adjacency"] == "replace-labels"
    assert 1.8 < found["epsilon_lower"] <= found["epsilon_claimed"] == 2.0
    assert found["verdict"] == "consistent"
    again = json.loads(cli(*asked, "--json")[1])
    assert again["epsilon_lower"] == found["epsilon_lower"], "a seed repeats an audit"
    code, out, _ = cli(*asked)
    assert code == 0
    assert "consistent" in out


def test_without_a_seed_a_fresh_one_is_stated(cli):
    asked = ("audit", "randomized-response", "--trials", 1000, "--json")
    seeds = {json.loads(cli(*asked)[1])["seed"] for _ in range(2)}
    assert len(seeds) == 2


def test_the_list(cli):
    for asked in (("audit", "--list"), ("audit",)):
        code, out, _ = cli(*asked)
        assert code == 0
        assert "poisson-gaussian" in out
        assert "randomized-response:four" in out


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("nothing",), "there is no audit of 'nothing'"),
        (("els", "--adjacency", "replace"), "use --adjacency add-remove or zero-out"),
        (("gaussian", "--trials", 3), "--trials must be at least 8"),
        (("gaussian", "--epsilon", -1), "--epsilon must be positive"),
        (("gaussian", "--trials", 100, "--confidence", 1), "confidence"),
        (("gaussian", "--base", "x"), "--base is for pipeline:texts: gaussian is about no model"),
        (("pipeline:texts", "--base", "nowhere/x"), "nowhere/x"),
    ],
)
def test_what_cannot_be_audited(cli, asked, message):
    code, out, err = cli("audit", *asked)
    assert code == 2
    assert len(err) == 1 or message in " ".join(err)
    assert message in " ".join(err)
    assert out == ""


def test_the_base_that_was_named_is_audited(cli, monkeypatch, language_model):
    bases = []

    def measure(task):
        bases.append(task.base)
        return Measured(1.0, 0.5, 10, 1e-5)

    monkeypatch.setitem(
        murmuration.audits.targets.TARGETS, "named", Target("", measure, based=True)
    )
    base = str(language_model("gpt2"))
    code, out, _ = cli("audit", "named", "--base", base, "--json")
    assert (code, json.loads(out)["base"], bases) == (0, base, [base])
    assert "base" not in json.loads(cli("audit", "named", "--json")[1])
    assert bases[1:] == [""]


def test_a_violation_ends_nonzero(cli, monkeypatch):
    over = Target("", lambda task: Measured(1.0, 1.5, 10, 1e-5))
    documented = Target("", lambda task: Measured(1.0, 1.5, 10, 1e-5), sound=False)
    monkeypatch.setitem(murmuration.audits.targets.TARGETS, "over", over)
    monkeypatch.setitem(murmuration.audits.targets.TARGETS, "documented", documented)
    code, out, _ = cli("audit", "over", "--json")
    assert (code, json.loads(out)["verdict"]) == (1, "violated")
    code, out, _ = cli("audit", "documented", "--json")
    assert (code, json.loads(out)["verdict"]) == (0, "violated, as documented")


def test_all(cli, monkeypatch, tmp_path):
    under = Target("stays under", lambda task: Measured(1.0, 0.5, 10, 1e-5))
    monkeypatch.setattr(murmuration.audits.report, "TARGETS", {"under": under})
    monkeypatch.setattr(faults, "FAULTS", {"nan": faults.FAULTS["nan"]})
    page = tmp_path / "page.md"
    code, out, _ = cli("audit", "--all", "--seed", 3, "--page", page, "--json")
    found = json.loads(out)
    assert code == 0
    assert [row["target"] for row in found["audits"]] == ["under", "under"]
    assert [row["verdict"] for row in found["faults"]] == ["caught"]
    assert "--seed 3" in page.read_text(encoding="utf-8")
    over = Target("goes over", lambda task: Measured(1.0, 1.5, 10, 1e-5))
    monkeypatch.setattr(murmuration.audits.report, "TARGETS", {"over": over})
    assert cli("audit", "--all", "--page", page)[0] == 1
