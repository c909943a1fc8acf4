"""What answers are worth, and which win."""

import numpy as np
import pytest

from murmuration.alignment.comparisons.win_rate import Worth, wilson, wins, worth
from murmuration.preference.data.errors import InputError
from murmuration.sims.population.population import Population, true_reward
from murmuration.sims.population.wording import WORD

nan = float("nan")


def of(*rewards):
    return Worth(np.array(rewards, dtype=float), {})


def win_rate(one, other):
    return wilson(wins(one, other))


@pytest.fixture(scope="module")
def judgements():
    return list(Population(users=1, test_users=60, unseen_users=1).judgements("test"))


def test_true_answers_are_worth_their_reward(judgements):
    prompts = [judgement.prompt for judgement in judgements]
    sides = []
    for name in ("chosen", "rejected"):
        answers = [getattr(judgement, name) for judgement in judgements]
        sides.append(worth(prompts, [" ".join(WORD.findall(a.text.lower())) for a in answers]))
        expected = [true_reward(Population().crowd, answer.axes) for answer in answers]
        np.testing.assert_allclose(sides[-1].rewards_P, expected)
        assert sides[-1].reward.value == pytest.approx(np.mean(expected))
        assert sides[-1].unreadable.value == 0
    margins = np.array([judgement.crowd_margin for judgement in judgements])
    expected = np.mean(np.where(np.abs(margins) < 1e-9, 0.5, margins > 0))
    assert win_rate(*sides).value == pytest.approx(expected)
    assert win_rate(*reversed(sides)).value == pytest.approx(1 - expected)


def test_other_weights_are_another_truth(judgements):
    one = judgements[0]
    found = worth([one.prompt], [one.chosen.text], (0.0, 2.0, 0.0))
    assert found.rewards_P.tolist() == [2 * one.chosen.axes[1]]


def test_what_cannot_be_read_is_counted_and_has_no_reward(judgements):
    prompts = [judgement.prompt for judgement in judgements[:4]]
    first = judgements[0].chosen.text
    found = worth(prompts, [first, "Yes.", "", "Don't, I say."])
    assert np.isnan(found.rewards_P).tolist() == [False, True, True, True]
    assert found.why_not == {"unknown sentence": 2, "breaks off": 1}
    assert found.unreadable.value == 0.75
    assert np.isnan(found.reward.low)
    assert np.isnan(worth(prompts[:1], ["Yes."]).reward.value)


def test_a_prompt_of_another_place_is_refused():
    with pytest.raises(InputError, match="no prompt of the embedded population"):
        worth(["How do I boil an egg?"], ["I would buy it."])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3, 4], [0, 3, 3, 5], 0.375),
        ([0.1 + 0.2], [0.3], 0.5),
        ([nan, nan, 1, -9], [1, nan, nan, nan], 0.625),
    ],
)
def test_half_a_win_and_what_loses(one, other, expected):
    assert win_rate(of(*one), of(*other)).value == pytest.approx(expected)
    assert win_rate(of(*other), of(*one)).value == pytest.approx(1 - expected)


def test_intervals():
    assert win_rate(of(*[1] * 50, *[0] * 50), of(*[0.5] * 100)) == pytest.approx(
        (0.5, 0.403832, 0.596168), abs=1e-5
    )  # Wilson 1927
    value, low, high = win_rate(of(*[1] * 100), of(*[0] * 100))
    assert (value, high) == (1, 1)
    assert low == pytest.approx(0.963005, abs=1e-5)
    assert np.isnan(win_rate(of(), of()).value)


@pytest.mark.parametrize("share", [0.02, 0.4])
def test_intervals_hold_the_truth_as_often_as_they_say(share):
    generator = np.random.default_rng(0)
    covered = np.zeros(2)
    for _ in range(600):
        rewards = generator.choice([1.0, 0.0, nan], p=[share, 0.9 - share, 0.1], size=(2, 300))
        one, other = of(*rewards[0]), of(*rewards[1])
        mean = share / 0.9
        covered += (
            one.unreadable.low < 0.1 < one.unreadable.high,
            one.reward.low < mean < one.reward.high,
        )
        assert win_rate(one, other).low < win_rate(one, other).high
    assert (covered / 600 > 0.9).all()


def test_prompts_are_fresh():
    population = Population()
    for split in ("test", "unseen-topics"):
        prompts = list(population.prompts(split, 300, 1))
        assert prompts == list(Population(users=3).prompts(split, 300, 1))
        assert prompts[:50] == list(population.prompts(split, 50, 1))
        assert prompts != list(population.prompts(split, 300, 2))
        assert len(worth(prompts, [""] * 300).rewards_P) == 300
        public = [prompt for prompt, _, _ in population.texts(split, 300)]
        assert prompts != public
        assert len({*prompts} & {*public}) < 60
