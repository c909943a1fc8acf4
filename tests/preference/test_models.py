"""Slopes are the derivatives of losses, and losses are those of the models as they are defined."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from murmuration.preference.data.errors import InputError
from murmuration.preference.models import ABSENT, MODELS, pair_model, preference_model

SIZES = (0.1, 1.0, 30.0, 1e3)


class Logistic:
    """The link of `btl`."""

    def log_cdf(self, z):
        return torch.nn.functional.logsigmoid(z)

    def log_slope(self, z):
        return torch.sigmoid(-z)


class Laplace:
    """F(z) = e^z / 2 below 0, 1 − e^−z / 2 above."""

    def log_cdf(self, z):
        below, above = z.clamp(max=0.0) - math.log(2.0), torch.log1p(-0.5 * torch.exp(-z.abs()))
        return torch.where(z < 0, below, above)

    def log_slope(self, z):
        decay = 0.5 * torch.exp(-z.abs())
        return torch.where(z < 0, 1.0, decay / (1.0 - decay))


#: Every model with a width, and whether its y may be anything.
CASES = {
    "btl": (preference_model("btl"), 1, True),
    "thurstone": (preference_model("thurstone"), 1, True),
    "logistic link": (pair_model("own", Logistic()), 1, True),
    "laplace link": (pair_model("own", Laplace()), 1, True),
    "pairs of plackett-luce": (preference_model("plackett-luce"), 1, True),
    "best of 3": (preference_model("plackett-luce", "top-1", 2), 2, True),
    "best of 6": (preference_model("plackett-luce", "top-1", 5), 5, True),
    "ranking of 2": (preference_model("plackett-luce", "ranking", 1), 1, False),
    "ranking of 6": (preference_model("plackett-luce", "ranking", 5), 5, False),
    "ranking of 2 with ties": (preference_model("plackett-luce", "ranking", 1), 1, "ties"),
    "ranking of 6 with ties": (preference_model("plackett-luce", "ranking", 5), 5, "ties"),
}
each_case = pytest.mark.parametrize(("model", "width", "soft"), CASES.values(), ids=CASES)


def drawn(width, soft, size, judgements=400, seed=0):
    """Logits and y, in float64: a quarter with absent rows, and if ``soft`` a quarter with masses
    beyond [0, 1]; ``"ties"``: of rankings."""
    generator = torch.Generator().manual_seed(seed)
    z_JW = size * torch.randn(judgements, width, generator=generator, dtype=torch.float64)
    y_JW = torch.ones_like(z_JW)
    if soft == "ties":
        tied_JW = torch.rand(y_JW.shape, generator=generator) < 0.5
        tied_JW[: judgements // 8] = False
        y_JW[tied_JW] = 0.5
    elif soft:
        y_JW[::4] = 2.0 * torch.rand(y_JW[::4].shape, generator=generator, dtype=y_JW.dtype)
        y_JW[1::4, 0] = 0.5
    if width > 1:
        there = torch.randint(1, width + 1, (judgements // 4, 1), generator=generator)
        y_JW[2::4] = torch.where(torch.arange(width) < there, y_JW[2::4], ABSENT)
    return z_JW, y_JW


def slopes_of(loss, z_JW, y_JW):
    z_JW = z_JW.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(z_JW, y_JW).sum(), z_JW)
    return found


@each_case
@pytest.mark.parametrize("size", SIZES)
def test_slopes_are_the_derivatives_of_the_loss(model, width, soft, size):
    z_JW, y_JW = drawn(width, soft, size)
    found, expected = model.residual(z_JW, y_JW), slopes_of(model.loss, z_JW, y_JW)
    assert found.dtype == torch.float64
    assert torch.isfinite(model.loss(z_JW, y_JW)).all()
    # Slopes are at most a few units, but those of Thurstone's model, which grow like the logit.
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    assert not found[torch.isinf(y_JW)].any()


@each_case
@pytest.mark.parametrize("size", SIZES)
def test_single_precision_is_as_good_as_it_can_be(model, width, soft, size):
    z_JW, y_JW = (tensor.float() for tensor in drawn(width, soft, size))
    found = model.residual(z_JW, y_JW)
    assert found.dtype == torch.float32
    expected = model.residual(z_JW.double(), y_JW.double()).float()
    # A logit of 1,000 has no digits beyond the fourth place.
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6 + 4e-7 * size)


def naive(kind, scores, mass):
    """A judgement's loss by its definition: scores in order of preference, mass of each answer."""
    if kind == "ranking":
        chances = [scores[j] - special.logsumexp(scores[j:]) for j in range(len(scores))]
        return -sum(chances)
    return -sum(m * (s - special.logsumexp(scores)) for s, m in zip(scores, mass, strict=True))


