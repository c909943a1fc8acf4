"""Start a program that works with an owner's data, without any code from its folder.

``python -m`` looks for modules in the folder that it is started in first, and an entry of
``PYTHONPATH`` that is empty or relative names that folder too. It may be one that somebody else
wrote. So our programs are started with ``-P``, in a folder of their own, with the variables that
are listed here and no others. ``-I`` would leave out ``PYTHONPATH`` and packages that were
installed for one user alone, by which we may be installed.
"""

import os
import sys

#: Variables of the owner that reach any program: how to find programs and packages, language and
#: time zone, and how many threads to use.
PASSED_ON = (
    *("PATH", "PYTHONPATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"),
    *("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OPENBLAS_THREAD_TIMEOUT"),
)
#: Those that reach the owner's own programs besides: where files, caches and models are, and which
#: GPUs may be used. No token, key or proxy.
OWNERS = (
    *("HOME", "TMPDIR", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "HF_HOME", "HF_HUB_CACHE"),
    "CUDA_VISIBLE_DEVICES",
)
#: The agent answers from what is on its machine, whatever a policy or a server names.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
#: This machine, as programs on it call each other: never through a proxy.
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def python(*arguments: str) -> list[str]:
    """Return the command that starts this interpreter without its working directory on its path."""
    return [sys.executable, "-P", *arguments]


def passed_on(*more: str) -> dict[str, str]:
    """Return the variables of ``PASSED_ON``, and ``more`` of them, as far as they are set.

    Of the lists of folders only entries that name a folder from the root are in it.
    """
    variables = {name: os.environ[name] for name in (*PASSED_ON, *more) if name in os.environ}
    for name in {"PATH", "PYTHONPATH"} & set(variables):
        entries = filter(os.path.isabs, variables.pop(name).split(os.pathsep))
        if folders := os.pathsep.join(entries):
            variables[name] = folders
    return variables


def owners_environment() -> dict[str, str]:
    """Return all variables of a program that reads the owner's data."""
    return {**passed_on(*OWNERS), **OFFLINE, "PYTHONUNBUFFERED": "1"}
