"""A shared basis and users' own weights: against oracles, and that the weights stay."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from murmuration.preference.data.rows import InputError
from murmuration.preference.linear import gradients, tastes
from murmuration.preference.linear.basis_start import start_KD
from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.linear.tastes import (
    NEITHER,
    TasteExamples,
    halves,
    own_weights,
)
from murmuration.preference.models import preference_model
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies import uls
from murmuration.strategies.optimizers import OptimizerSettings, ServerOptimizer
from murmuration.strategies.protocol.messages import TrainRequest

BTL = preference_model("btl")
CLIP = UserClip(0.3)


def objective(v, x_MD, y_M, basis_KD):
    z_M = x_MD @ (basis_KD[0] + v @ basis_KD[1:])
    return float((np.logaddexp(0.0, z_M) - y_M * z_M).sum() + 0.5 * v @ v)


def in_turn(pairs, rows):
    """Return examples of which a user's judgements go to one half and the other in turn."""
    texts_J2 = np.arange(2 * len(pairs.y_R)).reshape(-1, 2)
    return TasteExamples(pairs, rows, halves(texts_J2, pairs.start_U.numpy()))


def parts(half_M):
    """Return what gives the weights, and what the gradient is of."""
    one, other, neither = (np.flatnonzero(half_M == half) for half in (0, 1, NEITHER))
    return (one, other), (other, one), (one[:0], neither)


def oracle(examples, theta_E, judgements):
    """A user's gradient by autograd, with weights that scipy solves for."""
    basis_KD = examples.basis_KD(theta_E).astype(np.float64)
    x_MD = examples.pairs.x_RD[judgements].numpy().astype(np.float64)
    y_M = examples.y_R[judgements].numpy().astype(np.float64)
    total_KD = np.zeros_like(basis_KD)
    for fit, rest in parts(examples.half_J[judgements.numpy()]):
        v = np.zeros(len(basis_KD) - 1)
        if len(y_M[fit]):
            v = minimize(objective, v, (x_MD[fit], y_M[fit], basis_KD), tol=1e-12).x
        basis = torch.tensor(basis_KD, requires_grad=True)
        w = torch.tensor([1.0, *v], dtype=torch.float64)
        z_M = torch.tensor(x_MD[rest]) @ (w @ basis)
        loss = torch.nn.functional.softplus(z_M) - torch.tensor(y_M[rest]) * z_M
        loss.sum().div(len(y_M)).backward()
        total_KD += basis.grad.numpy()
    return total_KD.reshape(-1)


def user_rows(examples, theta_E, users, steps=None):
    users_S = np.array(users)
    taken = gradients.windows(examples.start_U, users_S, 9, np.zeros(len(users), dtype=np.uint64))
    chunks = examples.user_gradients(theta_E, *taken, BTL)
    return torch.cat(list(chunks)), taken


@pytest.fixture
def examples(make_examples):
    pairs = make_examples([1, 7, 2, 9, 1, 3, 0, 8], dimension=6)
    half_J = np.random.default_rng(6).choice([0, 1, 1, 0, NEITHER], 31).astype(np.int8)
    half_J[[0, 19]] = 0  # of who has one judgement
    return TasteExamples(pairs, 3, half_J)


@pytest.fixture
def theta_E():
    return torch.randn(18, generator=torch.Generator().manual_seed(4))


def test_weights_minimise_what_they_are_said_to(examples, theta_E):
    basis_KD = examples.basis_KD(theta_E)
    for x_MD, y_M in ((examples.pairs.x_RD[3:9].numpy(), examples.y_R[3:9].numpy()),):
        v = own_weights(x_MD, y_M, basis_KD)
        best = minimize(objective, np.zeros(2), (x_MD, y_M, basis_KD), tol=1e-12)
        np.testing.assert_allclose(v, best.x, atol=1e-5)
        assert np.abs(v).max() > 0.05
    assert own_weights(x_MD[:0], y_M[:0], basis_KD).tolist() == [0.0, 0.0]


@given(
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 30.0, 1e4, 1e18]),
    judgements=st.integers(1, 12),
    rows=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_weights_are_bounded_by_the_crowds_loss_whatever_was_judged(scale, judgements, rows, seed):
    draw = np.random.default_rng(seed)
    x_MD = (draw.standard_normal((judgements, 4)) * scale).astype(np.float32)
    basis_KD = draw.standard_normal((rows, 4)).astype(np.float32)
    y_M = draw.choice([0.0, 0.5, 1.0], judgements)
    v = own_weights(x_MD, y_M, basis_KD)
    assert np.isfinite(v).all()
    crowd = objective(np.zeros(rows - 1), x_MD.astype(float), y_M, basis_KD.astype(float))
    assert 0.5 * v @ v <= crowd * (1 + 1e-6) + 1e-9
    assert objective(v, x_MD.astype(float), y_M, basis_KD.astype(float)) <= crowd * (1 + 1e-6)


