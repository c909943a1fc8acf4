"""Submitting, following and resuming, with a SuperLink that is only pretended."""

import itertools
import json
import os
import re
import signal
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cards import RESULT

from murmuration.deploy import run
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.deploy.processes import ended_by_signals
from murmuration.deploy.run import Watch, deployed_config, run_deployed
from murmuration.preference.data.errors import InputError
from murmuration.server.record.run_files import SETTINGS_FILE, settings_of
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import Reason

CONFIG = RunConfig(data="", users=10, cohort=5)


@pytest.fixture
def superlink(monkeypatch, tmp_path):
    """Outcomes of runs, one after the other; the settings that a ServerApp reads are remembered."""
    outcomes, submitted = [], []
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))

    def submit(server, app):
        submitted.append(settings_of(run_config(app)))
        return len(submitted)

    def follow(server, address, run_id, watch):
        outcome = outcomes.pop(0)
        out = Path(submitted[-1]["out"])
        out.mkdir(exist_ok=True)
        (out / "config.json").write_text("{}")
        if not outcome:
            (out / "result.json").write_text(json.dumps(RESULT | {"rounds": 7}))
        return outcome

    monkeypatch.setattr(run, "submit", submit)
    monkeypatch.setattr(run, "follow", follow)
    return outcomes, submitted


def run_config(app):
    """What travels to every node with an app, beside its code."""
    app = tomllib.loads((Path(app) / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app.keys() == {"publisher", "components", "config"}
    return app["config"]


@pytest.mark.parametrize("own_app", [False, True])
def test_nodes_are_sent_no_settings(superlink, tmp_path, monkeypatch, own_app):
    """Neither a seed nor a path of the server's, nor whatever setting there will be."""
    private = {"test": "/srv/test.jsonl", "registration": "/srv/nodes.toml"}
    out, sent, texts = tmp_path / "run", [], []
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "code.py").write_text("")

    def submit(server, app, before=run.submit):
        sent.append(run_config(app))
        texts.extend(path.read_text() for path in Path(app).rglob("*") if path.is_file())
        return before(server, app)

    monkeypatch.setattr(run, "submit", submit)
    superlink[0].append("")
    app_dir = tmp_path / "own" if own_app else None
    config = replace(CONFIG, out=str(out), **private)
    run_deployed(tmp_path, "a:1", config, app_dir=app_dir)
    (only,) = sent
    assert list(only) == [SETTINGS_FILE]
    assert re.fullmatch("[0-9a-f]{32}", only[SETTINGS_FILE])
    assert not [path for path in (str(tmp_path), *private.values()) if path in "".join(texts)]
    assert superlink[1] == [replace(config, out=str(out)).to_run_config()]
    assert list((tmp_path / "flwr").rglob("*.json")) == []  # it is over


def test_a_seed_is_refused_before_anything_is_sent(superlink, tmp_path):
    with pytest.raises(InputError, match=r"a seed is for simulations: .* leave out seed=7"):
        run_deployed(tmp_path, "a:1", replace(CONFIG, out=str(tmp_path / "run"), seed=7))
    assert superlink[1] == []


def test_a_run_that_breaks_is_resumed(superlink, tmp_path):
    outcomes, submitted = superlink
    outcomes += ["failed: power cut", "failed: again", ""]
    said = []
    config = replace(CONFIG, out=str(tmp_path / "run"))
    result = run_deployed(tmp_path, "a:1", config, say=said.append)
    assert result["rounds"] == 7
    assert [settings["resume"] for settings in submitted] == [False, True, True]
    assert any("power cut" in text for text in said)
    assert {settings["registration"] for settings in submitted} == {str(tmp_path / "nodes.toml")}


@pytest.mark.parametrize("away", [False, True])
def test_an_interrupted_run_is_stopped_at_the_superlink(superlink, tmp_path, monkeypatch, away):
    (tmp_path / "ca.crt").touch()
    stopped, messages = [], []

    class Client:
        def __enter__(self):
            if away:
                raise ConnectionError("nobody there")
            return self

        def __exit__(self, *_):
            pass

        def StopRun(self, request):
            stopped.append(request.run_id)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run.ControlHttpClient, "from_server_address", lambda *_: Client())
    monkeypatch.setattr(run, "follow", interrupted)
    config = replace(CONFIG, out=str(tmp_path / "run"))
    with pytest.raises(KeyboardInterrupt):
        run_deployed(tmp_path, "a:1", config, say=messages.append)
    assert stopped == ([] if away else [1])
    assert ("goes on" if away else "is stopped; go on with --resume") in messages[-1]


