"""Each private name of Flower's: what we use it for, and that the installed version does so.

Fails where another version of Flower has moved or changed one; it has no meaning beside that.
"""

import ast
import inspect
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from google.protobuf.message import DecodeError
from rooms import ROOMS, ROOT

from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.protocol import flower_internals as flower


def parameters(function):
    return set(inspect.signature(function).parameters)


def clients(kind, *requests):
    """A client over HTTP, made without connecting, that has these requests as methods."""
    with kind.from_server_address("127.0.0.1:9", True, None, []) as client:
        assert all(callable(getattr(client, name)) for name in requests)
    assert "grpc" not in kind.__module__


def records():
    record = RecordDict({"a": ConfigRecord({"b": [1, 2]}), "c": MetricRecord({"d": 0.5})})
    proto = flower.RecordDictProto.FromString(
        flower.recorddict_to_proto(record).SerializeToString(deterministic=True)
    )
    assert flower.recorddict_from_proto(proto) == record
    with pytest.raises(DecodeError):
        flower.RecordDictProto.FromString(b"\xff\xff")


def grid_over_http():
    assert issubclass(flower.HttpGrid, Grid)
    assert flower.http_grid.HttpGrid is flower.HttpGrid
    # A reply is decoded by this function, which the grid finds by its module's name for it.
    name = "inflate_object_from_contents"
    assert list(parameters(getattr(flower.http_grid, name)))
    assert f"{name}(" in inspect.getsource(flower.HttpGrid)


def key_form():
    public = ec.generate_private_key(ec.SECP384R1()).public_key()
    assert b"BEGIN PUBLIC KEY" in flower.public_key_to_bytes(public)


def errors():
    for code in ("FLEET_NODE_ACTIVATION_FAILED", "FLEET_SUPERNODE_REGISTRATION_DISABLED"):
        entry = flower.API_ERROR_MAP[flower.ApiErrorCode[code]]
        error = flower.FlowerError(flower.ApiErrorCode[code], "", public_details="why")
        assert "why" in str(error.to_json(entry.public_message))
        assert 400 <= entry.http_status_code < 500


def state():
    assert {"run_id"} < parameters(flower.LinkState.cleanup_run)
    assert {"public_key"} < parameters(flower.LinkState.get_node_id_by_public_key)
    assert {"statuses"} < parameters(flower.LinkState.get_run_info)
    assert flower.Status.FINISHED == "finished"
    assert "self.database" in inspect.getsource(flower.LinkStateFactory)
    assert callable(flower.LinkStateFactory.state)


def bounds_of_requests():
    assert 2**20 <= flower.CHUNK_BYTES <= 2**24
    metadata = flower.PushMessagesRequest().messages_list.add().metadata
    assert (metadata.src_node_id, metadata.reply_to_message_id) == (0, "")


def signature_check():
    assert list(parameters(flower.authenticate_node)) == ["request"]
    source = inspect.getsource(flower.authenticate_node)
    assert "request.state.protobuf_request" in source and "request.headers[" in source
    assert flower.ActivateNodeRequest(public_key=b"k").public_key == b"k"
    assert flower.KEY_HEADER.lower() == flower.KEY_HEADER


def programs():
    assert all(map(callable, (flower.flower_superlink, flower.flower_supernode)))


def control():
    names = ("ListNodes", "ListRuns", "RegisterNode", "StopRun", "StreamLogs")
    clients(flower.ControlHttpClient, *names)
    flower.ListNodesRequest(), flower.ListRunsRequest(run_id=1)
    flower.RegisterNodeRequest(public_key=b"k", name="n"), flower.StopRunRequest(run_id=1)
    flower.StreamLogsRequest(run_id=1, after_timestamp=0.0)


def runtime():
    clients(flower.RuntimeHttpClient, "AcquireTask")
    flower.AcquireTaskRequest()
    flower.RuntimeVersionHttpInterceptor(component_name="flwr-cli")


def run_of_a_grid():
    assert flower.Run.create_empty(run_id=7).run_id == 7


