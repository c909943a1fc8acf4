"""Stands in for systemctl on a machine in namespaces, where systemd is not: starts and stops units.

Of a unit it keeps to what ours say: whose it is, its variables, its folders, its umask, no network
where it is to have none, nobody else's folders, and that it is started again when it ends.
"""

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

UNITS, RUNNING = Path("/etc/systemd/system"), Path("/run/units")


def settings(unit: str) -> dict[str, list[str]]:
    """Return what a unit's file says, by name."""
    values = defaultdict(list)
    for line in (UNITS / f"{unit}.service").read_text().splitlines():
        name, is_one, value = line.partition("=")
        if is_one:
            values[name].append(value)
    return values


def folder(path: Path, owner: str, group: str, mode: str) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(int(mode, 8))
    shutil.chown(path, owner, group)


def start(unit: str) -> None:
    """In a process of its own, whose output is in ``/run/units``."""
    unit_settings = settings(unit)
    (user,) = unit_settings["User"]
    group = unit_settings["Group"][0] if unit_settings["Group"] else pwd.getpwnam(user).pw_gid
    for name in unit_settings["RuntimeDirectory"]:
        folder(Path("/run", name), user, group, "755")
    for name in unit_settings["StateDirectory"]:
        folder(Path("/var/lib", name), user, group, *unit_settings["StateDirectoryMode"])
    variables = dict(shlex.split(line)[0].split("=", 1) for line in unit_settings["Environment"])
    hidden = "".join(
        f"mount -t tmpfs -o mode=000 tmpfs {path.lstrip('-')}; "
        for path in unit_settings["InaccessiblePaths"]
        if Path(path.lstrip("-")).exists()
    )
    who = f"setpriv --reuid {user} --regid {group} --clear-groups --no-new-privs"
    command = [
        *("unshare", "--mount", *(["--net"] if unit_settings["PrivateNetwork"] == ["yes"] else [])),
        *("sh", "-c", f'mount -t tmpfs -o mode=1777 tmpfs /var/tmp; {hidden}exec {who} "$@"'),
        *("sh", *shlex.split(unit_settings["ExecStart"][0].replace("%%", "%"))),
    ]
    RUNNING.mkdir(exist_ok=True)
    if pid := os.fork():
        (RUNNING / unit).write_text(str(pid))
        return
    os.setsid()
    os.umask(int(unit_settings["UMask"][0], 8))
    inherited = {name: os.environ[name] for name in ("PYTHONPATH", "MURMURATION_TEST_WALK")}
    inherited["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
    output = os.open(RUNNING / f"{unit}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(output, 1), os.dup2(output, 2)
    while True:
        with subprocess.Popen(command, env={**inherited, **variables}, cwd="/") as program:
            signal.signal(signal.SIGTERM, lambda *_: (program.terminate(), sys.exit(0)))
        time.sleep(float(unit_settings["RestartSec"][0]))


def stop(unit: str) -> None:
    os.kill(int((RUNNING / unit).read_text()), signal.SIGTERM)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["enable", "--now", *units]:
            act = start
        case ["stop", *units]:
            act = stop
        case other:
            sys.exit(f"this stand-in does not know {other}")
    for named in units:
        act(named)
