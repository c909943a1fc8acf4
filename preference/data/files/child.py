"""Starting a program of ours that may take only so much, and is asked by a socket."""

import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path


def started(
    program: Path, packages: Iterable[str], environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a program by this Python, apart from what is around it; return it, and the socket by
    which it is asked.

    Args:
        program: is given the descriptor of its socket, and paths of packages.
        packages: that it imports.
        environment: all that it has.
    """
    ours, theirs = socket.socketpair()
    specs = map(find_spec, packages)
    paths = {str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", str(program), str(theirs.fileno()), *sorted(paths)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            pass_fds=[theirs.fileno()],
        )
    return process, ours
