"""What rooms bring: all of it is there, in bundles too, and what is missing is named in a line."""

import shutil
import subprocess
import sys

import pytest

from murmuration.privacy.plugins import brought, more_elsewhere
from murmuration.research.plugin import BRINGS
from murmuration.sims.runtimes.app_bundle import write_bundle, write_package


def answer(folder, *command):
    """The exit status of a command of the package in a folder, and what it printed."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("group", "name"), [(g, n) for g, of in BRINGS.items() for n in of])
def test_what_is_brought_is_there(group, name):
    assert brought(group)[name].load() is not None


def test_of_a_group_that_nobody_knows_there_is_nothing():
    assert brought("murmuration.nothing") == {}
    assert more_elsewhere() == ""


def test_nodes_and_servers_have_what_strategies_need(tmp_path):
    bundle = write_bundle(tmp_path / "bundle", {})
    code = "from murmuration.strategies import registry; print(*registry.strategies())"
    status, printed = answer(bundle, "-c", code)
    assert status == 0, printed
    assert set(BRINGS["murmuration.strategies"]) <= set(printed.split())


def test_without_research_its_names_lead_to_a_checkout(tmp_path):
    package = write_package(tmp_path / "package")
    shutil.rmtree(package / "murmuration" / "research")
    for command, name in (
        (("run", "--strategy"), next(iter(BRINGS["murmuration.strategies"]))),
        (("audit",), "gaussian"),
    ):
        status, printed = answer(package, "-m", "murmuration", *command, name)
        assert status == 2, printed
        assert name in printed and "only a checkout of the repository has" in " ".join(
            printed.replace("│", "").split()
        )
    status, printed = answer(package, "-m", "murmuration", "audit", "--list")
    assert status == 0
    assert {line.split()[0].split(":")[0] for line in printed.splitlines()} == {
        "target",
        "pipeline",
    }
