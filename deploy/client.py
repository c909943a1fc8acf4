"""A person's side of a deployment: check what is there, say what will leave, then run it.

The folder that they were handed is read and never written, and nothing in it is run. What is
theirs, ledger, keys and logs, is in a folder of their own beside it.

Runs the agent, which reads the judgements, and beside it the SuperNode and its executor, which runs
what the server ships. With ``--node-user`` (as root) these are another operating-system user, who
cannot read the judgements; without it all are one user, and the agent protects only against an app
that asks, not against one that looks for files. What the server ships gets few of our variables and
ends when we do: see ``deploy.confined``.
"""

import os
import pwd
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from murmuration.client.agent.identity import Identity
from murmuration.client.agent.policy import Policy
from murmuration.client.agent.unix_socket import answers
from murmuration.client.isolated import python
from murmuration.client.labels.memory import LabelState
from murmuration.client.store import load_judged, place_of
from murmuration.deploy.certificates import days_left, load_client_key, public_line
from murmuration.deploy.confined import node_environment
from murmuration.deploy.handed_over import AUTHORITY, KEY, POLICY, SETTINGS, HandedOver
from murmuration.deploy.init import CLIENT_NAME
from murmuration.deploy.plan import compared, own_ledger
from murmuration.deploy.processes import (
    Program,
    agent_program,
    end_all,
    node_folder,
    node_programs,
    own_folder,
    state_beside,
    wait_for,
)
from murmuration.deploy.terms import RUN
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.privacy import extensions
from murmuration.reporting.figures import counted
from murmuration.strategies import registry
from murmuration.strategies.local_label import LOCAL_LABEL
from murmuration.strategies.protocol.stated_plan import cost

RESTART_SECONDS = 5.0
#: Of a host, or of an IPv6 address in brackets, and a port.
_ADDRESS = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_DIMENSION = 1025  # of the default features, for the sizes that are told


@dataclass(frozen=True)
class Client:
    """A client's folder, checked. InputError, saying what is wrong, from ``load``.

    ``users`` is how many the server's owner registered this client for, as the folder says;
    ``state`` the owner's own folder, and ``known`` whether they know who signed the one they were
    handed.
    """

    folder: Path
    name: str
    address: str
    policy: Policy
    public: bytes
    users: int
    state: Path
    handed_over: HandedOver
    known: bool

    @classmethod
    def load(cls, folder: Path, state: Path | None = None, fingerprint: str = "") -> "Client":
        """Read settings, key and policy of a folder in which nothing else is.

        ``state`` is by default beside it; nothing is made there. ``fingerprint`` is that of the
        operator's authority, if the owner knows it from elsewhere.
        """
        folder = folder.expanduser().resolve()
        state = (state or state_beside(folder)).expanduser().resolve()
        if state.is_relative_to(folder):
            raise InputError(f"--state {state} is in {folder}: keep what is yours beside it")
        handed_over = HandedOver.examine(folder)
        known = handed_over.check_authority(state, fingerprint)
        try:
            settings = tomllib.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            name, address, users = (settings[key] for key in ("name", "superlink", "users"))
            if not re.fullmatch(CLIENT_NAME, name) or not _ADDRESS.fullmatch(address):
                raise ValueError("name or superlink is none")
            if not isinstance(users, int) or isinstance(users, bool) or users < 1:
                raise ValueError("users is no number of them")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{folder / SETTINGS} cannot be used: {error}") from None
        public = public_line(load_client_key(folder / KEY).public_key())
        policy = Policy.load(folder / POLICY)
        return cls(folder, name, address, policy, public, users, state, handed_over, known)


