"""``murmuration deploy``: what it prints, writes and refuses."""

import re

import pytest

from murmuration import rank, survey
from murmuration.cli.deployments import run as deploy_run
from murmuration.deploy import doctor
from murmuration.deploy.doctor import Finding


@pytest.fixture
def folder(cli, tmp_path):
    arguments = ("deploy", "init", tmp_path / "d", "--host", "127.0.0.1", "--clients", "alice,bob")
    code, out, _ = cli(*arguments, "--port", "9")
    assert code == 0
    assert "clients/alice/node.key  (secret, 0600)" in out
    assert "deploy doctor" in out
    return tmp_path / "d"


@pytest.fixture
def configs(monkeypatch):
    """Settings of the runs that were started; none is."""
    found = []
    monkeypatch.setattr(
        deploy_run,
        "run_deployed",
        lambda server, address, config, **_: found.append(config) or {},
    )
    return found


@pytest.mark.usefixtures("quick_runs")
def test_what_is_released_without_a_model_is_printed(cli, tmp_path, monkeypatch, configs):
    """A board and a survey end with their pages."""
    init = ("deploy", "init", tmp_path / "d", "--host", "127.0.0.1", "--clients", "a:9")
    assert cli(*init)[0] == 0
    vote = {"prompt": "?", "chosen": "trams", "rejected": "parking"}
    votes = [{"user_id": f"v{n}", **vote} for n in range(60)]
    budget = {"epsilon": 20.0, "delta": 1e-3, "seed": 1, "users": 60}
    for shown, run in (
        ("board.html", rank(votes, ["trams", "parking"], out=tmp_path / "r", **budget).run),
        ("survey.html", survey(votes, out=tmp_path / "s", **budget).run),
    ):
        monkeypatch.setattr(deploy_run, "run_deployed", lambda *_, r=run.result, **__: r)
        code, out, _ = cli("deploy", "run", tmp_path / "d", "--out", tmp_path / "run")
        assert code == 0 and shown in out and "None" not in out


def test_a_run_is_by_the_numbers_of_init_unless_told_otherwise(cli, refusal, tmp_path, configs):
    numbers = ("--users", 40, "--cohort", 20, "--epsilon", 2, "--delta", 1e-7, "--rounds", 50)
    numbers += ("--clip-norm", 0.5, "--group-size", 8)
    init = ("deploy", "init", tmp_path / "d", "--host", "127.0.0.1", "--clients", "a")
    assert cli(*init, *numbers)[0] == 0
    start = ("deploy", "run", tmp_path / "d", "--out", tmp_path / "run")
    assert cli(*start)[0] == 0
    found = configs.pop()
    expected = {
        "users": 40, "cohort": 20, "epsilon": 2.0, "delta": 1e-7, "rounds": 50, "clip_norm": 0.5,
        "group_size": 8, "adjacency": "zero-out", "strategy": "uls", "comes_and_goes": True,
    }  # fmt: skip
    assert {name: getattr(found, name) for name in expected} == expected
    assert cli(*start, "--users", 30, "--set", "rounds=5")[0] == 0
    found = configs.pop()
    assert (found.users, found.rounds, found.cohort) == (30, 5, 20)
    labels = ("--set", "strategy=local-label", "--set", "adjacency=replace-labels")
    assert cli(*start, *labels)[0] == 0  # of another strategy bounds are its own
    found = configs.pop()
    assert (found.users, found.epsilon, found.clip_norm, found.rounds) == (40, 2.0, 0.0, 1)
    (tmp_path / "d/server/run.toml").write_text("sounds = 5")
    assert "run.toml cannot be used: unknown setting 'sounds'" in refusal(*start)


@pytest.mark.parametrize("place", ["--set", "run.toml"])
def test_a_seed_is_refused(refusal, folder, tmp_path, configs, place):
    """It ended "private, proven", and every node was sent it."""
    given = ("--set", "seed=7") if place == "--set" else ()
    if not given:
        with (folder / "server" / "run.toml").open("a") as file:
            file.write("seed = 7\n")
    out = tmp_path / "run"
    assert "a seed is for simulations" in refusal("deploy", "run", folder, "--out", out, *given)
    assert (configs, out.exists()) == ([], False)