def test_a_degenerate_basis_is_no_error_which_would_tell_what_was_judged():
    """Two equal rows so long that the curvature is singular in float64, along one feature."""
    basis_KD = np.zeros((3, 4), np.float32)
    basis_KD[1:, 1] = 1e10
    x_RD, y_R = np.zeros((2, 4), np.float32), np.ones(2, np.float32)
    x_RD[:, 1] = 1.0
    assert np.isfinite(tastes.own_weights(x_RD, y_R, basis_KD)).all()
    update_BE, half_J = np.full((1, 12), np.nan, np.float32), np.array([0, 1], np.int8)
    places_N, ends_B = np.arange(2), np.array([2])
    tastes.updates(x_RD, y_R, places_N, ends_B, half_J, basis_KD, 1, 1.0, update_BE)
    assert np.isfinite(update_BE).all()


@pytest.mark.parametrize("chunk_bytes", [1, 200, 2**22])
def test_equal_to_autograd_for_ragged_users(examples, theta_E, monkeypatch, chunk_bytes):
    monkeypatch.setattr(gradients, "CHUNK_BYTES", chunk_bytes)
    result, (taken_N, taken_S) = user_rows(examples, theta_E, [0, 1, 3, 5, 6, 7])
    expected = [oracle(examples, theta_E, n) for n in taken_N.split(taken_S.tolist())]
    np.testing.assert_allclose(result.numpy(), np.stack(expected), rtol=1e-4, atol=1e-5)
    assert not result[4].any()  # nobody's judgements
    assert result[0, :6].any()
    assert not result[0, 6:].any()  # of one judgement nothing is left to find weights by


def test_halves_share_no_response_and_are_even_where_they_can():
    texts_J2 = np.array([[0, 1], [2, 3], [0, 4], [3, 4], [5, 6], [7, 8], [1, 9], [9, 2], [6, 9]])
    assert halves(texts_J2, np.array([0, 9])).tolist() == [
        0,
        1,
        0,
        NEITHER,
        1,
        0,
        0,
        NEITHER,
        NEITHER,
    ]
    # Another user begins anew, whoever judged the same.
    assert halves(texts_J2[[3, 3]], np.array([0, 1, 2])).tolist() == [0, 0]
    assert halves(texts_J2[:0], np.array([0, 0])).tolist() == []


@given(
    texts=st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 9)), max_size=30),
    cut=st.integers(0, 30),
)
def test_no_response_is_in_both_halves_of_a_user(texts, cut):
    texts_J2, cut = np.array(texts, dtype=np.int64).reshape(-1, 2), min(cut, len(texts))
    half_J = halves(texts_J2, np.array([0, cut, len(texts)]))
    for user in (slice(0, cut), slice(cut, None)):
        one, other = ({*texts_J2[user][half_J[user] == half].ravel()} - {-1} for half in (0, 1))
        assert not one & other
        alone = halves(texts_J2[user], np.array([0, len(half_J[user])]))
        assert alone.tolist() == half_J[user].tolist()


def test_what_one_thinks_of_a_response_is_no_taste(make_examples):
    """Users who like each response by the toss of a coin: nothing of one tells of another."""
    draw = np.random.default_rng(3)
    phi_TD = draw.standard_normal((40, 60)).astype(np.float32)
    texts, x = [], []
    for _ in range(300):
        likes = draw.permutation(40)
        chosen, rejected = draw.choice(likes[:5], 12), draw.choice(likes[5:10], 12)
        texts += [*zip(chosen, rejected, strict=True)]
        x.append(phi_TD[chosen] - phi_TD[rejected])
    pairs = PairExamples(
        torch.from_numpy(np.concatenate(x)), torch.ones(3600), torch.arange(0, 3601, 12)
    )
    apart = TasteExamples(pairs, 9, halves(np.array(texts), pairs.start_U.numpy()))
    assert (apart.half_J == NEITHER).mean() < 0.6
    theta_E = np.concatenate([np.zeros(60), 0.5 * draw.standard_normal(8 * 60)])
    gained = [e.accuracy(theta_E).personal - 0.5 for e in (apart, in_turn(pairs, 9))]
    assert gained[0] < 0.03
    assert gained[1] > 0.1  # what would pass for tastes


