"""One run on a deployment: submitted to its SuperLink, followed, and resumed when it breaks.

The ServerApp runs where the SuperExec is, which is this machine; so is the run directory. A run
that ends in any other way than completed is submitted again and goes on from its checkpoint: the
ledger has every release that was charged, so what the crash repeats is charged again. What its app
refuses, or cannot start, would end in the same way again, and is submitted once.

The operator sees its progress: rounds and ε from the run directory, online nodes from the
SuperLink, and refusals of owners from the private log.
"""

import json
import math
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from murmuration.deploy import commands
from murmuration.deploy.init import CONNECTION, REGISTRATION, deployed_address
from murmuration.deploy.processes import environment_of
from murmuration.deploy.proxies import way_around
from murmuration.deploy.terms import RUN, usual_run, with_usual
from murmuration.preference.data.errors import InputError
from murmuration.privacy.figures import counted, share_text
from murmuration.reporting.live.progress import RoundProgress
from murmuration.server.record.result import Result
from murmuration.server.record.run_files import REFUSED, handed_over
from murmuration.server.registration import registration_for
from murmuration.sims.runtimes.app_bundle import write_bundle
from murmuration.sims.runtimes.tail import Tail
from murmuration.strategies import registry
from murmuration.strategies.config import SETTINGS, RunConfig, refuse_seed
from murmuration.strategies.protocol.availability import Reason
from murmuration.strategies.protocol.flower_internals import (
    ControlHttpClient,
    ListNodesRequest,
    ListRunsRequest,
    StopRunRequest,
)
from murmuration.strategies.protocol.node_texts import shortened
from murmuration.strategies.settings.declaration import about

_POLL = 0.5
#: What Flower says before an error of ours.
_FLOWERS = "ServerApp failed with exception: "
#: Seconds after which a run that has not begun is reported.
_BEGINS = 60.0
#: Seconds after which Flower starts a ServerApp once more, beside itself, and how often it may.
_STARTED_AGAIN, _STARTS = 30.0, 5
_NOT_UP = (
    f"its ServerApp does not get up, or takes longer than {_STARTED_AGAIN:g} seconds, after which "
    "it is started again; what it says is in the output of server/superexec.sh"
)

Say = Callable[[str], None]


def deployed_config(server: Path, options: dict[str, Any], settings: dict[str, Any]) -> RunConfig:
    """Return a run of a deployment's ``server`` folder.

    Args:
        server: the folder.
        options: settings that hold unless its ``run.toml`` or ``settings`` have others.
        settings: those that were chosen for this run.

    Raises:
        InputError: there is no such run, or it would be refused when it begins.
    """
    settings = _without_a_model(_pinned(with_usual(server / RUN, settings)))
    config = usual_run({**options, **settings})
    if config.strategy == "els" and not config.group_size:
        raise InputError(
            "--set strategy=els: owners' agents tell nobody how many judgements users have, so the "
            "group size cannot be chosen from that; add --set group_size=N"
        )
    config = replace(config, registration=config.registration or str(server / REGISTRATION))
    refuse_seed(config)
    registration_for(config)
    return config


