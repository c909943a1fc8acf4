"""The agent as a program: its socket, who may ask there, and what a hostile app gets from it."""

import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from agents import FEATURES, POLICY, halves, stated, work
from flwr.app import ConfigRecord, RecordDict

import murmuration.client.agent.agent
from murmuration.client.agent import unix_socket
from murmuration.client.agent.agent import listening
from murmuration.client.agent.unix_socket import Refused, answers, ask_agent
from murmuration.client.app import app
from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan
from murmuration.strategies.spec import NodeHalf, clip_norm

ROOT = Path(__file__).parents[3]


@pytest.fixture
def served(make, tmp_path):
    """A function: a served agent's socket path."""
    stops = []

    def serve(policy=POLICY):
        path = tmp_path / "a.sock"
        agent, listener = make(policy), listening(path)
        stop = threading.Event()

        def run():
            while not stop.is_set():
                connection, _ = listener.accept()
                with connection:
                    murmuration.client.agent.agent._serve_one(agent, connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        stops.append((stop, path, thread, listener))
        return path

    yield serve
    for stop, path, thread, listener in stops:
        stop.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
        thread.join(10)
        listener.close()


def test_the_socket_is_private(served):
    assert stat.S_IMODE(served().stat().st_mode) == 0o600


def test_over_the_socket_refusals_are_told_and_failures_are_not(served, monkeypatch, store, caplog):
    path = str(served())
    messages.read_sums(ask_agent(path, "train", work()), {"sum": (33,)})
    with pytest.raises(Refused, match=r"\(max_clip\)"):
        ask_agent(path, "train", work(**{"clip-norm": 1.0}))

    def broken(*_):
        raise RuntimeError(f"secret: {store.judgements.prompts[0]}")

    monkeypatch.setitem(halves(), "uls", NodeHalf(broken, clip_norm))
    with pytest.raises(Refused, match="its own log says why") as error:
        ask_agent(path, "train", work(round_=2))
    assert "secret" not in str(error.value)
    # Nor is a user's text in the log, which says what it was, and where.
    # Its line ends are escaped once a command has set up the log of this process.
    assert "no answer to 'train': RuntimeError at\n" in caplog.text.replace("\\n", "\n")
    assert "in broken" in caplog.text
    assert store.judgements.prompts[0] not in caplog.text
    with pytest.raises(Refused, match="its own log says why"):
        ask_agent(path, "train", RecordDict())


def test_nothing_that_is_asked_ends_the_agent(served, caplog):
    path = str(served())
    event = {"kind": "pure-dp", "epsilon": 1.0, "\ud800": 1}  # half a character
    plan = {**json.loads(stated().to_json()), "charges": [[event, 1]]}
    content = work()
    content.config_records["parameters"][PARAMETER] = json.dumps(plan)
    with pytest.raises(Refused, match=r"\(max_epsilon\).*ud800"):
        ask_agent(path, "train", content)
    assert caplog.text.encode("utf-8")  # a log can be written
    messages.read_sums(ask_agent(path, "train", work()), {"sum": (33,)})


def test_who_does_not_take_an_answer_is_not_waited_for(make, monkeypatch):
    monkeypatch.setattr(unix_socket, "REQUEST_SECONDS", 0.2)
    long = RecordDict({"a": messages.array_record({"a": np.zeros(2**20)})})
    agent = make()
    monkeypatch.setattr(agent, "handle", lambda kind, content: long)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        data = unix_socket.MAGIC + b"\x05train" + struct.pack(">Q", 0)
        theirs.sendall(data)
        started = time.monotonic()
        murmuration.client.agent.agent._serve_one(agent, ours)
    assert time.monotonic() - started < 20.0  # it was ten minutes


def test_two_agents_at_one_socket(served):
    path = served()
    with pytest.raises(InputError, match="another agent"):
        listening(path)


def test_a_socket_left_by_a_killed_agent_is_replaced(tmp_path):
    path = tmp_path / "old.sock"
    listening(path).close()
    assert path.is_socket()
    listening(path).close()


def test_a_file_in_the_sockets_place_stays(tmp_path):
    path = tmp_path / "precious"
    path.write_text("x")
    with pytest.raises(InputError, match="cannot be made"):
        listening(path)
    assert path.read_text() == "x"


def test_the_app_forwards_to_the_agent(served, store):
    grid = LocalGrid(app, 1, {"seed": 3})
    grid._contexts[1].node_config = {"agent": str(served())}
    message = messages.outgoing(messages.registry_request(b"salt", False, FEATURES), "train", 1)
    message.metadata.__dict__["_message_type"] = "query.registry"
    entry = messages.read_registry(app(message, grid._contexts[1]).content)
    assert entry.keys_U.tolist() == store.salted_keys(b"salt").tolist()
    assert entry.place == -1


HOSTILE = """
import glob, json, os, socket, sys
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from murmuration.client.agent.unix_socket import ask_agent
from murmuration.privacy.mechanisms.randomness import user_key
from murmuration.strategies.protocol import messages
import numpy as np

app = ClientApp()

@app.query("everything")
def everything(message, context):
    '''Reads node-config and asks, in every way it knows, for judgements.'''
    agent, found = context.node_config["agent"], []
    asked = dict(message.content.config_records["asked"])
    model = messages.model_record(np.zeros(33))
    keys_S = np.array([user_key("u000", b"salt")], dtype=np.uint64)
    somebody = messages.UserSelection(b"salt", keys_S)
    for kind, parameters in json.loads(asked["requests"]):
        content = messages.work_request(model, parameters, somebody)
        content["registry"] = ConfigRecord(
            {"salt": b"s", "counts": True, "features": parameters["features"], "model": "btl"})
        content["items"] = ConfigRecord({"adjacency": "replace-labels"})
        content["labels"] = ConfigRecord({"adjacency": "replace-labels", "epsilon": 1e6,
                                          "level": "item", "cap": 0, "delta": 0.0})
        try:
            answer = ask_agent(agent, kind, content)
            found.append(f"{kind}: {sorted(answer)}")
        except Exception as error:
            found.append(f"{kind}: {error}")
    for path in [*map(str, context.node_config.values()), str(Path(agent).parent / "data.jsonl")]:
        try:
            found.append("READ " + Path(path).read_text())
        except Exception as error:
            found.append(f"{path}: {type(error).__name__}")
    return Message(RecordDict({"found": ConfigRecord({"lines": found})}), reply_to=message)
"""


def test_a_hostile_bundle_gets_nothing(served, store, tmp_path, monkeypatch):
    """What a server's own ClientApp can make of a node: every request is refused by a rule."""
    path = served()
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.syspath_prepend(tmp_path)
    import hostile  # type: ignore[import-not-found]

    grid = LocalGrid(hostile.app, 1, {"seed": 3})
    grid._contexts[1].node_config = {"agent": str(path)}
    plain = {"strategy": "uls", "round": 1, "features": FEATURES, "group-size": 1}
    no_noise = StatedPlan.of("r", Adjacency.ZERO_OUT, 1e-6, 1, {PoissonGaussian(1.0, 0.1): 1})
    requests = [
        ("train", {**plain, "clip-norm": 1e9, PARAMETER: stated().to_json()}),
        ("train", {**plain, "clip-norm": 0.1}),
        ("train", {**plain, "clip-norm": 0.1, PARAMETER: no_noise.to_json()}),
        ("train", {**plain, "strategy": "nonprivate", PARAMETER: stated().to_json()}),
        ("train", {**plain, "strategy": "aup-published", PARAMETER: stated().to_json()}),
        ("train", {**plain, "strategy": "counts"}),
        ("evaluate", plain),
        ("query.items", plain),
        ("query.labels", plain),
        ("query.registry", plain),
        ("query.data", plain),
        ("__class__", plain),
    ]
    asked = RecordDict({"asked": ConfigRecord({"requests": json.dumps(requests)})})
    message = messages.outgoing(asked, "query.everything", 1)
    grid.push_messages([message])
    lines = grid._contexts and hostile.app(message, grid._contexts[1]).content["found"]["lines"]
    refusals, files = lines[: len(requests)], lines[len(requests) :]
    assert all("the owner's policy refuses" in line for line in refusals), refusals
    assert not any(line.startswith("READ") for line in files)
    texts = {*store.judgements.prompts, *(t for r in store.judgements.responses for t in r)}
    assert not any(text in line for line in lines for text in (*texts, *store.judgements.user_ids))


LOOKER = """
import socket, sys
for path in sys.argv[2:]:
    try:
        print("READ", open(path).read()[:20])
    except PermissionError:
        print("denied")
connection = socket.socket(socket.AF_UNIX)
try:
    connection.connect(sys.argv[1])
    print("CONNECTED")
except PermissionError:
    print("denied")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs the system's python3")
def test_another_user_can_neither_read_nor_ask(served, write_rows, tmp_path, make_rows):
    """The boundary that the two system services draw: another operating-system user."""
    path, data = served(), Path(write_rows(make_rows([2]), "data.jsonl"))
    data.chmod(0o600)
    for folder in [tmp_path, *tmp_path.parents]:
        if folder != Path("/") and folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)  # so that the files decide, not folders
    looked = subprocess.run(
        ["/usr/bin/python3", "-c", LOOKER, str(path), str(data), str(tmp_path / "state")],
        user="nobody",
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert looked.stdout.split() == ["denied"] * 3, looked.stdout + looked.stderr


@contextmanager
def program(tmp_path, data, policy, *site):
    """The agent's program, answering at a socket, and in the end what it said."""
    path, said = tmp_path / "p.sock", []
    (tmp_path / "policy.toml").write_text(policy)
    command = [sys.executable, "-m", "murmuration.cli.main", "agent", "--data", data]
    command += ["--policy", str(tmp_path / "policy.toml"), "--state", str(tmp_path / "state")]
    agent = subprocess.Popen(
        [*command, "--socket", str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*site, ROOT]))},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not answers(path):
            assert agent.poll() is None, agent.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield path, said
    finally:
        agent.send_signal(signal.SIGTERM)
        said.append(agent.communicate(timeout=30)[1])
    assert agent.returncode == 0, said