def test_one_taste_is_one_reward_for_all(make_examples):
    pairs, theta_D = make_examples([1, 4, 3]), torch.linspace(-1, 1, 5)
    result, taken = user_rows(in_turn(pairs, 1), theta_D, [0, 1, 2])
    (expected,) = pairs.user_gradients(theta_D, *taken, BTL)
    torch.testing.assert_close(result, expected)


def test_no_bit_of_a_user_depends_on_others(examples, theta_E):
    together, _ = user_rows(examples, theta_E, [7, 1, 5, 0, 3])
    for place, user in enumerate([7, 1, 5, 0, 3]):
        alone, _ = user_rows(examples.select(np.array([user])), theta_E, [0])
        assert torch.equal(alone[0], together[place])


def test_a_user_who_is_not_finite_is_zero_and_leaves_the_others_alone(examples, theta_E):
    taken = gradients.windows(examples.start_U, np.arange(8), 9, np.zeros(8, dtype=np.uint64))
    before = examples.sum_over_users(theta_E, *taken, CLIP.clip_sum, BTL)
    alone, _ = user_rows(examples, theta_E, [3])
    examples.pairs.x_RD[10:19] = torch.tensor([math.nan, math.inf, 3e38]).repeat(3)[:, None]
    after = examples.sum_over_users(theta_E, *taken, CLIP.clip_sum, BTL)
    torch.testing.assert_close(before - after, CLIP.clip_sum(alone), rtol=0, atol=1e-12)


def test_local_steps_descend_by_gradients_at_where_they_led(examples, theta_E):
    taken = gradients.windows(examples.start_U, np.array([3]), 9, np.zeros(1, dtype=np.uint64))
    same = lambda grads_BE: grads_BE.sum(0).double()  # noqa: E731
    two = examples.sum_over_users(theta_E, *taken, same, BTL, LocalSteps(2, 0.5))
    first = 0.5 * oracle(examples, theta_E, taken[0])
    there = torch.tensor(theta_E.numpy() - first, dtype=torch.float32)
    expected = first + 0.5 * oracle(examples, there, taken[0])
    np.testing.assert_allclose(two.numpy(), expected, rtol=1e-4, atol=1e-5)


# What is promised: the weights leave nowhere, and one user moves the sum by at most C.


PARAMETERS = {"group-size": 9, "clip-norm": CLIP.norm, "round": 1}


def contributions(examples, theta_E, update=uls.client_update):
    """Return what a node sends of users: sampled, computed, clipped and summed."""
    keys_U = np.arange(1, len(examples.counts_U) + 1, dtype=np.uint64)

    def sum_of(users):
        users_S = np.array(users, dtype=np.int64)
        work = TrainRequest({"theta": theta_E.numpy()}, PARAMETERS, users_S)
        return update(examples, work, keys_U[users_S], Randomness(3))

    return sum_of


def moves(examples, theta_E):
    """Return how far a user who comes or goes, or is replaced by another, moves the sum."""
    sum_of = contributions(examples, theta_E)
    users = [*range(len(examples.counts_U))]
    all_of = sum_of(users)["sum"]
    gone = [all_of - sum_of([u for u in users if u != one])["sum"] for one in users]
    lengths = [float(np.linalg.norm(part)) for part in gone]
    replaced = [float(np.linalg.norm(a - b)) for a in gone for b in gone]
    return max(lengths), max(replaced)


@pytest.mark.parametrize("scale", [0.01, 1.0, 1e4])
def test_one_user_moves_the_sum_by_the_clip_norm_and_no_more(make_examples, theta_E, scale):
    pairs = make_examples([1, 7, 2, 9, 1, 3, 0, 8], dimension=6, scale=scale)
    gone, replaced = moves(in_turn(pairs, 3), theta_E)
    assert gone <= CLIP.sensitivity(Adjacency.ADD_REMOVE)
    assert replaced <= CLIP.sensitivity(Adjacency.REPLACE)
    if scale >= 1.0:  # and it does move so far: the bound is not another, larger one's
        assert gone > 0.99 * CLIP.norm
        assert replaced > 1.01 * CLIP.norm


def test_weights_fitted_on_everybody_would_be_caught(examples, theta_E, monkeypatch):
    """A seeded fault: v that others' judgements move, so that one user moves all vectors."""
    honest = tastes.updates

    def shared_weights(x_RD, y_R, taken_N, ends_B, *rest):
        honest(x_RD, y_R, taken_N, np.array([ends_B[-1]]), *rest[:-1], rest[-1][:1])
        rest[-1][1:] = rest[-1][:1]

    monkeypatch.setattr(tastes, "updates", shared_weights)
    assert moves(examples, theta_E)[0] > 1.01 * CLIP.norm


