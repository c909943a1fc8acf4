"""Whole rounds under masks, over real nodes: the same sums as without, whoever fails when."""

import contextlib

import numpy as np
import pytest
from failing import Late, Watched

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import ExampleClip, UserClip
from murmuration.privacy.secure_aggregation import party
from murmuration.strategies.adaptive import Adaptive, AdaptivePlan
from murmuration.strategies.base import Participants
from murmuration.strategies.els import Els, ElsPlan
from murmuration.strategies.protocol import secure_messages as secure
from murmuration.strategies.protocol import secure_rounds
from murmuration.strategies.protocol.messages import RegistryEntry
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.uls import Uls

CLIP = UserClip(0.5)
EVERYBODY = {"cohort": 30, "clip": CLIP, "adjacency": Adjacency.ZERO_OUT, "group_size": 100}
STEPS = secure.KEYS, secure.SHARES, "train", secure.UNMASK


@pytest.fixture
def examples(make_examples):
    return make_examples([1, 3, 9, 2, 40, 1, 1, 2, 5, 1] * 3)


def around(watch):
    """A function that puts the watch around a grid."""

    def wrap(inner):
        watch.grid = inner
        return watch

    return wrap


def masked(world):
    world.strategy.masked = True
    return world


def test_the_model_is_the_same_with_and_without_masks(make_world, examples):
    """To the last bit: sums are on the grid in any case."""
    plan = {**EVERYBODY, "cohort": 20, "nodes": 5}
    (bare, hidden) = (make_world(examples, **plan) for _ in range(2))
    first, second = bare.run(4), masked(hidden).run(4)
    assert [g.tobytes() for g in first] == [g.tobytes() for g in second]
    assert hidden.left_out == []


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("gone", [(2,), (3, 6)])
def test_nodes_that_drop_out_at_any_step(make_world, examples, kind, gone):
    """Their users count as zero, unless their vectors had arrived; the others' sum is exact."""
    watch = Watched(None, {kind: gone})
    quiet = {**EVERYBODY, "noise_multiplier": 1e-9}
    world = masked(make_world(examples, nodes=10, wrap=around(watch), timeout=0.2, **quiet))
    (released,) = world.run(1)
    lost = () if kind == secure.UNMASK else gone
    kept = [user for user in range(30) if user // 3 + 1 not in lost]
    silent = make_world(examples.select(np.array(kept)), **{**quiet, "cohort": len(kept)})
    (expected,) = silent.run(1)
    np.testing.assert_allclose(released, expected * len(kept) / 30, atol=1e-9)
    assert len(world.left_out) == len(gone)
    assert world.ledger.spent() == {world.strategy.plan.mechanism.event: 1}
    # Who failed is not asked again in this round.
    later = STEPS[STEPS.index(kind) + 1 :]
    assert not [m for m in watch.sent if m.metadata.message_type in later
                and m.metadata.dst_node_id in gone]  # fmt: skip


@pytest.mark.parametrize("kind", STEPS)
def test_where_too_few_stay_the_round_counts_as_zero(make_world, examples, kind):
    """Ten nodes began, seven must stay: with six nothing is summed, but it is charged."""
    watch = Watched(None, {kind: (1, 2, 3, 4) if kind != secure.KEYS else range(1, 9)})
    quiet = {**EVERYBODY, "noise_multiplier": 1e-9}
    world = masked(make_world(examples, nodes=10, wrap=around(watch), timeout=0.2, **quiet))
    (released,) = world.run(1)
    assert np.abs(released).max() < 1e-9
    assert "everybody:" in world.left_out[-1]
    assert world.ledger.spent() == {world.strategy.plan.mechanism.event: 1}
    assert world.strategy.rounds_done == 1
    if kind == secure.SHARES:  # nobody was even asked for a vector
        assert not [m for m in watch.sent if m.metadata.message_type == "train"]
    elif kind == "train":
        assert not [m for m in watch.sent if m.metadata.message_type == secure.UNMASK]


def test_a_whole_run_in_which_others_drop_out_at_unmasking_each_round(make_world, examples):
    """Their vectors had arrived: every release is that of a run in which nobody fails."""
    watch = Watched(None)
    plan = {**EVERYBODY, "cohort": 20, "nodes": 10}
    whole = make_world(examples, **plan).run(6)
    world = masked(make_world(examples, wrap=around(watch), timeout=0.2, **plan))
    gone = [(2,), (3, 6), (1, 9, 10), (), (2, 4), (2, 5)]
    found = []
    for done, nodes in enumerate(gone, 1):
        watch.fails = {secure.UNMASK: nodes}
        found += world.run(done)
    assert [g.tobytes() for g in found] == [g.tobytes() for g in whole]
    assert world.ledger.spent() == {world.strategy.plan.mechanism.event: 6}
    # Nobody is asked to open more of one session than once.
    asked = [(m.metadata.dst_node_id, m.metadata.message_id) for m in watch.sent
             if m.metadata.message_type == secure.UNMASK]  # fmt: skip
    assert len(asked) == len(set(asked))


def late_world(make_world, examples):
    """A masked world of ten nodes, and what makes some of them slow."""
    watch = Late(None)
    quiet = {**EVERYBODY, "noise_multiplier": 1e-9}
    return masked(make_world(examples, nodes=10, wrap=around(watch), timeout=0.2, **quiet)), watch


def alone(make_world, examples, nodes, theta):
    """Return what a round at θ releases that all nodes but these answer, at the size of all."""
    present = np.array([user for user in range(30) if user // 3 + 1 not in nodes])
    plan = {**EVERYBODY, "cohort": len(present), "noise_multiplier": 1e-9}
    world = make_world(examples.select(present), **plan)
    world.strategy.optimizer.theta.copy_(theta)
    return world.run(1)[0] * len(present) / 30


@pytest.mark.parametrize("hidden", [False, True], ids=["open", "masked"])
def test_nodes_that_come_and_go_every_other_round(make_world, examples, hidden):
    """Those who are there count, and whoever is away is zero, in that round and in no other."""
    watch = Watched(None)
    quiet = {**EVERYBODY, "noise_multiplier": 1e-9}
    world = make_world(examples, nodes=10, wrap=around(watch), timeout=0.2, **quiet)
    world.strategy.masked = hidden
    away = [(1, 2), (), (1, 3, 4), (2,), (), (3,)]
    rounds = []
    for done, nodes in enumerate(away, 1):
        watch.fails = {"train": nodes}
        theta = world.strategy.optimizer.theta.clone()
        (released,) = world.run(done)
        rounds.append((nodes, theta, released))
    for nodes, theta, released in rounds:
        expected = alone(make_world, examples, nodes, theta)
        np.testing.assert_allclose(released, expected, atol=1e-9)
    assert world.ledger.spent() == {world.strategy.plan.mechanism.event: len(away)}


def test_nodes_that_are_slow_at_each_exchange_in_turn(make_world, examples):
    """Who is slow counts as zero, if their vector was not there; and in full in the next round."""
    world, watch = late_world(make_world, examples)
    slow = [
        (secure.KEYS, (2,)), (secure.KEYS, ()), (secure.SHARES, (3, 6)), ("train", (1,)),
        (secure.UNMASK, (2, 4)), (secure.UNMASK, ()), ("train", (2, 9, 10)), (secure.KEYS, (2,)),
    ]  # fmt: skip
    rounds = []
    for done, (kind, nodes) in enumerate(slow, 1):
        watch.fails, before = {kind: nodes}, len(watch.sent)
        theta = world.strategy.optimizer.theta.clone()
        (released,) = world.run(done)
        rounds.append((() if kind == secure.UNMASK else nodes, theta, released))
        # A session goes on without those who were slow in it, and another is not present from them.
        requests = [(m.metadata.message_type, m.metadata.dst_node_id) for m in watch.sent[before:]]
        assert len(requests) == len(set(requests))
        for node in range(1, 11):
            steps = STEPS[: STEPS.index(kind) + 1] if node in nodes else STEPS
            assert {step for step, to in requests if to == node} == set(steps)
    late = [(m.metadata.message_type, m.metadata.src_node_id) for m in watch.came_late]
    assert late == [(kind, node) for kind, nodes in slow for node in nodes]
    assert len(world.left_out) == sum(len(nodes) for _, nodes in slow)
    assert world.ledger.spent() == {world.strategy.plan.mechanism.event: len(slow)}
    for lost, theta, released in rounds:
        expected = alone(make_world, examples, lost, theta)
        np.testing.assert_allclose(released, expected, atol=1e-9)


@pytest.mark.parametrize("kind", STEPS)
def test_a_round_in_which_too_many_are_slow_counts_as_zero_and_the_next_in_full(
    make_world, examples, kind
):
    """What comes late is no answer to the session that it comes in."""
    world, watch = late_world(make_world, examples)
    watch.fails = {kind: (1, 2, 3, 4) if kind != secure.KEYS else range(1, 9)}
    (released,) = world.run(1)
    assert np.abs(released).max() < 1e-9
    assert not [m for m in watch.sent if m.metadata.message_type in STEPS[STEPS.index(kind) + 1 :]]
    watch.fails, theta = {}, world.strategy.optimizer.theta.clone()
    (released,) = world.run(2)
    np.testing.assert_allclose(released, alone(make_world, examples, (), theta), atol=1e-9)
    assert watch.came_late
    assert world.ledger.spent() == {world.strategy.plan.mechanism.event: 2}


def test_no_node_tells_its_own_sum(make_world, examples):
    """Everything a node answers is compared with its sum, as floats and as whole numbers."""
    watch = Watched(None)
    world = masked(make_world(examples, nodes=5, wrap=around(watch), **EVERYBODY))
    world.run(2)
    bare = make_world(examples, nodes=5, wrap=lambda inner: Watched(inner), **EVERYBODY)
    bare.run(1)
    sums = [r.content.array_records["sums"]["sum"].numpy() for r in bare.grid.replies
            if r.metadata.message_type == "train"]  # fmt: skip
    vectors = [r.content.array_records["secure"]["masked"].numpy() for r in watch.replies
               if r.metadata.message_type == "train"]  # fmt: skip
    assert len(sums) == 5
    assert len(vectors) == 10
    for reply in watch.replies:
        assert "sums" not in reply.content.array_records
    for masked_L in vectors:
        high = np.abs(masked_L.astype(np.float64) - 2.0**63).min() / 2.0**63
        assert high < 1.0
        for sum_D in sums:
            whole_D = grid.to_whole(sum_D, CLIP.step).view(np.uint64)
            assert not (masked_L == whole_D).any()
    # The same node in two rounds: nothing in common.
    for first, second in zip(vectors[:5], vectors[5:], strict=True):
        assert not (first == second).any()


def test_counts_and_radii_that_adapt_are_masked_too(make_world, examples):
    plan = {"kind": AdaptivePlan, "strategy": Adaptive, "cohort": 20, "count_noise": 3.0}
    plan |= {"adjacency": Adjacency.ZERO_OUT, "nodes": 5}
    bare, hidden = make_world(examples, **plan), masked(make_world(examples, **plan))
    first, second = bare.run(5), hidden.run(5)
    assert [g.tobytes() for g in first] == [g.tobytes() for g in second]
    assert bare.strategy.radius == hidden.strategy.radius != bare.strategy.plan.clip.norm
    assert hidden.left_out == []


def test_sampled_examples_are_masked_too(make_world, examples):
    plan = {"kind": ElsPlan, "strategy": Els, "group_size": 4, "probability": 0.4}
    plan |= {"adjacency": Adjacency.ZERO_OUT, "nodes": 5, "clip": ExampleClip(0.5)}
    bare, hidden = make_world(examples, **plan), masked(make_world(examples, **plan))
    first, second = bare.run(3), hidden.run(3)
    assert [g.tobytes() for g in first] == [g.tobytes() for g in second]


def test_sums_without_a_grid_are_not_masked(make_world, examples):
    world = masked(make_world(examples, nodes=5, **EVERYBODY))
    world.strategy.steps = lambda: {"sum": 0.0}
    with pytest.raises(ValueError, match="no grid"):
        world.run(1)


def registry_of(*users):
    keys = iter(range(1, 10**6))
    return Registry.of(
        {
            node: RegistryEntry(
                node, np.array([next(keys) for _ in range(count)], dtype=np.uint64), None
            )
            for node, count in enumerate(users)
        }
    )


@pytest.mark.parametrize(
    ("users", "probability", "good"),
    [
        ((5, 5, 5), 1.0, True),
        ((5, 5), 1.0, False),
        ((50, 50, 50), 0.2, True),
        ((1, 1, 1), 0.9, False),
        ((1,) * 20, 0.5, True),
        ((1,) * 20, 0.2, False),
        ((1000, 1, 1), 0.5, False),
    ],
)
def test_too_few_nodes_in_too_many_rounds_are_refused_beforehand(users, probability, good):
    registry = registry_of(*users)
    generator = np.random.default_rng(0)
    active = generator.binomial(users, probability, size=(20_000, len(users))) > 0
    few = (active.sum(axis=1) < party.LEAST_PARTIES).mean()
    assert (few < 0.01) == good  # what is refused is what happens
    if good:
        secure_rounds.check_nodes(registry, probability)
    else:
        with pytest.raises(ValueError, match="needs 3 nodes in a round"):
            secure_rounds.check_nodes(registry, probability)


def test_too_many_nodes_are_refused_beforehand():
    registry = registry_of(*(1,) * 3000)
    secure_rounds.check_nodes(registry, 0.1)
    with pytest.raises(ValueError, match="at most 1000 nodes"):
        secure_rounds.check_nodes(registry, 0.5)
    secure_rounds.check_nodes(registry_of(*(1,) * 1000), 1.0)


def test_how_the_coins_of_a_hold_out_fell_does_not_show_in_a_refusal(make_world, examples):
    """Nobody but the users of one node is trained on: who refused that would tell of the coins."""
    world = make_world(examples, nodes=10, cohort=15)
    registry = world.strategy.participants.registry
    (_, only), *_ = registry.by_node(registry.single)
    train = np.flatnonzero(np.isin(registry.keys_N, only.names_S))
    out = np.setdiff1d(registry.single, train)
    for share, works in ((0.2, True), (0.999, False)):
        settings = {
            "participants": Participants(registry, train, out, share),
            "optimizer": world.strategy.optimizer,
            "source": world.strategy.source,
            "features": world.strategy.features,
            "log": print,
            "masked": True,
        }
        with contextlib.nullcontext() if works else pytest.raises(ValueError, match="3 nodes"):
            Uls(world.strategy.plan, world.ledger, **settings).check()


def test_a_cohort_on_too_few_nodes_counts_as_zero_without_a_question(make_world, examples):
    watch = Watched(None)
    world = masked(make_world(examples, nodes=2, wrap=around(watch), **EVERYBODY))
    world.run(1)
    assert "2 nodes have users" in world.left_out[-1]
    assert not [m for m in watch.sent if m.metadata.message_type == "train"]
