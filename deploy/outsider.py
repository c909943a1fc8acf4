"""Try to use a SuperLink or SuperNode by its address alone, without a key.

Nothing is taken or changed by asking: no task type is asked for, so no task is handed out.
"""

import json
import os
import pwd
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx

from murmuration.strategies.protocol.flower_internals import (
    AcquireTaskRequest,
    ControlHttpClient,
    ListNodesRequest,
    ListRunsRequest,
    RuntimeHttpClient,
    RuntimeVersionHttpInterceptor,
)

#: What is tried, in the words of the doctor.
CONTROL = ("list the nodes", "list the runs")
RUNTIME = ("take a task",)
REFUSED, ANSWERED = "refused", "ANSWERED"


def tried(address: str, certificate: bytes | None) -> dict[str, str]:
    """The outcome of each attempt: refused, answered, or the reason why it could not be tried.

    ``certificate`` is the CA's, in PEM; None: without TLS, as at a SuperNode's own port.
    """
    how = (address, certificate is None, certificate)
    result = {}
    with ControlHttpClient.from_server_address(*how, [_version("flwr-cli")]) as control:
        result[CONTROL[0]] = _outcome(lambda: control.ListNodes(ListNodesRequest()))
        result[CONTROL[1]] = _outcome(lambda: control.ListRuns(ListRunsRequest()))
    with RuntimeHttpClient.from_server_address(*how, [_version("SuperExec")]) as runtime:
        result[RUNTIME[0]] = _outcome(lambda: runtime.AcquireTask(AcquireTaskRequest()))
    return result


def tried_as(user: str, address: str, certificate: bytes | None) -> dict[str, str]:
    """The same, by another account of this machine (needs root)."""
    tried(address, certificate)  # loads what is loaded at the first use
    result = as_account(user, lambda: tried(address, certificate))
    if result is None:
        return dict.fromkeys((*CONTROL, *RUNTIME), f"could not be tried as {user}")
    return result


def as_account(user: str, do: Callable[[], Any]) -> Any:
    """The result of ``do``, called by another account (needs root); None if it fails.

    In a copy of this process, which has loaded all that it needs: the other account need not be
    able to read our installation.
    """
    entry = pwd.getpwnam(user)
    reader, writer = os.pipe()
    if not (child := os.fork()):
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            os.write(writer, json.dumps(do()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        outcome = pipe.read()
    os.waitpid(child, 0)
    return json.loads(outcome) if outcome else None


def _version(component: str) -> RuntimeVersionHttpInterceptor:
    return RuntimeVersionHttpInterceptor(component_name=component)


def _outcome(ask: Callable[[], object]) -> str:
    try:
        ask()
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        return REFUSED if code in (401, 403, 404) else f"answered with status {code}"
    except Exception as error:  # Flower's own errors say what was wrong with the request
        if "authentication failed" in str(error).lower():
            return REFUSED
        return f"could not be tried: {type(error).__name__}"
    return ANSWERED
