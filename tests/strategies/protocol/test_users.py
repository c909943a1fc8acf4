"""The registry of users over nodes: order, doubles, splitting a cohort, holding out."""

import threading

import numpy as np
import pytest
from agents import FEATURES
from failing import Prepared
from flwr.app import RecordDict
from hypothesis import assume, given
from hypothesis import strategies as st

from murmuration.privacy.mechanisms.randomness import Randomness, user_key
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.protocol.messages import RegistryEntry
from murmuration.strategies.protocol.users import Registry, RegistryError, wait_for_nodes

IDS = [f"user {i}" for i in range(40)]


def entry(ids, place=-1, counts=False, salt=b""):
    keys_U = np.array([user_key(user, salt) for user in ids], dtype=np.uint64)
    return RegistryEntry(place, keys_U, np.arange(len(ids)) + 1 if counts else None)


def grouped(sizes, *, places=True, node=lambda place: place + 1):
    """A registry of IDS in nodes of these sizes."""
    cuts = np.cumsum([0, *sizes])
    return Registry.of(
        {
            node(place): entry(IDS[cuts[place] : cuts[place + 1]], place if places else -1)
            for place in range(len(sizes))
        }
    )


def test_users_stand_in_the_order_of_places():
    registry = grouped([3, 0, 30, 7])
    assert len(registry) == 40
    assert registry.keys_N.tolist() == entry(IDS).keys_U.tolist()
    assert registry.start.tolist() == [0, 3, 3, 33, 40]
    assert registry.counts_N is None


@pytest.mark.parametrize("places", [True, False])
def test_order_does_not_depend_on_node_ids(places):
    ids = np.random.default_rng(0).permutation(1000)[:4]
    a = grouped([10, 10, 10, 10], places=places)
    b = grouped([10, 10, 10, 10], places=places, node=lambda place: int(ids[place]))
    assert a.keys_N.tolist() == b.keys_N.tolist()


def test_counts_only_if_every_node_gives_them():
    both = {1: entry(IDS[:2], 0, counts=True), 2: entry(IDS[2:5], 1, counts=True)}
    assert Registry.of(both).counts_N.tolist() == [1, 2, 1, 2, 3]
    assert Registry.of({**both, 3: entry(IDS[5:6], 2)}).counts_N is None


@pytest.mark.parametrize("entries", [{}, {1: entry([], 0), 2: entry([], 1)}])
def test_no_users(entries):
    with pytest.raises(RegistryError, match="no users"):
        Registry.of(entries)


@pytest.mark.parametrize("sizes", [[40], [1] * 40, [7, 0, 20, 13]])
def test_a_cohort_is_split_by_node(sizes):
    registry = grouped(sizes)
    users_S = np.array([0, 6, 7, 26, 27, 39])
    found = dict(registry.by_node(users_S))
    assert all(len(asked) for asked in found.values())
    names = [asked.names_S for asked in found.values()]
    assert np.concatenate(names).tolist() == registry.keys_N[users_S].tolist()
    for node, asked in found.items():
        assert np.isin(asked.names_S, registry.entries[node].keys_U).all()
    assert dict(registry.by_node(np.empty(0, dtype=np.int64))) == {}


def key(number):
    return Randomness(number).key("hold-out coins")


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.9])
def test_hold_out_splits_everybody(fraction):
    train, out = grouped([40]).hold_out(fraction, key(0))
    assert sorted([*train, *out]) == list(range(40))
    assert 40 * fraction - 10 < len(out) < 40 * fraction + 10
    assert (np.diff(train) > 0).all()
    assert (np.diff(out) > 0).all()


def test_hold_out_names_the_same_people_in_any_grouping():
    def held(registry):
        return set(registry.keys_N[registry.hold_out(0.3, key(5))[1]].tolist())

    first = held(grouped([40]))
    for sizes in ([1] * 40, [39, 1], [0, 13, 27]):
        assert held(grouped(sizes)) == first
        assert held(grouped(sizes, places=False)) == first
    other = grouped([40]).hold_out(0.3, key(6))[1]
    assert set(grouped([40]).keys_N[other].tolist()) != first


def test_with_one_user_more_nobody_else_changes_sides():
    """Neighbouring data sets must be trained on users that differ in one, never in a swap."""
    for seed in range(50):
        for users in range(30, 39):
            train, out = (
                set(grouped([users]).keys_N[part].tolist())
                for part in grouped([users]).hold_out(0.4, key(seed))
            )
            more, more_out = (
                set(grouped([users + 1]).keys_N[part].tolist())
                for part in grouped([users + 1]).hold_out(0.4, key(seed))
            )
            assert train <= more
            assert out <= more_out
            assert len(more - train) + len(more_out - out) == 1


def test_hold_out_is_fair():
    registry = grouped([40])
    seen = np.zeros(40)
    for seed in range(400):
        seen[registry.hold_out(0.25, key(seed))[1]] += 1
    assert np.abs(seen - 100).max() < 5 * np.sqrt(400 * 0.25 * 0.75)


