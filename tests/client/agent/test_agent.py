"""The owner's agent: what it lets out, and what it charges."""

import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from agents import FEATURES, POLICY, halves, stated, summed, work
from flwr.app import ConfigRecord, RecordDict
from named import asked

import murmuration.client.agent.agent
from murmuration.client.agent import unix_socket
from murmuration.client.agent.agent import MOST_FEATURE_MAPS, Agent, listening
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.agent.unix_socket import Refused, answers, ask_agent
from murmuration.client.app import app
from murmuration.client.labels.memory import TermsChanged
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import ParallelEvent, PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol import label_queries, messages, public_items
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan
from murmuration.strategies.spec import NodeHalf, clip_norm

LABELS = Policy(label_epsilon=2.0, public_items=True)


def test_allowed_work_is_answered_with_the_clipped_sum(make):
    agent = make()
    reply = agent.handle("train", work())
    assert reply.array_records["sums"]["sum"].dtype == "int32"  # of so few users
    sum_D = summed(reply)
    assert 0 < np.linalg.norm(sum_D) <= 0.2
    assert agent.ledger.plans == {"run1": stated()}
    assert agent.ledger.answered["train"] == 1


@pytest.mark.parametrize(
    ("rule", "kind", "content"),
    [
        ("max_clip", "train", lambda: work(**{"clip-norm": 10.0})),
        ("max_epsilon", "train", lambda: work(plan=stated(sigma=0.5))),
        ("max_evaluations", "evaluate", work),
        ("public_items", public_items.QUERY, lambda: public_items.request(asked([0]))),
        (
            "label_epsilon",
            label_queries.QUERY,
            lambda: label_queries.request(LabelPromise(0.1), asked([0])),
        ),
        ("strategies", "query.everything", RecordDict),
    ],
)
def test_a_refusal_names_the_rule_and_charges_nothing(make, rule, kind, content):
    agent = make()
    with pytest.raises(PolicyRefusal, match=rf"\({rule}\)"):
        agent.handle(kind, content())
    assert not agent.ledger.answered
    assert not agent.ledger.plans
    assert rule in agent.ledger.path.read_text().splitlines()[-1]


def test_a_second_run_over_the_budget_is_refused(make):
    agent = make()
    agent.handle("train", work())
    second = stated("run2")
    assert second.epsilon() < 3.0  # by itself it is allowed
    for _ in range(2):
        with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\).*3 is the most"):
            agent.handle("train", work(plan=second))
        assert set(agent.ledger.plans) == {"run1"}
        agent = make()  # started anew, from what is on disk


def test_parts_that_a_server_calls_disjoint_are_added_up(make):
    """The user could be in every part: a server that lies about it must not get them for one."""
    event, parts = PoissonGaussian(0.5, 6.0), 4
    charges = {ParallelEvent(part, event): 10 for part in range(parts)}
    plan = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 10 * parts, charges)
    as_stated, together = (
        accountant.epsilon(found, adjacency=plan.adjacency, delta=1e-6)
        for found in (charges.items(), [(event, 10 * parts)])
    )
    limit = (as_stated + together) / 2
    with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\)"):
        make(Policy(**{**vars(POLICY), "max_epsilon": limit})).handle("train", work(plan=plan))
    agent = make(Policy(**{**vars(POLICY), "max_epsilon": 1.01 * together}))
    agent.handle("train", work(plan=plan))
    assert f'"epsilon": {together:.4f}'[:-1] in agent.ledger.path.read_text()


def test_a_plan_that_takes_long_to_account_for_is_refused_in_time(make):
    agent = make()
    agent.handle("train", work())
    charges = {PoissonGaussian(1.0, 0.06 + i / 1000): 6 for i in range(8)}
    wide = StatedPlan.of("wide", Adjacency.ZERO_OUT, 1e-6, 48, charges)
    with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\)"):  # it was minutes
        agent.handle("train", work(plan=wide))
    agent.handle("train", work(round_=2))