@pytest.mark.parametrize("kind", ["top-1", "ranking"])
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_losses_of_plackett_luce_are_those_of_its_definition(kind, size):
    model = preference_model("plackett-luce", kind, 4)
    z_JW, y_JW = drawn(4, kind == "top-1", size, judgements=40)
    for z_W, y_W, loss in zip(z_JW, y_JW, model.loss(z_JW, y_JW), strict=True):
        there = torch.isfinite(y_W)
        mass = (1.0 - y_W[there]).numpy()
        scores = np.concatenate([[0.0], -z_W[there].numpy()])
        expected = naive(kind, scores, [1.0 - mass.sum(), *mass])
        assert float(loss) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def places(y_W):
    """Responses of each place, the best first, from a ranking's y."""
    found = [[0]]
    for k, y in enumerate(y_W.tolist(), start=1):
        if y == 1.0:
            found.append([])
        if math.isfinite(y):
            found[-1].append(k)
    return found


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_a_ranking_with_ties_is_the_choice_of_each_among_what_is_below_its_place(width, size):
    model = preference_model("plackett-luce", "ranking", width)
    z_JW, y_JW = drawn(width, "ties", size, judgements=40)
    for z_W, y_W, loss in zip(z_JW, y_JW, model.loss(z_JW, y_JW), strict=True):
        scores, groups = [0.0, *(-z_W).tolist()], places(y_W)
        expected = 0.0
        for at, place in enumerate(groups):
            below = [scores[j] for later in groups[at + 1 :] for j in later]
            expected -= sum(scores[j] - special.logsumexp([scores[j], *below]) for j in place)
        assert float(loss) == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_choices_of_a_ranking_with_ties_are_those_of_whole_rankings():
    """Each factor is the exact chance, over all orders of four, of what the ranking says."""
    model, utilities = (
        preference_model("plackett-luce", "ranking", 3),
        torch.tensor([0.3, -1.0, 2.0, 0.5], dtype=torch.float64),
    )
    chance = {}
    for order in itertools.permutations(range(4)):
        in_order = utilities[list(order)]
        z_JW = (in_order[0] - in_order[1:])[None]
        chance[order] = math.exp(-float(model.loss(z_JW, torch.ones_like(z_JW))))
    # 0 and 1 share the first place, before 2 and 3, which share the last.
    expected = 0.0
    for first in (0, 1):
        beats = (
            order for order in chance if all(order.index(first) < order.index(j) for j in (2, 3))
        )
        expected -= math.log(sum(chance[order] for order in beats))
    z_JW, y_JW = (utilities[0] - utilities[1:])[None], torch.tensor([[0.5, 1.0, 0.5]])
    assert float(model.loss(z_JW, y_JW.double())) == pytest.approx(expected)


@pytest.mark.parametrize("width", [1, 3])
def test_what_ties_says_nothing_about_each_other(width):
    """Nor does the order in which it is listed; all tied is no judgement."""
    model = preference_model("plackett-luce", "ranking", width)
    z_JW = torch.randn(20, width, generator=torch.Generator().manual_seed(1)).double()
    tied_JW = torch.full_like(z_JW, 0.5)
    assert not model.residual(z_JW, tied_JW).any()
    assert not model.loss(z_JW, tied_JW).any()
    assert not model.each(z_JW, tied_JW).any()
    if width > 1:
        y_JW = torch.tensor([[1.0, 0.5, 0.5]]).double().repeat(20, 1)
        order = [1, 2, 0]
        loss_J, residual_JW = model.loss(z_JW, y_JW), model.residual(z_JW, y_JW)
        torch.testing.assert_close(model.loss(z_JW[:, order], y_JW), loss_J)
        torch.testing.assert_close(model.residual(z_JW[:, order], y_JW), residual_JW[:, order])


def test_a_ranking_with_ties_moves_no_other_in_a_batch():
    model = preference_model("plackett-luce", "ranking", 5)
    z_JW, y_JW = drawn(5, False, 1.0, judgements=16)
    expected = model.residual(z_JW, y_JW), model.loss(z_JW, y_JW)
    tied_JW = y_JW.clone()
    tied_JW[3, 1] = 0.5
    others = torch.arange(16) != 3
    found = model.residual(z_JW, tied_JW), model.loss(z_JW, tied_JW)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one[others], other[others])
        assert not torch.equal(one[3], other[3])


def test_which_response_comes_first_does_not_matter():
    """Masses on all of three responses, seen from each of them: one loss, one gradient."""
    model = preference_model("plackett-luce", "top-1", 2)
    utilities, mass = (
        torch.tensor([0.3, -1.0, 2.0]).double(),
        torch.tensor([0.5, 0.2, 0.3]).double(),
    )
    found = []
    for first in range(3):
        others = [j for j in range(3) if j != first]
        z_JW, y_JW = (utilities[first] - utilities[others])[None], (1.0 - mass[others])[None]
        slopes = model.residual(z_JW, y_JW)[0]
        by_utility = torch.zeros(3).double()
        by_utility[first], by_utility[others] = slopes.sum(), -slopes
        found.append([float(model.loss(z_JW, y_JW)), *by_utility.tolist()])
    np.testing.assert_allclose(found[1:], found[:1] * 2, atol=1e-15)