def log():
    assert list(parameters(flower.log))


#: What the names are for, and which they are.
RELIED_ON = {
    "the agent's frames are records in Flower's protobuf form": (
        records, "RecordDictProto recorddict_from_proto recorddict_to_proto"),
    "a grid over HTTP is a deployment; its replies are decoded one by one": (
        grid_over_http, "HttpGrid http_grid"),
    "nodes are known by their keys, in the form in which Flower keeps them": (
        key_form, "public_key_to_bytes"),
    "a node that is refused at its start is told why": (
        errors, "API_ERROR_MAP ApiErrorCode FlowerError"),
    "keys are looked up, and messages of finished runs deleted": (
        state, "LinkState LinkStateFactory Status"),
    "bodies are bounded, and a node sends its own replies": (
        bounds_of_requests, "CHUNK_BYTES PushMessagesRequest"),
    "a sender is known from signed headers": (
        signature_check, "authenticate_node ActivateNodeRequest KEY_HEADER"),
    "both programs start in this process, behind our guard": (
        programs, "flower_superlink flower_supernode"),
    "a deployment is registered, run, followed and looked at": (
        control, "ControlHttpClient ListNodesRequest ListRunsRequest RegisterNodeRequest "
        "StopRunRequest StreamLogsRequest"),
    "the doctor tries what strangers would": (
        runtime, "RuntimeHttpClient AcquireTaskRequest RuntimeVersionHttpInterceptor"),
    "a grid of ours has a run": (run_of_a_grid, "Run"),
    "what a ServerApp says is in the run's log": (log, "log"),
}  # fmt: skip


@pytest.mark.parametrize("what", RELIED_ON)
def test_the_installed_version_does_what_we_rely_on(what):
    check, names = RELIED_ON[what]
    assert all(getattr(flower, name) for name in names.split())
    check()


def test_every_name_is_said_what_it_is_for():
    names = [name for _, several in RELIED_ON.values() for name in several.split()]
    assert sorted(names) == sorted(flower.PLACES)
    with pytest.raises(AttributeError, match="no attribute 'Grid'"):
        _ = flower.Grid


def modules_of_flower(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def test_no_other_file_names_a_private_module():
    here = ROOT / "strategies" / "protocol" / "flower_internals.py"
    wrong = [
        f"{file.relative_to(ROOT)}: {module}"
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        if file != here
        for module in modules_of_flower(file.read_text(encoding="utf-8"))
        if module.split(".")[0] == "flwr" and module not in flower.PUBLIC
    ]
    assert not wrong, "\n".join(wrong)
    assert list(modules_of_flower("def f():\n from flwr.proto import a")) == ["flwr.proto"]


def test_a_name_is_imported_when_it_is_asked_for():
    """A node's app is a new process for every message."""
    code = (
        "import sys, flwr.app, flwr.clientapp; before = set(sys.modules); "
        "import murmuration.strategies.protocol.flower_internals as f; f.RecordDictProto; "
        "print(sorted(n for n in set(sys.modules) - before if n.startswith(('fastapi', 'grpc'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_fields_of_a_message():
    flower.set_task_identity()
    message = Message(RecordDict(), dst_node_id=3, message_type="train")
    flower.set_message_id(message, "an id")
    assert message.metadata.message_id == "an id"
    reply = Message(Error(code=2, reason="private words"), reply_to=message)
    assert (reply.metadata.src_node_id, reply.metadata.reply_to_message_id) == (3, "an id")
    flower.set_sender(reply, 4)
    assert reply.metadata.src_node_id == 4
    flower.set_error(reply, Error(code=2, reason="other words"))
    assert reply.error.reason == "other words"


def test_the_installed_version_was_tried():
    assert version("flwr").startswith(flower.TRIED)


def test_our_strategies_start_as_flowers_do():
    """What this version's ``Strategy.start`` takes, ours takes, too."""
    theirs = parameters(Strategy.start)
    assert theirs <= parameters(CohortStrategy.start)
    assert "num_rounds" in theirs