def test_refusing_plans_takes_a_tenth_of_the_time_at_most(make, monkeypatch):
    agent, asked = make(), []
    agent.handle("train", work())
    now = [1000.0]
    monkeypatch.setattr(murmuration.client.agent.agent.time, "monotonic", lambda: now[0])

    def slow(plans, delta):
        asked.append(plans[-1].run)
        now[0] += 50.0
        raise PolicyRefusal("max_epsilon", "it took long")

    monkeypatch.setattr(murmuration.client.agent.agent, "epsilon_of", slow)
    for run, message in (("b", "it took long"), ("c", "again in 450 seconds")):
        with pytest.raises(PolicyRefusal, match=message):
            agent.handle("train", work(plan=stated(run)))
    agent.handle("train", work(round_=2))  # of a run that is known
    now[0] += 451.0
    with pytest.raises(PolicyRefusal, match="it took long"):
        agent.handle("train", work(plan=stated("c")))
    assert asked == ["b", "c"]
    assert list(agent.ledger.plans) == ["run1"]


def test_a_plan_of_any_length_is_refused_before_it_is_read(make, monkeypatch):
    agent, asked = make(), work()
    monkeypatch.setattr(StatedPlan, "from_json", None)
    for plan in ("[" * 10_001, 5):
        asked.config_records["parameters"][PARAMETER] = plan
        with pytest.raises(PolicyRefusal, match=r"no plan|10000 is the most"):
            agent.handle("train", asked)


def test_a_round_is_answered_twice_at_most(make):
    agent = make()
    agent.handle("train", work())
    agent = make()
    agent.handle("train", work())
    with pytest.raises(PolicyRefusal, match="max_repeats"):
        agent.handle("train", work())
    agent.handle("train", work(round_=2))


def test_the_number_of_answers_is_bounded_for_life(make):
    policy = Policy(**{**vars(POLICY), "max_rounds": 3})
    for round_ in (1, 2, 3):
        make(policy).handle("train", work(round_=round_))
    with pytest.raises(PolicyRefusal, match="max_rounds"):
        make(policy).handle("train", work(round_=4))


def test_evaluations_are_counted(make):
    policy = Policy(**{**vars(POLICY), "max_evaluations": 1})
    held = HoldOut(0.2, 0.5)
    plan = replace(stated(), charges=(*stated().charges, *held.charges.items()))
    messages.read_tally(make(policy).handle("evaluate", work(plan=plan)), Tally(), users=9)
    with pytest.raises(PolicyRefusal, match="max_evaluations"):
        make(policy).handle("evaluate", work(plan=plan))


def test_few_feature_maps_are_computed(make):
    agent = make()
    for dimension in range(5, 5 + MOST_FEATURE_MAPS):
        features = json.dumps(HashingFeatures(dimension).to_config())
        agent.handle("query.registry", messages.registry_request(b"s", False, features))
    with pytest.raises(PolicyRefusal, match="feature maps"):
        agent.handle("train", work())


def test_the_charge_is_on_disk_before_anything_is_computed(make, monkeypatch):
    agent = make()

    def broken(*_):
        raise RuntimeError("in the middle")

    monkeypatch.setitem(halves(), "uls", NodeHalf(broken, clip_norm))
    with pytest.raises(RuntimeError):
        agent.handle("train", work())
    assert make().ledger.answered["train"] == 1


def test_what_was_answered_is_not_forgotten_with_its_ledger(make):
    """``max_rounds`` answers are all there are, whatever becomes of the ledger."""
    policy = replace(POLICY, max_rounds=3)
    agent = make(policy)
    older = agent.ledger.path.read_bytes()
    for round_ in (1, 2, 3):
        agent.handle("train", work(round_=round_))
    agent.ledger.path.write_bytes(older)
    with pytest.raises(InputError, match="bring back own-ledger"):
        make(policy)


