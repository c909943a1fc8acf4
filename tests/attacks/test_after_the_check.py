"""What another account, or an operator in league with one, changes after a folder was looked at.

An archive says which modes its files get, the folder's own among them: an operator can open a
folder to every account of the owner's machine. What was examined and shown is what is used.
"""

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from deployment import free_port

from murmuration.client.agent.identity import Identity
from murmuration.client.agent.ledger import OwnLedger
from murmuration.deploy import client as deploy_client
from murmuration.deploy import commands
from murmuration.deploy.client import Client, run_client, run_node
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.protocol.stated_plan import StatedPlan

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another account")
OTHER_ACCOUNT = 65534


@pytest.fixture
def folder(tmp_path):
    """The folder of a deployment's only client."""
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), free_port(), ("alice",)))
    return tmp_path / "d" / "clients" / "alice"


@pytest.fixture
def data(write_rows, make_rows):
    path = Path(write_rows(make_rows([3])))
    path.chmod(0o600)
    return path


@pytest.fixture
def nodes(monkeypatch):
    """The files that each SuperNode was started with; three starts, and no program."""
    seen = []

    def supernode(place, *_):
        seen.append({path.name: path.read_bytes() for path in place.iterdir()})
        return ["true"]

    monkeypatch.setattr(commands, "supernode", supernode)
    monkeypatch.setattr(commands, "node_executor", lambda *_: ["true"])
    monkeypatch.setattr(deploy_client, "RESTART_SECONDS", 0.0)
    return seen


def test_a_policy_that_was_put_there_after_the_check_is_not_the_agents(folder, data, monkeypatch):
    client, policies = Client.load(folder), []

    def program(policy, *_):
        policies.append((policy.read_bytes(), stat.S_IMODE(policy.stat().st_mode)))
        raise InputError("started")

    shown = (folder / "policy.toml").read_bytes()
    (folder / "policy.toml").write_text('strategies = ["uls"]\nmax_epsilon = 1e6\n')
    monkeypatch.setattr(deploy_client, "agent_program", program)
    with pytest.raises(InputError, match="started"):
        run_client(client, data, port=1)
    assert policies == [(shown, 0o600)]


def test_a_restarted_node_has_the_key_and_the_authority_that_were_checked(folder, nodes):
    client = Client.load(folder)
    shown = {name: (folder / name).read_bytes() for name in ("node.key", "ca.crt")}

    def swap():
        for name in shown:
            (folder / name).write_text("another's")
        return len(nodes) > 2

    run_node(client, Path("none.sock"), port=1, say=lambda _: None, enough=swap)
    assert len(nodes) == 3
    for files in nodes:
        assert {name: files[name] for name in shown} == shown


@AS_ROOT
def test_a_link_in_a_keys_place_gives_the_servers_code_no_file_of_roots(folder, nodes, tmp_path):
    """The SuperNode's folder is given to its user, whatever was copied into it."""
    client, secret = Client.load(folder), tmp_path / "shadow"
    secret.write_text("root's alone")
    secret.chmod(0o600)
    (folder / "node.key").unlink()
    (folder / "node.key").symlink_to(secret)
    run_node(client, Path("none.sock"), port=1, say=lambda _: None, enough=lambda: bool(nodes))
    assert b"root's alone" not in nodes[0].values()


