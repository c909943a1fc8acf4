"""Confine the code that a server ships to a client's machine: few variables, no way to stay.

A SuperNode's executor starts the ClientApp, which is the server's code. It gets the variables
of ``client.isolated`` and no others: no cloud key or token that the owner happens to have
exported. Where the system can make PID namespaces it runs in one of its own, with a /proc of its
own: it sees no other process, and when the first process of the namespace ends the kernel ends all
the others with it, daemons that were forked twice and whatever is just being forked included. Each
of the processes that lead there dies with the one before it. Where no namespace can be made (not
Linux, or forbidden) only ``sims.runtimes.process_reaper`` looks for what is left, which a program
under the same user can end and one that forks without pause can outrun.
"""

import functools
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from murmuration.client.isolated import passed_on
from murmuration.deploy.commands import NODE_ENVIRONMENT, programs


def node_environment(work: Path) -> dict[str, str]:
    """The environment of a SuperNode and its executor, which work in the folder ``work``."""
    passed = passed_on()
    return {
        **passed,
        **NODE_ENVIRONMENT,
        "PATH": os.pathsep.join([str(programs()), passed.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
        "HOME": str(work),
        "FLWR_HOME": str(work / "flwr"),
    }


def in_namespace(command: Sequence[str], user: str = "") -> list[str] | None:
    """The command in a PID namespace of its own, as ``user`` if one is named (needs root).

    None where this system does not let us make one.
    """
    before = _prefix(user)
    return None if before is None else [*before, *command]


@functools.cache
def _prefix(user: str) -> list[str] | None:
    setpriv, unshare = shutil.which("setpriv"), shutil.which("unshare")
    if setpriv is None or unshare is None:
        return None
    # If the keeper is killed unshare dies, and if unshare dies the namespace does.
    namespace = [unshare, "--pid", "--fork", "--kill-child", "--mount-proc"]
    dying = [setpriv, "--pdeathsig", "KILL", "--"]
    if user:
        entry = pwd.getpwnam(user)
        who = ["--reuid", str(entry.pw_uid), "--regid", str(entry.pw_gid), "--clear-groups"]
        # A new user would forget the signal.
        inside = [setpriv, "--pdeathsig", "keep", *who, "--no-new-privs", "--"]
        result = [*dying, *namespace, "--", *inside]
    elif os.geteuid() == 0:
        result = [*dying, *namespace, "--"]
    else:
        result = [*dying, unshare, "--user", "--map-current-user", *namespace[1:], "--"]
    tried = subprocess.run(
        [*result, "true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
        cwd="/",
    )
    return result if tried.returncode == 0 else None
