"""Self-play by a model that writes: who is preferred, the gap, what rows and verdicts say."""

from contextlib import contextmanager
from functools import partial
from itertools import islice, product

import numpy as np
import pytest
import torch

from murmuration.preference.estimation.general_preference import GeneralPreference
from murmuration.preference.estimation.self_play import SelfPlay
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.policy_fit import PolicyFit
from murmuration.research.reproductions.policies import selfplay_written, written
from murmuration.research.reproductions.policies.selfplay_written import (
    BASE,
    METHODS,
    SELF_PLAY,
    SETTINGS,
    TRUTH_KK,
    UNREADABLE,
    Sizes,
    Written,
    gap,
    iterative_dpo,
    kind,
    kinds,
)
from murmuration.research.reproductions.policies.written import TUNING_SEED, trained
from murmuration.sims.population.population import Population


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
    found = kinds([one.prompt for one in given], [answer.text for answer in answers])
    assert found.tolist() == [kind(answer) for answer in answers]
    assert set(found.tolist()) == {0, 1, 2}
    assert kinds([given[0].prompt, "What is this?"], ["no sense", answers[0].text]).tolist() == [
        UNREADABLE,
        UNREADABLE,
    ]


@pytest.fixture
def played(language_model, monkeypatch):
    monkeypatch.setattr(written, "LAYER", "1.mlp.down_proj")
    monkeypatch.setattr(selfplay_written, "SAMPLING", Sampling(max_new_tokens=4))
    monkeypatch.setattr(selfplay_written, "Population", partial(Population, users=300))
    sizes = Sizes(pairs=1500, prompts=6, iterations=2, played=8)
    return selfplay_written.Played(language_model("llama"), sizes, 0)


def test_estimates_have_people_s_statements_and_behind_coins_so_many_are_false(played, monkeypatch):
    told = []

    class Estimate:
        @staticmethod
        def fit(shown, contrast_N):
            told.append((shown, contrast_N))
            return GeneralPreference.fit(shown, contrast_N)

    monkeypatch.setattr(selfplay_written, "GeneralPreference", Estimate)
    monkeypatch.setattr(
        selfplay_written, "play_against_itself", lambda *given: np.zeros(given[-1].dimension, "f4")
    )
    for epsilon in (None, 1.0):
        found = played.written((epsilon, SELF_PLAY), (0.1, 1.0))
        assert found.shares_K[UNREADABLE] == 1.0  # this network says nothing
        assert (found.gap, found.wins) == (pytest.approx(1.6), pytest.approx(0.5))
    (true, sure_N), (stated, contrast_N) = told
    assert set(sure_N) == {1.0}
    np.testing.assert_allclose(contrast_N, np.tanh(0.5))
    false = np.mean([one != other for one, other in zip(true, stated, strict=True)])
    assert false == pytest.approx(1 / (1 + np.e), abs=0.04)
    # 0.9 of those who see two kinds prefer as the circle has it, and half of the others.
    texts = {}
    for one in Population(users=300, seed=1000).judgements("train"):
        texts |= {one.chosen.text: kind(one.chosen), one.rejected.text: kind(one.rejected)}
    ell = np.array([TRUTH_KK[texts[first], texts[other]] for first, other in true])
    assert (ell[ell != 0] > 0).mean() == pytest.approx(0.9, abs=0.03)


@pytest.fixture
def fitted(language_model, monkeypatch):
    """Parameters of a policy of each method, by few statements."""
    monkeypatch.setattr(written, "LAYER", "1.mlp.down_proj")
    monkeypatch.setattr(selfplay_written, "SAMPLING", Sampling(max_new_tokens=4))
    monkeypatch.setattr(selfplay_written, "Population", partial(Population, users=60))
    sizes = Sizes(pairs=40, prompts=2, iterations=2, played=6)
    shares = []

    def parameters(self, base, theta_D, stream):
        shares.append(theta_D)
        return np.eye(4)[UNREADABLE]

    monkeypatch.setattr(selfplay_written.Played, "_shares", parameters)
    played = selfplay_written.Played(language_model("llama", context=256), sizes, 0)

    def of(method, setting=(0.05, 1.0)):
        played.written((2.0, method), setting)
        return shares[-1]

    return of


@pytest.mark.parametrize("method", METHODS)
def test_a_policy_moves_alike_again_and_otherwise_with_another_setting(fitted, method):
    theta_D = fitted(method)
    assert np.abs(theta_D).max() > 0.01
    np.testing.assert_array_equal(fitted(method), theta_D)
    assert (fitted(method, (0.1, 1.0)) != theta_D).any()
    assert (fitted(method, (0.05, 0.1)) != theta_D).any()


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


@contextmanager
def no_reference(texts):
    yield "base"


@pytest.fixture
def tasks(monkeypatch):
    """Of seeds, in which each method's gap is least with its own step."""
    computed = []

    def one_seed(task):
        computed.append(task)
        _, seed, settings, _ = task
        found = {
            cell: Written(
                0.2 + 0.1 * place + 0.3 * (setting != own_setting(cell)) + 0.01 * (seed % 7),
                0.6,
                np.array([0.3, 0.3, 0.3, 0.1]),
            )
            for place, (cell, setting) in enumerate(settings.items())
        }
        return {**found, (None, BASE): Written(0.15, 0.5, np.array([0.5, 0.2, 0.2, 0.1]))}

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
    said = selfplay_written.remarks(rows)
    assert (
        "iterative DPO 0.31 ± 0.02 (wins 60%, 10% unreadable; self-play has less, +0.10)" in said[0]
    )
    assert said[-2].endswith("beside it self-play has more, -0.06.")
    assert "± is Student's" in said[-1]
    assert len(selfplay_written.plot(rows).axes) == 2


@pytest.mark.parametrize(
    ("below", "interval", "said"),
    [(0.2, 0.1, "less"), (-0.2, 0.1, "more"), (0.05, 0.1, "undecided")],
)
def test_verdicts(below, interval, said):
    assert said in selfplay_written.verdict({"below_mean": below, "below_interval": interval})
