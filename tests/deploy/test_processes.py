"""Real deployments on this machine: TLS, node authentication, every client its own processes."""

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from deployment import POLICY, World, free_port

from murmuration.client.agent.ledger import OwnLedger
from murmuration.deploy import commands
from murmuration.deploy.certificates import client_key, write_new
from murmuration.deploy.client import Client, run_client
from murmuration.deploy.confined import node_environment
from murmuration.deploy.doctor import examine
from murmuration.deploy.init import CONNECTION, Deployment, write_deployment
from murmuration.deploy.processes import Program, new_secret, wait_for
from murmuration.deploy.run import flwr, run_deployed
from murmuration.preference.data.errors import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.research.stress.site import Site
from murmuration.sims.runtimes.app_bundle import write_bundle
from murmuration.sims.runtimes.process_reaper import descendants, listens

pytestmark = pytest.mark.deploy


@pytest.mark.timeout(600)
def test_two_clients_train_what_a_simulation_trains(tmp_path):
    world = World(tmp_path, ("a", "b"), users=8)
    settings = {"rounds": 1, "cohort": 6, "users": 8, "seed": 11}
    with world.running() as site:
        result = world.run(site, world.config("run", **settings))
        # What nodes sent is not on the server's disk any more, and what is there is one account's.
        kept = list((tmp_path / "d" / "server").glob("state.db*"))
        assert "state.db-wal" in {path.name for path in kept}
        wait_for(lambda: not any_array(kept), 30, "that what nodes sent is erased")
        assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert result["rounds"] == 1
    deployed_D = RewardModel.load(tmp_path / "run" / "model").theta_D
    simulated_D = world.simulated(world.config("twin", **settings))
    np.testing.assert_allclose(deployed_D, simulated_D, atol=1e-6, rtol=0)
    assert np.abs(deployed_D).max() > 0
    for name in ("a", "b"):  # what the agents noted is what was asked
        lines = (world.state(name) / "own-ledger.jsonl").read_text().splitlines()
        noted = [json.loads(line) for line in lines]
        assert sum("plan" in line for line in noted) == 1
        assert sum(line.get("answered") == "train" for line in noted) <= 1
    # And the whole of it is gone.
    assert not [p for p in site.programs.values() if p.alive]


def any_array(files):
    """Whether one is in a file; our app's own source, which is there, writes it in other bytes."""
    return any(b"\x93NUMPY" in path.read_bytes() for path in files)


@pytest.mark.timeout(900)
def test_what_nodes_sent_is_erased_though_the_command_was_killed(tmp_path):
    """SIGKILL to `deploy run`: the run goes on, and its end is not the command's to see."""
    world = World(tmp_path, ("a", "b"), users=8)
    config = world.config("run", rounds=3, cohort=6, users=8)
    with world.running() as site:
        with subprocess.Popen(deploy_run_command(world, site, config)) as deploy_run:
            metrics = tmp_path / "run" / "metrics.jsonl"
            wait_for(metrics.exists, 300, "a round")
            deploy_run.kill()
        kept = list((tmp_path / "d" / "server").glob("state.db*"))
        wait_for(lambda: any_array(kept), 60, "another round")
        wait_for((tmp_path / "run" / "result.json").exists, 300, "the run's end")
        wait_for(lambda: not any_array(kept), 30, "that what nodes sent is erased")
        assert site.programs["superlink"].alive


@pytest.mark.timeout(900)
def test_an_interrupted_command_stops_the_run_which_goes_on_later(tmp_path):
    world = World(tmp_path, ("a", "b"), users=8)
    config = world.config("run", rounds=4, cohort=6, users=8)
    ledger = tmp_path / "run" / "ledger.jsonl"
    with world.running() as site:
        with subprocess.Popen(
            deploy_run_command(world, site, config), stderr=subprocess.PIPE, text=True
        ) as deploy_run:
            wait_for(lambda: ledger.exists() and bool(read_charges(ledger)), 300, "a round")
            deploy_run.terminate()
            assert "is stopped; go on with --resume" in deploy_run.communicate(timeout=60)[1]
        app = site.programs["superexec"]
        wait_for(lambda: not app.started(), 120, "the end of what the SuperExec has started")
        charged = len(read_charges(ledger))
        assert 1 <= charged < 4
        result = run_deployed(
            site.server, world.deployment.address, replace(config, resume=True), attempts=1
        )
        assert result["rounds"] == 4
        charges = read_charges(ledger)
        assert {charge.round for charge in charges} == {1, 2, 3, 4}
        # A round that was under way is charged again, and nothing else.
        assert len(charges) <= 5


