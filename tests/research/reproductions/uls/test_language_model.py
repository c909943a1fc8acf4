"""A language model by ELS and ULS: gradients, plans of equal compute, claims of known ends."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from murmuration.privacy.accounting.accountant import epsilon as spent_by
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.kept_results import decoded, encoded
from murmuration.research.reproductions.uls import language_model as lm
from murmuration.research.reproductions.uls.language_model import (
    DIVERSE,
    ELS,
    ULS,
    UNIFORM,
    Base,
    People,
    Plan,
    Setting,
    Sizes,
)
from murmuration.sims.population.tiny_language_model import build

SIZES = Sizes(users=12, each=4, tokens=8, rounds=2, others=6, exchanges=40)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uls-lm") / "base"
    build(folder, replace(lm.SHAPE, width=16, layers=1), lm.public_texts(SIZES.exchanges))
    return Base(folder)


@pytest.fixture(scope="module")
def people(base):
    return People.draw(base, SIZES, DIVERSE, 3)


def test_the_loss_is_the_networks_own(base):
    texts_UJ = lm.written(2, SIZES, DIVERSE, 0)
    texts = base.texts(texts_UJ, SIZES.tokens)
    ids_TL = torch.tensor([base._ids(text, SIZES.tokens) for row in texts_UJ for text in row])
    with torch.no_grad():
        logits_TLV = base._network(input_ids=ids_TL).logits[:, :-1]
    expected = cross_entropy(logits_TLV.flatten(0, 1), ids_TL[:, 1:].flatten())
    assert base.loss(base.weight_HF, texts) == pytest.approx(float(expected), rel=1e-5)


def test_gradients_are_of_each_users_mean(base, people):
    texts = people.trained
    user_S, text_SG = torch.tensor([0, 5]), torch.tensor([[1, 3], [0, 2]])
    grads_SHF = base.gradients(base.weight_HF, texts, user_S, text_SG)
    for place in range(2):
        chosen = user_S[place], text_SG[place]
        weight_HF = base.weight_HF.clone().requires_grad_()
        x_GLH, a_GLF = texts.x_UJLH[chosen], texts.a_UJLF[chosen]
        logits = base._said(weight_HF, x_GLH.flatten(0, 1), a_GLF.flatten(0, 1))
        cross_entropy(logits, texts.next_UJL[chosen].flatten()).backward()
        torch.testing.assert_close(grads_SHF[place], weight_HF.grad, rtol=1e-4, atol=1e-7)


def test_uniform_users_gradients_shorten_less(base):
    def shortened(diversity):
        sizes = replace(SIZES, others=40)
        length = lm.lengths(base, People.draw(base, sizes, diversity, 1).others)
        assert list(length) == [1, 2, 4]
        return length[4] / length[1]

    assert shortened(DIVERSE) < shortened(UNIFORM) < 1.0


def test_people_of_two_seeds_share_nobody():
    """And uniform users keep to what is said of one topic from one side."""
    first, second = (lm.written(10, SIZES, DIVERSE, seed) for seed in (0, 1))
    assert not {text for row in first for text in row} & {text for row in second for text in row}
    words = [Counter(" ".join(row).split()) for row in lm.written(10, SIZES, UNIFORM, 0)]
    mixed = [Counter(" ".join(row).split()) for row in first]
    assert np.mean([len(w) for w in words]) < np.mean([len(w) for w in mixed])
    with pytest.raises(ValueError, match="a text of 2 tokens, where 8 are needed"):
        Base._ids(None, "too short", 8)  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [1, 10])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_both_spend_the_compute_and_the_epsilon(epsilon, factor):
    sizes = Sizes(rounds=5)
    length = {2**k: 2.0**-k for k in range(5)}  # gradients that cancel: groups are worth while
    users = sizes.users * factor
    for algorithm, group in ((ELS, sizes.each), (ULS, 1)):
        plan = lm.planned(Setting(algorithm, DIVERSE, 64, epsilon, factor), sizes, length)
        assert plan.drawn * (plan.group_size or 1) == 64
        among = users if algorithm == ULS else users * sizes.each
        event = MixtureGaussian(plan.sigma, group, plan.drawn / among)
        delta = (users * sizes.each) ** -1.1
        spent = spent_by([(event, 5)], delta=delta, adjacency=Adjacency.ADD_REMOVE)
        assert 0.97 * epsilon < spent <= epsilon * (1 + 1e-6)
        assert plan.length == length[plan.group_size or 1]
    assert lm.planned(Setting(ULS, DIVERSE, 16, epsilon, factor), sizes, length).group_size == 1


def test_no_drawn_user_moves_a_round_by_more_than_the_step(base, people):
    """Clipping is in units of the bound: without noise a round is at most rate · drawn/nominal."""
    for plan in (Plan(None, 6.0, 0.0, 1e-3), Plan(2, 3.0, 0.0, 1e-3)):
        weight_HF = lm.trained(base, people.trained, plan, 1, 7, rate=0.5, clip=1.0)
        generator = torch.Generator().manual_seed(7)
        among = SIZES.users * (1 if plan.group_size else SIZES.each)
        drawn = int((torch.rand(among, generator=generator) < plan.drawn / among).sum())
        moved = float((weight_HF - base.weight_HF).norm())
        assert 0 < moved <= 0.5 * drawn / plan.drawn + 1e-6


def test_noise_is_as_large_as_the_plan_says(base, people):
    nobody = Plan(None, 1e-9, 3.0, 1.0)  # is ever drawn
    moves = [
        lm.trained(base, people.trained, nobody, 4, seed, rate=2e-10, clip=0.5) - base.weight_HF
        for seed in range(20)
    ]
    expected = 0.2 * 3.0 * 2.0  # rate/drawn · σ · √rounds
    assert torch.stack(moves).std().item() == pytest.approx(expected, rel=0.05)


def test_training_without_noise_learns(base, people):
    plan = Plan(4, 6.0, 0.0, 1.0)
    weight_HF = lm.trained(base, people.trained, plan, 20, 0, rate=5.0, clip=0.1)
    assert base.loss(weight_HF, people.others) < base.loss(base.weight_HF, people.others) - 0.01


def test_the_best_of_the_grid_is_taken(base, people):
    """A step of 1,000 ruins what it is tried on."""
    plan = Plan(4, 6.0, 0.0, 1.0)
    rate, clip = lm.tuned(base, people, plan, SIZES, (1000.0, 0.1))
    assert rate == 0.1 and clip in lm.CLIPS


def claims_of(els, uls):
    losses = {
        Setting(name, DIVERSE, compute, 4.0, factor): values
        for name, table in ((ELS, els), (ULS, uls))
        for (compute, factor), values in table.items()
    }
    return list(lm._claims(losses, DIVERSE))


def test_claims_are_told_by_intervals():
    cells = [(compute, factor) for compute in (16, 64) for factor in (1, 10)]
    flat = {cell: [2.0, 2.01, 2.02] for cell in cells}
    better = {
        (compute, factor): [v - 0.1 * (compute == 64) for v in flat[compute, factor]]
        for compute, factor in cells
    }
    rows = claims_of(flat, better)
    verdicts = {(row["claim"], row["compute"], row["factor"]): lm.verdict(row) for row in rows}
    assert len(rows) == 4 + 2 + 2
    assert verdicts[lm.BETTER, 64, 1] == "agrees" and verdicts[lm.BETTER, 16, 1] == "undecided"
    assert verdicts[lm.MORE_COMPUTE, None, 10] == "agrees"
    assert verdicts[lm.MORE_USERS, 64, 10] == "undecided"
    swapped = claims_of(better, flat)
    assert lm.verdict(swapped[2]) == "DIFFERS"
    assert lm.verdict({"difference_mean": 1.0, "difference_interval": None}) == "undecided"


@pytest.fixture(scope="module")
def rows():
    return lm.language_model(
        sizes=replace(SIZES, users=40, exchanges=80),
        computes=(16, 32), privacy=((4.0, 1), (4.0, 10)), rates=(0.1,), seeds=2,
    )  # fmt: skip


def test_an_interrupted_one_goes_on():
    """What a task gives can be kept, and is read as what it was."""
    sizes = replace(SIZES, users=20, exchanges=40, rounds=2)
    setting = lm.Setting(ULS, DIVERSE, 16, 4.0, 1)
    result = lm.measured((setting, sizes, (0.1,), 2))
    assert decoded(encoded(result)) == result and len(result[1]) == 2


def test_rows_have_every_setting(rows):
    private = [row for row in rows if row.get("algorithm") in (ELS, ULS)]
    assert len(private) == 2 * 2 * 2 * 2
    assert all(np.isfinite(row["loss_mean"]) for row in rows if "loss_mean" in row)
