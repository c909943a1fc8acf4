"""Every rival learns, with a budget as large as the others', and spends what it promises."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.mechanisms.randomized_response import composed_epsilon
from murmuration.research.reproductions.btl import Population
from murmuration.research.reproductions.rivals import contestants
from murmuration.research.reproductions.rivals.contestants import (
    CENTRED,
    DELTA,
    LABELS,
    MOMENT,
    RESPONSE,
    RIVALS,
    ULS,
    Learners,
)


@pytest.fixture(scope="module")
def people():
    return Population.draw(0, users=400, each=5, dimension=4)


@pytest.fixture(scope="module")
def learners(people):
    return Learners(people.examples, rounds=30)


def rival(name, adjacency=LABELS):
    return next(one for one in RIVALS if (one.name, one.adjacency) == (name, adjacency))


def test_budgets_are_of_one_size_and_have_the_default():
    assert {len(one.settings) for one in RIVALS} == {15}
    for one in RIVALS:
        assert len(set(one.settings)) == 15
        assert ((1.0, 1.0) in one.settings) == bool(one.bound) or one.name == RESPONSE


@pytest.mark.parametrize(
    "one", [one for one in RIVALS if "published" not in one.name], ids=lambda r: r.name
)
def test_a_sound_rival_learns_where_noise_is_small(one, people, learners):
    """All point to the truth at an enormous ε; another seed has other noise."""
    setting = one.settings[-2] if not one.bound else (1.0, 1.0)
    theta_D, again_D, other_D = (learners.head(one, setting, 8.0, s) for s in (0, 0, 1))
    assert theta_D.dtype == np.float32
    assert (theta_D == again_D).all() and (theta_D != other_D).any()
    assert people.examples.accuracy(theta_D).pooled > 0.6


def test_a_step_is_a_multiple_of_what_is_usual(learners, monkeypatch):
    usual = []
    monkeypatch.setattr(
        contestants, "_usual", lambda strategy, real=contestants._usual: usual.append(
            real(strategy)
        ) or usual[-1],
    )  # fmt: skip
    configs = []
    run = contestants.Training.run

    def noted(self, config, **given):
        configs.append(config)
        return run(self, config, **given)

    monkeypatch.setattr(contestants.Training, "run", noted)
    for name, field in ((ULS, "learning_rate"), (CENTRED, "learning_rate")):
        learners.head(rival(name), (0.6, 3.0), 3.0, 0)
        assert getattr(configs[-1], field) == pytest.approx(3.0 * usual[-1][field])
        assert configs[-1].clip_norm == pytest.approx(0.6 * rival(name).bound)
    learners.head(rival(MOMENT), (0.6, 3.0), 3.0, 0)
    assert configs[-1].own.ridge == pytest.approx(3.0 * usual[-1]["ridge"])
    assert configs[-1].clip_norm == pytest.approx(0.6 * 0.8)
    assert configs[-1].delta == DELTA and configs[-1].adjacency == LABELS


@pytest.mark.parametrize("cap", [1, 3, 0])
def test_all_labels_of_a_user_together_have_what_is_promised(cap):
    """Of whoever has many and few; neither much less than ε nor more."""
    for count in (1, 2, 7, 40):
        flip = contestants._flip_probability(3.0, cap, count)
        each = np.log((1.0 - flip) / flip)
        labels = cap or count
        assert composed_epsilon(each, labels, DELTA) == pytest.approx(3.0, rel=1e-6)


def estimate(seen, theta_D):
    """Return an estimator that notes the labels that it is given."""
    return lambda **given: SimpleNamespace(
        of=lambda labels: (seen.append(labels), (theta_D, []))[1]
    )


@pytest.mark.parametrize("cap", [1, 2, 0])
def test_no_more_labels_are_released_than_the_cap(cap, monkeypatch):
    counts = np.array([1, 2, 5, 9])
    start_U = torch.tensor([0, *np.cumsum(counts)])
    x_RD = torch.eye(int(counts.sum()))  # a judgement is known by its feature
    examples = PairExamples(x_RD, torch.ones(len(x_RD)), start_U)
    seen = []

    zero_D = torch.zeros(len(x_RD))
    monkeypatch.setattr(contestants, "Estimate", estimate(seen, zero_D))
    Learners(examples, 1).head(rival(RESPONSE), (float(cap), 1.0), 3.0, 0)
    rows = np.sort(seen[0].x_JWD[:, 0].argmax(1).numpy())
    assert len(set(rows.tolist())) == len(rows), "nobody releases a label twice"
    user_J = np.searchsorted(start_U.numpy(), rows, side="right") - 1
    released_U = np.bincount(user_J, minlength=4)
    assert released_U.tolist() == (np.minimum(counts, cap) if cap else counts).tolist()


def test_labels_are_flipped_as_often_as_their_coins_say(monkeypatch):
    """Both ways; a tie is a fair coin's before it is randomized."""
    users = 20_000
    y_R = torch.cat([torch.ones(users), torch.full((users,), 0.5)])
    start_U = torch.arange(0, 2 * users + 1)
    examples = PairExamples(torch.ones(2 * users, 1), y_R, start_U)
    seen = []
    monkeypatch.setattr(contestants, "Estimate", estimate(seen, torch.zeros(1)))
    Learners(examples, 1).head(rival(RESPONSE), (1.0, 1.0), 1.0, 0)
    stated_J = seen[0].stated_JK[:, 0].numpy()
    flip = contestants._flip_probability(1.0, 1, 1)
    assert seen[0].flip_J.unique().tolist() == [flip]
    assert 1.0 - stated_J[:users].mean() == pytest.approx(flip, abs=4 * 0.5 / users**0.5)
    assert stated_J[users:].mean() == pytest.approx(0.5, abs=4 * 0.5 / users**0.5)


def test_the_twin_without_privacy_is_the_best_that_these_can_do(people, learners):
    assert people.examples.accuracy(learners.without_privacy(0)).pooled > 0.6
