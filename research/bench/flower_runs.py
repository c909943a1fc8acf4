"""A run through `flwr run`, on a SuperLink of its own that is gone after: Flower as it is.

For tests that compare runtimes, and for benchmarks.

Left to itself, `flwr run` starts daemons that stay, that keep the directory and environment of
the first call, and that the next run in any other directory would be sent to. So each run here
gets its own SuperLink: own port, own FLWR_HOME, own Ray session, in-memory state, all below one
scratch directory, and a keeper (`sims.runtimes.process_reaper`) that ends every process of it
however we end. `flwr run` exits 0 when a run failed, and prints no more than the run's id: the
outcome comes from the SuperLink's control interface, whose log stream also says, without polling,
when a run is over.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import joblib
import tomli_w

from murmuration.client.store import load
from murmuration.deploy import commands
from murmuration.server.evaluation import on_bad_rows
from murmuration.sims.runtimes.app_bundle import Setting, write_bundle
from murmuration.sims.runtimes.process_reaper import kept, listens
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.flower_internals import (
    ControlHttpClient,
    ListRunsRequest,
    StreamLogsRequest,
)

START_SECONDS = 60.0  # for a SuperLink on a machine under load; a quiet one needs 1.2
TICK_SECONDS = 0.2
CONNECTION = "owned"


class FlowerRunFailed(RuntimeError):
    """A Flower run that did not complete; the message has the reason and where the log is."""

    def __init__(self, reason: str, log: Path) -> None:
        super().__init__(f"the Flower run failed: {reason} (full log: {log})")
        self.reason = reason
        self.log = log


def run_flower(
    run_config: Mapping[str, Setting],
    *,
    nodes: int,
    log: Path,
    serverapp: str = "murmuration.server.app:app",
    clientapp: str = "murmuration.client.app:app",
    app_dir: Path | None = None,
) -> None:
    """Run a Flower app in simulation on `nodes` nodes; return when its run has completed.

    The apps see `run_config` as `context.run_config`. They run in a directory of their own, so
    paths in it must be absolute. The code is our own packages or, with `app_dir`, that folder's.
    A CPU goes to each actor; as many actors run as fit this machine.
    Everything the SuperLink and the apps print is appended to `log`.

    Raises FlowerRunFailed when the run ends in any other way than completed. Whatever is raised,
    KeyboardInterrupt too, the SuperLink and all it started have ended by then. When this process is
    killed they end within seconds.
    """
    tools = _tools("flower-superexec", "flwr-simulation", "flwr")
    # Ray keeps sockets below it, whose paths may be 107 bytes long.
    parent = tempfile.gettempdir()
    scratch = Path(tempfile.mkdtemp(prefix="mm-", dir=parent if len(parent) < 25 else "/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        app = write_bundle(
            scratch / "app", run_config, serverapp=serverapp, clientapp=clientapp, app_dir=app_dir
        )
        port = _free_port()
        connection = {"address": f"127.0.0.1:{port}", "insecure": True}
        config = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        (scratch / "config.toml").write_text(tomli_w.dumps(config))
        env = _environment(scratch, tools["flwr"].parent)
        # It takes code from whoever may speak to it: from this account alone.
        superlink = [*commands.guarded("superlink"), "--insecure", "--simulation"]
        superlink += ["--database", str(scratch / "state.db")]
        run_log = stack.enter_context(_RunLog(log.absolute()))
        # Entered before the keeper, so that it is closed when nothing can be reading from it.
        client = stack.enter_context(
            ControlHttpClient.from_server_address(connection["address"], True, None, [])
        )
        keeper = stack.enter_context(
            kept(
                [*superlink, "--host", "127.0.0.1", "--port", str(port)],
                scratch=scratch,
                cwd=app,  # it comes first on the actors' sys.path
                env=env,
                output=run_log.file,
            )
        )
        _wait_until_listening(keeper, port, run_log)
        submit = [str(tools["flwr"]), "run", str(app), CONNECTION, "--format", "json"]
        actors = min(nodes, joblib.cpu_count())
        options = f"num-supernodes={nodes} init-args-num-cpus={actors} client-resources-num-cpus=1"
        run_id = _submit([*submit, "--federation-config", options], env, run_log)
        _follow(client, run_id, keeper, run_log)


def execute(config: RunConfig, *, users_per_node: int | None = None) -> dict[str, Any]:
    """Run a config so, with a log beside its folder; its result. Raises as `run_flower`.

    ``users_per_node`` None: two nodes.
    """
    rows = load(config.data, config.columns, on_bad_rows(config), config.task, config.schema)
    users = len(rows.user_ids)
    out = Path(config.out)
    nodes = -(-users // users_per_node) if users_per_node else 2
    run_flower(config.to_run_config(), nodes=nodes, log=out.with_name(f"{out.name}.flower.log"))
    return json.loads((out / "result.json").read_text(encoding="utf-8"))


class _RunLog:
    """The file that everything this run prints is appended to."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.file = path.open("ab", buffering=0)
        self._start = self.file.tell()  # what is before belongs to an earlier run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def failed(self, reason: str) -> FlowerRunFailed:
        return FlowerRunFailed(reason, self.path)

    def last_error(self) -> str:
        """This run's last line of the form `SomeError: text`; empty if there is none."""
        text = self.path.read_bytes()[self._start :].decode(errors="replace")
        kinds = r"(?:\w+\.)*(?:\w*(?:Error|Exception)|RunAborted)\b"
        result = re.findall(rf"^(?:ERROR:\s*)?({kinds}.*)$", text, re.M)
        return result[-1].strip() if result else ""


