"""Self-play by a model that writes: who is preferred, the gap, what rows and verdicts say."""

from contextlib import contextmanager
from itertools import islice, product

import numpy as np
import pytest
import torch

from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.policies import policy_examples
from murmuration.preference.language.policy_fit import PolicyFit
from murmuration.research.reproductions.policies import selfplay_written, written
from murmuration.research.reproductions.policies.selfplay_written import (
    BASE,
    DRAWN,
    METHODS,
    SETTINGS,
    TRUTH_KK,
    UNREADABLE,
    Sizes,
    Written,
    gap,
    iterative_dpo,
    kinds,
)
from murmuration.research.reproductions.policies.written import TUNING_SEED, trained
from murmuration.research.strategies.self_play.play import SelfPlay
from murmuration.sims.population.population import Population
from murmuration.sims.population.reading import topic_of


def test_preferences_go_in_a_circle_that_an_even_mixture_balances():
    np.testing.assert_array_equal(TRUTH_KK, -TRUTH_KK.T)
    assert gap(np.array([1, 1, 1, 0]) / 3) == pytest.approx(0.0)
    for place in range(3):
        assert gap(np.eye(4)[place]) == pytest.approx(1.6)
    assert gap(np.eye(4)[UNREADABLE]) == pytest.approx(1.6)
    # A tenth that cannot be read costs what it loses, however the rest is mixed.
    assert gap(np.array([0.3, 0.3, 0.3, 0.1])) == pytest.approx(0.16)


def test_a_gap_is_what_the_best_reply_of_all_mixtures_gains():
    generator = np.random.default_rng(0)
    shares_K = generator.dirichlet(np.ones(4))
    replies_RK = generator.dirichlet(np.full(4, 0.1), size=20_000)
    gains_R = replies_RK @ TRUTH_KK @ shares_K
    assert 0.97 * gap(shares_K) < 2 * gains_R.max() <= gap(shares_K)


def test_kinds_of_written_answers_are_those_of_the_population():
    given = list(islice(Population(seed=3).judgements("train"), 200))
    answers = [one.chosen for one in given]
    result = kinds([one.prompt for one in given], [answer.text for answer in answers])
    daring_R = np.array([answer.axes[0] > 0 for answer in answers])
    technical_R = np.array([answer.axes[2] > 0 for answer in answers])
    np.testing.assert_array_equal(result, np.where(daring_R, 1 + technical_R, 0))
    assert set(result.tolist()) == {0, 1, 2}
    assert kinds([given[0].prompt, "What is this?"], ["no sense", answers[0].text]).tolist() == [
        UNREADABLE,
        UNREADABLE,
    ]


@pytest.fixture
def played(language_model, monkeypatch):
    """Whose answers are the population's own, of random kinds, and no model's."""
    monkeypatch.setattr(written, "LAYER", "1.mlp.down_proj")
    texts = [
        (one.prompt, answer.text)
        for one in islice(Population(seed=1000).judgements("train"), 3000)
        for answer in (one.chosen, one.rejected)
    ]
    by_topic = {}
    for prompt, text in texts:
        by_topic.setdefault(topic_of(prompt), []).append(text)

    def answers(self, base, theta_D, prompts, stream):
        generator = np.random.default_rng(stream)
        return [str(generator.choice(by_topic[topic_of(prompt)])) for prompt in prompts]

    monkeypatch.setattr(selfplay_written.Played, "_answers", answers)
    return selfplay_written.Played(language_model("llama", context=256), Sizes(1500, 40, 2, 8), 0)


def test_people_prefer_in_a_circle_and_behind_coins_so_many_statements_are_false(
    played, monkeypatch
):
    fits = []

    class Estimate:
        @staticmethod
        def fit(shown, contrast_N):
            fits.append((shown, contrast_N))

    monkeypatch.setattr(selfplay_written, "GeneralPreference", Estimate)
    for epsilon in (None, 1.0):
        played._estimate(epsilon)
    (true, sure_N), (stated, contrast_N) = fits
    assert set(sure_N) == {1.0}
    np.testing.assert_allclose(contrast_N, np.tanh(0.5))
    false = np.mean([one != other for one, other in zip(true, stated, strict=True)])
    assert false == pytest.approx(1 / (1 + np.e), abs=0.04)
    # 0.9 of those who see two kinds prefer as the circle has it, along each of its edges.
    first_J, other_J = (kinds(played._asked, [pair[k] for pair in true]) for k in (0, 1))
    for better, worse in ((0, 1), (1, 2), (2, 0)):
        right = ((first_J == better) & (other_J == worse)).sum()
        wrong = ((first_J == worse) & (other_J == better)).sum()
        assert right + wrong > 100
        assert right / (right + wrong) == pytest.approx(0.9, abs=0.06)


@pytest.fixture
def fitted(language_model, monkeypatch):
    """Parameters of which a policy of each method writes, by few statements."""
    monkeypatch.setattr(written, "LAYER", "1.mlp.down_proj")
    monkeypatch.setattr(selfplay_written, "SAMPLING", Sampling(max_new_tokens=4))
    wrote = []
    original = selfplay_written.Played._answers

    def answers(self, base, theta_D, prompts, stream):
        wrote.append(theta_D)
        return original(self, base, theta_D, prompts, stream)

    monkeypatch.setattr(selfplay_written.Played, "_answers", answers)
    played = selfplay_written.Played(language_model("llama", context=256), Sizes(40, 4, 2, 6), 0)

    def fit(method, setting=(0.05, 1.0)):
        wrote.clear()
        result = played.written((2.0, method), setting)
        played._played.clear()
        assert result.gap == pytest.approx(1.6)  # this network says nothing that can be read
        return list(wrote)

    return fit


