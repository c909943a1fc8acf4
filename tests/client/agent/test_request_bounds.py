"""What a request to the agent may hold."""

import json
import subprocess
import sys

import numpy as np
import pytest
from agents import FEATURES, work
from flwr.app import ConfigRecord, RecordDict
from named import asked

from murmuration.client.agent import unix_socket
from murmuration.client.agent.policy import PolicyRefusal
from murmuration.client.agent.request_bounds import MOST_PARTS, check_fields, check_parts
from murmuration.privacy.secure_aggregation.party import MOST_PARTIES, SEALED_BYTES
from murmuration.strategies.protocol import messages, plan_query, secure_messages
from murmuration.strategies.protocol.stated_plan import PARAMETER

LONG = 3_000_000


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "x" * LONG},
        {"features": '{"kind": "hashing", "path": "' + "x" * LONG + '"}'},
        {"features": json.dumps({"kind": "items", "items": ["ab"] * 10**6})},
        {PARAMETER: "[" * LONG},
        {"x" * LONG: 1},
        {"model": ["x" * LONG]},
        {"model": b"x" * LONG},
    ],
    ids=["strategy", "path", "items", "plan", "name", "list", "bytes"],
)
@pytest.mark.parametrize("kind", ["train", plan_query.QUERY, "query.registry"])
def test_what_is_long_is_refused_before_it_is_parsed_or_logged(make, kind, changes, monkeypatch):
    agent, content = make(), work()
    content.config_records["parameters"].update(changes)
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(PolicyRefusal, match=r"\(request\)") as refusal:
        agent.handle(kind, content)
    assert len(str(refusal.value)) < 1100
    assert agent.ledger.path.stat().st_size < 2000


def test_what_is_quoted_is_short(make):
    name = "\x1b[2J\n" * 199
    with pytest.raises(PolicyRefusal, match=r"\(strategies\)") as refusal:
        make().handle("train", work(strategy=name))
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [
        work(range(100_000)),
        messages.registry_request(b"s" * 16, True, FEATURES),
        secure_messages.unmask_request(b"s" * 16, range(1, MOST_PARTIES)),
        RecordDict(
            {
                **work(),
                "secure": secure_messages.MaskRequest(
                    b"s" * 16, {place: bytes(SEALED_BYTES) for place in range(1, MOST_PARTIES)}
                ).record(),
            }
        ),
        messages.work_request(messages.model_record(np.zeros(10**7)), {}, asked([0])),
    ],
    ids=["many users", "registry", "unmask", "many parties", "a long model"],
)
def test_what_runs_ask_for_has_room(content):
    check_fields(content)
    check_parts(unix_socket.encoded(content))


def test_many_parts_of_no_length_are_not_parsed():
    data = b"\x0a\x00" * (MOST_PARTS + 1)
    with pytest.raises(ValueError, match="parts"):
        check_parts(data)
    check_parts(data[: 2 * MOST_PARTS])
    record = ConfigRecord({"numbers": [1] * (MOST_PARTS + 1)})
    with pytest.raises(ValueError, match="parts"):
        check_parts(unix_socket.encoded(RecordDict({"x": record})))


@pytest.mark.parametrize("data", [b"\x0b", b"\x0a\x05ab", b"\xff" * 30, b"\x0a\x80"])
def test_bytes_that_are_no_records(data):
    try:
        check_parts(data)
    except ValueError:
        return
    with pytest.raises(unix_socket.BadFrame):
        unix_socket.decoded(data)


def test_the_worst_frame_takes_little_memory():
    """Before, 128 MB of parts without length took four gigabytes."""
    code = (
        "import resource\n"
        "from murmuration.client.agent.request_bounds import check_parts\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "data = bytes([10, 0]) * 2**26\n"
        "try:\n    check_parts(data)\nexcept ValueError:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200_000
