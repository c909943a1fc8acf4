"""What others do with the same work on the same machine: pfl-research, and Flower by itself.

pfl-research pins what we do not, so it gets an environment of its own, made once below the user's
cache folder and kept. Where it cannot be installed the comparison is left out, and says why.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from murmuration.preference.data.judgements import InputError
from murmuration.sims.bench.setting import Setting
from murmuration.sims.runtimes.execute import execute
from murmuration.sims.runtimes.runtime import Runtime

PFL = "pfl==0.6.0"
_ROUNDS = 15
_FLOWER_ROUNDS = 6
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "murmuration"


class NoRival(RuntimeError):
    """It cannot be measured here; one line that says why."""


def pfl_environment(folder: Path = _CACHE / "pfl-0.6") -> Path:
    """The interpreter of an environment with pfl-research, made if need be.

    Raises:
        NoRival: it cannot be installed.
    """
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    torch = f"torch=={version('torch').partition('+')[0]}"
    # torch first and by itself: left to the resolver it might be another build.
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "-q", torch],
        [str(python), "-m", "pip", "install", "-q", PFL, torch],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise NoRival(f"{PFL} cannot be installed: {last}")
    (folder / "complete").touch()
    return python


def pfl_users_per_second(python: Path, setting: Setting) -> float:
    """How many users a second pfl-research trains, the median over rounds.

    Raises:
        NoRival: it failed.
    """
    script = Path(__file__).with_name("pfl_worker.py")
    numbers = [setting.dimension, setting.cohort, setting.users, setting.each, _ROUNDS]
    done = subprocess.run(
        [str(python), str(script), *map(str, numbers)], capture_output=True, text=True, check=False
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise NoRival(f"pfl-research failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return float(json.loads(lines[-1])["users_per_second"])


def flower_users_per_second(setting: Setting, users_per_node: int | None) -> float:
    """How many users a second ``--runtime flower`` trains, start-up aside.

    With ``users_per_node`` 1 this is Flower as it is commonly used: each user a client.

    Raises:
        NoRival: Flower failed.
    """
    with setting.config(_FLOWER_ROUNDS) as config:
        try:
            result = execute(
                config, runtime=Runtime.FLOWER, users_per_node=users_per_node, quiet=True
            )
        except (InputError, RuntimeError) as error:
            raise NoRival(f"Flower failed: {error}") from error
    return float(result["users_per_second"])
