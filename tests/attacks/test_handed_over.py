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
def site(tmp_path, make_rows):
    """A deployment with one client, whose folder holds code; its judgements are theirs."""
    deployment = Deployment(("127.0.0.1",), free_port(), ("alice",))
    write_deployment(tmp_path / "d", deployment)
    data = tmp_path / "judgements.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in make_rows([3, 2])))
    data.chmod(0o600)
    with Site(tmp_path / "d", deployment, tmp_path / "logs") as site:
        hand_over_code(tmp_path / "d" / "clients" / "alice", tmp_path / "imported")
        yield site


@pytest.fixture
def imported(tmp_path):
    """What was imported of what the operator handed over."""
    marker = tmp_path / "imported"
    return lambda: marker.read_text().split() if marker.exists() else []


@pytest.mark.timeout(300)
def test_the_agent_does_not_import_what_it_is_handed(site, tmp_path, imported):
    site.start_agent("alice", tmp_path / "judgements.jsonl", wait=False)
    program = site.programs["alice-agent"]
    wait_for(lambda: site.socket("alice").is_socket() or imported(), 200, "the agent", program)
    assert imported() == []


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


@pytest.mark.timeout(300)
def test_a_key_that_is_handed_over_is_nobodys(tmp_path, cli, make_rows):
    """The operator's own key, which would stand for this owner in others' lists of parties."""
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
    with Site(tmp_path / "d", deployment, tmp_path / "logs") as site:
        site.start_agent("alice", data)
        assert planted not in site.programs["alice-agent"].text()
        assert Identity.at(site.state("alice") / "identity.key").public.hex() != planted


@pytest.mark.timeout(300)
def test_what_is_kept_is_for_its_owner_alone(tmp_path, make_rows):
    """By whatever mask: logs, the state, keys. And no log has a user's text."""
    deployment = Deployment(("127.0.0.1",), free_port(), ("alice",))
    write_deployment(tmp_path / "d", deployment)
    data = tmp_path / "judgements.jsonl"
    secret = "my illness"
    rows = [*make_rows([3]), {"user_id": "u000", "prompt": "p", "chosen": "c", "rejected": "r"}]
    rows[-1]["probability"] = secret
    bad = [{"user_id": "u000", "response_a": "a", "response_b": "b", "winner": secret}]
    data.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *bad]))
    mask = os.umask(0o022)
    try:
        with Site(tmp_path / "d", deployment, tmp_path / "logs") as site:
            site.start_agent("alice", data)
            log = site.programs["alice-agent"].log
            text = log.read_text()
    finally:
        os.umask(mask)
    assert "rows are left out" in text
    assert secret not in text
    kept = [log, log.parent, *site.state("alice").rglob("*"), site.state("alice")]
    assert len(kept) > 4
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in kept} == {0}
    assert sys.executable in site.programs["alice-agent"].process.args
