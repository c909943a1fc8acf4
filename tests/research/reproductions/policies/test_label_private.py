"""Policies from randomized labels: the two stages, what is compared, what rows say."""

from contextlib import contextmanager

import numpy as np
import pytest

from murmuration.research.reproductions.policies import label_private
from murmuration.research.reproductions.policies.written import Won
from murmuration.sims.population.population import Population, true_reward
from murmuration.sims.population.reading import read, topic_of


def randomized(count, flip, right, seed=0):
    """Truth, statements, and an opinion that is right so often."""
    generator = np.random.default_rng(seed)
    truth_J = generator.random(count) < 0.5
    stated_J = truth_J ^ (generator.random(count) < flip)
    return truth_J, stated_J, truth_J ^ (generator.random(count) >= right)


@pytest.mark.parametrize(("flip", "right", "taken"), [(0.4, 0.8, True), (0.1, 0.8, False)])
def test_the_likelier_source_is_believed(flip, right, taken):
    truth_J, stated_J, opinion_J = randomized(4000, flip, right)
    found_J = label_private.likelier(stated_J, opinion_J, 2000, flip)
    np.testing.assert_array_equal(found_J[:2000], stated_J[:2000])
    np.testing.assert_array_equal(found_J[2000:], (opinion_J if taken else stated_J)[2000:])
    assert (found_J == truth_J).mean() >= (stated_J == truth_J).mean()


def test_an_opinion_is_judged_by_statements_it_has_not_seen():
    """One that repeats the first half's statements is no better for it."""
    _, stated_J, opinion_J = randomized(4000, 0.4, 0.5)
    opinion_J[:2000] = stated_J[:2000]
    found_J = label_private.likelier(stated_J, opinion_J, 2000, 0.4)
    np.testing.assert_array_equal(found_J, stated_J)


def test_judgements_are_of_users_whose_crowd_is_asked():
    pairs = label_private.judged(400, 1)
    again = label_private.judged(400, 1)
    assert (pairs.prompts, pairs.responses) == (again.prompts, again.responses)
    assert pairs.prompts != label_private.judged(400, 2).prompts
    assert 150 < pairs.first_J.sum() < 250
    rewards = []
    for prompt, shown, first in zip(pairs.prompts, pairs.responses, pairs.first_J, strict=True):
        axes = [read(topic_of(prompt), text).axes for text in (shown if first else shown[::-1])]
        rewards.append([true_reward(Population.crowd, each) for each in axes])
    better, worse = np.array(rewards).T
    assert np.mean(better > worse) > 0.65  # as the crowd mean reaches, 74 %


CELLS = [
    *((None, method) for method in label_private.CLEAN),
    *((0.5, method) for method in label_private.METHODS),
]
STEP = {cell: 0.1 + 0.01 * place for place, cell in enumerate(CELLS)}


class Contest:
    """Of which each fit notes what it was told."""

    told: list  # of whoever begins

    def __init__(self, path, pairs, prompts, weights, seed):
        self.pairs = pairs

    def won(self, loss, stated_J, flip, step):
        self.told.append((loss, stated_J, flip, step))
        return Won(0.5 + 0.01 * len(self.told), 0.1)

    def predicted(self, loss, stated_J, flip, step):
        assert (loss, step) == ("dpo", STEP[0.5, label_private.TWO_STAGES])
        self.asked = len(stated_J)
        return self.pairs.first_J


def test_methods_of_a_seed_have_the_same_statements(monkeypatch):
    monkeypatch.setattr(label_private, "Contest", Contest)
    Contest.told = []
    cells = label_private.one_seed(("base", 3, STEP, 1000, 5))
    assert [*cells] == CELLS
    assert [step for *_, step in Contest.told] == [*STEP.values()]
    fits = [fit for *fit, _ in Contest.told]
    (_, truth_J, _), (_, _, none), (_, stated_J, flip), *others, (last, staged_J, _) = fits
    assert none == 0.0
    assert flip == pytest.approx(1 / (1 + np.exp(0.5)))
    assert (stated_J != truth_J).mean() == pytest.approx(flip, abs=0.06)
    assert all((told_J == stated_J).all() for _, told_J, _ in others)
    # The two stages believe a first policy that is always right, and only of the second half.
    assert last == "dpo"
    np.testing.assert_array_equal(staged_J[:500], stated_J[:500])
    np.testing.assert_array_equal(staged_J[500:], truth_J[500:])


def best_step(epsilon, method):
    """For each loss and ε another one."""
    return label_private.STEPS[(len(method) + int(10 * (epsilon or 0))) % len(label_private.STEPS)]


@pytest.fixture
def tasks(monkeypatch):
    """Of seeds, in which each method wins more often with its best step."""
    computed = []

    def one_seed(task):
        computed.append(task)
        _, seed, steps, *_ = task
        return {
            (epsilon, method): Won(
                0.5 + 0.03 * place + 0.1 * (seed == 1) + 0.2 * (step == best_step(epsilon, method)),
                0.1,
            )
            for place, ((epsilon, method), step) in enumerate(steps.items())
        }

    monkeypatch.setattr(label_private, "one_seed", one_seed)
    monkeypatch.setattr(label_private, "reference", no_reference)
    monkeypatch.setattr(label_private, "in_processes", map)
    return computed


@pytest.fixture
def rows(tasks):
    return label_private.label_private(seeds=2, pairs=100, prompts=5)


@contextmanager
def no_reference(texts):
    yield "base"


def test_rows_say_what_statements_are_worth(rows):
    measured = [row for row in rows if "win_rate_mean" in row]
    assert len(measured) == 2 + 3 * 4
    worth = {row["epsilon"]: row["true_labels"] for row in measured}
    assert worth[None] == 100
    assert worth[0.5] == pytest.approx(100 * np.tanh(0.25) ** 2)
    assert measured[0]["win_rate_sd"] > 0


def test_each_loss_has_the_step_that_is_its_own_on_other_seeds(rows, tasks):
    trials = [task for task in tasks if task[1] >= label_private.TUNING_SEED]
    assert len(trials) == 2 * len(label_private.STEPS)
    assert {task[1] for task in tasks if task not in trials} == {0, 1}
    measured = [row for row in rows if "win_rate_mean" in row]
    assert {row["step"] for row in measured} == {*label_private.STEPS}
    for row in measured:
        assert row["step"] == best_step(row["epsilon"], row["method"])
    tried = [row for row in rows if "tuned_win_rate" in row]
    assert len(tried) == len(label_private.STEPS) * len(measured)
    assert sum(row["chosen"] for row in tried) == len(measured)


def test_remarks_order_methods(rows):
    texts = label_private.remarks(rows)
    assert len(texts) == 6
    assert texts[0].startswith(
        "ε = 0.1 a label, worth 0 true labels: DPO in two stages 90.0% ± 7.1%, "
    )
    assert texts[-1].endswith("of 14 are at an end.")


def test_the_plot_has_every_line(rows):
    (axes,) = label_private.plot(rows).axes
    assert len(axes.containers) == 4
    assert "DPO, true labels" in axes.get_legend_handles_labels()[1]