@pytest.mark.parametrize("method", METHODS)
def test_a_policy_moves_alike_again_and_otherwise_with_another_setting(fitted, method):
    theta_D = fitted(method)[-1]
    assert np.abs(theta_D).max() > 0.01
    np.testing.assert_array_equal(fitted(method)[-1], theta_D)
    assert (fitted(method, (0.1, 1.0))[-1] != theta_D).any()
    assert (fitted(method, (0.05, 0.1))[-1] != theta_D).any()


def test_a_drawn_policy_is_one_of_those_that_played(fitted):
    """Each writes its share: the reference, and the policy after each iteration but the last."""
    *iterates, last_D = fitted(DRAWN)
    assert len(iterates) == 2
    assert not iterates[0].any()
    assert (iterates[1] != last_D).any()


def test_iterative_dpo_writes_what_the_estimate_prefers(language_model, monkeypatch):
    """An estimate that likes one word: a policy that begins with any word ends with that one."""
    monkeypatch.setattr(written, "LAYER", "1.mlp.down_proj")
    monkeypatch.setattr(selfplay_written, "SAMPLING", Sampling(max_new_tokens=3))
    base = trained(language_model("llama"), "dpo")

    def likes(texts):
        return np.array([text.count("e") / (1 + len(text)) for text in texts])

    def preference(first, other):
        return np.sign(likes(first) - likes(other))

    play = SelfPlay(6, 64, PolicyFit(batch=16, rate=0.2))
    prompts = ["what now ?", "wait and compare ?"]
    theta_D = iterative_dpo(play, preference, prompts, base)

    def liked(theta_D):
        base.put(torch.from_numpy(theta_D))
        writer = Writer(base.model, base.texts)
        return likes(writer.write(prompts * 100, Sampling(max_new_tokens=3), 9)).mean()

    assert liked(theta_D) > 1.3 * liked(np.zeros_like(theta_D)) > 0


def test_iterations_begin_where_the_one_before_ended(language_model, monkeypatch):
    """At the policy that is the reference all ratios are one, and a step from it is one from it."""
    monkeypatch.setattr(written, "LAYER", "1.mlp.down_proj")
    base = trained(language_model("llama"), "dpo")
    pairs = selfplay_written._judgements(
        ["what now ?"] * 3, [("save it .", "buy today !")] * 3, np.full(3, 0.8)
    )
    theta_D = np.random.default_rng(0).standard_normal(base.dimension).astype("f4")
    examples = policy_examples(pairs, base)
    moved = selfplay_written._from(examples, theta_D)
    assert np.abs(examples.ratios(torch.from_numpy(theta_D)).numpy()).max() > 0.01
    np.testing.assert_allclose(moved.ratios(torch.from_numpy(theta_D)).numpy(), 0.0, atol=1e-5)


@contextmanager
def no_reference(texts):
    yield "base"


@pytest.fixture
def tasks(monkeypatch):
    """Seeds in which each method's gap is least with its own step."""
    computed = []

    def one_seed(task):
        computed.append(task)
        _, seed, settings, _ = task
        result = {
            cell: Written(
                0.2 + 0.1 * place + 0.3 * (setting != own_setting(cell)) + 0.01 * (seed % 7),
                0.6,
                np.array([0.3, 0.3, 0.3, 0.1]),
            )
            for place, (cell, setting) in enumerate(settings.items())
        }
        return {**result, (None, BASE): Written(0.15, 0.5, np.array([0.5, 0.2, 0.2, 0.1]))}

    monkeypatch.setattr(selfplay_written, "one_seed", one_seed)
    monkeypatch.setattr(selfplay_written, "reference", no_reference)
    monkeypatch.setattr(selfplay_written, "in_processes", map)
    return computed


def own_setting(cell):
    return SETTINGS[(len(cell[1]) + (cell[0] is None)) % len(SETTINGS)]


def test_each_method_has_its_own_setting_of_another_seed_and_verdicts_are_by_intervals(tasks):
    rows = selfplay_written.selfplay_written(seeds=3, epsilons=(None, 2.0))
    assert {task[1] for task in tasks} == {TUNING_SEED, 0, 1, 2}
    final = [row for row in rows if "gap_mean" in row]
    assert [(row["epsilon"], row["method"]) for row in final] == [
        *product((None, 2.0), METHODS),
        (None, BASE),
    ]
    for row in final[:-1]:
        assert (row["step"], row["beta"]) == own_setting((row["epsilon"], row["method"]))
    texts = selfplay_written.remarks(rows)
    dpo = "iterative DPO 0.41 ± 0.02 (wins 60%, 10% unreadable; self-play has less, +0.20)"
    assert dpo in texts[0]
    assert texts[-2].endswith("beside it self-play has more, -0.06.")
    assert "± is Student's" in texts[-1]
    assert len(selfplay_written.plot(rows).axes) == 2


@pytest.mark.parametrize(
    ("below", "interval", "texts"),
    [(0.2, 0.1, "less"), (-0.2, 0.1, "more"), (0.05, 0.1, "undecided")],
)
def test_verdicts(below, interval, texts):
    assert texts in selfplay_written.verdict({"below_mean": below, "below_interval": interval})
