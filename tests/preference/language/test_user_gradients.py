"""Each user's gradient from one backward pass: against automatic differentiation, by layer."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.user_gradients import Touched, UserBackward

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


HALVES = [torch.bfloat16, torch.float16]
#: A layer that is not differentiated again: what it computes with is all there is to round.
RULES = ("linear", "transposed", "embedding", "layer norm", "any other")


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", RULES)
def test_rows_are_added_up_in_float32_whatever_the_network_computes_in(kind, dtype):
    """Of the same rounded inputs the sum over 2,000 tokens has float32's error, not that of the
    network's type, whose unit roundoff is 2^-9 or 2^-12: what is left of one rounding of the sum to
    it would be more than 1e-5."""
    make, inputs = LAYERS[kind]
    torch.manual_seed(0)
    layer, generator = make().to(dtype), torch.Generator().manual_seed(1)
    x = torch.cat([inputs(generator) for _ in range(400)], dim=1)
    x = x if x.dtype == torch.int64 else x.to(dtype)
    back = torch.randn(layer(x).shape, generator=generator).to(dtype)
    names = [name for name, _ in layer.named_parameters()]
    rounded = {name: p.detach().clone() for name, p in layer.named_parameters()}
    _, expected_BD = backwards(layer, x, back)
    layer.to(dtype).requires_grad_(False)
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter, rounded[name])
    grads_BD = torch.zeros(4, expected_BD.shape[1])
    with UserBackward(layer, names).into(grads_BD, SPANS, ROWS):
        layer(x).backward(back)
    assert grads_BD.dtype == torch.float32
    assert (grads_BD.double() - expected_BD).norm() / expected_BD.norm() < 1e-5


class Block(nn.Module):
    """Layers of every rule, one of them used twice, checkpointed or not."""

    def __init__(self, again):
        super().__init__()
        self.again, self.passes = again, 0
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), RootMeanSquare(), Twice())
        self.low_rank = LowRank()

    def computed(self, x):
        self.passes += 1
        return self.low_rank(x + torch.tanh(self.inner(x)))

    def forward(self, x):
        return checkpoint(self.computed, x, **self.again) if self.again else self.computed(x)


class Network(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.block, self.other = Block(again), nn.Linear(3, 4)
        self.last = Block(again)

    def forward(self, x):
        return self.last(torch.tanh(self.other(self.block(self.words(x)))))


def gradients(again, trained=None):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network, x = Network(again).requires_grad_(False), ids(generator)
    names = [n for n, _ in network.named_parameters() if trained is None or trained in n]
    users = UserBackward(network, names)
    grads_BD = torch.zeros(4, users.dimension)
    with users.into(grads_BD, SPANS, ROWS):
        network(x).square().sum().backward()
    return grads_BD, network


@pytest.mark.parametrize("trained", [None, "low_rank", "words", "last.low_rank.up"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_changes_no_bit_and_nothing_counts_twice(trained, reentrant):
    if reentrant and trained not in (None, "words"):
        pytest.skip("nothing before it requires a gradient, which this kind of checkpoint needs")
    expected_BD, plain = gradients({}, trained)
    found_BD, network = gradients({"use_reentrant": reentrant}, trained)
    assert expected_BD[0].any()
    assert torch.equal(found_BD, expected_BD)
    assert (plain.block.passes, network.last.passes) == (1, 2)


def test_hooks_keep_nothing_that_a_checkpoint_lets_go():
    """Between the passes, what came into a layer of a block is gone, and only there."""
    for again, gone in (({}, False), ({"use_reentrant": False}, True)):
        network, seen = Network(again).requires_grad_(False), []
        inside = network.block.inner[1]
        inside.register_forward_pre_hook(
            lambda _, args, seen=seen: seen.append(weakref.ref(args[0]))
        )
        names = [name for name, _ in network.named_parameters()]
        users = UserBackward(network, names)
        with users.into(torch.zeros(4, users.dimension), SPANS, ROWS):
            loss = network(ids(torch.Generator().manual_seed(1))).sum()
            gc.collect()
            storage = [one() for one in seen]
            assert (storage == [None]) == gone
            loss.backward()


def test_rows_by_token():
    """A head called on some tokens of all sequences, as if on the sequences."""
    generator = torch.Generator().manual_seed(1)
    head, x = nn.Linear(4, 3).requires_grad_(False), states(generator)
    users = UserBackward(head, ["weight", "bias"])
    chosen_RL = torch.rand(ROWS, TOKENS, generator=generator) < 0.5
    row_Q = chosen_RL.nonzero()[:, 0].tolist()
    whole, parts = torch.zeros(2, 4, 15)
    with users.into(whole, SPANS, ROWS):
        head(x)[chosen_RL].square().sum().backward()
    with users.into(parts, SPANS, ROWS):
        for low in range(0, len(row_Q), 4):
            some = slice(low, low + 4)
            with users.by_token(row_Q[some]):
                head(x[chosen_RL][some]).square().sum().backward()
        assert head(x).shape == (ROWS, TOKENS, 3)  # sequences again
    torch.testing.assert_close(parts, whole)
    with users.by_token(row_Q):  # outside: as if it were not there
        head(x)


def inside(touched, dimension):
    found_D = torch.zeros(dimension, dtype=torch.bool)
    for begin, end in touched.stretches().tolist():
        assert 0 <= begin <= end <= dimension
        found_D[begin:end] = True
    return found_D


def one_after_the_other(kind, touched):
    """Each user of four in the same buffer, which is cleared as it was touched; and from zeros."""
    make, inputs = LAYERS[kind]
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    layer, x = make(), inputs(generator)
    names = [name for name, p in layer.named_parameters() if p.requires_grad]
    layer.requires_grad_(False)
    users = UserBackward(layer, names)
    buffer, back = torch.zeros(1, users.dimension), torch.randn(layer(x).shape, generator=generator)
    for low, high in [(0, 2), (2, 3), (3, 6), (3, 3), (5, 6)]:
        touched.clear(buffer)
        for into, told in ((buffer, touched), (fresh := torch.zeros_like(buffer), None)):
            with users.into(into, [(0, 0, high - low)], high - low, told):
                if high > low:
                    layer(x[low:high]).backward(back[low:high])
        assert torch.equal(buffer, fresh)
        assert not buffer[:, ~inside(touched, users.dimension)].any()


@pytest.mark.parametrize("kind", LAYERS)
def test_where_nothing_was_touched_there_are_zeros(kind):
    one_after_the_other(kind, Touched())


def test_of_an_embedding_only_rows_that_were_looked_up_are_touched():
    words = nn.Embedding(7, 3).requires_grad_(False)
    users, touched = UserBackward(words, ["weight"]), Touched()
    with users.into(torch.zeros(1, 21), [(0, 0, 1)], 1, touched):
        words(torch.tensor([[5, 2, 5]])).sum().backward()
    assert inside(touched, 21).nonzero()[:, 0].tolist() == [6, 7, 8, 15, 16, 17]


class ForgetsAWord(Touched):
    def rows_of(self, start, shape, ids):
        super().rows_of(start, shape, ids[ids != ids.max()])


class ForgetsTheHead(Touched):
    def all_of(self, start, shape):
        pass


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("embedding", ForgetsAWord),
        ("embedding with padding", ForgetsAWord),
        ("tied", ForgetsTheHead),
        ("linear", ForgetsTheHead),
    ],
)
def test_what_is_not_told_is_found(kind, fault):
    with pytest.raises(AssertionError):
        one_after_the_other(kind, fault())