def deploy_run_command(world, site, config):
    """Return the command line of `deploy run` of a config, without the options' checks."""
    code = (
        "import json, sys; from functools import partial; from pathlib import Path;"
        "from murmuration.strategies.config import RunConfig;"
        "from murmuration.deploy.processes import ended_by_signals;"
        "from murmuration.deploy.run import run_deployed;"
        "config = RunConfig.from_run_config(json.loads(sys.argv[3]));"
        "say = partial(print, file=sys.stderr);"
        "signals = ended_by_signals(); signals.__enter__();"
        "run_deployed(Path(sys.argv[1]), sys.argv[2], config, say=say)"
    )
    command = [sys.executable, "-c", code, str(site.server), world.deployment.address]
    return [*command, json.dumps(config.to_run_config())]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_four_clients_and_who_is_not_let_in(tmp_path):
    world = World(tmp_path, ("a", "b", "c", "d"), users=24)
    settings = {"rounds": 5, "cohort": 16, "users": 24, "seed": 3}
    with world.running() as site:
        strangers = {name: start_stranger(world, site, name) for name in STRANGERS}
        result = world.run(site, world.config("run", **settings))
        assert result["rounds"] == 5
        found = {finding.what: finding for finding in examine(tmp_path / "d")}
        assert all(found[name].well for name in (*"abcd", "SuperLink", "version", "without TLS"))
        assert not {*found} & {*strangers}
        listed = json.loads(
            flwr(site.server, "supernode", "list", CONNECTION, "--format", "json").stdout
        )
        assert len(listed["nodes"]) == 4
        for name, stranger in strangers.items():
            assert STRANGERS[name] in stranger.text(), stranger.text()
            assert "SuperNode ID" not in stranger.text(), name
            assert "Receiving" not in stranger.text(), name
        deployed_D = RewardModel.load(tmp_path / "run" / "model").theta_D
        simulated_D = world.simulated(world.config("twin", **settings))
        np.testing.assert_allclose(deployed_D, simulated_D, atol=1e-6, rtol=0)

        # Sums under masks, which is what these owners insist on.
        for name in "abcd":
            masks_only = POLICY.replace("max_epsilon = 8.5", "max_epsilon = 30.0")
            (world.client(name) / "policy.toml").write_text(masks_only + "secure_only = true\n")
            site.start_agent(name, world.data(name))
        settings = {"rounds": 1, "cohort": 24, "users": 24, "seed": 5, "secure_aggregation": True}
        assert world.run(site, world.config("masked", **settings))["secure_aggregation"]
        masked_D = RewardModel.load(tmp_path / "masked" / "model").theta_D
        bare = {**settings, "secure_aggregation": False}
        simulated_D = world.simulated(world.config("bare-twin", **bare))
        np.testing.assert_allclose(masked_D, simulated_D, atol=1e-6, rtol=0)
        with pytest.raises(InputError, match="by the rules secure_only"):
            world.run(site, world.config("bare", **{**bare, "seed": 6}))
        log = (tmp_path / "bare" / "private" / "log.jsonl").read_text()
        assert log.count('"secure_only"') == 4

        # One round of labels that leave their users randomized.
        for name in "abcd":
            (world.client(name) / "policy.toml").write_text(
                'label_epsilon = 4.0\npublic_items = true\nfeatures = ["hashing"]\n'
            )
            site.start_agent(name, world.data(name))
        config = world.config(
            "labels",
            strategy="local-label",
            adjacency="replace-labels",
            epsilon=4.0,
            clip_norm=0.0,
            group_size=0,
        )
        result = world.run(site, config)
        assert result["rounds"] == 1
        assert result["heldout_accuracy"]
        # What a policy does not allow is refused by its rule, and nothing is released.
        refused = world.config("refused", rounds=2, cohort=16, users=24, seed=4)
        with pytest.raises(InputError, match="by the rules label_epsilon"):
            world.run(site, refused)
        log = (tmp_path / "refused" / "private" / "log.jsonl").read_text()
        assert log.count('"label_epsilon"') == 4
        assert read_charges(tmp_path / "refused" / "ledger.jsonl") == []


#: Nodes that should get nothing, and what they are told.
STRANGERS = {
    "unregistered": "Failed to activate SuperNode",
    "another-authority": "CERTIFICATE_VERIFY_FAILED",
    "insecure": "Connection attempt failed",
    "no-key": "must be registered",
}


