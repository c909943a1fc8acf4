"""What a policy's answers come to: its divergence from the reference, its rewards, its truth."""

import math
from dataclasses import replace

import numpy as np
import pytest

from murmuration.alignment import evaluation as module
from murmuration.alignment.evaluation import (
    Evaluation,
    Evaluator,
    PopulationTruth,
    check_readable,
    divergences,
    kl_is,
    truth_of,
)
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.generation import Sampling
from murmuration.sims.population.population import Population, true_reward
from tests.alignment.test_likelihoods import by_hand

pytest.importorskip("peft")

SAMPLING = Sampling(temperature=0.8, max_new_tokens=6)
PROMPTS = ["what now ?", "save it or spend it ?", "loan ?"] * 40


@pytest.fixture
def policy(language_model):
    path = str(language_model("llama"))
    return LanguageBase(BaseSettings(path, task="policy", rank=2, targets="all-linear"))


def moved(policy, size=0.5):
    policy.put(size * policy.random_theta())
    return policy


def words(prompts, responses):
    return np.array([float(len(text.split())) for text in responses])


def test_divergence_is_the_log_ratio_of_what_was_written_and_its_end(policy):
    moved(policy)
    openings = policy.texts.openings(["what now ?", "save"], SAMPLING.max_new_tokens)
    # With the end that was written, of those that end an answer, and none where it broke off.
    ended, broken = [8, 9, policy.texts.ends[0]], [8, 9, 10, 11, 12, 13]
    found = divergences(policy, openings, [ended, broken], SAMPLING)
    for place, answer in enumerate((ended, broken)):
        here = float(by_hand(policy, openings[place], answer, SAMPLING.temperature).sum())
        with policy.model.disable_adapter():
            there = float(by_hand(policy, openings[place], answer, SAMPLING.temperature).sum())
        assert abs(here - there) > 1e-3
        assert found[place] == pytest.approx(here - there, abs=1e-5)


def test_the_reference_does_not_diverge_from_itself_and_a_policy_does(policy):
    evaluator = Evaluator(policy, PROMPTS, words, None, SAMPLING, seed=3)
    start = evaluator(0)
    assert (start.kl, start.kl_error, start.proxy) == (0.0, 0.0, 0.0)
    assert (start.truth, start.truth_error, start.unreadable) == (None, None, None)
    moved(policy)
    found = evaluator(10)
    assert found.kl > 3 * found.kl_error > 0  # what it writes is likelier under it
    assert found.proxy == pytest.approx(found.words - start.words)


def test_an_evaluation_does_not_depend_on_those_before(policy):
    moved(policy)
    first, second = (Evaluator(policy, PROMPTS, words, None, SAMPLING, seed=3) for _ in range(2))
    first(0)
    first(10)
    second.remember(0, first.answers[0])
    assert second(20).kl == first(20).kl
    assert second.answers[20] == first.answers[20] != first.answers[10]


def test_what_cannot_be_read_counts_as_the_worst_answer_there_is():
    truth, population = PopulationTruth(), Population()
    rows = list(population.judgements("test"))[:300]
    worths = truth([row.prompt for row in rows], [row.chosen.text for row in rows])
    expected = [true_reward(population.crowd, row.chosen.axes) for row in rows]
    np.testing.assert_allclose(worths, expected)
    assert truth.worst <= worths.min()
    assert truth.worst == pytest.approx(-1.3 - 1.1 - 1.5)
    assert math.isnan(truth([rows[0].prompt], ["colourless green ideas"])[0])


class Told:
    """A truth that says what it is told to."""

    worst = -5.0

    def __init__(self, *values):
        self.values = list(values)

    def __call__(self, prompts, responses):
        return np.resize(np.array(self.values.pop(0), dtype=float), len(prompts))


def test_unread_answers_count_and_their_share_is_told(policy):
    evaluator = Evaluator(policy, PROMPTS, words, Told([1.0, math.nan]), SAMPLING, seed=0)
    found = evaluator(0)
    assert found.truth == pytest.approx(-2.0)
    assert found.unreadable == 0.5
    assert found.to_json()["truth"] == found.truth


def test_worse_is_beyond_chance(policy):
    up = np.linspace(-1, 1, len(PROMPTS))
    evaluator = Evaluator(policy, PROMPTS, words, Told(up, up - 0.3, 2 * up), SAMPLING, seed=0)
    for step in (0, 10, 20):
        evaluator(step)
    assert evaluator.worse(10, 0)
    assert not evaluator.worse(0, 10)
    assert not evaluator.worse(20, 0)  # equal on average


def test_a_reference_that_nobody_can_read_is_refused():
    some = Evaluation(
        step=0,
        proxy=0.0,
        kl=0.0,
        kl_error=0.0,
        truth=-3.0,
        truth_error=0.1,
        unreadable=0.4,
        words=10.0,
    )
    check_readable(some, "base")
    with pytest.raises(InputError, match="60% of its answers cannot be read"):
        check_readable(replace(some, unreadable=0.6), "base")


def test_a_truth_is_the_population_or_a_reward():
    assert isinstance(truth_of("population"), PopulationTruth)
    with pytest.raises(InputError, match="no such model folder"):
        truth_of("nowhere/model")


def test_of_several_ends_the_one_that_was_written_is_counted(policy, monkeypatch):
    other = policy.texts.ends[0] + 7
    monkeypatch.setitem(policy.texts.__dict__, "ends", [policy.texts.ends[0], other])
    moved(policy)
    seen = []
    honest = module.divergences

    def watched(base, openings, answers, sampling):
        seen.extend(answers)
        return honest(base, openings, answers, sampling)

    monkeypatch.setattr(module, "divergences", watched)
    prompts = [f"{prompt} {more}" for prompt in PROMPTS for more in ("?", "!", "now", "wait")]
    evaluator = Evaluator(policy, prompts, words, None, Sampling(max_new_tokens=40), seed=3)
    evaluator(0)
    last = {answer[-1] for answer in seen if len(answer) < 40}
    assert last == {policy.texts.ends[0], other}
    assert not any({*answer[:-1]} & {*policy.texts.ends} for answer in seen)
    texts = evaluator.answers[0]
    words_of = [policy.texts.tokenizer.decode(ids[:-1]) for ids in seen if len(ids) < 40]
    assert set(words_of) <= set(texts)


def test_what_is_drawn_from_a_part_estimates_no_divergence():
    assert kl_is(Sampling(0.7)) == "KL"
    assert kl_is(Sampling(0.7, top_p=0.9)) == "mean log-ratio"