@pytest.mark.parametrize("name", ["", "policy.toml", "node.key", "run.toml"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_a_folder_that_others_may_write_to_is_refused(folder, name, mode):
    place = folder / name
    place.chmod(stat.S_IMODE(place.stat().st_mode) | mode)
    with pytest.raises(InputError, match="others may write to"):
        Client.load(folder)


@AS_ROOT
def test_root_is_told_whose_files_these_are(folder, data, cli):
    """As root, tar makes files of whatever account an archive says."""
    os.chown(folder / "policy.toml", OTHER_ACCOUNT, -1)
    code, out, _ = cli("deploy", "client", folder, "--data", data, "--check")
    assert code == 0
    assert f"is in part of other accounts (uid {OTHER_ACCOUNT})" in out


def test_a_file_that_changes_its_kind_while_it_is_read_is_refused(folder, monkeypatch):
    """A link comes to its place between the look at it and the opening."""
    open_ = os.open

    def swapped(path, *more, **named):
        if Path(path).name == "policy.toml":
            shutil.move(path, Path(path).parent.parent / "policy")
            Path(path).symlink_to("/etc/passwd")
        return open_(path, *more, **named)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(InputError, match=r"policy\.toml cannot be read"):
        Client.load(folder)


@AS_ROOT
@pytest.mark.parametrize("how", ["a folder", "a link"])
def test_a_state_that_another_account_prepared_is_not_shown_as_the_owners(folder, data, cli, how):
    """Its key would stand for the owner in others' lists of parties."""
    state = folder.with_name("alice-state")
    place = state if how == "a folder" else folder.with_name("elsewhere")
    place.mkdir(mode=0o700)
    planted = Identity.at(place / "identity.key").public.hex()
    if how == "a folder":
        os.chown(state, OTHER_ACCOUNT, -1)
    else:
        state.symlink_to(place)
        os.chown(state, OTHER_ACCOUNT, -1, follow_symlinks=False)
    code, out, err = cli("deploy", "client", folder, "--data", data, "--check")
    assert code == 2
    assert planted not in out
    assert "must be a folder of your own" in err[0]


def test_a_link_of_ones_own_to_a_state_is_followed(folder, tmp_path):
    (tmp_path / "disk").mkdir(mode=0o700)
    folder.with_name("alice-state").symlink_to(tmp_path / "disk")
    assert Client.load(folder).state.resolve() == tmp_path / "disk"


def test_folders_on_the_way_to_a_state_are_made_for_its_owner_alone(folder, nodes, tmp_path):
    """Who may rename them puts an empty ledger in a full one's place."""
    mask = os.umask(0)
    try:
        client = Client.load(folder, tmp_path / "a" / "b" / "state")
        run_node(client, Path("none.sock"), port=1, say=lambda _: None, enough=lambda: bool(nodes))
    finally:
        os.umask(mask)
    made = [tmp_path / "a", tmp_path / "a" / "b", *(tmp_path / "a" / "b").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in made} == {0}


def test_what_init_writes_is_nobody_elses_to_change_by_any_mask(tmp_path):
    """An archive of it has these modes."""
    mask = os.umask(0)
    try:
        write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), 8100, ("alice",)))
    finally:
        os.umask(mask)
    made = [tmp_path / "d", *(tmp_path / "d").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o022 for path in made} == {0}
    Client.load(tmp_path / "d" / "clients" / "alice")


def test_what_left_by_another_folder_is_told(folder, data, cli):
    """A copy, a new name, a second operator's folder: each has a ledger, and a budget, of its
    own."""
    plan = StatedPlan.of("r", Adjacency.ZERO_OUT, 1e-6, 20, {PoissonGaussian(0.5, 4.0): 20})
    OwnLedger(folder.with_name("bob-state") / "own-ledger.jsonl").close()  # nothing left by it
    ledger = OwnLedger(folder.with_name("alice-state") / "own-ledger.jsonl")
    ledger.open_run(plan, plan.epsilon())
    ledger.answer_work("train", [1], run="r", round_=1)
    ledger.close()
    shutil.copytree(folder, folder.with_name("renewed"))
    check = ("deploy", "client", folder.with_name("renewed"), "--data", data, "--check")
    _, out, _ = cli(*check)
    assert "So far nothing has left." in out
    assert f"warning   {folder.with_name('alice-state')}: answers by other folders" in out
    assert f"All together: 1 answer, 1 stated plan, epsilon {plan.epsilon():.4g} at" in out
    _, out, _ = cli(*check, "--state", folder.with_name("alice-state"))
    assert "other folders" not in out
    assert "So far: 1 of 400 answers" in out
    _, out, _ = cli(*check, "--state", folder.parent.parent / "mine")
    assert "other folders" in out


@AS_ROOT
def test_two_deployments_do_not_share_an_account_for_the_servers_code(folder):
    """Before: what one operator ships could read the other SuperNode's key, and ask its agent."""
    shown = f"exec -a {deploy_client._GUARDED} sleep 60"
    other = subprocess.Popen(["bash", "-c", shown], user="nobody", group=OTHER_ACCOUNT)
    try:
        while psutil.Process(other.pid).cmdline()[:1] == ["bash"]:
            time.sleep(0.01)
        with pytest.raises(InputError, match="another SuperNode runs as nobody"):
            run_client(Client.load(folder), folder / "none", port=1, node_user="nobody")
    finally:
        other.kill()
        other.wait()