def start_stranger(world: World, site: Site, name: str) -> Program:
    """A SuperNode that should get nothing."""
    place = world.folder / name
    shutil.copytree(world.client("a"), place)
    new_secret(place)
    command = commands.supernode(
        place, world.deployment.address, str(site.socket("a")), free_port()
    )
    if name == "unregistered":
        (place / "node.key").unlink()
        write_new(place / "node.key", client_key()[0])
    if name == "another-authority":
        write_deployment(world.folder / "other", Deployment(("127.0.0.1",), 1, ("a",)))
        shutil.copyfile(world.folder / "other" / "server" / "ca.crt", place / "ca.crt")
    if name == "insecure":
        index = command.index("--root-certificates")
        command[index : index + 2] = ["--insecure"]
    if name in ("insecure", "no-key"):  # a key without TLS is refused by the SuperNode itself
        index = command.index("--auth-supernode-private-key")
        del command[index : index + 2]
    return site.start(name, command, environment=node_environment(place), cwd=place)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_that_takes_differences_gets_nobodys_sum(tmp_path):
    """It ships an app of its own: one round under masks with all four nodes, then with three."""
    world, hostile = World(tmp_path, ("a", "b", "c", "d"), users=8), tmp_path / "app"
    write_bundle(hostile, {})
    attack = Path(__file__).parents[1] / "attacks" / "programs" / "differencing_app.py"
    shutil.copyfile(attack, hostile / "murmuration" / "server" / "app.py")
    for name in "abcd":
        (world.client(name) / "policy.toml").write_text(POLICY + "secure_only = true\n")
    (tmp_path / "out").mkdir()
    with world.running() as site:
        config, address = world.config("out"), world.deployment.address
        run_deployed(site.server, address, config, attempts=1, app_dir=hostile)
    found = json.loads((tmp_path / "out" / "found.json").read_text())
    assert (found["nodes"], found["nodes in sum 0"]) == (4, 4)
    assert "0 nodes have sent their vectors" in found["refused"]
    assert sum("refuses (max_repeats)" in line for line in found["said"]) == 3
    assert "somebody's sum" not in found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_counts_for_whom_its_key_is_registered(tmp_path):
    """Its agent means harm and claims eight users; Flower tells whose key it is."""
    world = World(tmp_path, ("a", "x"), users=8)
    registered = tmp_path / "d" / "server" / "nodes.toml"
    honest, liar = registered.read_text().split("[x]")
    registered.write_text(f"{honest}[x]{liar.replace('users = 8', 'users = 1')}")
    with Site(tmp_path / "d", world.deployment, tmp_path / "logs") as site:
        site.start_superlink()
        site.start_superexec()
        site.register()
        site.start_agent("a", world.data("a"), wait=False)
        rogue = [
            sys.executable,
            "-m",
            "murmuration.research.stress.rogue_node",
            str(site.socket("x")),
        ]
        site.start("x-agent", [*rogue, str(tmp_path / "harms.jsonl")])
        for name, port in zip("ax", world.ports, strict=True):
            wait_for(site.socket(name).is_socket, 300, "an agent", site.programs[f"{name}-agent"])
            site.start_node(name, site.socket(name), port)
        result = world.run(site, world.config("run", rounds=2, cohort=5, users=5))
    assert result["rounds"] == 2
    lines = (tmp_path / "run" / "private" / "log.jsonl").read_text().splitlines()
    log = [json.loads(line) for line in lines]
    refused = [line["claims refused"] for line in log if "claims refused" in line]
    assert refused == ["7 of 8 users it claims are not registered"]
    assert [line["cohort"] for line in log if "cohort" in line] == [5, 5]  # all four, and one
    harms = (tmp_path / "harms.jsonl").read_text().splitlines()
    assert len(harms) == 2
    left_out = [line["left out"] for line in log if "left out" in line]
    assert left_out == ["sums that 1 users within the bound cannot produce"] * 2  # NaN, infinite


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_goes_on_after_its_serverapp_was_killed(tmp_path):
    world = World(tmp_path, ("a", "b"), users=8)
    config = world.config("run", rounds=4, cohort=6, users=8)
    with world.running() as site:

        def kill_after_two():
            path = tmp_path / "run" / "metrics.jsonl"
            wait_for(lambda: path.exists() and path.read_text().count("\n") >= 2, 400, "two rounds")
            for process in site.programs["superexec"].started():
                process.kill()

        killer = threading.Thread(target=kill_after_two)
        killer.start()
        said = []
        result = run_deployed(
            site.server, world.deployment.address, config, attempts=3, say=said.append
        )
        killer.join()
    assert result["rounds"] + (result["stopped"] is not None) >= 4
    assert any("going on from the checkpoint" in text for text in said)
    charges = read_charges(tmp_path / "run" / "ledger.jsonl")
    assert {1, 2} <= {charge.round for charge in charges}
    assert float(str(result["epsilon"])) <= 8.0


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_run_goes_on_though_command_agent_node_and_serverapp_were_killed(tmp_path):
    """SIGKILL to each in mid-run, then `--resume` to the end: nothing is counted less."""
    world = World(tmp_path, ("a", "b", "c"), users=12)
    config = world.config("run", rounds=6, cohort=9, users=12, min_nodes=1, timeout=45.0)
    resumed, address = replace(config, resume=True), world.deployment.address
    metrics, ledger = tmp_path / "run" / "metrics.jsonl", tmp_path / "run" / "ledger.jsonl"

    def rounds():
        return metrics.read_text().count("\n") if metrics.exists() else 0

    with world.running() as site:
        with subprocess.Popen(deploy_run_command(world, site, config)) as deploy_run:
            wait_for(lambda: rounds() >= 1, 400, "a round")
            deploy_run.kill()
        # The ServerApp goes on, and nobody else does so beside it.
        with pytest.raises(InputError, match=r"the run was refused: .*is in use"):
            run_deployed(site.server, address, resumed)
        for program in ("a-agent", "b-node", "b-executor"):
            site.programs[program].kill()
        before = rounds()
        wait_for(lambda: rounds() > before, 200, "a round without them")
        assert rounds() < 6
        for process in site.programs["superexec"].started():
            process.kill()
        charged = len(read_charges(ledger))
        site.start_agent("a", world.data("a"))
        site.start_node("b", site.socket("b"), world.ports[1])
        result = run_deployed(site.server, address, resumed)
        again = run_deployed(site.server, address, resumed, attempts=1)
    assert result == again  # what is finished is not asked for again
    charges = read_charges(ledger)
    assert {charge.round for charge in charges} == set(range(1, result["rounds"] + 1))
    assert len(charges) <= 7  # the round that was under way
    assert len(charges) > charged or result["stopped"]
    assert float(str(result["epsilon"])) <= 8.0
    for name in "abc":
        own = OwnLedger.read(world.state(name) / "own-ledger.jsonl")
        (plan,) = own.plans.values()
        assert plan.epsilon() <= 8.0
        assert 1 <= own.answered["train"] <= len(charges)
        assert max(own.rounds.values()) <= 2


