"""Features along public directions: a rotation at most, of each text alone, and never more."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.directions import (
    MOST_NUMBERS,
    Directions,
    principal_directions,
)
from murmuration.preference.features.hashing import HashingFeatures, feature_map

PLAIN = HashingFeatures(17)
TEXTS = ["save it", "spend it all, all of it", "", "wait and compare prices first", "save it"]
texts = st.lists(st.text("ab c.\n", max_size=20), min_size=1, max_size=6)


def orthonormal(dimension, count, seed=0):
    drawn = np.random.default_rng(seed).normal(size=(dimension, dimension))
    return np.linalg.qr(drawn)[0][:, :count]


def config_with(basis_DK, count=None):
    basis = base64.b64encode(np.asarray(basis_DK, dtype="<f4").tobytes()).decode()
    counted = basis_DK.shape[1] if count is None else count
    return {**PLAIN.to_config(), "directions": {"count": counted, "basis": basis}}


def test_all_directions_are_the_plain_features_but_for_a_rotation():
    phi = Directions(orthonormal(17, 17), PLAIN)
    turned_RD, plain_RD = phi([""] * 5, TEXTS), PLAIN([""] * 5, TEXTS)
    np.testing.assert_allclose(turned_RD @ turned_RD.T, plain_RD @ plain_RD.T, atol=1e-6)
    theta_D = np.random.default_rng(1).normal(size=17).astype(np.float32)
    np.testing.assert_allclose(turned_RD @ phi.lowered(theta_D), plain_RD @ theta_D, atol=1e-5)
    np.testing.assert_allclose(phi.lifted(phi.lowered(theta_D)), theta_D, atol=1e-5)


@given(texts, st.integers(1, 17))
def test_a_reward_along_directions_is_one_over_plain_features(responses, count):
    phi, prompts = Directions(orthonormal(17, count), PLAIN), [""] * len(responses)
    theta_K = np.random.default_rng(2).normal(size=count).astype(np.float32)
    along_R = phi(prompts, responses).astype(np.float64) @ theta_K
    np.testing.assert_allclose(along_R, PLAIN(prompts, responses) @ phi.lifted(theta_K), atol=1e-5)


@given(texts, st.integers(1, 17))
def test_no_text_moves_another_by_a_bit_and_none_becomes_longer(responses, count):
    phi = Directions(orthonormal(17, count), PLAIN)
    together_RK = phi([""] * len(responses), responses)
    alone = [phi([""], [response])[0] for response in responses]
    assert together_RK.dtype == np.float32 and np.array_equal(together_RK, np.array(alone))
    plain_RD = PLAIN([""] * len(responses), responses)
    lengths_R = np.linalg.norm(together_RK, axis=1)
    assert (lengths_R <= np.linalg.norm(plain_RD, axis=1) + 1e-6).all()


def test_a_config_makes_the_same_map():
    phi = Directions(orthonormal(17, 3), PLAIN)
    again = feature_map(phi.to_config())
    assert again.to_config() == phi.to_config() and again.dimension == 3
    assert np.array_equal(again([""] * 5, TEXTS), phi([""] * 5, TEXTS))


NOT_A_NUMBER = orthonormal(17, 2)
NOT_A_NUMBER[3, 1] = np.nan


@pytest.mark.parametrize(
    "config",
    [
        config_with(2.0 * orthonormal(17, 2)),  # a vector twice as long
        config_with(np.repeat(orthonormal(17, 1), 2, axis=1)),
        config_with(NOT_A_NUMBER),
        config_with(np.full((17, 2), np.inf)),
        config_with(orthonormal(17, 2), count=1),
        config_with(orthonormal(17, 2), count=-2),
        config_with(orthonormal(17, 2), count="2"),
        config_with(orthonormal(16, 2)),
        config_with(np.zeros((17, 0))),
        {**PLAIN.to_config(), "directions": {"count": 2, "basis": "no base64 !"}},
        {**PLAIN.to_config(), "directions": {"count": 2, "basis": 7}},
        {**PLAIN.to_config(), "directions": {"count": 2}},
        {**PLAIN.to_config(), "directions": 2},
        {**config_with(orthonormal(17, 2)), "directions": None},
    ],
)
def test_a_request_with_other_directions_is_refused_in_one_line(config):
    with pytest.raises(InputError) as refused:
        feature_map(config)
    assert "\n" not in str(refused.value) and "directions" in str(refused.value)


def test_more_numbers_than_a_request_holds_are_refused():
    wide = HashingFeatures(1025)
    count = MOST_NUMBERS // 1025 + 1
    with pytest.raises(InputError, match=r"--directions.*take fewer"):
        Directions(np.eye(1025)[:, :count], wide)


def test_principal_directions_hold_the_axes_first_and_then_where_responses_differ():
    generator = np.random.default_rng(3)
    spread_D = np.array([0.1, 5.0, 0.2, 3.0, 0.05, 1.0])
    rows_ND = generator.normal(size=(4000, 6)) * spread_D
    axes_FD = np.eye(6)[[4]] * 7.0
    basis_DK = principal_directions(rows_ND, axes_FD, 3)
    np.testing.assert_allclose(basis_DK[:, 0], np.eye(6)[4], atol=1e-6)
    np.testing.assert_allclose(np.abs(basis_DK[[1, 3], [1, 2]]), 1.0, atol=0.02)
    np.testing.assert_allclose(basis_DK.T @ basis_DK, np.eye(3), atol=1e-6)


@given(st.integers(0, 3), st.integers(1, 8), st.integers(1, 30), st.integers(0, 99))
def test_principal_directions_are_orthonormal_whatever_the_rows(axes, count, rows, seed):
    generator = np.random.default_rng(seed)
    # Of few dimensions, and perhaps along the axes: there is not as much as was asked for.
    rows_ND = generator.normal(size=(rows, 2)) @ generator.normal(size=(2, 8))
    axes_FD = np.vstack([rows_ND[:1], generator.normal(size=(3, 8))])[: min(axes, count)]
    basis_DK = principal_directions(rows_ND, axes_FD, count)
    assert basis_DK.shape[1] <= count
    np.testing.assert_allclose(basis_DK.T @ basis_DK, np.eye(basis_DK.shape[1]), atol=1e-6)
    inside_FD = axes_FD @ basis_DK @ basis_DK.T
    np.testing.assert_allclose(inside_FD, axes_FD, atol=1e-5)


def test_equal_responses_give_no_direction_but_the_axes():
    assert principal_directions(np.zeros((5, 4)), np.eye(4)[:1], 3).shape == (4, 1)
