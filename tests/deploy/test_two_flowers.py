"""A server with one version of Flower, owners with another: ``make test-flower FLWR=1.41.0``."""

import os
import subprocess
import sys

import pytest
from deployment import free_ports
from machines import on_one_machine, running, walk_three
from walks import ROOT

#: The interpreter of an environment that has another version of Flower than this one has.
OTHER = os.environ.get("MURMURATION_OTHER_PYTHON", "")
TUTORIAL = ROOT / "docs" / "tutorials" / "three-machines.md"
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not OTHER, reason="MURMURATION_OTHER_PYTHON names no interpreter"),
]


def flower_of(python: str) -> str:
    """The version of Flower that an interpreter imports."""
    code = "import flwr, importlib.metadata as m; print(m.version('flwr'), flwr.__file__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("others", [("operator",), ("alice", "bob")], ids=["server", "owners"])
def test_a_deployment_of_two_versions(tmp_path, others):
    """The tutorial as it is printed: what it shows is shown, and nobody is refused a version."""
    ours, theirs = (flower_of(python).split() for python in (sys.executable, OTHER))
    assert ours[0] != theirs[0]
    assert ours[1] != theirs[1]
    ports = dict(zip(("init", "client alice", "client bob"), free_ports(3), strict=True))
    how = {name: {"python": OTHER} for name in others}
    with running(tmp_path, ("operator", "alice", "bob"), **how) as machines:
        walk_three(machines, TUTORIAL, lambda body: on_one_machine(body, ports))