def _tools(*names: str) -> dict[str, Path]:
    """Find Flower's programs: beside the interpreter, where scripts go, or on the PATH."""
    places = [str(Path(sys.executable).parent), sysconfig.get_path("scripts")]
    path = os.pathsep.join([*places, os.environ.get("PATH", "")])
    result = {name: shutil.which(name, path=path) for name in names}
    missing = [name for name, file in result.items() if file is None]
    if missing:
        raise ValueError(f"{', '.join(missing)} not found: pip install 'flwr[simulation]'")
    return {name: Path(file).absolute() for name, file in result.items() if file}


def _environment(scratch: Path, programs: Path) -> dict[str, str]:
    """Our environment, isolated: a SuperLink finds its other programs through PATH."""
    here = (Path(sys.prefix), Path(sys.base_prefix))
    extra = [
        path
        for path in (Path(entry).absolute() for entry in sys.path)
        if path.is_dir() and not any(path.is_relative_to(prefix) for prefix in here)
    ]
    env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return env | {
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_HOME": str(scratch),
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",  # seconds; 1 by default
        "FLWR_TELEMETRY_ENABLED": "0",
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(map(str, extra)),
        "PYTHONUNBUFFERED": "1",
        "RAY_TMPDIR": str(scratch),
        "RAY_usage_stats_enabled": "0",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_listening(keeper: subprocess.Popen[bytes], port: int, log: _RunLog) -> None:
    """Wait for a process of ours to listen."""
    deadline = time.monotonic() + START_SECONDS
    while not listens(keeper.pid, port):
        if keeper.poll() is not None:
            raise log.failed(f"the SuperLink did not start: {log.last_error()}")
        if time.monotonic() > deadline:
            raise log.failed(f"no SuperLink after {START_SECONDS:.0f} s")
        time.sleep(0.05)


def _submit(command: Sequence[str], env: Mapping[str, str], log: _RunLog) -> int:
    printed = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    ).stdout
    if not (result := re.search(rb'"run-id":\s*"(\d+)"', printed)):
        log.file.write(printed)
        match = re.search(
            r'"error-message":\s*("(?:[^"\\]|\\.)*")', printed.decode(errors="replace")
        )
        why = json.loads(match[1], strict=False).split() if match else ["no reason given"]
        raise log.failed(f"`flwr run` refused the app: {' '.join(why)}")
    return int(result[1])


def _follow(
    client: ControlHttpClient, run_id: int, keeper: subprocess.Popen[bytes], log: _RunLog
) -> None:
    """Copy the run's log to ours until the run is over; raise unless it completed."""
    after = 0.0

    def copy_log() -> None:
        nonlocal after
        # A broken stream is not the end of a run: the status below decides, and we come back.
        with contextlib.suppress(Exception):
            for part in client.StreamLogs(StreamLogsRequest(run_id=run_id, after_timestamp=after)):
                log.file.write(part.log_output.encode())
                after = max(after, part.latest_timestamp)

    while True:
        stream = threading.Thread(target=copy_log, daemon=True)
        stream.start()
        while stream.is_alive():
            stream.join(TICK_SECONDS)
            if keeper.poll() is not None:
                raise log.failed("the SuperLink ended in the middle of the run")
        status = client.ListRuns(ListRunsRequest(run_id=run_id)).run_dict[run_id].status
        if status.status == "finished":
            break
        time.sleep(TICK_SECONDS)
    if status.sub_status != "completed":
        raise log.failed(_reason(status.sub_status, status.details, log))


def _reason(outcome: str, details: str, log: _RunLog) -> str:
    """The reason of a failure, in one line: Flower's own words if it gives any, else the log's."""
    printed = details.strip().removeprefix("Simulation failed with exception:").strip()
    if printed and printed not in _SAY_NOTHING:
        return printed.splitlines()[0]
    return log.last_error() or f"it was {outcome}"


_SAY_NOTHING = (
    "An error was encountered. Ending simulation.",
    "Simulation Runtime crashed.",
    "Task failed with unknown error.",
)
