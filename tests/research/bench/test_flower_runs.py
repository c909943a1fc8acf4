"""Real runs of a small app through Flower: what arrives, how a failure reads, and what is left."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from murmuration.deploy.doctor import STRANGER
from murmuration.deploy.outsider import REFUSED, tried_as
from murmuration.research.bench import flower_runs
from murmuration.research.bench.flower_runs import FlowerRunFailed, run_flower

SERVER = """
import json, time
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
import murmuration.server

app = ServerApp()

def ask(grid, expected):  # nodes register one after the other
    while len(nodes := sorted(grid.get_nodes(), key=lambda node: node.registered_at)) < expected:
        time.sleep(0.05)
    replies = grid.send_and_receive(
        Message(RecordDict(), dst_node_id=node.node_id, message_type="query.who") for node in nodes
    )
    answers = {reply.metadata.src_node_id: dict(reply.content["who"]) for reply in replies}
    return [answers[node.node_id] for node in nodes]

@app.main()
def main(grid, context):
    config = context.run_config
    if config["what"] == "raise":
        raise ValueError("3 bad rows in 'a file.jsonl', line 7")
    out = Path(config["out"])
    answers = ask(grid, config.get("nodes", 1))
    out.with_suffix(".part").write_text(json.dumps(
        {"answers": answers, "config": dict(config), "server": murmuration.server.__file__}
    ))
    out.with_suffix(".part").rename(out)
    while config["what"] == "wait":
        time.sleep(0.1)
"""

CLIENT = """
import os
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
import murmuration.client

app = ClientApp()

@app.query("who")
def who(message, context):
    record = ConfigRecord({"partition": int(context.node_config["partition-id"]),
                           "pid": os.getpid(), "client": murmuration.client.__file__,
                           "threads": os.environ["OMP_NUM_THREADS"]})
    return Message(RecordDict({"who": record}), reply_to=message)
"""

OWNER = """
import sys
from pathlib import Path
from murmuration.research.bench.flower_runs import run_flower
folder, what = Path(sys.argv[1]), sys.argv[2]
run_flower({"what": what, "out": str(folder / "out.json")}, nodes=1, log=folder / "log",
           app_dir=folder / "app")