def connection(address: str) -> socket.socket:
    """A TCP connection to an address as it is written; OSError or ValueError if there is none."""
    return socket.create_connection(_parts(address), timeout=10)


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def server_certificate(address: str, authority: Path) -> x509.Certificate:
    """The certificate that the server at ``address`` shows, believed by ``authority`` alone.

    Raises:
        InputError: nobody is there, or what is there is not believed.
    """
    try:
        context = ssl.create_default_context(cafile=str(authority))
        with (
            connection(address) as plain,
            context.wrap_socket(plain, server_hostname=_parts(address)[0]) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
    except (OSError, ValueError) as error:
        raise InputError(f"the server at {address} cannot be trusted or reached: {error}") from None
    return x509.load_der_x509_certificate(shown or b"")


def describe(client: Client, judgements: Judgements) -> list[str]:
    """Exactly what can leave this machine, in lines."""
    policy, users = client.policy, len(judgements.user_ids)
    lines = [
        f"{counted(len(judgements), 'judgement')} of {counted(users, 'user')} stay here. "
        "What leaves:",
        "",
        "whatever is asked",
        "  a 64-bit name of each user, different in every run (who guesses an id can test it)",
    ]
    if users > client.users:
        lines.insert(
            1,
            f"Registered here is a client of {client.users}: of so many users, whom the server "
            "picks, answers count, and of the others none. Ask its owner to register more.",
        )
    if policy.public_items:
        lines.append("  prompts, responses and how many there are, without labels: public_items")
    if policy.label_epsilon:
        lines += [
            "",
            LOCAL_LABEL.name,
            f"  every label once, randomized here: epsilon {policy.label_epsilon:g} for "
            + ("each label" if policy.label_level == "item" else "all labels of a user together")
            + (f", delta {policy.label_delta:g}" if policy.label_delta else "")
            + " (really spent here)",
            "  nothing else that depends on labels",
        ]
    names = sorted(registry.allowable())
    for name in policy.strategies:
        lines += ["", name, *_leaves(name, policy)]
    others = ", ".join(name for name in names if name not in policy.strategies)
    lines += ["", others, "  nothing: not among the policy's strategies"]
    if policy.max_evaluations:
        told = "right and how large its losses are" if "sft" in policy.tasks else "right"
        lines += [
            "",
            "evaluation",
            f"  at most {policy.max_evaluations} sums of how often a given model is {told}, over",
            "  users whom that run does not train on (checked here); the server adds the noise",
        ]
    lines += ["", "never: a judgement, a gradient that is not clipped, anything not listed here"]
    return lines


def spent(client: Client) -> list[str]:
    """Return what has left this machine so far, in lines; InputError if its ledger is damaged."""
    policy = client.policy
    with extensions.only(policy.extensions):
        ledger = own_ledger(client.state)
    if not ledger.head.hash:
        return ["So far nothing has left."]
    result = [
        f"So far: {ledger.answered['train']} of {policy.max_rounds} answers, "
        f"{ledger.answered['evaluate']} of {policy.max_evaluations} accuracies."
    ]
    if ledger.plans:
        epsilon = cost(list(ledger.plans.values()), policy.delta)
        result.append(
            f"{len(ledger.plans)} stated plans, together epsilon {epsilon:.4g} of "
            f"{policy.max_epsilon:g} at delta {policy.delta:g}."
        )
    labels = client.state / "labels.state"
    for told in LabelState(labels).spends() if labels.exists() else []:
        result.append(
            f"{told.user_id}: {len(told.items)} labels told, epsilon {told.epsilon:.4g} of "
            f"{told.promise.epsilon:g} ({told.promise.level} level)."
        )
    return result


def _leaves(name: str, policy: Policy) -> list[str]:
    half = policy.node_halves[policy.halves[name]]
    of_what = "clip norm × judgements counted" if half.of_examples else "its clip norm"
    many = f"at most {policy.max_group_size} judgements" if policy.max_group_size else "all"
    return [
        f"  at most {policy.max_rounds} answers in all, each one vector of D numbers (8·D bytes; "
        f"{8 * _DIMENSION / 1000:.0f} kB at D = {_DIMENSION}):",
        "  the sum over your asked users of what their judgements say about a model,",
        f"  each user's part ({many}) no longer than {policy.max_clip:g} ({of_what})",
        *(["  and how many of these are within a radius"] if half.counts else []),
        "  before noise: the server adds it. It states a plan, which is kept here; plans that",
        f"  cost more than epsilon {policy.max_epsilon:g} at delta {policy.delta:g} under "
        f"{policy.adjacency}, all together, are refused",
        *([f"  never over fewer than {policy.min_users} of them"] if policy.min_users else []),
        *(["  under the masks of secure aggregation only"] if policy.secure_only else []),
    ]


def checks(
    client: Client,
    data: Path,
    columns: str,
    schema: Schema = PAIRS,
) -> tuple[Judgements, list[str], bool]:
    """The judgements, what was found, and whether the policy allows the run that the operator
    means to make. Nobody is asked for anything: nothing here touches the network.

    Raises:
        InputError: the data cannot be used.
    """
    judgements = load_judged(str(data.expanduser().absolute()), columns, "isolate", schema)
    handed = client.handed_over
    trusted = "which you know" if client.known else "compare it with what the operator tells you"
    result = [
        f"data      {data}: {counted(len(judgements), 'judgement')}, "
        f"{counted(len(judgements.user_ids), 'user')}",
        f"folder    as signed by {handed.fingerprint}: {trusted}",
        *(f"note      {name} is not as it was handed over" for name in handed.changed),
        f"yours     {client.state}: "
        + ("in use before" if client.state.exists() else "made at the first start"),
        f"key       node.key, private to you; its public half must be registered as {client.name}",
        f"policy    policy.toml: strategies {', '.join(client.policy.strategies) or 'none'}",
    ]
    try:
        users = len(judgements.user_ids)
        said, allowed = compared(client.folder / RUN, client.policy, client.state, hosted=users)
    except InputError as error:
        said, allowed = f"cannot be compared with the policy: {error}", False
    result.append(f"run       {said}")
    result += [f"note      {note}" for note in judgements.notes]
    if judgements.left_out:
        rows, first = counted(judgements.left_out, "row"), place_of(judgements.set_aside[0])
        result.append(
            f"warning   {rows} cannot be used, the first: {first} (`murmuration data` says why)"
        )
    if (known := client.state / "identity.key").exists():
        name = Identity.at(known).public.hex()
        result.append(f"agent     {name}: other owners can list it among their parties")
    if data.expanduser().stat().st_mode & 0o077:
        result.append(f"warning   other users of this machine can read {data}: chmod 600 it")
    return judgements, result, allowed


def server_line(client: Client) -> str:
    """Return what there is to say of the server, which is asked for its certificate."""
    try:
        certificate = server_certificate(client.address, client.folder / AUTHORITY)
    except InputError as error:
        return f"server    {error}"
    left = days_left(certificate)
    return f"server    {client.address}: certificate signed by ca.crt, {left} days left"


def run_client(
    client: Client,
    data: Path,
    *,
    port: int,
    columns: str = "",
    schema: Schema = PAIRS,
    node_user: str | None = None,
    say: Callable[[str], None] = print,
    enough: Callable[[], bool] = lambda: False,
) -> None:
    """Run the agent, and beside it the SuperNode, until interrupted or ``enough()``.

    Raises:
        InputError: the agent ended, or could not start.
    """
    with tempfile.TemporaryDirectory(prefix="murmuration-agent-") as folder:
        # Another user has to come through to the socket, which is theirs alone.
        Path(folder).chmod(0o711 if node_user else 0o700)
        path, log = Path(folder) / "agent.sock", client.state / "logs" / "agent.log"
        how = agent_program(client.folder / POLICY, data.absolute(), client.state, path)
        how["command"] += ["--columns", columns] if columns else []
        how["command"] += schema.options.split()
        how["command"] += ["--user", node_user] if node_user else []
        agent = Program(log=log, scratch=Path(folder), **how)

        def looked_after() -> bool:
            if not agent.alive:
                raise InputError(f"the agent ended; its log is {log}")
            return enough()

        try:
            wait_for(lambda: answers(path), 300, "the agent", agent)
            say(f"the agent answers; its log is {log}")
            run_node(client, path, port=port, node_user=node_user, say=say, enough=looked_after)
        finally:
            agent.end()


def run_node(
    client: Client,
    socket_path: Path,
    *,
    port: int,
    node_user: str | None = None,
    say: Callable[[str], None] = print,
    enough: Callable[[], bool] = lambda: False,
) -> None:
    """Run the SuperNode for an agent that answers at a socket, until interrupted or ``enough()``.

    When it or its executor ends, both are started again: a SuperNode without an executor would wait
    for its reply for ever. InputError if it cannot be another user.
    """
    if node_user:
        _check_user(node_user)
    while not enough():
        with _node(client, socket_path, port, node_user) as programs:
            say(f"the SuperNode is started; its log is {programs[0].log}")
            while all(program.alive for program in programs) and not enough():
                time.sleep(0.5)
            if not programs[1].alive:
                say("the SuperNode's executor has ended")
        until_then = time.monotonic() + RESTART_SECONDS
        while time.monotonic() < until_then and not enough():
            time.sleep(0.2)


@contextmanager
def _node(
    client: Client, socket_path: Path, port: int, user: str | None
) -> Iterator[tuple[Program, Program]]:
    """A SuperNode and its executor, in a new folder that is theirs and is removed afterwards."""
    logs = own_folder(client.state) / "logs"
    client.handed_over.keep_authority(client.state)
    work = node_folder(client.folder)
    programs: list[Program] = []
    try:
        started = node_programs(work, client.address, socket_path, port, user)
        if user:
            for path in (*work.iterdir(), work):
                shutil.chown(path, user)
        for name, how in started.items():
            programs.append(Program(log=logs / f"{name}.log", scratch=work, **how))
        yield programs[0], programs[1]
    finally:
        end_all(programs)
        shutil.rmtree(work, ignore_errors=True)


def _check_user(user: str) -> None:
    """InputError if the SuperNode cannot be run as this user."""
    if os.geteuid() != 0:
        raise InputError("--node-user needs root, to start the SuperNode as another user")
    try:
        group = pwd.getpwnam(user).pw_gid
    except KeyError:
        raise InputError(f"there is no user {user!r} on this machine") from None
    with tempfile.TemporaryDirectory() as folder:
        shutil.chown(folder, user)
        try:
            tried = subprocess.run(
                python("-c", "import murmuration.deploy.guarded"),
                user=user,
                group=group,
                extra_groups=[],
                env=node_environment(Path(folder)),
                cwd=folder,
                capture_output=True,
                check=False,
            )
            reachable = tried.returncode == 0
        except PermissionError:
            reachable = False
    if not reachable:
        raise InputError(
            f"{user} may not run {sys.executable}: install murmuration where other users can reach "
            "it (/opt, say), and let the SuperNode be started from there"
        )
