"""``murmuration compare``."""

import json

import pytest

from murmuration.strategies import registry
from murmuration.strategies.spec import NodeHalf, clip_norm

pytestmark = pytest.mark.usefixtures("quick_runs")


def test_json_contract(cli, crowd, crowd_test, tmp_path):
    code, stdout, stderr = cli(
        "compare", "--data", crowd, "--test", crowd_test, "--strategies", "uls,els,nonprivate",
        "--epsilons", "0.5,1", "--delta", 1e-3, "--seeds", 1,
        "--rounds", 2, "--cohort", 10, "--out", tmp_path / "c", "--json",
    )  # fmt: skip
    assert code == 0
    found = json.loads(stdout.splitlines()[-1])
    assert [(r["strategy"], r["epsilon"]) for r in found["rows"]] == [
        ("uls", 0.5), ("uls", 1.0), ("els", 0.5), ("els", 1.0), ("nonprivate", None),
    ]  # fmt: skip
    keys = {"strategy", "epsilon", "accuracy_mean", "accuracy_sd", "rounds", "gradients"}
    assert all(set(row) >= keys | {"bytes_per_user"} for row in found["rows"])
    assert {row["adjacency"] for row in found["rows"]} == {"add-remove", None}
    assert "under add-remove" in " ".join(stderr)
    assert {"report.md", "rows.json", "comparison.png"} <= {
        path.name for path in (tmp_path / "c").iterdir()
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epsilons", "1,x"], "--epsilons"),
        (["--seeds", 0], "--seeds"),
        (["--strategies", " , "], "--strategies"),
        (["--strategies", "uls,magic"], "--strategy"),
        (["--strategies", "aup:magic"], "--variant"),
    ],
)
def test_bad_input_is_one_line(refusal, crowd, tmp_path, options, said):
    small = ("--rounds", 2, "--cohort", 5)
    assert said in refusal("compare", "--data", crowd, "--out", tmp_path / "c", *small, *options)


def test_all_refusals_come_first_a_line_each(cli, crowd, crowd_test, tmp_path):
    code, stdout, lines = cli(
        "compare", "--data", crowd, "--test", crowd_test, "--strategies", "els,local-label,uls",
        "--adjacency", "replace", "--cohort", 10, "--out", tmp_path / "c", "--json",
    )  # fmt: skip
    assert (code, stdout) == (2, "")
    assert [line.split()[0] for line in lines] == ["error:", "els:", "local-label:", "they"]
    assert not (tmp_path / "c").exists()


def test_a_strategy_that_fails_is_said(cli, crowd, crowd_test, tmp_path, monkeypatch):
    def fail(*_):
        raise KeyError("grads")

    monkeypatch.setitem(registry.node_halves(), "uls", NodeHalf(fail, clip_norm))
    code, stdout, stderr = cli(
        "compare", "--data", crowd, "--test", crowd_test, "--strategies", "uls,els,nonprivate",
        "--epsilons", "0.5", "--delta", 1e-3, "--seeds", 2,
        "--rounds", 2, "--cohort", 10, "--out", tmp_path / "c", "--json",
    )  # fmt: skip
    assert code == 1
    assert "some runs failed, the first: " in "".join(stderr)
    rows = json.loads(stdout.splitlines()[-1])["rows"]
    assert "KeyError: 'grads'" in rows[0]["failed"]
    assert rows[0]["accuracy_mean"] is None
    assert not rows[1]["failed"]
    assert rows[2]["accuracy_mean"] is not None
    assert "FAILED: " in (tmp_path / "c" / "report.md").read_text()


def test_a_folder_of_something_else_is_refused_first(refusal, crowd, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    message = refusal("compare", "--data", crowd, "--out", tmp_path, "--seeds", 1)
    assert "something else" in message
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_without_a_terminal_runs_are_counted(cli, crowd, tmp_path):
    options = ["--strategies", "uls,nonprivate", "--epsilons", "1,3", "--seeds", 1, "--rounds", 2]
    told = ["--data", crowd, "--users", 40, "--out", tmp_path / "c"]
    code, _, lines = cli("compare", *told, *options)
    counted = [line for line in lines if line.startswith(("3 runs", "run "))]
    assert code == 0 and len(counted) == 4
    assert counted[0] == "3 runs" and counted[-1] == "run 3 of 3 ended: nonprivate-seed0"
    assert " left" in counted[1]