def test_rows_clipped_one_by_one_would_be_caught(examples, theta_E, monkeypatch):
    """A seeded fault: each row of the basis within the clip norm, and all of them beyond it."""

    def by_row(self, grads_BE):
        rows = grads_BE.reshape(-1, 6)
        rows = rows * (CLIP.norm / rows.norm(dim=1, keepdim=True).clamp(min=CLIP.norm))
        return rows.reshape(-1, 18).sum(0).double()

    monkeypatch.setattr(UserClip, "clip_sum", by_row)
    assert moves(examples, theta_E)[0] > 1.01 * CLIP.norm


def test_nothing_leaves_but_one_sum_and_no_weight_is_kept(examples, theta_E):
    before = dict(vars(examples)), dict(vars(examples.pairs))
    reply = contributions(examples, theta_E)([0, 1, 3])
    assert list(reply) == ["sum"]
    assert reply["sum"].shape == (18,)
    new = (vars(examples).keys() - before[0].keys()) | (vars(examples.pairs).keys() - before[1])
    assert new <= {"_start_KD", "gpu", "_moved"}


def test_accuracy_of_the_crowd_and_of_each_users_own(make_examples):
    """Two camps that want the opposite of each other: no reward for all can be right."""
    x_RD = torch.eye(2).repeat(8, 1)
    x_RD[8:] *= -1.0
    pairs = replace(
        make_examples([1]), x_RD=x_RD, y_R=torch.ones(16), start_U=torch.tensor([0, 8, 16])
    )
    both = in_turn(pairs, 2)
    theta_E = torch.tensor([0.01, 0.01, 3.0, 3.0]) - torch.from_numpy(start_KD(2, 2)).reshape(-1)
    theta_E[:2] = 0.01
    result = both.accuracy(theta_E)
    assert result.by_user == 0.5
    assert result.personal == 1.0
    assert math.isnan(pairs.accuracy(np.ones(2)).personal)


def test_what_it_is_not_for_is_refused(make_best_of, examples, theta_E):
    with pytest.raises(InputError, match="--tastes is for pairs"):
        TasteExamples(make_best_of([2, 3]), 2, np.zeros(5, np.int8))
    with pytest.raises(InputError, match="halves and judgements differ"):
        TasteExamples(examples.pairs, 3, np.zeros(30, np.int8))
    with pytest.raises(ValueError, match="for 18 numbers"):
        user_rows(examples, theta_E[:6], [0])
    taken = gradients.windows(examples.start_U, np.array([3]), 9, np.zeros(1, dtype=np.uint64))
    with pytest.raises(ValueError, match="--model btl, not thurstone"):
        next(examples.user_gradients(theta_E, *taken, preference_model("thurstone")))


# Shrinkage: a few judgements move the reward little, and on average not for the worse.


def gain(draw, tastes_VD, true_VD, judgements):
    """Return by how much own weights from so many judgements do better than the crowd's reward,
    on other judgements of the same people: mean, and its standard error."""
    users, dimension = 3000, true_VD.shape[1]
    crowd_D = np.full(dimension, 0.5)
    theta_UD = crowd_D + draw.standard_normal((users, len(true_VD))) @ true_VD
    x_UMD = draw.standard_normal((users, judgements + 20, dimension))
    z_UM = np.einsum("umd,ud->um", x_UMD, theta_UD)
    y_UM = (draw.random(z_UM.shape) < 1.0 / (1.0 + np.exp(-z_UM))).astype(np.float32)
    basis_KD = np.concatenate([crowd_D[None], tastes_VD])
    gains = []
    for x_MD, y_M in zip(x_UMD, y_UM, strict=True):
        v = own_weights(x_MD[:judgements], y_M[:judgements], basis_KD)
        rest_MD, rest_M = x_MD[judgements:], y_M[judgements:] > 0.5
        own = (rest_MD @ (crowd_D + v @ tastes_VD) > 0) == rest_M
        gains.append(own.mean() - ((rest_MD @ crowd_D > 0) == rest_M).mean())
    return float(np.mean(gains)), float(np.std(gains) / math.sqrt(users))


