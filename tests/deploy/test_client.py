"""A person's side: what is checked, and what is said to leave."""

import os
import shutil
import socket
import ssl
import tempfile
import threading
from dataclasses import fields
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from murmuration.client.agent.identity import Identity
from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.policy import Policy
from murmuration.deploy import client as deploy_client
from murmuration.deploy import commands, plan
from murmuration.deploy.client import Client, server_certificate
from murmuration.deploy.disclosure import checks, describe, report, server_line, spent
from murmuration.deploy.handed_over import FILES, SIGNATURE, SUMS, signed
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.protocol.stated_plan import StatedPlan

ATTACKS = Path(__file__).parents[1] / "attacks"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    """A deployment with one client, and somebody who speaks TLS at its address."""
    folder = tmp_path_factory.mktemp("deployment") / "d"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    write_deployment(folder, Deployment(("127.0.0.1",), port, ("alice",)))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    keys = folder / "server"
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    listener = socket.create_server(("127.0.0.1", port))
    stop = threading.Event()

    def run():
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
                with connection, context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(1)
            except OSError:
                continue

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield folder
    stop.set()
    socket.create_connection(("127.0.0.1", port)).close()
    thread.join(10)
    listener.close()


@pytest.fixture
def server(deployment, tmp_path):
    """A copy of the deployment, which a test may change."""
    return shutil.copytree(deployment, tmp_path / "d")


def test_more_users_than_the_client_is_registered_for_are_told(server, make_rows):
    client = Client.load(server / "clients" / "alice")
    for users in (1, 3):
        judgements = Judgements.from_rows(make_rows([2] * users))
        told = any("a client of 1:" in line for line in describe(client, judgements))
        assert told == (users > 1)


def test_the_servers_certificate_is_checked(server, tmp_path):
    client = Client.load(server / "clients" / "alice")
    shown = server_certificate(client.address, client.folder / "ca.crt")
    assert shown.not_valid_after_utc > shown.not_valid_before_utc
    write_deployment(tmp_path / "other", Deployment(("127.0.0.1",), 8100, ("alice",)))
    with pytest.raises(InputError, match="cannot be trusted or reached"):
        server_certificate(client.address, tmp_path / "other" / "server" / "ca.crt")
    with pytest.raises(InputError, match="cannot be trusted or reached"):
        server_certificate("127.0.0.1:9", client.folder / "ca.crt")


def test_checks_say_what_they_found(server, write_rows, make_rows):
    data = write_rows(make_rows([3, 2]))
    client = Client.load(server / "clients" / "alice")
    judgements, lines, allowed = checks(client, Path(data), "")
    assert allowed
    assert len(judgements) == 5
    assert any("5 judgements, 2 users" in line for line in lines)
    assert "certificate signed by ca.crt" in server_line(client)
    assert any("made at the first start" in line for line in lines)
    assert any(": compare it with what the operator tells you" in line for line in lines)
    assert any("chmod 600" in line for line in lines)
    assert any("200 rounds, epsilon 3 at delta 1e-06: allowed" in line for line in lines)
    assert not any(line.startswith("agent") for line in lines)
    assert not client.state.exists()
    client.state.mkdir(mode=0o700)
    name = Identity.at(client.state / "identity.key").public.hex()
    assert f"agent     {name}: other owners" in "\n".join(checks(client, Path(data), "")[1])
    Path(data).chmod(0o600)
    assert not any("chmod" in line for line in checks(client, Path(data), "")[1])


def test_a_policy_that_the_operators_run_does_not_fit_is_said(server, write_rows, make_rows):
    data, place = Path(write_rows(make_rows([3]))), server / "clients" / "alice"
    policy = place / "policy.toml"
    policy.write_text(policy.read_text().replace("max_rounds = 400", "max_rounds = 199"))
    _, lines, well = checks(Client.load(place), data, "")
    assert not well
    assert any("refused. the owner's policy refuses (max_rounds)" in line for line in lines)
    assert "note      policy.toml is not as it was handed over" in lines
    rewritten(server, "run.toml", "rounds = zero")
    _, lines, well = checks(Client.load(place), data, "")
    assert not well
    assert any("cannot be compared with the policy" in line for line in lines)


def rewritten(deployment, name, text):
    """Alice's folder, as an operator signs it who writes something else into one of its files."""
    place, key = deployment / "clients" / "alice", deployment / "authority" / "ca.key"
    (place / name).write_text(text)
    names = FILES - {SUMS, SIGNATURE}
    files = {file: (place / file).read_bytes() for file in names}
    authority = load_pem_private_key(key.read_bytes(), None)
    for file, content in signed(files, authority).items():
        (place / file).write_bytes(content)
    return place