"""


@pytest.fixture
def folder(tmp_path):
    """An app of its own, whose modules are named as ours are."""
    for name, code in (("server", SERVER), ("client", CLIENT)):
        room = tmp_path / "app" / "murmuration" / name
        room.mkdir(parents=True)
        (room / "__init__.py").touch()
        (room / "app.py").write_text(code)
    (tmp_path / "app" / "murmuration" / "__init__.py").touch()
    return tmp_path


def below(pid):
    return psutil.Process(pid).children(recursive=True)


def alive(processes):
    found = []
    for process in processes:
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
    return value


@pytest.fixture
def scratches(monkeypatch):
    """A function that lists the scratch directories of this test alone."""
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:  # short: sockets go below it
        monkeypatch.setenv("TMPDIR", parent)
        monkeypatch.setattr(tempfile, "tempdir", parent)
        yield lambda: list(Path(parent).glob("mm-*"))


@pytest.mark.flower
def test_a_run_that_completes(folder):
    seen, before = set(), set(below(os.getpid()))
    config = {
        "what": "ask",
        "out": str(folder / "out.json"),
        "text": 'it\'s "quoted", prés\\n ☃ = x',
        "small": 1e-300,
        "flag": True,
        "seed": 2**62,
        "nodes": 3,
    }
    run_flower(
        config,
        nodes=3,
        log=folder / "logs" / "log",
        app_dir=folder / "app",
        on_tick=lambda: seen.update(set(below(os.getpid())) - before),
    )
    out = json.loads((folder / "out.json").read_text())
    assert out["config"] == config
    assert [answer["partition"] for answer in out["answers"]] == [0, 1, 2]
    assert {answer["threads"] for answer in out["answers"]} == {
        os.environ.get("OMP_NUM_THREADS", "1")
    }
    # The app's own code, although this process has packages of the same names.
    assert "mm-" in out["server"]
    assert all("mm-" in answer["client"] for answer in out["answers"])
    # The actors were among what we saw, and none of it is left.
    assert {answer["pid"] for answer in out["answers"]} <= {process.pid for process in seen}
    assert alive(seen) == []
    assert not Path(out["server"]).exists()
    assert "Starting Flower Simulation" in (folder / "logs" / "log").read_text()


@pytest.mark.flower
def test_a_run_that_fails_says_why(folder):
    seen, before = set(), set(below(os.getpid()))
    (folder / "log").write_text("OldError: of the run before\n")
    with pytest.raises(FlowerRunFailed) as error:
        run_flower(
            {"what": "raise", "out": ""},
            nodes=1,
            log=folder / "log",
            app_dir=folder / "app",
            on_tick=lambda: seen.update(set(below(os.getpid())) - before),
        )
    assert error.value.reason == "3 bad rows in 'a file.jsonl', line 7"
    assert str(folder / "log") in str(error.value)
    assert "\n" not in str(error.value)
    text = (folder / "log").read_text()
    assert text.startswith("OldError")
    assert "Traceback" in text
    assert len(seen) >= 3
    assert alive(seen) == []


@pytest.mark.flower
@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGINT, "Ray is up"), (signal.SIGTERM, "starting")]
)
@pytest.mark.slow
def test_an_interrupted_run_leaves_no_process_and_no_directory(folder, scratches, number, moment):
    root = str(Path(flower_runs.__file__).parents[2])
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), "wait"],
        env=os.environ | {"PYTHONPATH": root},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        expected = 8 if moment == "Ray is up" else 2  # 2: the keeper and the SuperLink
        family = set()  # of every process that was ever seen: some are only there for a moment
        wait_for(lambda: family.update(below(owner.pid)) or len(alive(family)) >= expected)
        assert owner.poll() is None
        assert len(scratches()) == 1
        family.update(below(owner.pid))
    finally:
        owner.send_signal(number)
    _, said = owner.communicate(timeout=30)
    if number == signal.SIGINT:
        assert alive(family) == []  # it waited for them
        assert said.strip().endswith("KeyboardInterrupt")
    wait_for(lambda: not alive(family))
    wait_for(lambda: not scratches())
    assert len(family) >= expected


def test_a_superlink_that_cannot_start_says_so(folder, monkeypatch):
    program = folder / "bin" / "flower-superlink"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'OSError: no room here'\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(flower_runs.commands, "guarded", lambda name: [str(program)])
    with pytest.raises(FlowerRunFailed, match="did not start: OSError: no room here") as error:
        run_flower({}, nodes=1, log=folder / "log", app_dir=folder / "app")
    assert "OSError" in error.value.log.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another account, which needs root")
def test_its_superlink_takes_code_from_no_other_account(folder, monkeypatch):
    """That of `flwr run` answers every account of the machine."""
    outcomes, ports, real = [], [], flower_runs._free_port

    def free_port():
        ports.append(real())
        return ports[-1]

    def tick():
        if (folder / "out.json").exists():  # its app runs
            outcomes.append(tried_as(STRANGER, f"127.0.0.1:{ports[-1]}", None))
            raise RuntimeError("enough")

    monkeypatch.setattr(flower_runs, "_free_port", free_port)
    config = {"what": "wait", "out": str(folder / "out.json")}
    with pytest.raises(RuntimeError, match="enough"):
        run_flower(config, nodes=1, log=folder / "log", app_dir=folder / "app", on_tick=tick)
    assert set(outcomes[0].values()) == {REFUSED}


@pytest.mark.parametrize(("nodes", "cpus"), [(0, 1), (1, 0), (1, 10_000)])
def test_resources_that_no_actor_fits_into_are_refused_at_once(tmp_path, scratches, nodes, cpus):
    with pytest.raises(ValueError, match="at least 1"):
        run_flower({}, nodes=nodes, cpus_per_client=cpus, log=tmp_path / "log")
    assert not scratches()
    assert not (tmp_path / "log").exists()


def test_what_a_tick_raises_ends_the_run(folder):
    def tick():
        raise RuntimeError("enough")

    threads, others = threading.active_count(), set(below(os.getpid()))
    with pytest.raises(RuntimeError, match="enough"):
        run_flower({}, nodes=1, log=folder / "log", app_dir=folder / "app", on_tick=tick)
    assert set(below(os.getpid())) <= others
    assert threading.active_count() == threads
