"""examples/docker: its files fit each other, and what the containers run is typed on machines.

Images are not built here: that needs a registry.
"""

import re
import shlex
import shutil

import click
import pytest
import yaml
from machines import connect, may_make_namespaces, patiently, running
from walks import ROOT, steps

from murmuration.cli.commands import imported

DOCKER = ROOT / "examples" / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
PAGE = ROOT / "docs" / "how-to" / "deploying.md"
#: Those of Dockerfile's reference that ours has.
INSTRUCTIONS = {"FROM", "RUN", "ARG", "ENV", "WORKDIR", "COPY", "EXPOSE", "CMD"}


def instructions():
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines]


def test_the_files_fit_each_other():
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    stages = {
        text.split(" AS ")[1]: text.split()[0] for name, text in instructions() if name == "FROM"
    }
    services = COMPOSE["services"]
    assert {service["build"]["target"] for service in services.values()} == {"server", "client"}
    assert {stages["server"], stages["client"]} == {"installed"}
    (copied,) = [text.split() for name, text in instructions() if name == "COPY"]
    assert (DOCKER / copied[0]).is_file() and started()[0] == ["sh", f"{copied[1]}{copied[0]}"]
    mounted = [mount.split(":") for service in services.values() for mount in service["volumes"]]
    assert {mount[0] for mount in mounted if not mount[0].startswith(".")} == set(
        COMPOSE["volumes"]
    )
    (place,) = [text for name, text in instructions() if name == "WORKDIR"]
    assert all(mount[1].startswith(place) for mount in mounted)


def started():
    """What the containers run, the server and a client."""
    return [yaml.safe_load(text) for name, text in instructions() if name == "CMD"]


def commands():
    """Whatever begins with `murmuration` in these files and on the page."""
    texts = [(DOCKER / "server.sh").read_text(), shlex.join(started()[1])]
    texts += [step.body for step in steps(PAGE.read_text()) if "docker compose" in step.body]
    lines = "\n".join(texts).splitlines()
    return [
        shlex.split(found[1])
        for line in lines
        if (found := re.search(r"\bmurmuration (deploy .*)", line))
    ]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_each_command_is_one_of_ours(arguments):
    _, name, *rest = arguments
    command = imported("deploy").commands[name]
    command.make_parser(click.Context(command)).parse_args(rest)  # raises for another option


@pytest.mark.deploy
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(bool(may_make_namespaces()), reason="only root may make machines")
def test_what_the_containers_run(tmp_path):
    """The commands as they are, each on a machine with what its volumes have, and the page."""
    names = ("server", "alice", "bob")
    with running(tmp_path, names, **{name: {"in_namespaces": True} for name in names}) as machines:
        connect(list(machines.values()), {"server": "server"})
        server = machines["server"]
        (server.home / "handed-over").mkdir()
        for name in names[1:]:
            home = machines[name].home
            (home / "handed-over").mkdir(mode=0o755)
            (server.home / "handed-over" / name).symlink_to(home / "handed-over")
            row = {"user_id": name, "prompt": "Now?", "chosen": "Save.", "rejected": "Spend."}
            (home / "judgements.jsonl").write_text(f"{row}\n".replace("'", '"'))
            (home / "judgements.jsonl").chmod(0o600)
        shutil.copy(DOCKER / "server.sh", server.home)
        assert server.type("sh server.sh > log 2>&1 &\n")[0] == 0
        _, *healthy = COMPOSE["services"]["server"]["healthcheck"]["test"]
        waiting = f"until {shlex.join(healthy)}; do sleep 1; done\n"
        assert server.type(waiting)[0] == 0
        for name in names[1:]:
            client = f"useradd --system app\n{shlex.join(started()[1])} > log 2>&1 &\n"
            assert machines[name].type(client)[0] == 0
        (step,) = (s for s in steps(PAGE.read_text()) if "docker compose" in s.body)
        for line in step.body.splitlines():
            if inside := re.match(r"docker compose exec server (.*)", line):
                code, output = server.type(patiently(f"{inside[1]}\n"))
                logs = [(m.home / "log").read_text() for m in machines.values()]
                assert code == 0, "\n".join([output, *logs])
        assert "epsilon" in output
        assert (machines["alice"].home / "own" / "state" / "own-ledger.jsonl").exists()
        # A container ends with all that it started.
        for name in ("alice", "bob", "server"):
            machines[name].type("for job in $(jobs -p); do kill $(pgrep -P $job) $job; done\n")
