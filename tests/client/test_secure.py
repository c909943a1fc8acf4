"""A node's part in secure aggregation, through messages: in order, once, and under masks."""

import json

import numpy as np
import pytest
from agents import POLICY, work
from flwr.app import ConfigRecord, RecordDict
from hostile_server import asked_for_masked, exact_sum
from named import asked

from murmuration.client import answers, secure
from murmuration.client.agent.agent import Agent
from murmuration.client.agent.identity import Identity
from murmuration.client.agent.policy import PolicyRefusal
from murmuration.client.answers import Host
from murmuration.client.app import app
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.secure_aggregation.party import Party, ProtocolError, PublicKeys
from murmuration.privacy.secure_aggregation.server import Session, unmasked
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol import secure_messages as wire

FEATURES = json.dumps(HashingFeatures(dimension=33).to_config())
SESSION, STEP = b"s" * 16, grid.step_for(0.1)


def answer(kind, content, host):
    return answers.ANSWERS[kind](content, host)


def request(users=(0, 1), **changes):
    parameters = {"strategy": "uls", "round": 1, "features": FEATURES, "clip-norm": 0.1}
    parameters |= {"group-size": 16, **changes}
    model = messages.model_record(np.zeros(33))
    return messages.work_request(model, parameters, asked(users))


@pytest.fixture
def hosts(make_rows):
    """Four nodes of three users each, with memories of their own."""
    found = {}
    for place in range(1, 5):
        rows = make_rows([3, 5, 2], seed=place)
        store = UserStore(Judgements.from_rows(rows), place=place)
        found[place] = Host(
            store=lambda store=store: store, labels=None, source=Randomness(0), terms={}
        )
    return found


def about():
    return wire.about("train", request())


def invited(place, roster, session=SESSION):
    return wire.Invitation(session, place, roster, about()).request()


def begin(hosts, session=SESSION):
    """All up to the sealed shares; who sealed what for whom."""
    roster = [
        wire.read_keys(answer(wire.KEYS, wire.keys_request(session), host))
        for host in hosts.values()
    ]
    shared = {}
    for place, host in hosts.items():
        reply = answer(wire.SHARES, invited(place, roster, session), host)
        shared[place] = wire.read_shares(reply, place, len(roster))
    return [entry.keys for entry in roster], shared


def masking(place, shared, session=SESSION, work=None, **changes):
    sealed = {other: given.sealed[place] for other, given in shared.items() if other != place}
    record = wire.MaskRequest(session, sealed).record()
    record.update(changes)
    return RecordDict({**(work or request()), wire.RECORD: record})


def test_sums_under_masks_are_one_number_each_however_few_users(hosts):
    """Bytes of them, added up by themselves over the nodes, would tell more than the sum."""
    assert answer("train", request(), hosts[1]).array_records["sums"]["sum"].dtype == "int32"
    _, shared = begin(hosts)
    assert wire.read_masked(answer("train", masking(1, shared), hosts[1]), 33).dtype == "uint64"


def test_the_nodes_sums_add_up_and_no_node_shows_its_own(hosts):
    roster, shared = begin(hosts)
    masked, total_D = {}, np.zeros(33)
    for place, host in hosts.items():
        total_D += messages.read_sums(
            answer("train", request(), host), {"sum": (33,)}, {"sum": STEP}
        )["sum"]
        reply = answer("train", masking(place, shared), host)
        assert list(reply) == [wire.RECORD]
        masked[place] = wire.read_masked(reply, 33)
    opened = {
        place: wire.read_opened(
            answer(wire.UNMASK, wire.unmask_request(SESSION, list(masked)), host), list(masked), []
        )
        for place, host in hosts.items()
    }
    commitments = {place: given.commitment for place, given in shared.items()}
    sum_D = unmasked(Session(SESSION, about(), roster, commitments), masked, opened) * STEP
    assert sum_D.tobytes() == total_D.tobytes()
    assert np.linalg.norm(total_D) > 0.1
    assert all(not host.memory for host in hosts.values())


def test_masks_serve_once(hosts):
    _, shared = begin(hosts)
    answer("train", masking(1, shared), hosts[1])
    for again in (masking(1, shared), masking(1, shared, work=request((2,)))):
        with pytest.raises(ProtocolError, match="step 3"):
            answer("train", again, hosts[1])
    answer(wire.UNMASK, wire.unmask_request(SESSION, [1, 2, 3]), hosts[1])
    with pytest.raises(ProtocolError, match="no session"):
        answer(wire.UNMASK, wire.unmask_request(SESSION, [1, 2, 3, 4]), hosts[1])


def test_a_new_session_ends_the_one_before(hosts):
    _, shared = begin(hosts)
    begin(hosts, b"t" * 16)
    with pytest.raises(ProtocolError, match="another session"):
        answer("train", masking(1, shared), hosts[1])
    # Shares that were sealed in the first do not open in the second.
    with pytest.raises(ProtocolError, match="altered"):
        answer("train", masking(1, shared, b"t" * 16), hosts[1])