def test_a_sum_that_is_too_long_does_not_leave(make, monkeypatch):
    agent = make()
    long_D = np.eye(1, 33)[0]
    monkeypatch.setitem(halves(), "uls", NodeHalf(lambda *_: {"sum": long_D}, clip_norm))
    assert not summed(agent.handle("train", work())).any()


def test_labels_leave_randomized_and_once(make, store):
    agent, promise = make(LABELS), LabelPromise(2.0)
    request = label_queries.request(promise, asked(range(3)))
    first = label_queries.read_reply(agent.handle(label_queries.QUERY, request), 3)
    again = label_queries.read_reply(make(LABELS).handle(label_queries.QUERY, request), 3)
    assert first.answers_N.tolist() == again.answers_N.tolist()
    assert first.per_label_U.tolist() == pytest.approx([2 / 3, 2 / 5, 2 / 2], rel=1e-6)
    with pytest.raises(TermsChanged):
        agent = make(replace(LABELS, label_min_epsilon=1.0))
        agent.handle(label_queries.QUERY, label_queries.request(LabelPromise(1.0), asked(range(3))))
    with pytest.raises(PolicyRefusal, match="label_epsilon"):
        agent.handle(label_queries.QUERY, label_queries.request(LabelPromise(2.1), asked(range(3))))
    with pytest.raises(PolicyRefusal, match="label_epsilon"):
        agent.handle("train", work())
    with pytest.raises(PolicyRefusal, match="label_epsilon"):
        agent.handle("evaluate", work())


def test_a_stranger_who_asks_first_settles_nothing(make):
    """Before, ε = 0.001, or one label of each user, stood for good."""
    for promise in (LabelPromise(0.001), LabelPromise(2.0, cap=1), LabelPromise(1.9)):
        with pytest.raises(
            PolicyRefusal, match=r"\(label_epsilon\).*epsilon 2, delta 0 and no cap"
        ):
            request = label_queries.request(promise, asked(range(3)))
            make(LABELS).handle(label_queries.QUERY, request)
    request = label_queries.request(LabelPromise(2.0), asked(range(3)))
    told = label_queries.read_reply(make(LABELS).handle(label_queries.QUERY, request), 3)
    assert len(told.answers_N) == 10


def test_a_sum_is_over_as_many_users_as_the_owner_wants(make):
    agent = make(replace(POLICY, min_users=2, max_evaluations=9))
    plan = replace(stated(), charges=(*stated().charges, *HoldOut(0.2, 0.5).charges.items()))
    for kind in ("train", "evaluate"):
        for users in ((0,), (0, 700)):  # of whom one is not here
            with pytest.raises(PolicyRefusal, match=r"\(min_users\).* 1 are here"):
                agent.handle(kind, work(users, plan=plan))
    assert not agent.ledger.answered
    agent.handle("train", work((0, 1), plan=plan))


def test_a_state_that_others_can_use_is_refused(store, tmp_path):
    (tmp_path / "state").mkdir(mode=0o755)
    with pytest.raises(InputError, match="chmod 700"):
        Agent(store, POLICY, tmp_path / "state")


@pytest.mark.parametrize("users", [bytes(17), [0, 1], "no bytes"])
def test_users_are_named_as_they_registered_or_nothing_is_answered(make, users):
    content = work()
    content.config_records["cohort"]["users"] = users
    agent = make()
    with pytest.raises(ValueError, match="64 bits"):
        agent.handle("train", content)
    assert not agent.ledger.plans


def test_who_is_not_here_any_more_is_nobody_and_harms_nobody(make):
    found, alone = (
        summed(make().handle("train", content))
        for content in (work((0, 77, 1, 78)), work((0, 1), round_=2))
    )
    assert found.tolist() == alone.tolist()


# The agent as a program: its socket, who may ask there, and what a hostile app gets from it.


ROOT = Path(__file__).parents[3]


