"""What an operator can put into the folder that they hand a client, and what it gets them: nothing.

The attacks are made twice where they can be: against ``deploy client``, which refuses the folder,
and against the programs by themselves, as if somebody had started them with it all the same.
"""

import json
import os
import stat
import sys
from pathlib import Path

import pytest
from deployment import World, free_port

from murmuration.client.agent.identity import Identity
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.deploy.processes import wait_for
from murmuration.research.stress.site import Site
from murmuration.sims.runtimes.process_reaper import listens

#: Names that our programs import, some before anything of ours runs.
MODULES = ("typer", "json", "numpy", "psutil", "flwr", "murmuration", "sitecustomize", "resource")
_CODE = """
import pathlib
pathlib.Path({marker!r}).open("a").write(__name__ + "\\n")
raise ImportError("this was the operator's")
"""


def hand_over_code(folder, marker):
    """Modules in a client's folder that say so when they are imported."""
    for name in MODULES:
        (folder / f"{name}.py").write_text(_CODE.format(marker=str(marker)))


@pytest.fixture
def site(tmp_path):
    """A deployment with one client, whose folder holds code."""
    deployment = Deployment(("127.0.0.1",), free_port(), ("alice",))
    write_deployment(tmp_path / "d", deployment)
    with Site(tmp_path / "d", deployment, tmp_path / "logs") as site:
        hand_over_code(tmp_path / "d" / "clients" / "alice", tmp_path / "imported")
        yield site


@pytest.fixture
def imported(tmp_path):
    """What was imported of what the operator handed over."""
    marker = tmp_path / "imported"
    return lambda: marker.read_text().split() if marker.exists() else []


SECRET = "my illness"


@pytest.mark.timeout(300)
def test_an_agent_neither_imports_nor_takes_a_key_and_keeps_for_its_owner_alone(
    site, tmp_path, imported, make_rows
):
    """With the operator's own key in the folder, too, which would stand for this owner in others'
    lists of parties. By whatever mask, logs, the state and keys are the owner's, and no log has a
    user's text."""
    folder, data = site.folder / "clients" / "alice", tmp_path / "judgements.jsonl"
    rows = [*make_rows([3]), {"user_id": "u000", "prompt": "p", "chosen": "c", "rejected": "r"}]
    rows[-1]["probability"] = SECRET
    bad = {"user_id": "u000", "response_a": "a", "response_b": "b", "winner": SECRET}
    data.write_text("".join(json.dumps(row) + "\n" for row in [*rows, bad]))
    (folder / "state").mkdir(mode=0o700)
    planted = Identity.at(folder / "state" / "identity.key").public.hex()
    mask = os.umask(0o022)
    try:
        site.start_agent("alice", data)
        program = site.programs["alice-agent"]
        text = program.text()
    finally:
        os.umask(mask)
    assert imported() == []
    assert planted not in text
    assert Identity.at(site.state("alice") / "identity.key").public.hex() != planted
    assert "rows are left out" in text
    assert SECRET not in text
    kept = [program.log, program.log.parent, site.state("alice"), *site.state("alice").rglob("*")]
    assert len(kept) > 4
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in kept} == {0}
    assert sys.executable in program.process.args


@pytest.mark.timeout(300)
def test_the_supernode_does_not_import_what_it_is_handed(site, tmp_path, imported):
    port = free_port()
    node = site.start_node("alice", tmp_path / "none.sock", port)
    wait_for(lambda: listens(node.process.pid, port) or imported(), 120, "the SuperNode", node)
    assert imported() == []
    client = site.folder / "clients" / "alice"
    for program in node.started():  # wherever they work, it is not there
        assert Path(program.cwd()) != client


@pytest.mark.deploy
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_whole_run_imports_nothing_of_it(tmp_path, imported):
    """Agent, SuperNode, executor and ClientApp, for a round."""
    world = World(tmp_path, ("a",), users=6)
    hand_over_code(world.client("a"), tmp_path / "imported")
    with world.running() as site:
        result = world.run(site, world.config("run", rounds=1, cohort=5, users=6, seed=1))
    assert result["rounds"] == 1
    assert imported() == []


def test_a_folder_with_code_in_it_is_refused_by_name(site, cli, tmp_path):
    command = ("deploy", "client", site.folder / "clients" / "alice")
    for how in (("--data", tmp_path / "judgements.jsonl", "--check"), ("--socket", "none.sock")):
        code, out, err = cli(*command, *how)
        assert (code, out, len(err)) == (2, "", 1)
        assert "'typer.py' (not on the list)" in err[0]


def test_a_key_that_is_handed_over_is_refused_by_name(tmp_path, cli, make_rows):
    deployment = Deployment(("127.0.0.1",), free_port(), ("alice",))
    write_deployment(tmp_path / "d", deployment)
    folder, data = tmp_path / "d" / "clients" / "alice", tmp_path / "judgements.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in make_rows([3])))
    (folder / "state").mkdir(mode=0o700)
    planted = Identity.at(folder / "state" / "identity.key").public.hex()
    code, out, err = cli("deploy", "client", folder, "--data", data, "--check")
    assert code == 2
    assert planted not in out
    assert "'state' (not on the list)" in err[0]