def test_the_program_answers_and_ends(write_rows, make_rows, tmp_path):
    policy = 'strategies = ["uls"]\nmax_epsilon = 3.0\nmax_clip = 0.1\nmax_rounds = 5\n'
    with program(tmp_path, write_rows(make_rows([3, 2])), policy) as (path, said):
        messages.read_sums(ask_agent(str(path), "train", work()), {"sum": (33,)})
    assert "answering at" in said[0]
    assert not path.exists()
    lines = textwrap.dedent((tmp_path / "state" / "own-ledger.jsonl").read_text()).splitlines()
    assert len(lines) == 3


THEIRS = """
import dataclasses, pathlib
from murmuration.strategies.uls import ULS

pathlib.Path(__file__).with_suffix(".imported").touch()
IT = dataclasses.replace(ULS, name="NAME", node_halves={"NAME": ULS.node_halves["uls"]})
"""


def test_a_package_that_the_policy_does_not_allow_is_never_imported(
    write_rows, make_rows, tmp_path
):
    """Its code would run where the judgements are; not even a request by its name brings it in."""
    site = tmp_path / "site"
    for name in ("allowed", "other"):
        info = site / f"theirs_{name}-0.1.dist-info"
        info.mkdir(parents=True)
        (site / f"theirs_{name}.py").write_text(THEIRS.replace("NAME", name))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(
            f"[murmuration.strategies]\n{name} = theirs_{name}:IT\n"
        )
    policy = 'strategies = ["allowed"]\nmax_epsilon = 3.0\nmax_clip = 0.1\nmax_rounds = 5\n'
    with program(tmp_path, write_rows(make_rows([3, 2])), policy, site) as (path, _):
        ask_agent(str(path), "query.registry", messages.registry_request(b"salt", False, FEATURES))
        with pytest.raises(Refused, match=r"\(strategies\): 'other' was asked for; .* allowed"):
            ask_agent(str(path), "train", work(strategy="other"))
        asked_by_name = work(strategy="allowed")
        messages.read_sums(ask_agent(str(path), "train", asked_by_name), {"sum": (33,)})
    assert {path.stem for path in site.glob("*.imported")} == {"theirs_allowed"}
