"""One row a user, in the order asked; who is not finite is absent, and so is a silent node."""

import math

import numpy as np
import pytest

from murmuration.strategies import contributions
from murmuration.strategies.protocol.messages import TrainRequest


def ask(examples, users_S=None, theta_D=None, group_size=16, **parameters):
    from murmuration.privacy.mechanisms.randomness import Randomness

    users = len(examples.counts_U)
    users_S = np.arange(users) if users_S is None else np.asarray(users_S, dtype=np.int64)
    theta_D = np.zeros(examples.dimension) if theta_D is None else theta_D
    work = TrainRequest(
        {"theta": np.asarray(theta_D, dtype=np.float32)},
        {"round": 1, "group-size": group_size, **parameters},
        users_S,
    )
    keys_S = np.arange(users, dtype=np.uint64)[users_S] * np.uint64(7919)
    return contributions.client_update(examples, work, keys_S, Randomness(0))


def test_rows_are_the_users_averaged_gradients_in_the_order_asked(make_examples, oracle):
    examples, theta_D = make_examples([3, 1, 7, 60]), np.linspace(-0.3, 0.3, 5)
    found = ask(examples, [3, 0, 2], theta_D, group_size=100)
    assert found["present"].tolist() == [1, 1, 1]
    start = examples.start_U.tolist()
    for row_D, user in zip(found["stack"], (3, 0, 2), strict=True):
        expected = oracle(examples, theta_D, slice(start[user], start[user + 1]))
        np.testing.assert_allclose(row_D, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_nothing_is_clipped(make_examples):
    found = ask(make_examples([4, 4], scale=1e6))
    assert np.linalg.norm(found["stack"], axis=1).min() > 1e4


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_user_who_is_not_finite_is_absent_and_the_others_are_as_ever(make_examples, bad):
    examples = make_examples([3, 3, 3])
    expected = ask(examples)["stack"]
    examples.x_RD[4, 2] = bad
    found = ask(examples, theta_D=None)
    assert found["present"].tolist() == [1, 0, 1]
    assert not found["stack"][1].any()
    np.testing.assert_array_equal(found["stack"][[0, 2]], expected[[0, 2]])


def test_a_user_who_has_nothing_is_absent(make_examples):
    """A row of zeros that counted would be somebody else's vector, not nobody's."""
    found = ask(make_examples([3, 0, 3]))
    assert found["present"].tolist() == [1, 0, 1]
    assert not found["stack"][1].any()


def test_nobody_asked(make_examples):
    found = ask(make_examples([3]), [])
    assert found["stack"].shape == (0, 5)
    assert found["present"].shape == (0,)


@pytest.mark.parametrize(
    ("stack", "present", "fits"),
    [
        ([[1.0], [0.0]], [1.0, 0.0], True),
        ([[math.nan], [0.0]], [1.0, 0.0], False),
        ([[1.0], [0.0]], [1.0, 0.5], False),
        ([[1.0], [0.0]], [1.0, 2.0], False),
        ([[1.0], [0.0]], [1.0, math.nan], False),
    ],
)
def test_admits(stack, present, fits):
    assert contributions.is_valid({"stack": np.array(stack), "present": np.array(present)}) == fits


def test_those_present():
    totals = {"stack": np.eye(3), "present": np.array([1.0, 0.0, 1.0])}
    assert contributions.those_present(totals).tolist() == [[1, 0, 0], [0, 0, 1]]