@pytest.fixture
def served(make, tmp_path):
    """A function: a served agent's socket path."""
    stops = []

    def serve(policy=POLICY):
        path = tmp_path / "a.sock"
        agent, listener = make(policy), listening(path)
        stop = threading.Event()

        def run():
            while not stop.is_set():
                connection, _ = listener.accept()
                with connection:
                    murmuration.client.agent.agent._serve_one(agent, connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        stops.append((stop, path, thread, listener))
        return path

    yield serve
    for stop, path, thread, listener in stops:
        stop.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
        thread.join(10)
        listener.close()


def test_the_socket_is_private(served):
    assert stat.S_IMODE(served().stat().st_mode) == 0o600


def test_over_the_socket_refusals_are_told_and_failures_are_not(served, monkeypatch, store, caplog):
    path = str(served())
    summed(ask_agent(path, "train", work()))
    with pytest.raises(Refused, match=r"\(max_clip\)"):
        ask_agent(path, "train", work(**{"clip-norm": 1.0}))

    def broken(*_):
        raise RuntimeError(f"secret: {store.judgements.prompts[0]}")

    monkeypatch.setitem(halves(), "uls", NodeHalf(broken, clip_norm))
    with pytest.raises(Refused, match="its own log says why") as error:
        ask_agent(path, "train", work(round_=2))
    assert "secret" not in str(error.value)
    # Nor is a user's text in the log, which says what it was, and where.
    # Its line ends are escaped once a command has set up the log of this process.
    assert "no answer to 'train': RuntimeError at\n" in caplog.text.replace("\\n", "\n")
    assert "in broken" in caplog.text
    assert store.judgements.prompts[0] not in caplog.text
    with pytest.raises(Refused, match="its own log says why"):
        ask_agent(path, "train", RecordDict())


def test_nothing_that_is_asked_ends_the_agent(served, caplog):
    path = str(served())
    event = {"kind": "pure-dp", "epsilon": 1.0, "\ud800": 1}  # half a character
    plan = {**json.loads(stated().to_json()), "charges": [[event, 1]]}
    content = work()
    content.config_records["parameters"][PARAMETER] = json.dumps(plan)
    with pytest.raises(Refused, match=r"\(max_epsilon\).*ud800"):
        ask_agent(path, "train", content)
    assert caplog.text.encode("utf-8")  # a log can be written
    summed(ask_agent(path, "train", work()))


def test_who_does_not_take_an_answer_is_not_waited_for(make, monkeypatch):
    monkeypatch.setattr(unix_socket, "REQUEST_SECONDS", 0.2)
    long = RecordDict({"a": messages.array_record({"a": np.zeros(2**20)})})
    agent = make()
    monkeypatch.setattr(agent, "handle", lambda kind, content: long)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        data = unix_socket.MAGIC + b"\x05train" + struct.pack(">Q", 0)
        theirs.sendall(data)
        started = time.monotonic()
        murmuration.client.agent.agent._serve_one(agent, ours)
    assert time.monotonic() - started < 20.0  # it was ten minutes


def test_two_agents_at_one_socket(served):
    path = served()
    with pytest.raises(InputError, match="another agent"):
        listening(path)


def test_a_socket_left_by_a_killed_agent_is_replaced(tmp_path):
    path = tmp_path / "old.sock"
    listening(path).close()
    assert path.is_socket()
    listening(path).close()


def test_a_file_in_the_sockets_place_stays(tmp_path):
    path = tmp_path / "precious"
    path.write_text("x")
    with pytest.raises(InputError, match="cannot be made"):
        listening(path)
    assert path.read_text() == "x"


def test_the_app_forwards_to_the_agent(served, store):
    grid = LocalGrid(app, 1, {"seed": 3})
    grid._contexts[1].node_config = {"agent": str(served())}
    message = messages.outgoing(messages.registry_request(b"salt", False, FEATURES), "train", 1)
    message.metadata.__dict__["_message_type"] = "query.registry"
    entry = messages.read_registry(app(message, grid._contexts[1]).content)
    assert entry.keys_U.tolist() == store.salted_keys(b"salt").tolist()
    assert entry.place == -1


HOSTILE = """
import glob, json, os, socket, sys
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from murmuration.client.agent.unix_socket import ask_agent
from murmuration.privacy.mechanisms.randomness import user_key
from murmuration.strategies.protocol import messages
import numpy as np

app = ClientApp()

@app.query("everything")
def everything(message, context):
    '''Reads node-config and asks, in every way it knows, for judgements.'''
    agent, found = context.node_config["agent"], []
    asked = dict(message.content.config_records["asked"])
    model = messages.model_record(np.zeros(33))
    keys_S = np.array([user_key("u000", b"salt")], dtype=np.uint64)
    somebody = messages.UserSelection(b"salt", keys_S)
    for kind, parameters in json.loads(asked["requests"]):
        content = messages.work_request(model, parameters, somebody)
        content["registry"] = ConfigRecord(
            {"salt": b"s", "counts": True, "features": parameters["features"], "model": "btl"})
        content["items"] = ConfigRecord({"adjacency": "replace-labels"})
        content["labels"] = ConfigRecord({"adjacency": "replace-labels", "epsilon": 1e6,
                                          "cap": 0, "delta": 0.0})
        try:
            answer = ask_agent(agent, kind, content)
            found.append(f"{kind}: {sorted(answer)}")
        except Exception as error:
            found.append(f"{kind}: {error}")
    for path in [*map(str, context.node_config.values()), str(Path(agent).parent / "data.jsonl")]:
        try:
            found.append("READ " + Path(path).read_text())
        except Exception as error:
            found.append(f"{path}: {type(error).__name__}")
    return Message(RecordDict({"found": ConfigRecord({"lines": found})}), reply_to=message)
"""


def test_a_hostile_bundle_gets_nothing(served, store, tmp_path, monkeypatch):
    """What a server's own ClientApp can make of a node: every request is refused by a rule."""
    path = served()
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.syspath_prepend(tmp_path)
    import hostile  # type: ignore[import-not-found]

    grid = LocalGrid(hostile.app, 1, {"seed": 3})
    grid._contexts[1].node_config = {"agent": str(path)}
    plain = {"strategy": "uls", "round": 1, "features": FEATURES, "group-size": 1}
    no_noise = StatedPlan.of("r", Adjacency.ZERO_OUT, 1e-6, 1, {PoissonGaussian(1.0, 0.1): 1})
    requests = [
        ("train", {**plain, "clip-norm": 1e9, PARAMETER: stated().to_json()}),
        ("train", {**plain, "clip-norm": 0.1}),
        ("train", {**plain, "clip-norm": 0.1, PARAMETER: no_noise.to_json()}),
        ("train", {**plain, "strategy": "nonprivate", PARAMETER: stated().to_json()}),
        ("train", {**plain, "strategy": "aup-published", PARAMETER: stated().to_json()}),
        ("train", {**plain, "strategy": "counts"}),
        ("evaluate", plain),
        ("query.items", plain),
        ("query.labels", plain),
        ("query.registry", plain),
        ("query.data", plain),
        ("__class__", plain),
    ]
    asked = RecordDict({"asked": ConfigRecord({"requests": json.dumps(requests)})})
    message = messages.outgoing(asked, "query.everything", 1)
    grid.push_messages([message])
    lines = grid._contexts and hostile.app(message, grid._contexts[1]).content["found"]["lines"]
    refusals, files = lines[: len(requests)], lines[len(requests) :]
    assert all("the owner's policy refuses" in line for line in refusals), refusals
    assert not any(line.startswith("READ") for line in files)
    texts = {*store.judgements.prompts, *(t for r in store.judgements.responses for t in r)}
    assert not any(text in line for line in lines for text in (*texts, *store.judgements.user_ids))


LOOKER = """
import socket, sys
for path in sys.argv[2:]:
    try:
        print("READ", open(path).read()[:20])
    except PermissionError:
        print("denied")
connection = socket.socket(socket.AF_UNIX)
try:
    connection.connect(sys.argv[1])
    print("CONNECTED")
except PermissionError:
    print("denied")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs the system's python3")
def test_another_user_can_neither_read_nor_ask(served, write_rows, tmp_path, make_rows):
    """The boundary that the two system services draw: another operating-system user."""
    path, data = served(), Path(write_rows(make_rows([2]), "data.jsonl"))
    data.chmod(0o600)
    for folder in [tmp_path, *tmp_path.parents]:
        if folder != Path("/") and folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)  # so that the files decide, not folders
    looked = subprocess.run(
        ["/usr/bin/python3", "-c", LOOKER, str(path), str(data), str(tmp_path / "state")],
        user="nobody",
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert looked.stdout.split() == ["denied"] * 3, looked.stdout + looked.stderr


@contextmanager
def program(tmp_path, data, policy, *site):
    """The agent's program, answering at a socket, and in the end what it said."""
    path, said = tmp_path / "p.sock", []
    (tmp_path / "policy.toml").write_text(policy)
    command = [sys.executable, "-m", "murmuration.cli.main", "agent", "--data", data]
    command += ["--policy", str(tmp_path / "policy.toml"), "--state", str(tmp_path / "state")]
    agent = subprocess.Popen(
        [*command, "--socket", str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*site, ROOT]))},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not answers(path):
            assert agent.poll() is None, agent.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield path, said
    finally:
        agent.send_signal(signal.SIGTERM)
        said.append(agent.communicate(timeout=30)[1])
    assert agent.returncode == 0, said