def test_how_many_are_held_out_may_come_out_as_nobody():
    sizes = {len(Registry.of({1: entry(IDS[:1])}).hold_out(0.2, key(k))[1]) for k in range(40)}
    assert sizes == {0, 1}  # a refusal would tell which


def test_ask(make_grid, make_examples):
    grid = make_grid(make_examples([1, 2, 3, 4, 5]), 2)
    registry = Registry.ask(grid, Randomness(0), features=FEATURES)
    assert registry.nodes == (1, 2)
    assert registry.start.tolist() == [0, 2, 5]
    assert registry.counts_N is None
    again = Registry.ask(grid, Randomness(0), features=FEATURES, counts=True)
    assert again.counts_N.tolist() == [1, 2, 3, 4, 5]
    assert again.keys_N.tolist() == registry.keys_N.tolist()
    # Names are salted: another run's cannot be compared.
    other = Registry.ask(grid, Randomness(1), features=FEATURES)
    assert not set(other.keys_N.tolist()) & set(registry.keys_N.tolist())
    unseeded = [Registry.ask(grid, Randomness(None), features=FEATURES).keys_N[0] for _ in "ab"]
    assert unseeded[0] != unseeded[1]


@pytest.fixture
def ask(monkeypatch):
    """A function: a registry from answers of nodes, and who was reported absent."""
    LocalGrid(None, 0, {})  # who sends messages in this process

    def call(answers, **how):
        absent = {}
        registry = Registry.ask(
            Prepared(answers),
            Randomness(0),
            features=FEATURES,
            timeout=0.2,
            absent=lambda node, why: absent.update({node: why}),
            **how,
        )
        return registry, absent

    return call


def test_what_is_refused_in_a_simulation_is_not_said_of_a_node():
    answers = Prepared({1: "InputError: row 2: it isn't short"})
    with pytest.raises(RegistryError, match=r"^row 2: it isn't short$"):
        Registry.ask(answers, Randomness(0), features=FEATURES, timeout=1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("no data here", "did not register.*no data here"),
        (None, "1 of 2 nodes did not answer"),
        (RecordDict(), "not an answer"),
    ],
)
def test_who_fails_is_left_out_only_where_nodes_may_come_and_go(ask, answer, message):
    with pytest.raises(ValueError, match=message):
        Registry.ask(
            Prepared({1: entry(IDS[:2]), 2: answer}), Randomness(0), features=FEATURES, timeout=0.1
        )
    registry, absent = ask({1: entry(IDS[:2]), 2: "no data here", 3: None, 4: entry(IDS[4:5])})
    assert set(registry.nodes) == {1, 4}
    assert "no data here" in absent[2]


def test_where_every_owner_refuses_that_is_said(ask):
    """And not that nobody hosts anybody; it is not said of those who failed or kept silent."""
    refuses = f"{messages.OWNER_REFUSES} (tasks): 'policy' was asked for"
    registry, _ = ask({1: entry(IDS[:2]), 2: refuses})
    assert set(registry.nodes) == {1}
    with pytest.raises(RunAborted, match=r"\(by the rule tasks\)$"):
        ask({1: refuses, 2: refuses})
    for others in ({2: "no data here"}, {2: None}):
        with pytest.raises(RegistryError):
            ask({1: refuses} | others)


def test_whom_two_nodes_host_is_asked_by_neither(ask):
    registry, _ = ask({1: entry(IDS[:5]), 2: entry(IDS[4:8])})
    assert len(registry) == 9
    doubled = entry(IDS[4:5]).keys_U[0]
    assert doubled not in registry.keys_N[registry.single].tolist()
    assert len(registry.single) == 7
    train, held_out = registry.hold_out(0.5, key(1))
    assert not np.isin(np.concatenate([train, held_out]), np.flatnonzero(registry.barred_N)).any()


def test_who_is_away_stays_registered(ask):
    before, _ = ask({1: entry(IDS[:3]), 2: entry(IDS[3:6])})
    slow = {1, 2}
    after, _ = ask({2: None, 1: entry(IDS[:3]), 3: entry(IDS[6:8])}, former=before, slow=slow)
    assert set(after.nodes) == {1, 2, 3}
    assert len(after) == 8
    assert slow == {2}  # who answers is waited for again


def where(registry):
    """Of each user who may be asked: the node, and their place on it."""
    listed = [
        (name, (node, registry.entries[node].keys_U.tolist().index(name)))
        for node, asked in registry.by_node(registry.single)
        for name in asked.names_S.tolist()
    ]
    assert len(dict(listed)) == len(listed), "a user is asked for on two nodes"
    return dict(listed)


