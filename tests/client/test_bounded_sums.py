"""The sums of a node half, where something goes wrong with one user."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from murmuration.client.bounded_sums import BoundedSums
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies import registry
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.spec import NodeHalf, clip_norm, grid_of_clip

D, CLIP = 33, 0.1
FEATURES = json.dumps(HashingFeatures(D).to_config())
PARAMETERS = {"round": 1, "group-size": 4, "clip-norm": CLIP, "middle": 0.5, "probability": 0.9}
PARAMETERS |= {"local-steps": 2, "local-rate": 1.0, "length": 1.0}
OF_PAIRS = (
    *("uls", "adaptive", "dp-fedavg", "els", "group", "label-moment", "objective-perturbation"),
    *("aup-centred", "aup-published", "nonprivate", "counts"),
)


def bounded_of(half, rows, users=(0, 1, 2), longest=CLIP):
    store = UserStore(Judgements.from_rows(rows), place=-1)
    users_S = np.array(users, dtype=np.int64)
    work = TrainRequest({"theta": np.linspace(-1, 1, D, dtype=np.float32)}, PARAMETERS, users_S)
    steps = half.steps(lambda name, missing: PARAMETERS.get(name, missing))
    keys_S, source = store.keys_U[users_S], Randomness(5)
    return BoundedSums(
        half=half,
        examples=store.examples(FEATURES),
        work=work,
        keys_S=keys_S,
        source=source,
        steps=steps,
        longest=longest,
    )


@pytest.mark.parametrize("name", OF_PAIRS)
def test_a_deployed_node_says_what_a_simulated_one_says(make_rows, name, monkeypatch):
    """At once, and user by user after something went wrong."""
    half = registry.node_halves()[name]
    bounded = bounded_of(half, make_rows([3, 5, 2]), longest=math.inf)
    wanted = bounded.simulated()

    def failing(examples, work, keys_S, source):
        if len(work.users_S) == 3:
            raise MemoryError
        return half.client_update(examples, work, keys_S, source)

    alone = replace(bounded, half=replace(half, client_update=failing))
    for sums in (bounded.deployed(), alone.deployed()):
        assert {part: value.shape for part, value in sums.items()} == {
            part: value.shape for part, value in wanted.items()
        }
        for part, value in wanted.items():
            if bounded.steps or part in ("stack", "present"):
                assert sums[part].tolist() == value.tolist()
            else:
                np.testing.assert_allclose(sums[part], value, atol=1e-6)


@pytest.mark.parametrize("name", OF_PAIRS)
def test_of_nobody_there_is_a_zero_of_the_same_shape(make_rows, name):
    half = registry.node_halves()[name]
    sums = bounded_of(half, make_rows([3, 5, 2]), users=()).deployed()
    assert not any(value.any() for value in sums.values())


@pytest.mark.parametrize(
    "bad",
    [
        np.full(D, np.nan),
        np.full(D, np.inf),
        np.full(D, CLIP),  # too long
        np.full(D, grid.step_for(CLIP) / 2),  # on no grid
        np.zeros(D - 1),
        RuntimeError("a text of this user"),
    ],
    ids=["NaN", "infinite", "too long", "on no grid", "too short", "raised"],
)
def test_what_is_no_bounded_vector_is_its_users_zero(make_rows, bad, caplog):
    good_D = np.full(D, 2.0**-20)

    def update(examples, work, keys_S, source):
        if 1 not in work.users_S:
            return {"sum": len(work.users_S) * good_D}
        if isinstance(bad, Exception):
            raise bad
        return {"sum": bad}

    bounded = bounded_of(NodeHalf(update, clip_norm, grid_of_clip), make_rows([3, 5, 2]))
    assert bounded.deployed()["sum"].tolist() == (2 * good_D).tolist()
    assert "a user's part is left out" in caplog.text
    assert "a text of this user" not in caplog.text


def test_one_by_one_each_is_held_to_the_bound_of_one(make_rows):
    good_D = np.full(D, 2.0**-20)
    long_D = np.zeros(D)
    long_D[0] = grid.step_for(CLIP) * 2**29
    assert CLIP < long_D[0] < 2 * CLIP

    def update(examples, work, keys_S, source):
        if len(work.users_S) > 1:
            raise RuntimeError
        return {"sum": long_D if 1 in work.users_S else len(work.users_S) * good_D}

    bounded = bounded_of(NodeHalf(update, clip_norm, grid_of_clip), make_rows([3, 5, 2]))
    assert bounded.deployed()["sum"].tolist() == (2 * good_D).tolist()


def test_what_a_request_says_wrong_shows_without_anybody(make_rows):
    def update(examples, work, keys_S, source):
        assert not len(work.users_S)
        return {"sum": np.full(D, float(work.parameters["missing"]))}

    with pytest.raises(KeyError):
        bounded_of(NodeHalf(update, clip_norm), make_rows([3, 5, 2])).deployed()


@pytest.mark.parametrize("name", ["more", "within"])
def test_nothing_leaves_beside_what_is_bounded(make_rows, name):
    """Before anybody is looked at, whatever a half of another package makes of them."""

    def update(examples, work, keys_S, source):
        assert not len(work.users_S)
        return {"sum": np.zeros(D), name: np.zeros(1)}

    with pytest.raises(ValueError, match="are bounded"):
        bounded_of(NodeHalf(update, clip_norm, grid_of_clip), make_rows([3, 5, 2])).deployed()


def test_in_a_simulation_it_is_raised(make_rows):
    def update(examples, work, keys_S, source):
        return {"sum": np.full(D, np.inf)}

    with pytest.raises(FloatingPointError, match="not finite"):
        bounded_of(NodeHalf(update, clip_norm), make_rows([3, 5, 2])).simulated()