@pytest.mark.parametrize("hangup", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_terminal_that_closes_interrupts_it_but_under_nohup(hangup):
    former = signal.signal(signal.SIGHUP, hangup)
    try:
        with (
            pytest.raises(KeyboardInterrupt) if hangup == signal.SIG_DFL else nullcontext(),
            ended_by_signals(),
        ):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == hangup
    finally:
        signal.signal(signal.SIGHUP, former)


def test_what_an_app_says_in_the_end_is_one_short_line(superlink, tmp_path):
    outcomes, _ = superlink
    outcomes += ["failed: \x1b[2J" + "x" * 1_000_000, ""]
    said = []
    run_deployed(tmp_path, "a:1", replace(CONFIG, out=str(tmp_path / "run")), say=said.append)
    assert all(text.isprintable() and len(text) < 1_100 for text in said)


def test_a_run_that_never_completes(superlink, tmp_path):
    outcomes, _ = superlink
    outcomes += ["failed: first", "failed: last"]
    config = replace(CONFIG, out=str(tmp_path / "run"))
    with pytest.raises(InputError, match=r"2 attempts.*failed: last"):
        run_deployed(tmp_path, "a:1", config, attempts=2)


def test_a_folder_that_holds_a_run_is_not_continued_unasked(superlink, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    config = replace(CONFIG, out=str(tmp_path / "run"))
    with pytest.raises(InputError, match="--resume"):
        run_deployed(tmp_path, "a:1", config)
    superlink[0].append("")
    run_deployed(tmp_path, "a:1", replace(config, resume=True))
    assert superlink[1][-1]["resume"] is True


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (Reason.NO_ANSWERS, "aborted, no answers: for a reason.* go on with --resume$"),
        (Reason.REFUSED, "aborted, refused.*: for a reason.* when the policies allow it"),
    ],
)
def test_a_run_that_was_aborted_is_not_submitted_again(superlink, tmp_path, monkeypatch, why, said):
    outcomes, submitted = superlink
    outcomes += ["failed: something", "failed: RunAborted"]
    follow = run.follow

    def aborting(*arguments):
        outcome = follow(*arguments)
        if len(submitted) == 2:
            note = {"aborted": why.value, "because": "for a reason"}
            (tmp_path / "run" / "aborted.json").write_text(json.dumps(note))
        return outcome

    monkeypatch.setattr(run, "follow", aborting)
    with pytest.raises(InputError, match=said):
        run_deployed(tmp_path, "a:1", replace(CONFIG, out=str(tmp_path / "run")))
    assert len(submitted) == 2


# What a terminal is told of a run while it goes on.


class SuperLink:
    """Nodes with these states."""

    def __init__(self, *states):
        self.states = states

    def ListNodes(self, request):
        return SimpleNamespace(nodes_info=[SimpleNamespace(status=state) for state in self.states])


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_rounds_epsilon_and_who_is_there_are_told_once(tmp_path):
    said = []
    link, metrics = SuperLink("online", "offline"), tmp_path / "metrics.jsonl"
    now = 0.0
    watch = Watch(tmp_path, 3, said.append, clock=lambda: now)
    watch.look(link)
    watch.look(link)
    assert said == ["1 of 2 nodes online"]
    write(metrics, {"round": 1, "epsilon": 1.23456})
    watch.look(link)
    link.states = ("online", "online")
    write(metrics, {"round": 2, "epsilon": None, "heldout_accuracy": 0.7})
    now = 40.0
    watch.look(link)
    watch.look(link)
    assert said[1:] == [
        "round 1 of 3, epsilon 1.235, 1 of 2 nodes online",
        "round 2 of 3, held-out 70.0 %, 2 of 2 nodes online, 40 s left",
    ]
    link.states = ()
    watch.look(link)
    assert said[-1] == "0 of 0 nodes online"


def test_what_was_told_of_an_attempt_before_is_not_told_again(tmp_path):
    write(tmp_path / "metrics.jsonl", {"round": 1, "epsilon": 1.0})
    said = []
    watch = Watch(tmp_path, 3, said.append)
    watch.look(SuperLink("online"))
    assert said == ["1 of 1 nodes online"]


def test_owners_who_would_refuse_are_told_by_rule(tmp_path):
    said, log = [], tmp_path / "private" / "log.jsonl"
    watch = Watch(tmp_path, 3, said.append)
    write(log, {"round": 1, "cohort": 9}, {"shown the plan": 2, "would refuse": {}})
    watch.look(SuperLink())
    assert said[0] == "the plan was shown to 2 nodes: no owner's policy refuses it"
    refusing = {"7": "max_clip", "8": "max_clip", "9": "max_epsilon"}
    write(log, {"shown the plan": 8, "would refuse": refusing})
    watch.look(SuperLink())
    assert said[-1] == (
        "the plan was shown to 8 nodes: the policies of 3 refuse it (max_clip: 2, max_epsilon: 1)"
    )


def test_nodes_that_are_left_out_are_told_in_a_short_line(tmp_path):
    lines, log = [], tmp_path / "private" / "log.jsonl"
    watch = Watch(tmp_path, 3, lines.append)
    write(log, {"round": 1, "node": 7, "not registered": "\x1b[2J" + "x" * 100_000})
    watch.look(SuperLink())
    assert lines[0].startswith("node 7 takes no part: ")
    assert lines[0].isprintable() and len(lines[0]) < 1_100