def test_who_moved_is_with_who_answers_now(ask):
    """And nobody drags along those whom they leave."""
    before, _ = ask({1: entry(IDS[:3]), 2: entry(IDS[3:6])})
    after, _ = ask({1: entry(IDS[:3]), 9: entry(IDS[4:5] + IDS[6:7])}, former=before)
    assert set(after.nodes) == {1, 2, 9}
    assert where(after) == {
        **where(before),
        user_key(IDS[4]): (9, 0),
        user_key(IDS[6]): (9, 1),
    }
    back, _ = ask({1: entry(IDS[:3]), 2: entry(IDS[3:6]), 9: entry(IDS[6:7])}, former=after)
    assert where(back) == {**where(before), user_key(IDS[6]): (9, 0)}


def test_of_two_who_are_away_neither_has_a_user_whom_both_had(ask):
    before, _ = ask({1: entry(IDS[:3]), 2: entry(IDS[3:6])})
    moved, _ = ask({1: entry(IDS[:3]), 3: entry(IDS[5:6])}, former=before)
    after, _ = ask({1: entry(IDS[:3]), 2: None, 3: None}, former=moved)
    assert set(where(before)) - set(where(after)) == {user_key(IDS[5])}


@given(st.data())
def test_who_moves_or_is_claimed_twice_changes_nobody_elses_place(data):
    """A population on nodes, some of them away; one user leaves, moves, or is on several nodes."""
    nodes = st.lists(st.integers(1, 4), min_size=1, max_size=12)
    before, now = data.draw(nodes), data.draw(st.sets(st.integers(1, 4)))
    one = data.draw(st.integers(0, len(before) - 1))

    def world(at):
        """``at`` says on which nodes the one user is."""
        then = {node: [] for node in (1, 2, 3, 4)}
        for user, node in enumerate(before):
            for host in at if user == one else [node]:
                then[host].append(IDS[user])
        return {node: entry(ids) for node, ids in then.items()}

    def others(answers, former):
        found = Registry.of(answers, former)
        train = found.keys_N[found.single]
        asked = set(train[PoissonSampler(0.5).draw(train, Randomness(3), 1)].tolist())
        hosts = {key: node for key, (node, _) in where(found).items()}
        mine = user_key(IDS[one])
        hosts.pop(mine, None)
        return hosts, asked - {mine}

    def answering(world):
        return {node: entry for node, entry in world.items() if node in now}

    everywhere = st.sets(st.integers(1, 4))
    first, second = world([before[one]]), world(data.draw(everywhere))
    assume(sum(len(e.keys_U) for e in {**second}.values()))
    assume(len(before) > 1)
    assert others(answering(first), first) == others(answering(second), first)
    assert others(first, {}) == others(second, {})


def test_nodes_are_waited_for():
    grid = Prepared({1: None, 2: None})
    wait_for_nodes(grid, 2, 0.1)
    with pytest.raises(RegistryError, match="2 of at least 3 nodes"):
        wait_for_nodes(grid, 3, 0.1)
    threading.Timer(0.3, lambda: grid.answers.update({3: None})).start()
    wait_for_nodes(grid, 3, 30)


def test_nodes_of_a_simulation_that_start_later_are_waited_for():
    """Flower starts them one by one: who is there first is not everybody."""
    LocalGrid(None, 0, {})

    def entry(place, places=3):
        keys_U = np.arange(2, dtype=np.uint64) + np.uint64(2 * place)
        return messages.RegistryEntry(place, keys_U, None, places=places)

    grid = Prepared({7: entry(0)})
    late = {8: entry(2), 9: entry(1)}
    threading.Timer(0.3, lambda: grid.answers.update(late)).start()
    registry = Registry.ask(grid, Randomness(0), features=FEATURES, timeout=30)
    assert registry.nodes == (7, 9, 8)
    assert len(registry) == 6
    with pytest.raises(RegistryError, match="1 of at least 2 nodes"):
        Registry.ask(Prepared({7: entry(0, 2)}), Randomness(0), features=FEATURES, timeout=0.1)


def test_labels_of_one_node_that_were_randomized_show():
    keys = np.arange(3, dtype=np.uint64)
    clean, coins = RegistryEntry(0, keys, None), RegistryEntry(1, keys + 9, None, randomized=True)
    assert not Registry.of({1: clean}).randomized
    registry = Registry.of({1: clean, 2: coins})
    assert registry.randomized
    assert registry.with_true_labels().nodes == (1,)
    for all_of_them in ({2: coins}, {1: RegistryEntry(0, keys[:0], None), 2: coins}):
        assert Registry.of(all_of_them).with_true_labels().randomized


def test_a_simulation_of_which_no_row_can_be_used_is_refused():
    some = np.arange(3, dtype=np.uint64)
    none, few = (RegistryEntry(0, some + n, None, usable=n) for n in (0, 9))
    assert len(Registry.of({1: none, 2: few})) == 6
    with pytest.raises(RegistryError, match="nothing to learn from"):
        Registry.of({1: none})
