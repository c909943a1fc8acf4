"""Vectors that are scaled by earlier releases before they are clipped: ``--optimizer adam-scaled``.

The claim: each round is the clipped Gaussian sum that it is without a scale, because the scale is a
function of what was released before, and the bound holds of vectors as they are once scaled.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmuration.preference.data.rows import InputError
from murmuration.privacy.mechanisms.clipping import MOST_SCALE, ScaledClip, UserClip
from murmuration.strategies import dp_fedavg, uls
from murmuration.strategies.adaptive import Adaptive, AdaptivePlan
from murmuration.strategies.config import RunConfig
from murmuration.strategies.contributions import SCALE, bounded_sum, clip_of
from murmuration.strategies.protocol import messages
from murmuration.strategies.uls import Uls

#: Of four coordinates, as tests' users have: one shrinks a vector along it, the others stretch it.
SCALE_D = np.array([0.25, 1.5, 3.0, 8.0], dtype=np.float32)
ADAM = {"kind": "adam-scaled", "rate": 0.1}


def with_scale(node_half, scale_D=SCALE_D):
    """A node half that is asked with a scale."""

    def client_update(examples, work, keys_S, source):
        arrays = {**work.arrays, SCALE: scale_D}
        return node_half(examples, replace(work, arrays=arrays), keys_S, source)

    return client_update


def ask_local(examples, work, keys_S, source):
    """The node half of dp-fedavg, with local steps."""
    local = {"local-steps": 2, "local-rate": 0.5}
    work = replace(work, parameters={**work.parameters, **local})
    return dp_fedavg.client_update(examples, work, keys_S, source)


HALVES = [uls.client_update, ask_local]


def scaled_after_the_clip(examples, work, keys_S, source):
    """A seeded fault: the bound holds of vectors as they were, and the noise is for it."""
    sum_D = bounded_sum(examples, work, keys_S, source, clip_of(work))
    return {"sum": sum_D * work.arrays[SCALE]}


# The node half


@pytest.mark.parametrize("half", HALVES)
def test_what_is_scaled_is_one_vote_each(checks, half):
    """Two-sided: no user moves the sum by more than the clip norm, and long ones by no less."""
    checks.one_vote_each(with_scale(half))
    checks.survives_nan(with_scale(uls.client_update))
    checks.accepts_silence(with_scale(half))


def test_the_check_catches_a_scale_after_the_clip(checks):
    with pytest.raises(AssertionError, match=r"moved the sum by 4\.. clip norms"):
        checks.one_vote_each(with_scale(scaled_after_the_clip))
    with pytest.raises(AssertionError, match=r"was cut to 0\.25 clip norms"):
        checks.one_vote_each(with_scale(scaled_after_the_clip, np.full(4, 0.25, np.float32)))


def test_it_is_scaled_and_then_clipped(make_examples, checks, oracle):
    examples = make_examples([1, 3, 9], dimension=4, scale=3.0)
    sum_D = checks.ask(with_scale(uls.client_update), examples, **{"clip-norm": 0.7})
    expected_D, edges = torch.zeros(4, dtype=torch.float64), np.cumsum([0, 1, 3, 9])
    for user in range(3):
        mine = oracle(examples, torch.zeros(4), torch.arange(*edges[user : user + 2])).double()
        scaled_D = mine * torch.from_numpy(SCALE_D)
        expected_D += scaled_D * min(1.0, 0.7 / float(scaled_D.norm()))
    np.testing.assert_allclose(sum_D, expected_D.numpy(), rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_users_part_is_that_user_s_alone(data):
    """In any company and order, to the last bit; whatever the numbers are."""
    numbers = st.floats(width=32, allow_nan=True, allow_infinity=True)
    rows = data.draw(st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=1, max_size=6))
    scale = st.floats(1 / MOST_SCALE, MOST_SCALE, width=32)
    scale_D = torch.tensor(data.draw(st.lists(scale, min_size=4, max_size=4)))
    bound, rows_BD = ScaledClip(UserClip(0.3), scale_D), torch.tensor(rows, dtype=torch.float32)
    alone_BD = torch.stack([bound.clip_sum(row_D[None]) for row_D in rows_BD])
    assert float(alone_BD.norm(dim=1).max()) <= 0.3
    order = data.draw(st.permutations(range(len(rows))))
    assert torch.equal(bound.clip_sum(rows_BD[list(order)]), alone_BD.sum(0))


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ([1.0, 1.0, 1.0, 0.0], "positive and finite"),
        ([1.0, 1.0, 1.0, -1.0], "positive and finite"),
        ([1.0, 1.0, 1.0, math.nan], "positive and finite"),
        ([1.0, 1.0, 1.0, math.inf], "positive and finite"),
        ([1.0, 1.0, 1.0, 2.0**21], "within a factor"),
        ([1.0, 1.0, 1.0, 2.0**-21], "within a factor"),
        ([1.0, 1.0, 1.0], "a number for each weight"),
        ([[1.0, 1.0, 1.0, 1.0]], "a number for each weight"),
        ("float64", "a vector of float32"),
        ("int64", "a vector of float32"),
    ],
)
@pytest.mark.parametrize("half", HALVES)
def test_a_node_refuses_what_is_no_scale(checks, half, scale, message):
    """Before it computes anything; a NaN would otherwise silence everybody, zero what they say."""
    bad = np.ones(4, scale) if isinstance(scale, str) else np.array(scale, dtype=np.float32)
    with pytest.raises(ValueError, match=message):
        checks.ask(with_scale(half, bad), checks.gather(checks.like_everybody(2)))


# The server's half


class Listening:
    """A grid; what scales nodes were sent, round by round."""

    def __init__(self, grid, shape):
        self.grid, self.shape, self.scales = grid, shape, []

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, outgoing):
        sent = list(outgoing)
        (scale_D,) = {
            messages.read_work(message.content).arrays[SCALE].tobytes() for message in sent
        }
        self.scales.append(np.frombuffer(scale_D, dtype=np.float32))
        return self.grid.push_messages(sent)


def of_releases(released, fading=0.99, prior=10.0):
    """The scale after these gradients, by the definition: weighted means, not running ones."""
    if not released:
        return 1.0
    weight_T = (1.0 - fading) * fading ** np.arange(len(released))[::-1]
    mean_D = weight_T @ np.square(released) / weight_T.sum()
    known = weight_T.sum() / (1.0 - fading)
    mean_D = (known * mean_D + prior * mean_D.mean()) / (known + prior)
    return np.sqrt(mean_D.mean() / mean_D)


def from_releases_alone(world, rounds=5):
    """Nodes are told a scale that follows from what was released before, and from nothing else."""
    released = []
    for round_ in range(1, rounds + 1):
        expected_D = np.broadcast_to(of_releases(released), world.grid.shape)
        released += world.run(round_)
        np.testing.assert_allclose(
            world.grid.scales[-1], expected_D, rtol=1e-5,
            err_msg="a scale that does not follow from what was released",
        )  # fmt: skip


class OfExactSums(Uls):
    """A seeded fault: the scale of a round looks at the sum before it has its noise."""

    exact = None

    def arrays(self):
        scale_D = of_releases([self.exact]) if self.exact is not None else 1.0
        ones_D = np.ones(len(self.optimizer.theta), dtype=np.float32)
        return {SCALE: (scale_D * ones_D).astype(np.float32)}

    def gradient(self, round_, totals):
        gradient_D = super().gradient(round_, totals)
        self.exact = totals["sum"] / self.plan.divisor
        return gradient_D


class NotDividedBack(Uls):
    """A seeded fault: what was scaled is taken for the gradient."""

    def gradient(self, round_, totals):
        return super().gradient(round_, totals) * self.arrays()[SCALE]


def world_of(make_world, examples, **changes):
    def listen(grid):
        return Listening(grid, (examples.dimension,))

    return make_world(examples, wrap=listen, **{"optimizer": ADAM, "nodes": 2, **changes})


def test_the_scale_follows_from_releases_alone(make_world, make_examples):
    examples = make_examples([1, 2, 3] * 5, dimension=50)
    from_releases_alone(world_of(make_world, examples))
    with pytest.raises(AssertionError, match="does not follow from what was released"):
        from_releases_alone(world_of(make_world, examples, strategy=OfExactSums))


def as_without_a_scale(world, rounds=8):
    """Where nothing is clipped and there is no noise, a scale changes nothing."""
    world.run(rounds)
    return world.strategy.optimizer.theta_D


def test_what_was_scaled_is_divided_back(make_world, make_examples):
    examples = make_examples([1, 3, 9, 2, 12])
    plain = {"cohort": 5, "noise_multiplier": 1e-9, "clip": UserClip(1e3)}
    adam = make_world(examples, nodes=2, optimizer={**ADAM, "kind": "adam"}, **plain)
    expected_D = as_without_a_scale(adam)
    scaled = world_of(make_world, examples, **plain)
    np.testing.assert_allclose(as_without_a_scale(scaled), expected_D, atol=1e-4)
    assert np.ptp(scaled.grid.scales[-1]) > 0.1
    fault = world_of(make_world, examples, strategy=NotDividedBack, **plain)
    assert np.abs(as_without_a_scale(fault) - expected_D).max() > 3e-3


@pytest.mark.parametrize("norm", [0.1, 3.0])
def test_noise_is_that_of_the_clip_once_it_is_scaled_again(make_world, make_examples, checks, norm):
    """Nobody has anything to say: what is released is noise, of the promised length either way."""
    examples = make_examples([1, 2, 3] * 10, dimension=4000)
    examples.x_RD.zero_()
    world = world_of(make_world, examples, cohort=12, clip=UserClip(norm), noise_multiplier=1.7)
    std, released, scale_D = 1.7 * norm / 12, np.empty(0), np.empty(0)
    for round_ in range(1, 5):
        (released,) = world.run(round_)
        scale_D = world.grid.scales[-1]
        checks.released_noise(released * scale_D, std)
        assert np.mean(1.0 / scale_D.astype(float) ** 2) == pytest.approx(1.0, rel=1e-5)
    assert np.ptp(scale_D) > 0.1  # noise is placed by what noise there was
    for wrong in (2 / 3, 1.5):
        with pytest.raises(AssertionError, match="promised scale"):
            checks.released_noise(released * scale_D, wrong * std)


def test_noise_goes_where_gradients_are_long(make_world, make_examples):
    """One coordinate is what users are about: it gets most of the noise, which is no longer."""
    examples = make_examples([4] * 60, dimension=30, scale=0.01)
    examples.x_RD[:, 0] *= 300.0
    world = world_of(
        make_world, examples, cohort=60, noise_multiplier=0.1, rounds=40,
        optimizer={**ADAM, "rate": 1e-6},
    )  # fmt: skip
    world.run(40)
    scale_D = world.grid.scales[-1]
    assert scale_D[0] < 0.5 * scale_D[1:].min()
    assert np.linalg.norm(1.0 / scale_D) == pytest.approx(math.sqrt(30), rel=1e-5)


def test_the_ledger_is_charged_the_same(make_world, make_examples):
    examples = make_examples([1] * 20)
    spent = []
    for kind in ("adam", "adam-scaled"):
        world = make_world(examples, optimizer={**ADAM, "kind": kind}, noise_multiplier=3.0)
        world.run(4)
        spent.append((world.ledger.spent(), world.ledger.epsilon()))
    assert spent[0] == spent[1]


def test_at_first_only_what_moves_counts(make_world, make_examples):
    """A part that has not moved is no reason to scale anything, and is average from then on."""
    optimizer = make_world(
        make_examples([1, 2], dimension=6), optimizer={**ADAM, "part_rounds": 3}
    ).strategy.optimizer
    optimizer.part = slice(4, 6)
    generator = np.random.default_rng(0)
    for round_ in range(1, 4):
        optimizer.step(round_, generator.normal(size=6))
        assert optimizer.scale_D[:4] == pytest.approx(optimizer.scale_D[0])
    assert 0.5 < optimizer.scale_D[0] < 2.0
    for round_ in range(4, 300):
        optimizer.step(round_, generator.normal(size=6) * [1, 1, 1, 1, 3, 3])
    assert optimizer.scale_D[4:] == pytest.approx(optimizer.scale_D[:4].mean() / 3, rel=0.25)


@pytest.mark.parametrize("gradient", [0.0, 1e-30, 1e30])
def test_any_release_gives_a_scale_that_nodes_take(make_world, make_examples, gradient):
    optimizer = make_world(make_examples([1, 2]), optimizer=ADAM).strategy.optimizer
    for round_ in range(1, 9):
        optimizer.step(round_, gradient * np.array([1.0, 0, 0, 0, 0]))
        ScaledClip(UserClip(1.0), torch.from_numpy(optimizer.scale_D))


def test_it_goes_on_from_its_state_to_the_last_bit(make_world, make_examples):
    examples = make_examples([1, 2, 3] * 4)
    whole = world_of(make_world, examples, noise_multiplier=0.3)
    whole.run(6)
    first, second = (world_of(make_world, examples, noise_multiplier=0.3) for _ in range(2))
    first.run(3)
    state = {name: np.array(array) for name, array in first.strategy.state().items()}
    second.strategy.restore(state)
    second.strategy.rounds_done = 3
    second.run(6)
    for scale_D, expected_D in zip(second.grid.scales, whole.grid.scales[3:], strict=True):
        assert scale_D.tobytes() == expected_D.tobytes()
    assert second.strategy.optimizer.theta_D.tobytes() == whole.strategy.optimizer.theta_D.tobytes()


def test_golden(make_world, make_examples):
    """A trajectory; nothing here may change it."""
    world = world_of(make_world, make_examples([1, 2, 3] * 4), noise_multiplier=0.3)
    world.run(6)
    assert world.grid.scales[-1].tolist() == pytest.approx(GOLDEN_SCALE, rel=1e-6)
    assert world.strategy.optimizer.theta_D.tolist() == pytest.approx(GOLDEN_THETA, rel=1e-6)


GOLDEN_SCALE = [1.03799856, 1.02024901, 0.90753108, 1.13354528, 0.94543612]
GOLDEN_THETA = [-0.12746035, -0.44997531, -0.05505918, 0.40546894, 0.16202722]


# What is refused


@pytest.mark.parametrize("strategy", ["els", "adaptive", "aup", "nonprivate"])
def test_a_strategy_that_does_not_scale_is_refused_before_anything_is_read(strategy):
    with pytest.raises(InputError, match="--optimizer adam, or --strategy uls or dp-fedavg"):
        RunConfig(strategy=strategy, optimizer="adam-scaled", test="t", users=100, cohort=20)


def test_a_strategy_that_does_not_scale_cannot_be_built(make_world, make_examples):
    plan = {"kind": AdaptivePlan, "count_noise": 5.0, "cohort": 2}
    make_world(make_examples([1, 2]), strategy=Adaptive, **plan)
    with pytest.raises(TypeError, match="scales nobody's vectors"):
        make_world(make_examples([1, 2]), strategy=Adaptive, optimizer=ADAM, **plan)


def test_noise_in_bands_is_not_for_it():
    with pytest.raises(InputError, match="--optimizer sgd adds up, not adam-scaled"):
        RunConfig.from_run_config(
            {"noise-correlation": "banded", "optimizer": "adam-scaled", "users": 100, "cohort": 20,
             "test": "t"}
        )  # fmt: skip