def test_metrics_of_a_run_are_sent_to_a_tracker(cli, folder, tmp_path, monkeypatch):
    out = tmp_path / "run"
    (tmp_path / "of_a_deployment.py").write_text("heard = {}\nreport = heard.__setitem__\n")
    monkeypatch.syspath_prepend(tmp_path)

    def runs(server, address, config, **_):
        out.mkdir()
        (out / "metrics.jsonl").write_text('{"round": 1, "epsilon": 0.5}\n')
        return {"rounds": 1}

    monkeypatch.setattr(deploy_run, "run_deployed", runs)
    assert (
        cli("deploy", "run", folder, "--out", out, "--report-to", "of_a_deployment:report")[0] == 0
    )
    import of_a_deployment  # pyright: ignore[reportMissingImports]

    assert of_a_deployment.heard == {1: {"epsilon": 0.5}}


def test_init_refuses_numbers_of_which_there_is_no_run(refusal, tmp_path):
    init = ("deploy", "init", tmp_path / "d", "--host", "127.0.0.1", "--clients", "a")
    assert "--rounds" in refusal(*init, "--cohort", 2, "--rounds", 0)
    assert not (tmp_path / "d").exists()


def test_doctor_waits_until_all_is_well(cli, folder, monkeypatch):
    looks = []

    def examine(folder):
        looks.append(folder)
        return [Finding("alice", len(looks) > 2, "registered")]

    monkeypatch.setattr(doctor, "examine", examine)
    monkeypatch.setattr(doctor.time, "sleep", lambda seconds: None)
    code, out, _ = cli("deploy", "doctor", folder, "--wait", 60)
    assert (code, len(looks)) == (0, 3)
    assert out.count("alice") == 1
    looks.clear()
    code, out, _ = cli("deploy", "doctor", folder)
    assert (code, len(looks)) == (1, 1) and "BAD alice" in out


def test_client_says_what_would_leave(cli, folder, write_rows, make_rows):
    data = write_rows(make_rows([3]))
    command = ("deploy", "client", folder / "clients/alice", "--data", data, "--check")
    before = sorted(folder.rglob("*"))
    code, out, err = cli(*command)
    assert code == 0  # nobody answers at port 9, and nobody is asked
    assert "3 judgements of 1 user stay here" in out
    assert "server " not in out.partition("stay here")[0]
    assert "run as you" in " ".join(err)
    assert sorted(folder.rglob("*")) == before  # and nothing is written
    fingerprint = re.search(r"as signed by ([0-9A-F:]{95}): compare", out)[1]
    assert fingerprint in (folder / "README.md").read_text()
    assert "which you know" in cli(*command, "--fingerprint", fingerprint.lower())[1]
    code, _, err = cli(*command, "--fingerprint", "00" * 32)
    assert code == 2
    assert "not by --fingerprint 00" in err[0]


def test_units_are_written_by_the_owners_installation(cli, refusal, tmp_path):
    code, out, _ = cli("deploy", "units", tmp_path)
    assert code == 0
    names = {"murmuration-agent.service", "murmuration-node.service"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert out.count("wrote ") == 2
    assert "cannot be written: File exists" in refusal("deploy", "units", tmp_path)


def test_client_wants_one_source(refusal, folder):
    asked = refusal("deploy", "client", folder / "clients/alice")
    assert "--data FILE, or --socket PATH" in asked


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["rounds"], "NAME=VALUE"),
        (["x=1"], "NAME=VALUE"),
        (["rounds=a"], "int"),
        (["checkpointing=yes"], "neither true nor false"),
        (["adjacency=add-remove", "cohort=2"], "user-ids"),  # numbers of users cannot keep it
        (["strategy=els"], "add --set group_size=N"),
    ],
)
def test_run_refuses_what_cannot_be_set(refusal, folder, tmp_path, settings, why):
    arguments = ("deploy", "run", folder, "--out", tmp_path / "out", "--users", 5)
    more = [part for setting in settings for part in ("--set", setting)]
    assert why in refusal(*arguments, *more)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("asked", "again"),
    [((), True), (("--set", "strategy=local-label", "--set", "adjacency=replace-labels"), False)],
)
def test_a_run_looks_who_is_there_where_that_has_a_meaning(
    cli, folder, tmp_path, configs, asked, again
):
    arguments = ("deploy", "run", folder, "--out", tmp_path / "run", *asked)
    code, _, err = cli(*arguments)
    assert code == 0, err
    assert [config.comes_and_goes for config in configs] == [again]
