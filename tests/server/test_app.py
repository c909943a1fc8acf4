"""The ServerApp: from Flower's run config to a run."""

import functools
import json
import logging
import time
import tomllib
import traceback
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.superlink.grid import http_grid
from flwr.superlink.grid.http_grid import HttpGrid

from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.server import app as server
from murmuration.server.app import _log_rounds as log_rounds
from murmuration.server.app import app as server_app
from murmuration.server.app import decode_each_by_itself
from murmuration.sims.runtimes.local import run_local
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.exchange import exchange
from murmuration.strategies.protocol.flower_internals import set_task_identity
from murmuration.strategies.protocol.users import RegistryError

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
pytestmark = pytest.mark.usefixtures("quick_runs")


def settings(crowd, **changes):
    config = RunConfig(data=crowd, epsilon=0.5, delta=1e-3, rounds=5, cohort=10, seed=3)
    return {**config.to_run_config(), **changes}


def run(run_config):
    run_local(run_config, nodes=2, server_app=server_app, client_app=client_app)


def test_run_config_decides(crowd, tmp_path, caplog, monkeypatch):
    # A command line in this process may have silenced it before.
    monkeypatch.setattr(logging.getLogger("flwr"), "filters", [])
    with caplog.at_level("INFO", logger="flwr"):
        run(settings(crowd, out=str(tmp_path / "run")))
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["rounds"], result["epsilon_target"], result["seeded"]) == (5, 0.5, True)
    assert str(tmp_path / "run") in caplog.text
    rounds = [r.getMessage() for r in caplog.records if r.getMessage().startswith("round ")]
    assert len(rounds) == 5
    last = rounds[-1]
    assert last.startswith("round 5 of 5, ε ") and float(last.split("ε ")[1]) <= 0.5


def test_about_ten_of_many_rounds_are_logged_with_the_last_known_accuracy(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "filters", [])
    hears = log_rounds(200)
    with caplog.at_level("INFO", logger="flwr"):
        for done in range(1, 201):
            measured = {"heldout_accuracy": done / 1000} if done % 15 == 0 else {}
            hears({"round": done, "epsilon": done / 100, **measured})
    rounds = [record.getMessage() for record in caplog.records]
    assert len(rounds) == 11
    assert rounds[0] == "round 1 of 200, ε 0.0100"
    assert rounds[-1] == "round 200 of 200, ε 2.00, held-out accuracy 19.5 %"


@pytest.mark.parametrize(
    ("error", "traced"), [(InputError("no such file: x"), False), (ValueError("a bug"), True)]
)
def test_what_a_user_can_mend_is_one_line_in_flowers_log(crowd, caplog, monkeypatch, error, traced):
    """As Flower logs what a ServerApp raises."""
    monkeypatch.setattr(logging.getLogger("flwr"), "filters", [])
    with pytest.raises(InputError):
        run(settings(crowd, epsylon=3.0))  # the app was begun
    log = logging.getLogger("flwr")
    log.error("".join(traceback.format_exception(error)))  # as Flower logs what a node raises
    assert ("Error: a bug" in caplog.text) is traced and "Error: no such file" not in caplog.text
    caplog.clear()
    log.error("ServerApp raised an exception", exc_info=error)
    assert ("error: no such file: x" in caplog.text) is not traced
    assert ("raised an exception" in caplog.text) is traced


def test_without_a_place_it_takes_one_in_the_home_folder(crowd, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    run(settings(crowd))
    (found,) = (tmp_path / "murmuration-runs").iterdir()
    assert (found / "result.json").exists()


def test_a_seed_is_refused_where_nodes_are_real(crowd, tmp_path):
    """As `flwr run . DEPLOYMENT --run-config seed=7` would, past `murmuration deploy run`."""
    out = tmp_path / "run"
    context = Context(1, 0, {}, RecordDict(), settings(crowd, out=str(out)))
    with pytest.raises(InputError, match=r"^refused: a seed is for simulations"):
        server_app(HttpGrid.__new__(HttpGrid), context)
    assert not out.exists()


def test_that_nobody_was_there_is_no_refusal(crowd, tmp_path, monkeypatch):
    """`murmuration deploy run` submits such a run again."""

    def nobody(*_, **__):
        raise InputError("no users") from RegistryError("no users")

    monkeypatch.setattr(server, "run_training", nobody)
    monkeypatch.setattr(http_grid, "inflate_object_from_contents", lambda *_: None)
    context = Context(1, 0, {}, RecordDict(), settings(crowd, out=str(tmp_path / "run"), seed=-1))
    with pytest.raises(InputError, match=r"^no users"):
        server_app(HttpGrid.__new__(HttpGrid), context)
    # By then each reply would be decoded by itself.
    assert isinstance(http_grid.inflate_object_from_contents, functools.partial)


def defaults():
    return tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]