@pytest.mark.parametrize(
    ("name", "superlink", "users"),
    [
        ('"alice\\u001b[2J"', '"h:1"', "1"),
        ('"../alice"', '"h:1"', "1"),
        ('"alice"', '"--root-certificates=x:1"', "1"),
        ('"alice"', '"h"', "1"),
        ('"alice"', '"h:1"', "0"),
        ('"alice"', '"h:1"', "true"),
        ('"alice"', '"h:1"', "[" * 20_000),
        ('"alice"', '"h:1"', "1\n" + ".".join(["a"] * 20_000) + " = 1"),
        ('"alice"', '"h:1"', '"many"'),
        ("3", '"h:1"', "1"),
    ],
)
def test_settings_are_what_they_may_be(server, name, superlink, users):
    text = f"name = {name}\nsuperlink = {superlink}\nusers = {users}\n"
    with pytest.raises(InputError, match=r"client\.toml cannot be used"):
        Client.load(rewritten(server, "client.toml", text))


@pytest.mark.parametrize(
    "line",
    [
        'features = "somebody/encoder"',
        'features = "minilm"',
        'base = "somebody/model"',
        'test = "module:function"',
        'data = "module:function"',
        "",
    ],
)
def test_no_check_touches_the_network(server, write_rows, make_rows, monkeypatch, line):
    """Neither the server nor a hub that the operator's files name hears of it."""
    data, calls = Path(write_rows(make_rows([3]))), []
    text = (server / "clients" / "alice" / "run.toml").read_text()
    place = rewritten(server, "run.toml", f"{text}{line}\n")
    monkeypatch.setattr(socket.socket, "connect", lambda *to: calls.append(to))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *to, **_: calls.append(to))
    if line:
        monkeypatch.setattr(plan, "base_of", calls.append)
    _, lines, allowed = checks(Client.load(place), data, "")
    assert not calls
    assert allowed == (not line)
    if line:
        name = line.partition(" ")[0]
        assert any(f"compared with the policy: {name} names" in said for said in lines)


def test_what_is_the_owners_is_beside_the_folder(server):
    place = server / "clients" / "alice"
    assert Client.load(place).state == server / "clients" / "alice-state"
    assert Client.load(place, server / "mine").state == server / "mine"
    for inside in (place, place / "state"):
        with pytest.raises(InputError, match="keep what is yours beside it"):
            Client.load(place, inside)


def test_a_key_that_is_not_private_is_refused(server):
    place = server / "clients" / "alice"
    (place / "node.key").chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        Client.load(place)


def test_a_folder_that_is_no_clients_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"lacks README\.md, SHA256SUMS.*client\.toml"):
        Client.load(tmp_path)
    with pytest.raises(InputError, match="is not a client's folder"):
        Client.load(tmp_path / "none")


def test_what_leaves_follows_the_policy(server, make_rows):
    place, judgements = server / "clients" / "alice", Judgements.from_rows(make_rows([3]))
    text = "\n".join(describe(Client.load(place), judgements))
    assert "3 judgements of 1 user stay here" in text
    assert "no longer than 0.1" in text
    assert "at most 400 answers" in text
    assert "adaptive, aup, dp-fedavg, els, exponential, group" in text
    assert "local-label" not in text
    assert "at most 2 sums of how often a given model is right" in text
    assert "prompts" not in text
    (place / "policy.toml").write_text("label_epsilon = 1.5\npublic_items = true\n")
    text = "\n".join(describe(Client.load(place), judgements))
    assert "uls\n  nothing" in text
    assert "answers in all" not in text
    assert "epsilon 1.5 for all labels of a user together (really spent here)" in text
    assert "prompts, responses" in text
    (place / "policy.toml").write_text('strategies = ["uls"]\nmin_users = 3\n')
    assert "never over fewer than 3 of them" in "\n".join(describe(Client.load(place), judgements))
    (place / "policy.toml").write_text("max_evaluations = 7\n")
    text = "\n".join(describe(Client.load(place), judgements))
    assert "at most 7 sums of how often a given model is right, over\n  users whom" in text


