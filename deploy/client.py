"""A person's side of a deployment: the folder that they were handed, and running what is there.

The folder is read and never written, and nothing in it is run. What is theirs, ledger, keys and
logs, is in a folder of their own beside it. What will leave says ``deploy.disclosure``.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from cryptography import x509

from murmuration.client.agent.policy import Policy
from murmuration.client.agent.unix_socket import answers
from murmuration.client.isolated import python
from murmuration.deploy.certificates import load_client_key
from murmuration.deploy.confined import node_environment
from murmuration.deploy.handed_over import KEY, POLICY, SETTINGS, HandedOver
from murmuration.deploy.init import CLIENT_NAME
from murmuration.deploy.processes import (
    Program,
    agent_program,
    check_own,
    end_all,
    node_folder,
    node_programs,
    own_folder,
    state_beside,
    wait_for,
)
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.privacy.durable_files import replace_file
from murmuration.strategies.settings.toml_text import parse_toml

_GUARDED = "murmuration.deploy.guarded"
RESTART_SECONDS = 5.0
#: Of a host, or of an IPv6 address in brackets, and a port.
_ADDRESS = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


@dataclass(frozen=True, kw_only=True)
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
        state = (state or state_beside(folder)).expanduser().absolute()
        if state.resolve().is_relative_to(folder):
            raise InputError(f"--state {state} is in {folder}: keep what is yours beside it")
        if os.path.lexists(state):
            check_own(state)
        handed_over = HandedOver.examine(folder)
        known = handed_over.check_authority(state, fingerprint)
        try:
            settings = parse_toml(handed_over.contents[SETTINGS].decode())
            name, address, users = (settings[key] for key in ("name", "superlink", "users"))
            if not re.fullmatch(CLIENT_NAME, name) or not _ADDRESS.fullmatch(address):
                raise ValueError("name or superlink is none")
            if not isinstance(users, int) or isinstance(users, bool) or users < 1:
                raise ValueError("users is no number of them")
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{folder / SETTINGS} cannot be used: {error}") from None
        load_client_key(folder / KEY)
        if POLICY not in handed_over.contents:
            raise InputError(f"{folder} lacks {POLICY}: without one nothing may leave")
        policy = Policy.parse(handed_over.contents[POLICY], folder / POLICY)
        return cls(
            folder=folder,
            name=name,
            address=address,
            policy=policy,
            users=users,
            state=state,
            handed_over=handed_over,
            known=known,
        )


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
        InputError: the agent ended or could not start, or the SuperNode cannot be another user.
    """
    if node_user:
        _check_user(node_user)
    with tempfile.TemporaryDirectory(prefix="murmuration-agent-") as folder:
        # Another user has to come through to the socket, which is theirs alone.
        Path(folder).chmod(0o711 if node_user else 0o700)
        path, log = Path(folder) / "agent.sock", client.state / "logs" / "agent.log"
        policy = Path(folder) / POLICY
        replace_file(policy, client.handed_over.contents[POLICY], mode=0o600)
        how = agent_program(policy, data.absolute(), client.state, path)
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
    work = node_folder(client.handed_over.contents)
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
    """Raise InputError if the SuperNode cannot be run as this user."""
    if os.geteuid() != 0:
        raise InputError("--node-user needs root, to start the SuperNode as another user")
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise InputError(f"there is no user {user!r} on this machine") from None
    for process in psutil.process_iter(["uids", "cmdline"]):
        uids, command = process.info["uids"], process.info["cmdline"] or ()
        if uids and account.pw_uid in uids and _GUARDED in command:
            raise InputError(
                f"another SuperNode runs as {user}: what its server ships could read this one's "
                "key and ask this agent; give each deployment a --node-user of its own"
            )
    with tempfile.TemporaryDirectory() as folder:
        shutil.chown(folder, user)
        try:
            tried = subprocess.run(
                python("-c", f"import {_GUARDED}"),
                user=user,
                group=account.pw_gid,
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
