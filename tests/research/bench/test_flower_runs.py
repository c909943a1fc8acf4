"""Real runs of a small app through Flower: what arrives, how a failure reads, and what is left."""

import json
import os
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
    while config["what"] == "wait" and not out.with_suffix(".seen").exists():
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


@pytest.mark.flower
def test_a_run_that_completes(folder):
    before = set(below(os.getpid()))
    config = {
        "what": "ask",
        "out": str(folder / "out.json"),
        "text": 'it\'s "quoted", prés\\n ☃ = x',
        "small": 1e-300,
        "flag": True,
        "seed": 2**62,
        "nodes": 3,
    }
    run_flower(config, nodes=3, log=folder / "logs" / "log", app_dir=folder / "app")
    out = json.loads((folder / "out.json").read_text())
    assert out["config"] == config
    assert [answer["partition"] for answer in out["answers"]] == [0, 1, 2]
    assert {answer["threads"] for answer in out["answers"]} == {
        os.environ.get("OMP_NUM_THREADS", "1")
    }
    # The app's own code, although this process has packages of the same names.
    assert "mm-" in out["server"]
    assert all("mm-" in answer["client"] for answer in out["answers"])
    assert not any(psutil.pid_exists(answer["pid"]) for answer in out["answers"])
    assert set(below(os.getpid())) <= before
    assert not Path(out["server"]).exists()
    assert "Starting Flower Simulation" in (folder / "logs" / "log").read_text()


@pytest.mark.flower
def test_a_run_that_fails_says_why(folder):
    threads, before = threading.active_count(), set(below(os.getpid()))
    (folder / "log").write_text("OldError: of the run before\n")
    with pytest.raises(FlowerRunFailed) as error:
        config = {"what": "raise", "out": ""}
        run_flower(config, nodes=1, log=folder / "log", app_dir=folder / "app")
    assert error.value.reason == "3 bad rows in 'a file.jsonl', line 7"
    assert str(folder / "log") in str(error.value)
    assert "\n" not in str(error.value)
    text = (folder / "log").read_text()
    assert text.startswith("OldError")
    assert "Traceback" in text
    assert set(below(os.getpid())) <= before
    assert threading.active_count() <= threads


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

    def knock():
        while not (folder / "out.json").exists():  # its app runs
            time.sleep(0.1)
        outcomes.append(tried_as(STRANGER, f"127.0.0.1:{ports[-1]}", None))
        (folder / "out.seen").touch()

    monkeypatch.setattr(flower_runs, "_free_port", free_port)
    threading.Thread(target=knock, daemon=True).start()
    config = {"what": "wait", "out": str(folder / "out.json")}
    run_flower(config, nodes=1, log=folder / "log", app_dir=folder / "app")
    assert set(outcomes[0].values()) == {REFUSED}
