"""Guards: what each takes off, and that none of them lets a gamed answer win."""

import numpy as np
import pytest
from language_models import saved_model

from murmuration.alignment.rewards import AnswerReward, GuardedReward, Guards
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel

PROMPTS = ["spend or save", "rent or buy"]
ANSWERS = [
    ["save it", "save it for now please", "spend", "put some of it aside"],
    ["rent", "buy it now and do not look back", "rent for a year", "wait"],
]


def by_length(prompts, responses):
    """Two logits a word, and ten more for one prompt, as heads have that read it."""
    extra = np.array([10.0 * (prompt == PROMPTS[1]) for prompt in prompts])
    return extra + 2.0 * np.array([len(text.split()) for text in responses])


def log_length(prompts, responses):
    return 3.0 * np.log([len(text.split()) for text in responses])


def guarded(scores=by_length, **guards):
    return GuardedReward(scores, Guards(**guards), PROMPTS, ANSWERS)


def flat(found, answers=ANSWERS):
    asked = [prompt for prompt, row in zip(PROMPTS, answers, strict=True) for _ in row]
    return found(asked, [text for row in answers for text in row])


def test_rewards_of_the_references_answers_are_centred_by_prompt():
    rewards = flat(guarded()).reshape(2, 4)
    np.testing.assert_allclose(rewards.mean(1), 0.0, atol=1e-12)
    raw = flat(by_length).reshape(2, 4)
    np.testing.assert_allclose(rewards, raw - raw.mean(1, keepdims=True))


def test_what_is_beyond_the_references_range_is_worth_no_more():
    found = guarded()
    longest, beyond = " ".join(["lorem"] * 500), " ".join(["lorem"] * 5000)
    assert found([PROMPTS[0]] * 2, [longest, beyond]).tolist() == [found.high] * 2
    assert found.high == flat(guarded()).max()
    assert found(PROMPTS[:1], ["no"])[0] >= found.low
    assert found.clipped == 2
    free = guarded(clip=False)
    assert free([PROMPTS[0]], [beyond])[0] > 9000


def test_matched_length_takes_off_what_length_explains():
    found = guarded(log_length, length="match")
    assert found.slope == pytest.approx(3.0)
    np.testing.assert_allclose(flat(found), 0.0, atol=1e-12)


def test_the_slope_is_of_answers_to_the_same_prompt():
    """A prompt that is answered at length, and liked, would otherwise make length look good."""
    answers = [["a", "a b"], ["a b c d e f g", "a b c d e f g h i"]]

    def scores(prompts, responses):
        return np.array([100.0 * (prompt == PROMPTS[1]) for prompt in prompts])

    found = GuardedReward(scores, Guards(length="match"), PROMPTS, answers)
    assert found.slope == pytest.approx(0.0, abs=1e-9)


def test_a_penalty_is_for_doublings_beyond_the_references_mean_and_for_no_less():
    found = guarded(lambda prompts, _: np.zeros(len(prompts)), length="penalise", clip=False)
    assert np.mean([len(text.split()) for text in ANSWERS[0]]) == 13 / 4
    rewards = found([PROMPTS[0]] * 3, ["one", " ".join(["x"] * 13), " ".join(["x"] * 26)])
    assert rewards[0] == 0.0
    np.testing.assert_allclose(rewards[1:], [-0.5 * 2, -0.5 * 3])


def linear():
    features = HashingFeatures(dimension=33)
    theta = np.random.default_rng(0).normal(size=33).astype(np.float32)
    return AnswerReward(RewardModel(theta, features))


def test_other_prompts_are_refused():
    with pytest.raises(InputError, match="not fitted to the prompt 'why'"):
        guarded()(["why"], ["so"])


def test_one_answer_says_nothing_of_a_range():
    with pytest.raises(InputError, match="two answers"):
        GuardedReward(by_length, Guards(), PROMPTS[:1], [["save"]])


@pytest.mark.parametrize(
    ("guards", "said"),
    [
        ({"length": "short"}, "--length-control must be one of none, penalise, match"),
        ({"length_penalty": -1.0}, "--length-penalty"),
        ({"length_penalty": float("nan")}, "--length-penalty"),
    ],
)
def test_values_out_of_range(guards, said):
    with pytest.raises(InputError, match=said):
        Guards(**guards)


def test_a_reward_gives_what_score_gives_at_any_number_of_answers():
    reward = linear()
    texts = [f"answer {n} " + "and " * (n % 7) for n in range(2500)]
    prompts = [PROMPTS[n % 2] for n in range(2500)]
    one_by_one = [reward.model.score(p, t) for p, t in zip(prompts[:5], texts[:5], strict=True)]
    found = reward(prompts, texts)
    np.testing.assert_allclose(found[:5], one_by_one, rtol=1e-6)
    np.testing.assert_array_equal(found, reward.model.score(prompts, texts))


def test_a_reward_that_is_not_finite_is_refused():
    class Broken:
        def fits(self, prompt, response):
            return np.ones(len(response), dtype=bool)

        def score(self, prompt, response):
            return np.full(len(response), np.nan)

    with pytest.raises(InputError, match="not finite"):
        AnswerReward(Broken())(["a"], ["b"])  # type: ignore[arg-type]


def test_an_answer_too_long_to_be_read_is_worth_as_little_as_the_worst(language_model, tmp_path):
    saved_model(tmp_path / "model", language_model("llama"), max_tokens=20)
    reward = AnswerReward.load(tmp_path / "model")
    short, long = ["save it", "buy it today", "loan"], "save " * 40
    alone = reward(["now ?"] * 3, short)
    assert len(set(alone.round(4))) == 3
    found = reward(["now ?"] * 4, [short[0], long, *short[1:]])
    np.testing.assert_allclose(found[[0, 2, 3]], alone, atol=1e-5)
    assert found[1] == found[[0, 2, 3]].min()
    assert reward.too_long == 1
    with pytest.raises(InputError, match="every answer is too long"):
        reward(["now ?"], [long])
