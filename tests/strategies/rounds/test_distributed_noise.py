"""Rounds whose noise the nodes add: what the server unmasks has it, whoever is asked or drops out.

Everything here is seen from the server: totals are taken where they are unmasked.
"""

import numpy as np
import pytest
from failing import Watched
from scipy import stats

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.privacy.mechanisms.distributed import DistributedNoise
from murmuration.strategies.adaptive import Adaptive, AdaptivePlan
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.availability import RunAborted

pytestmark = pytest.mark.skipif(not installed(), reason="needs OpenDP")

CLIP, SIGMA, NODES, D = UserClip(0.5), 5.0, 6, 400
EVERYBODY = {"cohort": 30, "clip": CLIP, "adjacency": Adjacency.ZERO_OUT, "group_size": 100}
STILL = {"rate": 1e-12}  # a model that hardly moves: the exact totals are the same in all rounds


@pytest.fixture
def examples(make_examples):
    return make_examples([1, 3, 9, 2, 40, 1, 1, 2, 5, 1] * 3, dimension=D)


@pytest.fixture
def make_noisy(make_world, examples):
    """A function: a world of six nodes that add noise, ``parties`` shares of it, and its totals."""

    def make(parties=4, fails=(), **settings):
        watch, totals = Watched(None, fails), []

        def wrap(inner):
            watch.grid = inner
            return watch

        plan = {"noise_multiplier": SIGMA, "optimizer": STILL, "rounds": 60, **EVERYBODY}
        plan |= {"discrete": DistributedNoise(D, parties), "timeout": 0.3, **settings}
        world = make_world(examples, nodes=NODES, seed=None, wrap=wrap, **plan)
        world.strategy.masked = True
        update = world.strategy.update

        def seen(round_, found):
            totals.append({name: np.array(total) for name, total in found.items()})
            return update(round_, found)

        world.strategy.update = seen
        return world, totals, watch

    return make