def test_rounds_that_a_resumed_run_keeps_are_not_told_again(tmp_path):
    said, metrics = [], tmp_path / "metrics.jsonl"
    write(metrics, *({"round": t, "epsilon": None} for t in (1, 2, 3)))
    watch = Watch(tmp_path, 3, said.append)
    write(tmp_path / "new", {"round": 1, "epsilon": None})
    (tmp_path / "new").replace(metrics)
    watch.look(SuperLink())
    write(metrics, {"round": 2, "epsilon": None})
    watch.look(SuperLink())
    assert said == ["0 of 0 nodes online", "round 2 of 3, 0 of 0 nodes online"]


@pytest.fixture
def server(tmp_path):
    """The server's folder of a deployment of two clients."""
    made = Deployment(("127.0.0.1",), 8100, ("a", "b"), {"a": 40, "b": 40})
    write_deployment(tmp_path / "d", made)
    return tmp_path / "d" / "server"


def test_boards_and_surveys_hold_nobody_out_and_name_whole_paths(server, tmp_path, monkeypatch):
    """The server's app runs in another folder, and gives up only when all nodes are there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "items.txt").write_text("trams\nparks\n")
    out = {"out": str(tmp_path / "run")}
    for strategy in ("ranking", "survey"):
        own = {} if strategy == "survey" else {"items": "items.txt"}
        config = deployed_config(server, out, {"strategy": strategy, **own})
        assert (config.heldout, config.rounds, config.users) == (0.0, 1, 80)
        listed = config.to_run_config().get("items", "")
        path = "" if strategy == "survey" else str(tmp_path / "items.txt")
        assert str(listed).partition("#sha256=")[0] == path
    assert deployed_config(server, out, {"strategy": "uls"}).heldout > 0
    here = deployed_config(server, out, {"strategy": "ranking", "items": '["a", "b"]'})
    assert here.to_run_config()["items"] == '["a", "b"]'


def test_a_run_that_nobody_takes_is_told_of_once_and_waited_for(tmp_path):
    lines, seconds = [], iter([0, 0, 59, 60, 61, 119, 120, 1000])
    watch = Watch(tmp_path, 3, lines.append, clock=lambda: next(seconds))
    for _ in range(6):
        watch.waits("pending")
    (line,) = lines
    assert "not begun after 60 seconds: server/superexec.sh does not take it" in line


class Statuses:
    """A SuperLink that tells these statuses of its only run, the last one for ever."""

    def __init__(self, *statuses):
        self.statuses, self.stopped = [*statuses], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ListRuns(self, request):
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return SimpleNamespace(run_dict={request.run_id: SimpleNamespace(status=status)})

    def ListNodes(self, request):
        return SimpleNamespace(nodes_info=[])

    def StopRun(self, request):
        self.stopped.append(request.run_id)


def status(name, sub_status="", details=""):
    return SimpleNamespace(status=name, sub_status=sub_status, details=details)


@pytest.fixture
def statuses(monkeypatch, tmp_path):
    """Statuses of runs, told by a SuperLink whose clock goes on by 20 seconds a look."""
    seconds, numbers = itertools.count(0, 20), itertools.count(1)
    (tmp_path / "ca.crt").touch()
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    monkeypatch.setattr(run, "_POLL", 0)
    monkeypatch.setattr(run, "submit", lambda *_: next(numbers))
    monkeypatch.setattr(
        run, "Watch", lambda *arguments: Watch(*arguments, clock=lambda: next(seconds))
    )

    def superlink_with(*states):
        link = Statuses(*states)
        monkeypatch.setattr(run.ControlHttpClient, "from_server_address", lambda *_: link)
        return link

    return superlink_with


def test_an_app_that_is_started_again_and_again_is_stopped_and_told_of_once(statuses, tmp_path):
    """Before: it was told of every minute, and ServerApps piled up until somebody came."""
    link, lines = statuses(status("pending"), *[status("starting"), status("pending")] * 50), []
    with pytest.raises(InputError, match=r"did not begin and was stopped: .* 30 seconds"):
        run_deployed(tmp_path, "a:1", replace(CONFIG, out=str(tmp_path / "run")), say=lines.append)
    assert link.stopped == [1]
    assert [line.partition(":")[0] for line in lines] == [
        "run 1 submitted",
        "0 of 0 nodes online",
        "not begun after 60 seconds",
    ]


def test_an_app_that_refuses_is_submitted_once(statuses, tmp_path):
    """Before: five times, and the line came last of all."""
    details = "ServerApp failed with exception: refused: --rounds 0: at least one"
    statuses(status("running"), status("finished", "failed", details))
    lines = []
    with pytest.raises(InputError, match=r"^the run was refused: --rounds 0: at least one$"):
        run_deployed(tmp_path, "a:1", replace(CONFIG, out=str(tmp_path / "run")), say=lines.append)
    assert [line for line in lines if "submitted" in line] == ["run 1 submitted"]