@pytest.mark.parametrize("kind", ["top-1", "ranking"])
@pytest.mark.parametrize("size", SIZES)
def test_two_responses_are_a_pair(kind, size):
    """As a pair, and as two of more that are not there."""
    model, btl = preference_model("plackett-luce", kind, 3), preference_model("btl")
    z_J1, y_J1 = drawn(1, kind == "top-1", size)
    z_JW = torch.cat([z_J1, torch.full((len(z_J1), 2), 7.0)], 1)
    y_JW = torch.cat([y_J1, torch.full((len(y_J1), 2), ABSENT)], 1)
    expected = btl.residual(z_J1, y_J1)
    torch.testing.assert_close(model.residual(z_JW, y_JW)[:, :1], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(model.loss(z_JW, y_JW), btl.loss(z_J1, y_J1), rtol=0, atol=1e-9)
    short = preference_model("plackett-luce", kind, 1)
    torch.testing.assert_close(short.residual(z_J1, y_J1), expected, rtol=0, atol=1e-12)


def test_thurstone_against_another_library():
    z = np.concatenate([np.linspace(-1000, 1000, 4001), np.linspace(-3, 3, 601)])
    z_J1 = torch.tensor(z)[:, None]
    model, one = preference_model("thurstone"), torch.ones(len(z), 1, dtype=torch.float64)
    np.testing.assert_allclose(model.loss(z_J1, one), -special.log_ndtr(z), 1e-12, 1e-300)
    density = np.exp(-0.5 * z**2 - special.log_ndtr(z)) / math.sqrt(2 * math.pi)
    tame = np.abs(z) < 30  # beyond, the quotient cannot be formed so
    np.testing.assert_allclose(-model.residual(z_J1, one)[:, 0][tame], density[tame], rtol=1e-10)
    # Far out the inverse Mills ratio is −z + 1/−z − 2/(−z)³ …
    far = z < -100
    mills = -z[far] - 1 / z[far] + 2 / z[far] ** 3
    np.testing.assert_allclose(-model.residual(z_J1, one)[:, 0][far], mills, rtol=1e-9)


@given(st.lists(st.floats(-20, 20), min_size=5, max_size=5))
def test_slopes_of_answers_that_are_certain_are_never_positive(z_W):
    """Raising the utility of what was preferred never costs anything."""
    z_JW = torch.tensor([z_W], dtype=torch.float64)
    best = preference_model("plackett-luce", "top-1", 5)
    assert (best.residual(z_JW, torch.ones_like(z_JW)) <= 0).all()
    ranking = preference_model("plackett-luce", "ranking", 5)
    assert float(ranking.residual(z_JW, torch.ones_like(z_JW)).sum()) <= 1e-12


def test_arguments_are_left_as_they_are():
    for model, width, soft in CASES.values():
        z_JW, y_JW = drawn(width, soft, 1.0)
        kept = z_JW.clone(), y_JW.clone()
        model.residual(z_JW, y_JW)
        model.loss(z_JW, y_JW)
        assert torch.equal(z_JW, kept[0]) and torch.equal(y_JW, kept[1])


def test_nobody():
    for model, width, _ in CASES.values():
        empty = torch.zeros(0, width)
        assert model.residual(empty, empty).shape == (0, width)
        assert model.loss(empty, empty).shape == (0,)


def test_models_by_name():
    kinds = {"thumbs": "thumbs"}
    found = [preference_model(name, kinds.get(name, "pairs")) for name in MODELS]
    assert [model.name for model in found] == list(MODELS)
    assert [model.name for model in found if model.of_user] == ["thumbs"]
    for name, kind in (("thumbs", "pairs"), ("btl", "thumbs"), ("plackett-luce", "thumbs")):
        with pytest.raises(InputError, match="use both or none"):
            preference_model(name, kind)
    with pytest.raises(InputError, match="--model must be one of btl, thurstone, plackett-luce"):
        preference_model("elo")


@pytest.mark.parametrize("name", ["btl", "thurstone"])
@pytest.mark.parametrize("kind", ["top-1", "ranking"])
def test_models_of_pairs_refuse_more_responses(name, kind):
    with pytest.raises(InputError, match=f"--model {name} .* 4 responses: use --model plackett"):
        preference_model(name, kind, 3)
    assert preference_model(name, kind, 1).name == name  # two responses are a pair