@pytest.fixture
def exact(make_world, examples):
    """A function: the exact sum over everybody but those whom some nodes host."""

    def total(gone=()):
        kept = np.array([user for user in range(30) if user // 5 + 1 not in gone])
        quiet = {**EVERYBODY, "cohort": len(kept), "noise_multiplier": 1e-9, "optimizer": STILL}
        (released,) = make_world(examples.select(kept), **quiet).run(1)
        return released * len(kept)

    return total


def looks_normal(noise, std):
    """Independent N(0, std²): neither more nor less."""
    tail = stats.chi2.cdf(((noise / std) ** 2).sum(), noise.size)
    assert 1e-6 < tail < 1 - 1e-6, f"{np.std(noise) / std:.3f} of the noise"
    assert stats.kstest(noise / std, "norm").pvalue > 1e-6


def noise_in(totals, exact_D):
    return np.concatenate([total["sum"] - exact_D for total in totals])


def test_the_server_unmasks_no_sum_without_all_nodes_noise(make_noisy, exact):
    world, totals, _ = make_noisy(parties=4)
    world.run(8)
    found = noise_in(totals, exact())
    looks_normal(found, SIGMA * CLIP.norm * np.sqrt(NODES / 4))
    assert world.left_out == []
    assert world.ledger.spent() == {world.strategy.plan.mechanism.event: 8}


def test_what_is_published_is_what_was_unmasked(make_noisy):
    """No second noise, and none taken off."""
    world, totals, _ = make_noisy()
    released = world.run(3)
    for given, total in zip(released, totals, strict=True):
        np.testing.assert_array_equal(given, total["sum"] / 30)


def test_every_node_adds_its_share_asked_or_not(make_noisy):
    """Else the noise would depend on the server's coins. Here they fall on hardly anybody."""
    world, totals, watch = make_noisy(parties=6, cohort=1)
    world.run(12)
    work = [m for m in watch.sent if m.metadata.message_type == "train"]
    assert len(work) == 12 * NODES
    asked = [len(messages.UserSelection.of(m.content)) for m in work]
    assert asked.count(0) > 40
    nobody = [
        total
        for round_, total in enumerate(totals)
        if sum(asked[round_ * NODES : (round_ + 1) * NODES]) == 0
    ]
    assert nobody
    looks_normal(noise_in(nobody, np.zeros(D)), SIGMA * CLIP.norm)


@pytest.mark.parametrize("kind", ["query.secure_shares", "train"])
def test_of_those_who_drop_out_noise_and_users_are_missing(make_noisy, exact, kind):
    world, totals, _ = make_noisy(parties=5, fails={kind: (1,)})
    world.run(6)
    looks_normal(noise_in(totals, exact((1,))), SIGMA * CLIP.norm)


def test_with_fewer_shares_than_the_noise_is_made_of_nothing_is_unmasked(make_noisy):
    """Five of six would do for the masks; the nodes open nothing, and the server adds its own."""
    world, totals, watch = make_noisy(parties=6, fails={"train": (1,)})
    with pytest.raises(RunAborted):
        world.run(6)
    unmasked = [m for m in watch.replies if m.metadata.message_type == "query.secure_unmask"]
    assert unmasked
    assert all(m.has_error() for m in unmasked)
    looks_normal(noise_in(totals, np.zeros(D)), SIGMA * CLIP.norm)
    assert world.ledger.spent() == {world.strategy.plan.mechanism.event: 1}


def test_a_lost_round_is_noise_too(make_noisy):
    world, totals, _ = make_noisy(parties=4)
    for _ in range(5):
        world.strategy._lost_round(1)
    looks_normal(noise_in(totals, np.zeros(D)), SIGMA * CLIP.norm)


def test_sum_and_count_have_noise_of_their_own(make_world, make_examples):
    """Seen in requests: by how far a user moves either, they come to what is charged."""
    plan = {"kind": AdaptivePlan, "strategy": Adaptive, "cohort": 6, "count_noise": 7.0}
    plan |= {"adjacency": Adjacency.ZERO_OUT, "noise_multiplier": SIGMA, "nodes": 3, "seed": None}
    world = make_world(make_examples([2] * 6), discrete=DistributedNoise(5, 2), **plan)
    radius = world.strategy.radius
    parties, shares = messages.read_noise(world.strategy.asked_with(1))
    whole = {name: share * np.sqrt(parties) for name, share in shares.items()}
    assert whole == pytest.approx({"sum": SIGMA * radius, "within": 7.0}, rel=1e-12)
    both = 1 / np.hypot(radius / whole["sum"], 0.5 / whole["within"])
    event = world.strategy.plan.mechanism_at(radius).event
    assert both == pytest.approx(event.noise_multiplier, rel=1e-12)


def test_noise_of_the_nodes_without_masks_is_refused(make_noisy):
    world, _, watch = make_noisy()
    world.strategy.masked = False
    with pytest.raises(ValueError, match="add --secure-aggregation"):
        world.run(1)
    assert not [m for m in watch.sent if m.metadata.message_type == "train"]


def test_a_node_that_sends_nonsense_is_still_noticed(make_noisy, monkeypatch):
    """The bound is the users', and what so many nodes' noise can be."""
    world, totals, _ = make_noisy(parties=4)
    world.run(1)
    assert world.left_out == []
    monkeypatch.setattr(
        "murmuration.strategies.protocol.secure_rounds.unmasked",
        lambda *_: np.full(D, 2**40, dtype=np.int64),
    )
    world.run(2)
    assert "cannot produce" in world.left_out[-1]
    assert np.abs(totals[-1]["sum"]).max() < 20 * SIGMA * CLIP.norm


def test_what_a_request_says_of_noise(make_noisy):
    world, _, _ = make_noisy(parties=4)
    parties, shares = messages.read_noise(world.strategy.asked_with(1))
    assert parties == 4
    assert shares == {"sum": pytest.approx(SIGMA * CLIP.norm / 2, rel=1e-12)}
