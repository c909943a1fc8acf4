"""The command line as a process of its own, killed while it writes, at a moment of choice."""

import os
import subprocess
import sys

_CODE = """
import os, re, signal, sys

event, pattern, left = sys.argv.pop(1), re.compile(sys.argv.pop(1)), int(sys.argv.pop(1))


def hook(name, args):
    global left
    if name == event and any(pattern.search(str(arg)) for arg in args):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(hook)
from murmuration.cli.main import main

main()
"""


def killed(event, pattern, number, *command):
    """The exit status of a command to which SIGKILL came before a step of its writing.

    The step is the so-manyth of Python's audit ``event`` (``open``, ``os.rename``) about something
    that ``pattern`` is found in; 0 where that never came.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CODE, event, pattern, str(number), *map(str, command)],
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode <= 0, done.stderr
    return done.returncode
