"""What counts of whom nodes claim to host."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.mechanisms.randomness import user_key
from murmuration.strategies.protocol.messages import RegistryEntry
from murmuration.strategies.protocol.registration import Hosted, Registration
from murmuration.strategies.protocol.users import Registry

SALT = b"salt"
IDS = [f"user {number}" for number in range(30)]
KEYS = {1: b"one", 2: b"two", 3: b"stranger"}
BY_IDS = Registration({b"one": Hosted(3, frozenset(IDS[:3])), b"two": Hosted(5)}, Hosted(1))


def name(user):
    return user_key(user, SALT)


def entry(users, **more):
    keys_U = np.array([name(user) for user in users], dtype=np.uint64)
    counts_U = np.arange(len(keys_U)) if more.pop("counts", False) else None
    return RegistryEntry(-1, keys_U, counts_U, **more)


def held(registration, answers):
    return registration.held_to(answers, KEYS, SALT)


def test_the_number_of_users_is_the_operators():
    found = held(Registration({b"one": Hosted(7)}), {1: entry(IDS), 2: entry(IDS)})
    assert len(found[1].keys_U) == 7
    assert len(found[2].keys_U) == 1  # what an unlisted key may host
    assert found[1].keys_U.tolist() == [
        key for key in entry(IDS).keys_U.tolist() if key in sorted(map(name, IDS))[:7]
    ]
    assert not len(held(Registration(other=Hosted(0)), {3: entry(IDS)})[3].keys_U)


def test_a_user_named_often_counts_once():
    found = held(Registration(other=Hosted(2)), {3: entry([IDS[0]] * 9 + [IDS[1]] * 9)})
    assert sorted(found[3].keys_U.tolist()) == sorted([name(IDS[0]), name(IDS[1])])


def test_counts_go_with_their_users():
    found = held(Registration({b"one": Hosted(4)}), {1: entry(IDS, counts=True)})
    for key, count in zip(found[1].keys_U.tolist(), found[1].counts_U.tolist(), strict=True):
        assert key == name(IDS[count])


def test_ids_bind_both_ways():
    """Their node hosts nobody else, and nobody else hosts them."""
    found = held(BY_IDS, {1: entry(IDS[1:6]), 2: entry(IDS[:6]), 3: entry(IDS[:1])})
    assert found[1].keys_U.tolist() == [name(user) for user in IDS[1:3]]
    assert found[2].keys_U.tolist() == [name(user) for user in IDS[3:6]]
    assert not len(found[3].keys_U)


def test_a_deployed_node_has_no_place_whatever_it_says():
    found = held(
        BY_IDS, {2: RegistryEntry(4, entry(IDS[:5]).keys_U, None, randomized=True, places=10**9)}
    )
    assert (found[2].place, found[2].places, found[2].randomized) == (-1, 0, True)


@given(st.lists(st.sampled_from(IDS), max_size=20), st.lists(st.sampled_from(IDS), max_size=20))
def test_a_liar_removes_nobody_but_whom_it_names(mine, claimed):
    """And of those at most as many as it is registered for."""
    registration = Registration({b"one": Hosted(len(IDS)), b"two": Hosted(3)})
    honest = {1: entry(dict.fromkeys(mine))}

    def asked(answers):
        found = held(registration, answers)
        if not any(len(one.keys_U) for one in found.values()):
            return set()
        registry = Registry.of(found)
        whose = {
            (node, key)
            for node, a in registry.by_node(registry.single)
            for key in a.names_S.tolist()
        }
        return {key for node, key in whose if node == 1}

    removed = asked(honest) - asked({**honest, 2: entry(claimed)})
    assert removed <= {name(user) for user in claimed}
    assert len(removed) <= 3


def test_ids_are_needed_where_who_else_is_there_must_not_matter():
    assert not BY_IDS.by_ids
    by_ids = Registration({b"one": Hosted(3, frozenset(IDS[:3]))}, Hosted(0))
    assert by_ids.by_ids
    assert not Registration(by_ids.nodes).by_ids
    assert not Registration({b"one": Hosted(2, frozenset(IDS[:3]))}, Hosted(0)).by_ids


def test_what_makes_no_sense():
    with pytest.raises(ValueError, match="0 users or more"):
        Hosted(-1)
    twice = {b"one": Hosted(1, frozenset("ab")), b"two": Hosted(1, frozenset("bc"))}
    with pytest.raises(ValueError, match="'b' is registered for two nodes"):
        Registration(twice)
