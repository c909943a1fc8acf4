"""Synthetic preferences beside true ones: what is compared, and what rows say."""

from math import nan

import numpy as np
import pytest

from murmuration.research.reproductions.alignment import synthetic_pairs as rerun
from murmuration.research.reproductions.policies.written import Won
from murmuration.sims.population.population import Population


@pytest.fixture(scope="module")
def exchanges():
    """Judgements of the population, as a policy would have written their answers."""
    given = [one for one in Population(users=120).judgements("train") if not one.tie]
    return given[:400]


@pytest.fixture
def written(exchanges, monkeypatch):
    """Synthetic pairs whose policy writes the population's answers, and a reward of length."""
    answers = {one.prompt: (one.chosen.text, one.rejected.text) for one in exchanges}

    class Writer:
        @classmethod
        def load(cls, base):
            return cls()

        def write(self, prompts, sampling, seed, progress):
            return [answers[prompt][seed[1] % 2] for prompt in prompts]

    class Long:
        def fits(self, prompts, responses):
            return np.ones(len(responses), dtype=bool)

        def score(self, prompt, response):
            return np.array([len(text) for text in response], dtype=float)

    monkeypatch.setattr(rerun, "Writer", Writer)
    monkeypatch.setattr(Population, "prompts", lambda self, split, count, seed: [*answers][:count])
    return rerun.synthetic("base", Long(), 200)


def test_labels_are_the_rewards_and_their_truth_is_the_crowds(written, exchanges):
    margins = {(one.prompt, one.chosen.text): one.crowd_margin for one in exchanges}
    right = []
    for prompt, shown, first in zip(
        written.pairs.prompts, written.pairs.responses, written.pairs.first_J, strict=True
    ):
        chosen, rejected = shown if first else shown[::-1]
        assert len(chosen) > len(rejected)
        sign = 1 if (prompt, chosen) in margins else -1
        right.append(sign * margins.get((prompt, chosen), margins.get((prompt, rejected))) > 0)
    assert len(right) == 200
    assert written.readable == 1.0
    assert written.agrees == pytest.approx(np.mean(right))
    assert 60 < written.pairs.first_J.sum() < 140


def test_relabelled_pairs_are_the_same_with_the_crowds_labels(written):
    truly = rerun.relabelled(written)
    assert truly.agrees == 1.0
    same = [sorted(shown) for shown in written.pairs.responses]
    assert [sorted(shown) for shown in truly.pairs.responses] == same
    assert truly.pairs.prompts == written.pairs.prompts


def test_a_head_learns_from_true_judgements_and_not_from_coins():
    population = Population(users=400)
    others = [one for one in population.judgements("test") if not one.tie][:1500]
    true = rerun.judged(population, 1000)
    assert 0.65 < true.agrees < 0.85  # what the crowd mean reaches
    learnt = rerun.accuracy(rerun.head(true.pairs), others)
    coins = np.random.default_rng(0).random(1000) < 0.5
    nothing = rerun.Pairs(true.pairs.prompts, true.pairs.responses, coins)
    assert learnt > 0.62
    assert rerun.accuracy(rerun.head(nothing), others) < 0.57


@pytest.fixture
def rows(monkeypatch, written):
    told = []

    def policy(task):
        told.append(task)
        return Won(0.5 + 0.01 * len(told), 0.1)

    monkeypatch.setattr(rerun, "in_processes", map)
    monkeypatch.setattr(rerun, "policy", policy)
    monkeypatch.setattr(rerun, "private_reward", lambda *_: rerun.head(written.pairs))
    monkeypatch.setattr(rerun, "synthetic", lambda *_: written)
    found = rerun.synthetic_pairs(base="base", pairs=200, prompts=5, seeds=2)
    assert [seed for *_, seed in told] == [0, 1] * 3
    return found


def test_rows_have_a_source_each_and_the_reward(rows):
    assert [row["pairs"] for row in rows] == [
        rerun.SYNTHETIC, rerun.RELABELLED, rerun.TRUE, rerun.REWARD,
    ]  # fmt: skip
    assert [row["win_rate_mean"] for row in rows[:-1]] == pytest.approx([0.515, 0.535, 0.555])
    assert all(0.4 < row["accuracy"] < 0.9 for row in rows)


def test_remarks_say_all_of_it(rows):
    text = " ".join(rerun.remarks(rows))
    assert "51.5% ± 0.7% from synthetic pairs" in text
    assert f"agree with the crowd's true reward in {rows[0]['agrees']:.1%}" in text
    assert "55.5% ± 0.7% from true judgements" in text
    assert "NOTHING" not in text
    ruined = [{**row, "unreadable": 0.9} if "unreadable" in row else row for row in rows]
    assert "NOTHING" in rerun.remarks(ruined)[0]


def test_what_cannot_be_read_has_no_truth():
    prompt = next(Population().prompts("test", 1))
    assert str(rerun._margins([(prompt, "nonsense .", "more of it .")])[0]) == str(nan)
