"""Each user's gradient from one backward pass: against automatic differentiation, by layer."""

import pytest
import torch
from torch import nn

from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.user_gradients import UserBackward

SPANS = [(0, 0, 2), (2, 2, 3), (3, 3, 6)]  # of four users the second has no sequence
ROWS, TOKENS = 6, 5


class Transposed(nn.Module):
    """As GPT-2's linear layer, whose class is known by its name."""

    def __init__(self):
        super().__init__()
        self.nf = 3
        self.weight, self.bias = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(3))

    def forward(self, x):
        return x @ self.weight + self.bias


Transposed.__name__ = "Conv1D"


class RootMeanSquare(nn.Module):
    """A layer without a rule of its own."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x, scale=1.0):
        return self.weight * scale * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


class Twice(nn.Module):
    """Calls one layer two times, the second by a named argument."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(input=torch.tanh(self.inner(x)))


class LowRank(nn.Module):
    """A frozen layer with a change of rank two."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(4, 3).requires_grad_(False)
        self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)

    def forward(self, x):
        return self.frozen(x) + 0.5 * self.up(self.down(x))


def ids(generator):
    return torch.randint(0, 7, (ROWS, TOKENS), generator=generator)


def states(generator):
    return torch.randn(ROWS, TOKENS, 4, generator=generator)


class Tied(nn.Module):
    """Words in and words out, by the same weights."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 3)
        self.out = nn.Linear(3, 7, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x):
        return self.out(torch.tanh(self.words(x)))


LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), states),
    "without a bias": (lambda: nn.Linear(4, 3, bias=False), states),
    "transposed": (Transposed, states),
    "embedding": (lambda: nn.Embedding(7, 3), ids),
    "embedding with padding": (lambda: nn.Embedding(7, 3, padding_idx=2), ids),
    "embedding scaled by counts": (lambda: nn.Embedding(7, 3, max_norm=None), ids),
    "layer norm": (lambda: nn.LayerNorm(4), states),
    "layer norm of two dimensions": (lambda: nn.LayerNorm((TOKENS, 4)), states),
    "any other": (RootMeanSquare, states),
    "low rank": (LowRank, states),
    "used twice": (Twice, states),
    "tied": (Tied, ids),
    "one after the other": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), RootMeanSquare()),
        states,
    ),
}


def backwards(layer, x, back):
    """θ's names, and each user's gradient by automatic differentiation, in float64."""
    names = [name for name, p in layer.named_parameters() if p.requires_grad]
    expected = []
    exact = layer.double()
    for row in range(4):
        part = [slice(a, b) for user, a, b in SPANS if user == row] or [slice(0, 0)]
        given = x[part[0]] if x.dtype == torch.int64 else x[part[0]].double()
        loss = (exact(given) * back[part[0]].double()).sum()
        parameters = [dict(exact.named_parameters())[name] for name in names]
        found = torch.autograd.grad(loss, parameters)
        expected.append(torch.cat([g.reshape(-1) for g in found]))
    layer.float()
    return names, torch.stack(expected)


@pytest.mark.parametrize("kind", LAYERS)
def test_equal_to_automatic_differentiation(kind):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    make, inputs = LAYERS[kind]
    layer, x = make(), inputs(generator)
    back = torch.randn(layer(x).shape, generator=generator)
    names, expected_BD = backwards(layer, x, back)
    layer.requires_grad_(False)
    users = UserBackward(layer, names)
    grads_BD = torch.zeros(4, users.dimension)
    with users.into(grads_BD, SPANS, ROWS):
        layer(x).backward(back)
    assert not grads_BD[1].any()
    error = (grads_BD.double() - expected_BD).norm() / expected_BD.norm()
    assert error < 1e-6
    assert all(p.grad is None for p in layer.parameters())


def test_gradients_are_added_to_what_is_there():
    layer, x = nn.Linear(4, 3).requires_grad_(False), torch.ones(2, 4)
    users = UserBackward(layer, ["weight"])
    once, twice = torch.zeros(1, 12), torch.zeros(1, 12)
    for into, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            with users.into(into, [(0, 0, 2)], 2):
                layer(x).sum().backward()
    torch.testing.assert_close(twice, 2 * once)


def test_nothing_is_computed_outside():
    layer = nn.Linear(4, 3).requires_grad_(False)
    users = UserBackward(layer, ["weight"])
    with users.into(torch.zeros(1, 12), [(0, 0, 2)], 2):
        pass
    assert not layer(torch.ones(2, 4)).requires_grad


def test_one_user_who_is_not_finite_leaves_the_others_alone():
    layer, x = nn.Linear(2, 1, bias=False).requires_grad_(False), torch.ones(2, 2)
    x[0] = torch.nan
    users = UserBackward(layer, ["weight"])
    grads_BD = torch.zeros(2, 2)
    with users.into(grads_BD, [(0, 0, 1), (1, 1, 2)], 2):
        layer(x).sum().backward()
    assert torch.isnan(grads_BD[0]).all()
    torch.testing.assert_close(grads_BD[1], torch.ones(2))


def test_a_layer_that_mixes_sequences_is_refused():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = nn.Embedding(5, 4)

        def forward(self, x):
            return x + self.positions(torch.arange(5))

    mixing = Mixing().requires_grad_(False)
    users = UserBackward(mixing, ["positions.weight"])
    with (
        users.into(torch.zeros(1, 20), [(0, 0, 6)], 6),
        pytest.raises(InputError, match="'positions' does not keep sequences apart"),
    ):
        mixing(torch.ones(6, 5, 4))


def test_an_unknown_parameter_is_refused():
    with pytest.raises(InputError, match="no parameter 'nobody'"):
        UserBackward(nn.Linear(2, 2), ["nobody"])