def test_a_program_that_ends_says_so(tmp_path):
    program = Program(["/bin/sh", "-c", "echo 'OSError: no room'; exit 3"], tmp_path / "log")
    with pytest.raises(InputError, match="the thing ended: OSError: no room"):
        wait_for(lambda: False, 30, "the thing", program)
    program.end()


def test_ending_a_program_ends_what_it_started(tmp_path):
    code = (
        "import subprocess, time; child = subprocess.Popen(['sleep', '60']);"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    program = Program([sys.executable, "-c", code], tmp_path / "log")
    wait_for(lambda: re.search(r"\d+", program.text()), 30, "the child", program)
    child = psutil.Process(int(program.text()))
    program.end()
    assert not program.alive
    deadline = time.monotonic() + 10
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_who_listens(tmp_path):
    port = free_port()
    code = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(60)"
    program = Program([sys.executable, "-c", code], tmp_path / "log")
    try:
        wait_for(lambda: listens(program.process.pid, port), 30, "the listener", program)
        assert not listens(program.process.pid, port + 1)
    finally:
        program.end()


def nobody_runs_python() -> bool:
    """Whether another user can run this interpreter with all that it loads."""
    if os.geteuid() != 0:
        return False
    command = [sys.executable, "-c", "import murmuration.client.app, flwr.supernode.cli"]
    try:
        done = subprocess.run(
            command, user="nobody", extra_groups=[], cwd="/", check=False, capture_output=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "HOME": "/tmp"},
        )  # fmt: skip
    except OSError:
        return False
    return done.returncode == 0


STARTERS = {"process_reaper.py", "unshare", "setpriv"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_supernode_is_another_user(tmp_path):
    if not nobody_runs_python():
        pytest.skip("needs root, and an interpreter that other users can run")
    world = World(tmp_path, ("a",), users=6)
    ended, said = threading.Event(), []
    client = Client.load(world.client("a"))
    with Site(tmp_path / "d", world.deployment, tmp_path / "logs") as site:
        site.start_superlink()
        site.start_superexec()
        site.register()
        runner = threading.Thread(
            target=run_client,
            args=(client, world.data("a")),
            kwargs={
                "port": world.ports[0], "node_user": "nobody",
                "say": said.append, "enough": ended.is_set,
            },
        )  # fmt: skip
        runner.start()
        try:
            config = world.config("run", rounds=1, cohort=5, users=6, seed=1)
            assert world.run(site, config)["rounds"] == 1
            nobody = pwd.getpwnam("nobody")
            kept = [p for p in descendants(os.getpid()) if str(world.ports[0]) in str(p.cmdline())]
            # All but what starts and ends them, whom they cannot end.
            nodes = [
                p for p in kept if not STARTERS.intersection(map(os.path.basename, p.cmdline()))
            ]
            assert len(nodes) >= 2, said
            for process in nodes:
                assert set(process.uids()) == {nobody.pw_uid}, process
                assert set(process.gids()) == {nobody.pw_gid}, process
        finally:
            ended.set()
            runner.join(60)
    log = (tmp_path / "run" / "private" / "log.jsonl").read_text()
    assert "left out" not in log
