"""Flower's private names that this project uses, all of them, in one place.

Flower may move or change them with any version, so no other module names a module of Flower's but
the public ones (``PUBLIC``). Each is imported when it is asked for: some need libraries that take a
second, and a node's app is a new process for every message. So a type checker takes each for
anything; what it is used for, and that it does so in the installed version, is in
``tests/strategies/protocol/test_flower_internals.py``.
"""

import sys
from importlib import import_module
from typing import Any

from flwr.app import Error, Message

#: Beginnings of the versions that were tried.
TRIED = ("1.41.", "1.42.")
#: What Flower documents, and any module may name.
PUBLIC = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy")
#: Variables by which Flower opens ports for gRPC beside the one that we guard, until 1.42.
GRPC_SWITCHES = ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API")
#: Name here, and its place in Flower: module and name, or a whole module.
PLACES = {
    "API_ERROR_MAP": "flwr.supercore.error.catalog:API_ERROR_MAP",
    "AcquireTaskRequest": "flwr.proto.runtime_pb2:AcquireTaskRequest",
    "ActivateNodeRequest": "flwr.proto.fleet_pb2:ActivateNodeRequest",
    "ApiErrorCode": "flwr.supercore.error:ApiErrorCode",
    "CHUNK_BYTES": "flwr.common.constant:FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE",
    "ControlHttpClient": "flwr.supercore.control:ControlHttpClient",
    "FlowerError": "flwr.supercore.error:FlowerError",
    "HttpGrid": "flwr.superlink.grid.http_grid:HttpGrid",
    "KEY_HEADER": "flwr.supercore.constant:FLEET_HTTP_PUBLIC_KEY_HEADER",
    "LinkState": "flwr.server.superlink.linkstate:LinkState",
    "LinkStateFactory": "flwr.server.superlink.linkstate:LinkStateFactory",
    "ListNodesRequest": "flwr.proto.control_pb2:ListNodesRequest",
    "ListRunsRequest": "flwr.proto.control_pb2:ListRunsRequest",
    "PushMessagesRequest": "flwr.proto.fleet_pb2:PushMessagesRequest",
    "RecordDictProto": "flwr.proto.recorddict_pb2:RecordDict",
    "RegisterNodeRequest": "flwr.proto.control_pb2:RegisterNodeRequest",
    "Run": "flwr.supercore.run:Run",
    "RuntimeHttpClient": "flwr.supercore.runtime:RuntimeHttpClient",
    "RuntimeVersionHttpInterceptor": "flwr.supercore.interceptors:RuntimeVersionHttpInterceptor",
    "Status": "flwr.common.constant:Status",
    "StopRunRequest": "flwr.proto.control_pb2:StopRunRequest",
    "StreamLogsRequest": "flwr.proto.control_pb2:StreamLogsRequest",
    "authenticate_node": "flwr.superlink.routers.fleet.node_auth:authenticate_node",
    "flower_superlink": "flwr.superlink.cli:flower_superlink",
    "flower_supernode": "flwr.supernode.cli:flower_supernode",
    "http_grid": "flwr.superlink.grid.http_grid:",
    "log": "flwr.supercore.logger:log",
    "public_key_to_bytes": "flwr.supercore.primitives.asymmetric:public_key_to_bytes",
    "recorddict_from_proto": "flwr.common.serde:recorddict_from_proto",
    "recorddict_to_proto": "flwr.common.serde:recorddict_to_proto",
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, place = PLACES[name].partition(":")
    return getattr(import_module(module), place) if place else import_module(module)


def is_over_network(grid: Any) -> bool:
    """True if messages leave the machine. Then the grid's module, dear to import, is there."""
    module = sys.modules.get(PLACES["http_grid"].removesuffix(":"))
    return module is not None and isinstance(grid, module.HttpGrid)


def set_task_identity() -> None:
    """Say who sends messages of this process; Flower says it in processes of its own."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message an id, which Flower's own grid does when it is sent."""
    message.metadata.__dict__["_message_id"] = message_id


def set_sender(reply: Message, node: int) -> None:
    """Say which node a reply came from, whatever it says itself."""
    reply.metadata.__dict__["_src_node_id"] = node


def set_error(reply: Message, error: Error) -> None:
    """Put another error into a reply that has one."""
    reply.__dict__["_error"] = error


def linkstate_factory(app: Any) -> Any:
    """The factory of the state of a SuperLink, from its ASGI app."""
    return app.state.linkstate_factory