def _pinned(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings in which files go by names that hold elsewhere, where the server's app reads
    them; InputError for one that cannot be read."""
    pins = {name: about(field).pinned for name, field in SETTINGS.items()}
    return {
        name: pin(value) if value and (pin := pins.get(name)) else value
        for name, value in settings.items()
    }


def _without_a_model(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings in which nobody is held out, where that was not asked for and there is no
    model that could be measured on them."""
    strategy = registry.named(settings.get("strategy", RunConfig.strategy))
    return settings if strategy.has_model else {"heldout": 0.0, **settings}


def run_deployed(
    server: Path,
    address: str,
    config: RunConfig,
    *,
    attempts: int = 5,
    say: Say = lambda text: None,
    app_dir: Path | None = None,
) -> dict[str, object]:
    """Run ``config`` on the SuperLink of a deployment's ``server`` folder; the result.

    Nodes are held to what the deployment's file registers them for (``server.registration``), and
    are sent none of the settings. With ``app_dir`` the app is what is in that folder, and there
    need be no result.

    A run that was aborted because nodes failed is not submitted again: each attempt would be
    charged, and somebody has to look first. An interrupted one is stopped at the SuperLink, since
    its rounds would be charged while nobody watches.

    Raises:
        InputError: there is a seed, the run was aborted or refused, its app does not start, or it
            did not complete in so many attempts; says why the last one ended.
    """
    refuse_seed(config)
    out = Path(config.out)
    why = ""
    for attempt in range(attempts):
        begun = (out / "config.json").exists()
        if begun and not config.resume and attempt == 0:
            raise InputError(f"--out {out} holds a run already; continue it with --resume")
        registration = config.registration or str(server / REGISTRATION)
        settings = replace(config, resume=begun, registration=registration)
        (out / "aborted.json").unlink(missing_ok=True)  # of an attempt before
        home = Path(commands.server_environment(server)["FLWR_HOME"])
        with handed_over(settings.to_run_config(), home) as run_config:
            with tempfile.TemporaryDirectory(prefix="mm-") as scratch:
                app = write_bundle(Path(scratch) / "app", run_config, app_dir=app_dir)
                run_id = submit(server, app)
            say(f"run {run_id} submitted" + (", going on from the checkpoint" if begun else ""))
            try:
                why = follow(server, address, run_id, Watch(out, config.rounds, say))
            except KeyboardInterrupt:
                say(stop(server, address, run_id))
                raise
        if not why:
            result = Result.read(out)
            return result.to_json() if result else {}
        why = shortened(why)
        if (aborted := out / "aborted.json").exists():
            ended = json.loads(aborted.read_text(encoding="utf-8"))
            then = "go on with --resume"
            if ended["aborted"] == Reason.REFUSED:
                then += (
                    " when the policies allow it, or begin anew by other numbers in another --out"
                )
            raise InputError(
                f"the run was aborted, {ended['aborted']}: {ended['because']}. What happened "
                f"exactly is in {out / 'private' / 'log.jsonl'}; {then}"
            )
        say(f"run {run_id} ended: {why}")
    raise InputError(f"the run did not complete in {attempts} attempts; the last: {why}")


def flwr(server: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Flower's command line, against the SuperLink of a deployment's ``server`` folder."""
    return subprocess.run(
        [commands.tool("flwr"), *arguments],
        env=environment_of(server),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def submit(server: Path, app: Path) -> int:
    """Hand an app to a deployment's SuperLink; the number of its run.

    Raises:
        InputError: it was refused; says what Flower said.
    """
    done = flwr(server, "run", str(app), CONNECTION, "--format", "json")
    result = re.search(r'"run-id":\s*"?(\d+)"?', done.stdout)
    if not result:
        why = way_around(deployed_address(server)) or (done.stdout + done.stderr).strip()[-500:]
        raise InputError(f"`flwr run` refused the app: {why}")
    return int(result[1])


class Watch:
    """Report what is new about a run at each look.

    ``out`` is the run's folder; its content when the watch begins is not reported again.
    """

    def __init__(
        self, out: Path, rounds: int, say: Say, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rounds, self._say = rounds, say
        self._progress = RoundProgress(rounds, None, clock=clock)
        self._metrics, self._log = Tail(out / "metrics.jsonl"), Tail(out / "private" / "log.jsonl")
        self._nodes = ""
        self._clock, self._since = clock, clock()
        self._starting, self._told = math.inf, False
        self._metrics.read()
        self._log.read()

    def waits(self, status: str) -> None:
        """Say once that a run has not begun, and what may be the matter.

        Raises:
            InputError: its ServerApp was started often enough.
        """
        if status not in ("pending", "starting"):
            return
        now = self._clock()
        if status == "starting":
            self._starting = min(now, self._starting)
        if now - self._starting >= _STARTS * _STARTED_AGAIN:
            raise InputError(f"the run did not begin and was stopped: {_NOT_UP}")
        if not self._told and now - self._since >= _BEGINS:
            self._told = True
            why = _NOT_UP if self._starting < now else "server/superexec.sh does not take it"
            self._say(f"not begun after {_BEGINS:g} seconds: {why}")

    def look(self, client: ControlHttpClient) -> None:
        """Say what has happened since the last look, and who is online."""
        nodes = online(client)
        for line in self._log.read()[0]:
            if "would refuse" in line:
                self._say(refusing(line))
            if why := line.get("not registered"):
                self._say(f"node {line['node']} takes no part: {shortened(str(why))}")
        lines, anew = self._metrics.read()
        self._progress.add(lines, anew=anew)
        left = self._progress.left
        for line in () if anew else lines:  # a resumed run's file begins with lines reported before
            epsilon = line.get("epsilon")
            spent = "" if epsilon is None else f", epsilon {epsilon:.4g}"
            share = line.get("heldout_accuracy")
            accuracy = "" if share is None else f", held-out {share_text(share)}"
            then = f", {left}" if left else ""
            self._say(f"round {line['round']} of {self._rounds}{spent}{accuracy}, {nodes}{then}")
            self._nodes = nodes
        if nodes != self._nodes:
            self._say(nodes)
            self._nodes = nodes


def follow(server: Path, address: str, run_id: int, watch: Watch) -> str:
    """Wait until a run is over, and watch it; why it did not complete, or nothing.

    Raises:
        InputError: its app refused it, or was started too often without getting up; it is over.
    """
    certificate = (server / "ca.crt").read_bytes()
    while True:
        try:
            with ControlHttpClient.from_server_address(address, False, certificate, []) as client:
                while True:
                    listed = client.ListRuns(ListRunsRequest(run_id=run_id))
                    status = listed.run_dict[run_id].status
                    watch.waits(status.status)
                    watch.look(client)
                    if status.status == "finished":
                        completed = status.sub_status == "completed"
                        details = status.details.removeprefix(_FLOWERS)
                        if details.startswith(REFUSED):
                            raise InputError(shortened(f"the run was {details}"))
                        return "" if completed else f"{status.sub_status}: {details}".strip()
                    time.sleep(_POLL)
        except InputError:
            stop(server, address, run_id)
            raise
        except Exception:  # the SuperLink is away for a while: it may come back
            time.sleep(_POLL)


def stop(server: Path, address: str, run_id: int) -> str:
    """Stop a run at the SuperLink; True if that was done."""
    certificate = (server / "ca.crt").read_bytes()
    try:
        with ControlHttpClient.from_server_address(address, False, certificate, []) as client:
            client.StopRun(StopRunRequest(run_id=run_id))
    except Exception as error:
        return f"run {run_id} goes on, since the SuperLink did not stop it: {error}"
    return f"run {run_id} is stopped; go on with --resume"


def online(client: ControlHttpClient) -> str:
    """The number of registered nodes that are online, in words."""
    nodes = list(client.ListNodes(ListNodesRequest()).nodes_info)
    there = sum(node.status == "online" for node in nodes)
    return f"{there} of {len(nodes)} nodes online"


def refusing(line: Mapping[str, Any]) -> str:
    """The owners' answers to a plan, from a line of the private log."""
    rules = Counter(line["would refuse"].values())
    shown = line["shown the plan"]
    if not rules:
        return f"the plan was shown to {counted(shown, 'node')}: no owner's policy refuses it"
    refuse = sum(rules.values())
    whose = "the policy of 1 refuses it" if refuse == 1 else f"the policies of {refuse} refuse it"
    which = ", ".join(f"{rule}: {times}" for rule, times in sorted(rules.items()))
    return f"the plan was shown to {counted(shown, 'node')}: {whose} ({which})"