@pytest.mark.parametrize("judgements", [1, 2, 10])
def test_a_few_judgements_do_no_worse_than_the_crowd(judgements):
    draw = np.random.default_rng(judgements)
    true_VD = draw.standard_normal((2, 12)) * 0.4
    mean, error = gain(draw, true_VD, true_VD, judgements)
    assert mean > 3 * error
    # Directions in which nobody differs, as large as noise makes them.
    noise_VD = draw.standard_normal((2, 12)) * 0.1
    mean, error = gain(draw, noise_VD, 0 * true_VD, judgements)
    assert mean > -0.003 - 3 * error


# The truth is recovered, up to rotation.


def crowd_of(draw, users, true_VD, judgements=12):
    """Return judgements of people with standard normal weights on known tastes."""
    dimension = true_VD.shape[1]
    theta_UD = 0.5 + draw.standard_normal((users, len(true_VD))) @ true_VD
    x_UMD = draw.standard_normal((users, judgements, dimension)).astype(np.float32)
    z_UM = np.einsum("umd,ud->um", x_UMD, theta_UD)
    y_UM = draw.random(z_UM.shape) < 1.0 / (1.0 + np.exp(-z_UM))
    return PairExamples(
        torch.from_numpy(x_UMD.reshape(-1, dimension)),
        torch.from_numpy(y_UM.reshape(-1).astype(np.float32)),
        torch.arange(0, users * judgements + 1, judgements),
    )


def learned(examples, epsilon, seed=0):
    """Return θ after rounds of uls at this ε, or of its twin without privacy at 0."""
    users, rounds, cohort = len(examples.counts_U), 80, len(examples.counts_U) // 3
    draw, clip, noise = np.random.default_rng(seed), UserClip(0.3), 0.0
    if epsilon:
        plan = uls.UlsPlan.for_epsilon(
            epsilon,
            users=users,
            cohort=cohort,
            rounds=rounds,
            delta=1e-5,
            adjacency=Adjacency.ADD_REMOVE,
            clip=clip,
        )
        noise = plan.mechanism.std
    optimizer = ServerOptimizer(
        OptimizerSettings("sgd", 10.0, rounds), np.zeros(examples.dimension, np.float32)
    )
    for round_ in range(1, rounds + 1):
        users_S = np.flatnonzero(draw.random(users) < cohort / users)
        taken = gradients.windows(examples.start_U, users_S, 16, np.zeros(len(users_S), np.uint64))
        theta_E = torch.from_numpy(optimizer.theta_D)
        sum_E = examples.sum_over_users(theta_E, *taken, clip.clip_sum, BTL).numpy()
        optimizer.step(round_, (sum_E + noise * draw.standard_normal(len(sum_E))) / cohort)
    return optimizer.result_D


def angles(tastes_VD, true_VD):
    """Return the cosines of the principal angles between two spans, the largest first."""
    one, other = (np.linalg.qr(rows.T)[0] for rows in (tastes_VD, true_VD))
    return np.linalg.svd(one.T @ other)[1]


@pytest.mark.parametrize(("epsilon", "rows", "least"), [(0, 3, 0.97), (3, 3, 0.8), (3, 5, 0.9)])
def test_tastes_are_recovered_up_to_rotation(epsilon, rows, least):
    draw = np.random.default_rng(8)
    true_VD = np.linalg.qr(draw.standard_normal((10, 2)))[0].T * 1.5
    examples = in_turn(crowd_of(draw, 1200, true_VD), rows)
    theta_E = learned(examples, epsilon)
    tastes_VD = examples.basis_KD(theta_E)[1:]
    assert angles(tastes_VD, true_VD).min() > least
    others = in_turn(crowd_of(draw, 400, true_VD), rows).accuracy(theta_E)
    assert others.personal > others.by_user + 0.03
    # Where nobody differs nothing is invented that would hurt.
    alike = in_turn(crowd_of(draw, 1200, 0.0 * true_VD), rows)
    nothing = in_turn(crowd_of(draw, 400, 0.0 * true_VD), rows).accuracy(learned(alike, epsilon))
    assert nothing.personal > nothing.by_user - 0.02


def test_a_rotation_of_the_tastes_changes_nobodys_reward(examples, theta_E):
    basis_KD = examples.basis_KD(theta_E)
    x_MD, y_M = examples.pairs.x_RD[3:9].numpy(), examples.y_R[3:9].numpy()
    turned_KD = basis_KD.copy()
    turned_KD[1:] = np.array([[0.6, 0.8], [-0.8, 0.6]]) @ basis_KD[1:]
    rewards = [own_weights(x_MD, y_M, rows) @ rows[1:] for rows in (basis_KD, turned_KD)]
    np.testing.assert_allclose(rewards[0], rewards[1], atol=1e-5)