def test_what_does_not_fit_leaves_nothing_and_the_session_as_it_was(hosts):
    _, shared = begin(hosts)
    before = dict(hosts[1].memory)
    for wrong in (
        masking(1, shared, **{"modulus-bits": 32}),
        masking(1, shared, names=["sum"], steps=[STEP]),  # no request names a grid
        masking(1, shared, steps=[STEP * 4096]),
        masking(1, shared, work=request(**{"clip-norm": 1e-9})),  # of another grid
        masking(1, shared, work=request(round=2)),
        masking(2, shared),  # the shares of another
    ):
        with pytest.raises(ProtocolError):
            answer("train", wrong, hosts[1])
        assert hosts[1].memory == before
    answer("train", masking(1, shared), hosts[1])


def test_an_owner_may_want_masks_and_company(hosts):
    hosts[1].terms.update({secure.ONLY: True, secure.LEAST: 5})
    with pytest.raises(ProtocolError, match="under masks only"):
        answer("train", request(), hosts[1])
    roster = [
        wire.read_keys(answer(wire.KEYS, wire.keys_request(SESSION), host))
        for host in hosts.values()
    ]
    with pytest.raises(ProtocolError, match="at least 5"):
        answer(wire.SHARES, invited(1, roster), hosts[1])
    answer(wire.SHARES, invited(2, roster), hosts[2])


def test_a_signer_counts_for_one_party(tmp_path):
    mine, other, third = (Identity.at(tmp_path / f"{n}.key") for n in range(3))
    listed = tuple(identity.public.hex() for identity in (mine, other, third))

    def check(*company):
        roster = [identity.entry(Party.begin(SESSION)) for identity in company]
        told = wire.Invitation(SESSION, 1, roster, about())
        secure.check_company(told, {secure.SIGNERS: listed}, mine)

    check(mine, other, third)
    for company in ((mine, other, other), (mine, mine, other), (mine, other, Identity())):
        with pytest.raises(secure.Unwanted):
            check(*company)


def test_a_company_that_is_too_small_is_refused(hosts):
    few = {place: hosts[place] for place in (1, 2)}
    with pytest.raises(ProtocolError, match="at least 3"):
        begin(few)


def test_rosters_with_other_keys_are_refused(hosts):
    roster = [
        wire.read_keys(answer(wire.KEYS, wire.keys_request(SESSION), host))
        for host in hosts.values()
    ]
    invented = [wire.Entry(PublicKeys(bytes([i]) * 32, bytes([i + 9]) * 32)) for i in range(4)]
    for place, wrong in ((1, invented), (2, roster), (9, roster)):
        with pytest.raises(ProtocolError, match="not this party's keys"):
            answer(wire.SHARES, invited(place, wrong), hosts[1])


@pytest.mark.parametrize("kind", [wire.KEYS, wire.SHARES, wire.UNMASK])
@pytest.mark.parametrize(
    "content", [RecordDict(), RecordDict({wire.RECORD: ConfigRecord({"session": 3})})]
)
def test_questions_that_make_no_sense(hosts, kind, content):
    with pytest.raises(ProtocolError):
        answer(kind, content, hosts[1])


def test_the_app_keeps_a_session_in_its_context(crowd):
    nodes = LocalGrid(app, 3, {"data": crowd, "seed": 3})
    ask = [messages.outgoing(wire.keys_request(SESSION), wire.KEYS, node) for node in (1, 2, 3)]
    replies = {r.metadata.src_node_id: r for r in nodes.send_and_receive(ask)}
    roster = [wire.read_keys(replies[node].content) for node in (1, 2, 3)]
    ask = [messages.outgoing(invited(node, roster), wire.SHARES, node) for node in (1, 2, 3)]
    for reply in nodes.send_and_receive(ask):
        assert not reply.has_error()
        node = reply.metadata.src_node_id
        wire.read_shares(reply.content, node, 3)
        state = nodes._contexts[node].state.config_records["secure"]
        party = Party.from_bytes(bytes(state["secure-session"]))
        assert party.public == roster[node - 1].keys
    # What was asked out of order comes back as an error, with nothing in it.
    (reply,) = nodes.send_and_receive(
        [messages.outgoing(wire.unmask_request(SESSION, [1, 2, 3]), wire.UNMASK, 1)]
    )
    assert reply.has_error()


def test_agents_of_owners_mask_what_they_have_checked(make_rows, tmp_path):
    agents = {}
    for place in (1, 2, 3):
        store = UserStore(Judgements.from_rows(make_rows([3, 5, 2], seed=place)), place=-1)
        agents[place] = Agent(store, POLICY, tmp_path / str(place))
    asked_of_each = dict.fromkeys(agents, work())
    total_L = exact_sum(agents, asked_of_each, 33, session=SESSION)
    assert 0.0 < np.linalg.norm(total_L * STEP) <= 6 * 0.1
    assert all(agent.ledger.answered["train"] == 1 for agent in agents.values())
    again = asked_for_masked(agents, work(), session=b"t" * 16)
    with pytest.raises(PolicyRefusal, match="max_repeats"):
        agents[1].handle("train", again[1])


@pytest.mark.parametrize("said", [True, "true", "True", "yes", 1])
def test_an_owner_who_wants_masks_gets_them_however_it_is_written(said):
    with pytest.raises(ProtocolError, match="under masks only"):
        secure.check_terms(RecordDict(), {secure.ONLY: said})


@pytest.mark.parametrize("terms", [{}, {secure.ONLY: False}, {secure.ONLY: "false"}])
def test_an_owner_who_does_not_want_masks_need_not_have_them(terms):
    secure.check_terms(RecordDict(), terms)