def test_a_choice_runs_with_what_pyproject_says(choice_config):
    names = ("data", "test", "task", "strategy", "base", "policies", "seed", "out")
    given = choice_config.to_run_config()
    run({**defaults(), **{name: given[name] for name in names}})
    result = json.loads((Path(choice_config.out) / "result.json").read_text())
    assert result["rounds"] == 1 and result["choice"]["policies"] == 4


# One of them chooses among policies, which must be named: above; one needs a list of items.
@pytest.mark.parametrize(
    "strategy", sorted(registry.strategies().keys() - {"exponential", "ranking"})
)
def test_every_strategy_runs_with_what_pyproject_says(crowd, tmp_path, strategy):
    """As `flwr run . -c 'strategy="…" adjacency="…"'` does: nothing else need be overridden."""
    here = {"data": crowd, "cohort": 10, "epsilon": 8.0, "delta": 1e-3, "seed": 3}
    asked = {"strategy": strategy, "adjacency": min(registry.named(strategy).adjacencies).value}
    if strategy == "aup-corrected":  # whose test a small cohort cannot pass
        here |= {"cohort": 40, "epsilon": 400.0}
    if strategy == "survey":  # which measures nobody
        asked["heldout"] = 0.0
    run({**defaults(), **here, **asked, "out": str(tmp_path / "run")})
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["rounds"] == (registry.named(strategy).rounds or (200,))[0]


# Replies from bytes of other machines, through Flower's own grid.

DAMAGE = {
    "other bytes": lambda data: data[:-3] + b"\xff\xff\xff",
    "nothing": lambda data: b"",
    "no head": lambda data: b"\0" * len(data),
    "a body that is no message": lambda data: data.partition(b"\0")[0] + b"\0" + b"\xff" * 20,
}


class Grid(HttpGrid):
    """Flower's, beside the network."""

    _runtime_client = None

    def __init__(self, link, sent):
        self._runtime_client, self._sent = link, sent
        self._run, self.node = SimpleNamespace(run_id=1), Node(node_id=1)

    def push_messages(self, outgoing):
        return self._sent

    def close(self):
        pass


class SuperLink:
    """Has the nodes' replies, gives each out once and forgets it, as Flower's does."""

    def __init__(self, replies, contents):
        self.replies, self.contents = dict(replies), contents

    def PullMessages(self, request):
        found = [self.replies.pop(i) for i in list(request.message_ids) if i in self.replies]
        return PullAppMessagesResponse(
            messages_list=[message_to_proto(m) for m in found],
            message_object_trees=[get_object_tree(m) for m in found],
        )

    def PullObject(self, request):
        content = self.contents[request.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request):
        del request


@pytest.fixture
def grid(monkeypatch):
    """Of three nodes that were asked and have answered; ``grid(name)`` damages the second one's."""
    name = "inflate_object_from_contents"
    monkeypatch.setattr(http_grid, name, getattr(http_grid, name))
    decode_each_by_itself()
    set_task_identity()

    def answered(damage):
        replies, contents = {}, {}
        for node in (1, 2, 3):
            asked = Message(messages.sums_reply({}), dst_node_id=node, message_type="train")
            asked.metadata.__dict__["_message_id"] = f"asked {node}"
            reply = Message(messages.sums_reply({"sum": np.full(2, float(node))}), reply_to=asked)
            objects = get_all_nested_objects(reply)
            contents |= {name: found.deflate() for name, found in objects.items()}
            reply.metadata.__dict__["_message_id"] = reply.object_id
            replies[f"asked {node}"] = reply
            if node == 2:
                contents[reply.object_id] = damage(contents[reply.object_id])
        return Grid(SuperLink(replies, contents), list(replies))

    return answered


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_reply_that_cannot_be_decoded_takes_no_other_with_it(grid, damage):
    asked = [SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node)) for node in (1, 2, 3)]
    started = time.monotonic()
    found = list(exchange(grid(DAMAGE[damage]), asked, timeout=0.2))
    sums = {
        reply.metadata.src_node_id: messages.read_sums(reply.content, {"sum": (2,)})["sum"][0]
        for reply in found
    }
    assert sums == {1: 1.0, 3: 3.0}
    assert time.monotonic() - started < 30


def test_guarding_twice_is_guarding_once(grid):
    once = http_grid.inflate_object_from_contents
    decode_each_by_itself()
    assert http_grid.inflate_object_from_contents is once
