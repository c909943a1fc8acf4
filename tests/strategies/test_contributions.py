"""From sampled users to one bounded sum: against autograd, and independent of grouping."""

import math

import numpy as np
import pytest
import torch
from language_models import model_on

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.linear.gradients import windows
from murmuration.privacy.mechanisms.clipping import NoClip, UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies import contributions
from murmuration.strategies.contributions import bounded_sum, sampled
from murmuration.strategies.protocol.messages import TrainRequest

COUNTS = [1, 30, 3, 1, 8, 200, 2]


def work(theta_D, users_S, group_size=16, round_=1, **more):
    parameters = {"round": round_, "group-size": group_size, **more}
    return TrainRequest({"theta": np.asarray(theta_D, np.float32)}, parameters, np.asarray(users_S))


def keys(users_S):
    return np.asarray(users_S, dtype=np.uint64) * np.uint64(104729)


def expected_sum(examples, theta_D, users_S, group_size, norm, oracle, source, round_=1):
    words_S = source.user_words("window", round_, keys(users_S))
    rows_K, taken_S = windows(examples.start_U, np.asarray(users_S), group_size, words_S)
    total_D = torch.zeros(examples.dimension, dtype=torch.float64)
    for rows in rows_K.split(taken_S.tolist()):
        gradient_D = oracle(examples, theta_D, rows)
        total_D += gradient_D * min(1.0, norm / max(float(gradient_D.norm()), 1e-30))
    return total_D.numpy()


@pytest.mark.parametrize("norm", [0.05, 0.5, 30.0])
@pytest.mark.parametrize("group_size", [1, 8, 500])
def test_equal_to_autograd(make_examples, oracle, norm, group_size):
    examples, source = make_examples(COUNTS), Randomness(3)
    theta_D, users_S = np.array([0.3, -1.0, 0.2, 0.0, 2.0]), [0, 1, 2, 5, 6]
    found = bounded_sum(
        examples, work(theta_D, users_S, group_size), keys(users_S), source, UserClip(norm)
    )
    theta_D = theta_D.astype(np.float32)
    expected = expected_sum(examples, theta_D, users_S, group_size, norm, oracle, source)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6 * min(norm, 1.0))


@pytest.mark.parametrize("norm", [0.05, 30.0])
@pytest.mark.parametrize("group_size", [1, 8, 500])
@pytest.mark.parametrize("kind", ["top-1", "ranking"])
def test_judgements_over_several_responses(make_best_of, model_oracle, norm, group_size, kind):
    """What counts and is averaged are judgements, whatever their rows."""
    examples, source = make_best_of(COUNTS, kind=kind), Randomness(3)
    theta_D, users_S = np.array([0.3, -1.0, 0.2, 0.0, 2.0], np.float32), [0, 1, 2, 5, 6]
    asked = work(theta_D, users_S, group_size, model="plackett-luce")
    found = bounded_sum(examples, asked, keys(users_S), source, UserClip(norm))
    oracle = model_oracle("plackett-luce")
    expected = expected_sum(examples, theta_D, users_S, group_size, norm, oracle, source)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6 * min(norm, 1.0))


def test_another_model_of_pairs(make_examples, model_oracle):
    examples, source, users_S = make_examples(COUNTS), Randomness(3), np.arange(7)
    theta_D = np.array([0.3, -1.0, 0.2, 0.0, 2.0], np.float32)
    found = {}
    for name in ("btl", "thurstone"):
        asked = work(theta_D, users_S, model=name)
        found[name] = bounded_sum(examples, asked, keys(users_S), source, UserClip(1.0))
        oracle = model_oracle(name)
        expected = expected_sum(examples, theta_D, users_S, 16, 1.0, oracle, source)
        np.testing.assert_allclose(found[name], expected, rtol=2e-5, atol=1e-6)
    assert not np.allclose(found["btl"], found["thurstone"], rtol=1e-2)


def test_a_model_that_does_not_suit_is_refused(make_best_of):
    asked = work(np.zeros(5), [0])
    with pytest.raises(InputError, match="use --model plackett-luce"):
        bounded_sum(make_best_of([2]), asked, keys([0]), Randomness(0), UserClip(1.0))


def test_windows_move_with_the_round_and_the_seed(make_examples):
    examples, users_S = make_examples([300]), [0]

    def found(round_, seed):
        source = Randomness(seed)
        asked = work(np.zeros(5), users_S, 4, round_)
        return bounded_sum(examples, asked, keys(users_S), source, NoClip()).tolist()

    assert found(1, 0) == found(1, 0)
    assert len({tuple(found(t, s)) for t in (1, 2, 3) for s in (0, 1)}) == 6
    assert len({tuple(found(1, None)) for _ in range(8)}) > 1


def test_nobody_asked(make_examples):
    examples, users_S = make_examples([2, 3]), np.empty(0, dtype=np.int64)
    asked = work(np.zeros(5), users_S)
    found = bounded_sum(examples, asked, keys(users_S), Randomness(0), UserClip(1.0))
    assert found.tolist() == [0.0] * 5


def test_everything_is_seen_in_time(make_examples):
    examples, seen = make_examples([40]), set()
    for round_ in range(300):
        asked = TrainRequest({}, {"group-size": 4, "round": round_}, np.arange(1))
        seen |= set(sampled(examples, asked, keys([0]), Randomness(0))[0].tolist())
    assert seen == set(range(40))


def test_a_bound_that_is_derived_from_a_clip_is_asked_for_its_own_sum(language_model, make_rows):
    """Not for what it inherits, of a language model's long rows either."""

    class Halved(UserClip):
        def clip_sum(self, grads_BD):
            return super().clip_sum(grads_BD) / 2

    base = LanguageBase(BaseSettings(language_model("gpt2"), "full"))
    examples = model_on(base).examples(Judgements.from_rows(make_rows([2, 1])))
    asked = work(torch.zeros(examples.dimension), np.arange(2))
    given = (examples, asked, keys(np.arange(2)), Randomness(0))
    whole_D, half_D = (bounded_sum(*given, bound) for bound in (UserClip(0.1), Halved(0.1)))
    assert whole_D.any()
    np.testing.assert_array_equal(half_D, whole_D / 2)


# One row a user, in the order asked; who is not finite is absent, and so is a silent node.


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


def test_nobody_asked_of_stacks(make_examples):
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