def test_the_program_answers_and_ends(write_rows, make_rows, tmp_path):
    policy = 'strategies = ["uls"]\nmax_epsilon = 3.0\nmax_clip = 0.1\nmax_rounds = 5\n'
    with program(tmp_path, write_rows(make_rows([3, 2])), policy) as (path, said):
        summed(ask_agent(str(path), "train", work()))
    assert "answering at" in said[0]
    assert not path.exists()
    lines = textwrap.dedent((tmp_path / "state" / "own-ledger.jsonl").read_text()).splitlines()
    assert len(lines) == 3


THEIRS = """
import dataclasses, pathlib
from murmuration.strategies.uls import ULS

pathlib.Path(__file__).with_suffix(".imported").touch()
IT = dataclasses.replace(ULS, name="NAME", node_halves={"NAME": ULS.node_halves["uls"]})
"""


def test_a_package_that_the_policy_does_not_allow_is_never_imported(
    write_rows, make_rows, tmp_path
):
    """Its code would run where the judgements are; not even a request by its name brings it in."""
    site = tmp_path / "site"
    for name in ("allowed", "other"):
        info = site / f"theirs_{name}-0.1.dist-info"
        info.mkdir(parents=True)
        (site / f"theirs_{name}.py").write_text(THEIRS.replace("NAME", name))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(
            f"[murmuration.strategies]\n{name} = theirs_{name}:IT\n"
        )
    policy = 'strategies = ["allowed"]\nmax_epsilon = 3.0\nmax_clip = 0.1\nmax_rounds = 5\n'
    with program(tmp_path, write_rows(make_rows([3, 2])), policy, site) as (path, _):
        ask_agent(str(path), "query.registry", messages.registry_request(b"salt", False, FEATURES))
        with pytest.raises(Refused, match=r"\(strategies\): 'other' was asked for; .* allowed"):
            ask_agent(str(path), "train", work(strategy="other"))
        asked_by_name = work(strategy="allowed")
        summed(ask_agent(str(path), "train", asked_by_name))
    assert {path.stem for path in site.glob("*.imported")} == {"theirs_allowed"}