def test_every_rule_is_shown_in_a_line_of_its_own(server, write_rows, make_rows):
    place = server / "clients" / "alice"
    (place / "policy.toml").write_text(
        'strategies = ["uls"]\nextensions = ["theirs\\nrun       allowed"]\nmax_rounds = 7\n'
    )
    data = Path(write_rows(make_rows([3])))
    data = data.rename(data.with_name("data\nrun       allowed\x1b[2J.jsonl"))
    text, _ = report(Client.load(place), data, "", ask_server=False)
    shown = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line[:2] == "  "}
    assert {field.name for field in fields(Policy)} <= set(shown)
    assert shown["max_rounds"] == ["7"] and shown["max_repeats"] == ["2"]
    assert shown["tasks"] == ["reward"]
    assert "code of others runs here: extensions theirs\\nrun" in text
    assert not any(line.startswith("run       allowed") for line in text.splitlines())
    assert "\x1b" not in text


@pytest.mark.parametrize("digits", ["0x" + "f" * 500_000, "9" * 4000])
def test_a_number_that_nobody_can_show_is_one_line(server, digits):
    place = server / "clients" / "alice"
    for rule in ("max_rounds", "max_epsilon", "unknown"):
        (place / "policy.toml").write_text(f"{rule} = {digits}\n")
        with pytest.raises(InputError, match="longer than 64 bits") as refusal:
            Client.load(place)
        assert len(str(refusal.value)) < 300


def test_what_has_left_is_told(server):
    client = Client.load(server / "clients" / "alice")
    assert spent(client) == ["So far nothing has left."]
    ledger = OwnLedger(client.state / "own-ledger.jsonl")
    stated = StatedPlan.of("r", Adjacency.ZERO_OUT, 1e-6, 20, {PoissonGaussian(0.5, 4.0): 20})
    ledger.open_run(stated, 2.7)
    ledger.answer_work("train", range(1), run="r", round_=1)
    told = "\n".join(spent(client))
    assert "1 of 400 answers, 0 of 2 accuracies" in told
    assert f"1 stated plans, together epsilon {stated.epsilon():.4g} of 3" in told
    ledger.close()


@pytest.fixture
def as_nobody(server, monkeypatch):
    """A client whose executor is an attack program, run as another user; a file of root's."""
    monkeypatch.setattr(deploy_client, "_check_user", lambda user: None)
    monkeypatch.setattr(commands, "supernode", lambda *_: ["sleep", "60"])
    monkeypatch.setattr(deploy_client, "RESTART_SECONDS", 0.0)
    with tempfile.TemporaryDirectory(prefix="mm-victim-") as folder:
        Path(folder).chmod(0o755)
        victim = Path(folder) / "file"
        victim.write_text("root's")
        shutil.copyfile(ATTACKS / "programs" / "links.sh", Path(folder) / "links.sh")
        yield Client.load(server / "clients" / "alice"), victim


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_what_an_app_leaves_in_its_folder_is_not_followed_by_root(as_nobody, monkeypatch):
    client, victim = as_nobody
    attack = ["/bin/sh", str(victim.parent / "links.sh"), str(victim)]
    monkeypatch.setattr(commands, "node_executor", lambda *_: attack)
    said = []

    def twice():
        return sum("is started" in text for text in said) > 2

    deploy_client.run_node(
        client, Path("none.sock"), port=1, node_user="nobody", say=said.append, enough=twice
    )
    assert any("executor has ended" in text for text in said)
    assert victim.read_text() == "root's"
    assert victim.stat().st_uid == 0


def test_a_node_whose_agent_runs_by_itself_keeps_who_signed_its_folder(server, monkeypatch):
    for program in ("supernode", "node_executor"):
        monkeypatch.setattr(commands, program, lambda *_: ["sleep", "60"])
    monkeypatch.setattr(deploy_client, "RESTART_SECONDS", 0.0)
    enough = iter([False, True, True, True]).__next__
    client = Client.load(server / "clients" / "alice")
    assert not client.known
    deploy_client.run_node(client, Path("none.sock"), port=1, say=lambda _: None, enough=enough)
    assert Client.load(client.folder).known


@pytest.mark.parametrize("run", [deploy_client.run_node, deploy_client.run_client])
def test_nothing_is_started_for_a_user_who_cannot_be(server, monkeypatch, run):
    """Whom nobody but root may become, and who does not exist."""
    monkeypatch.setattr(deploy_client, "Program", lambda **_: pytest.fail("it was started"))
    client = Client.load(server / "clients" / "alice")
    names = {"nobody-of-that-name": "no user|needs root"}
    names |= {} if os.geteuid() == 0 else {"nobody": "needs root"}
    for name, why in names.items():
        with pytest.raises(InputError, match=why):
            run(client, server / "none", port=1, node_user=name)
