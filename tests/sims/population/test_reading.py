"""True answers are read without error, and what does not say what it did is not read as if."""

from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.sims.population import phrases
from murmuration.sims.population.population import SPLITS, Population
from murmuration.sims.population.reading import WHY_NOT, Reading, read, topic_of
from murmuration.sims.population.topics import LIVING_TOPICS, MONEY_TOPICS, UNSEEN_TOPICS
from murmuration.sims.population.wording import STRENGTHS, WORD, Answer, Draws, exchange

TOPICS = (*MONEY_TOPICS, *LIVING_TOPICS, *UNSEEN_TOPICS)


def spelt(text: str) -> str:
    """As the small language model writes it."""
    return " ".join(WORD.findall(text.lower()))


def exchanges(count, seed=0, topics=TOPICS):
    """Exchanges that no population has drawn."""
    uniforms = np.random.default_rng([77, seed]).random((count, 80))
    return [exchange(topics, Draws(row.tolist())) for row in uniforms]


def answers(count, seed=0):
    """Answers with their topics."""
    for prompt, *both in exchanges(count, seed):
        topic = topic_of(prompt)
        assert topic is not None
        yield from ((topic, answer) for answer in both)


@pytest.mark.parametrize("split", SPLITS)
def test_true_answers_are_read_without_error(split):
    judgements = islice(Population(seed=9).judgements(split), 1500)
    for judgement in judgements:
        topic = topic_of(judgement.prompt)
        assert topic is not None
        for answer in (judgement.chosen, judgement.rejected):
            assert read(topic, answer.text) == Reading(answer.axes)
            assert read(topic, spelt(answer.text)) == Reading(answer.axes)


def test_prompts_tell_their_topic():
    for topic in TOPICS:
        for prompt, first, _ in exchanges(40, topics=[topic]):
            assert topic_of(prompt) == topic_of(spelt(prompt)) == topic
            assert topic_of(f"{prompt} Really?") is None
            assert topic_of(first.text) is None
    assert topic_of("") is None
    assert topic_of("My car broke. What would you do?") is None


@pytest.mark.parametrize(("strength", "leads"), STRENGTHS)
def test_every_lead_and_every_action_is_known(strength, leads):
    topic = UNSEEN_TOPICS[0]
    for side, sign in ((topic.cautious, -1), (topic.daring, 1)):
        because = f", because {side.plain_reasons[0]}."
        for opener, lead in product(phrases.OPENERS, leads):
            found = read(topic, f"{opener} {lead} {side.actions[0]}{because}")
            assert found == Reading((sign * strength, -1.0, 0.0))
    for topic in TOPICS:
        for side, sign in ((topic.cautious, -1), (topic.daring, 1)):
            for action in side.actions:
                found = read(topic, f"{leads[0]} {action}; {side.technical_reasons[0]}.")
                assert found == Reading((sign * strength, -1.0, 1.0))


CAR = next(topic for topic in LIVING_TOPICS if topic.name == "car repair")
PAY, SCRAP = CAR.cautious.actions[0], CAR.daring.actions[0]
WORKS, SEAT = CAR.cautious.plain_reasons[1], CAR.daring.plain_reasons[1]
AGAINST = phrases.CONTRASTS[3].format(PAY)
NEST = TOPICS[0].cautious


@pytest.mark.parametrize(
    ("why_not", "text"),
    [
        ("breaks off", ""),
        ("breaks off", f"I would {PAY}"),
        ("breaks off", f"I would {PAY}, because {WORKS}. It is good that you"),
        ("unknown sentence", "."),
        ("unknown sentence", "[UNK]."),
        ("unknown sentence", f"I would not {PAY}, because {WORKS}."),
        ("unknown sentence", f"I would {PAY} because {WORKS}."),
        ("unknown sentence", f"I would {PAY}, because {WORKS}.."),
        ("unknown sentence", f"I would {PAY}, because {WORKS} [UNK]."),
        ("unknown sentence", f"I would {PAY}, because {WORKS}. Yes."),
        ("unknown sentence", f"I would, because {WORKS}."),
        ("unknown sentence", f"I would {PAY} {SCRAP}, because {WORKS}."),
        ("unknown sentence", f"{PAY}, because {WORKS}."),
        ("too long", f"I would {PAY}, because {WORKS}. " + " ".join(phrases.ASIDES[:5])),
        ("no advice", f"{WORKS}."),
        ("no advice", f"everyone says to {SCRAP}, and it rarely suits. {WORKS}."),
        ("advice twice", f"I would {PAY}. I would {PAY}; {WORKS}."),
        ("advice twice", f"I would {PAY}. I would {SCRAP}; {WORKS}."),
        ("another topic", f"I would {NEST.actions[0]}, as {WORKS}."),
        ("another topic", f"I would {PAY}, as {NEST.plain_reasons[0]}."),
        ("another topic", f"You could also {TOPICS[0].daring.actions[0]}, but the idea does not "
                          f"convince me. I would {PAY}, as {WORKS}."),
        ("no reason", f"I would {PAY}."),
        ("two tones", f"I would {PAY}. {WORKS}. {CAR.cautious.technical_reasons[0]}."),
        ("two sides", f"I would {PAY}, because {SEAT}."),
        ("two sides", f"I would {PAY}. {WORKS}. {SEAT}."),
        ("two sides", f"I would {PAY}, as {WORKS}. You only live once."),
        ("contradiction", f"{AGAINST} I would {PAY}, because {WORKS}."),
        ("contradiction", f"I would {PAY}, because {WORKS}. {AGAINST}"),
        ("repeats itself", f"I would {PAY}. {WORKS}. {WORKS}."),
        ("repeats itself", f"I would {PAY}. {WORKS}. After all, {WORKS}."),
        ("repeats itself", f"I would {PAY}; {WORKS}. I hope that helps. I hope that helps."),
    ],
)  # fmt: skip
def test_why_an_answer_cannot_be_read(why_not, text):
    assert why_not in WHY_NOT
    assert read(CAR, text) == read(CAR, spelt(text)) == Reading(None, why_not)


def test_contrasts_are_no_advice():
    for contrast in phrases.CONTRASTS:
        for action in (*CAR.daring.actions, *CAR.cautious.actions[1:]):
            text = f"{contrast.format(action)} I would {PAY}, because {WORKS}."
            assert read(CAR, text) == Reading((-0.75, -0.5, 0.0))


def test_of_another_topics_prompt_nothing_is_read():
    for topic, answer in answers(300):
        other = TOPICS[(TOPICS.index(topic) + 1) % len(TOPICS)]
        assert read(other, answer.text) == Reading(None, "another topic")


def test_the_other_sides_action_does_not_pass_for_ones_own():
    """Alone it contradicts the reasons; with the other side's reasons the sign turns."""
    for topic, answer in answers(200, seed=1):
        sides = (topic.cautious, topic.daring)
        own, other = sides if answer.axes[0] < 0 else sides[::-1]
        text = spelt(answer.text)
        for action in map(spelt, own.actions):
            if action in text:
                changed = text.replace(action, spelt(other.actions[0]))
                assert read(topic, changed) == Reading(None, "two sides")
    for side, sign in ((CAR.cautious, -1), (CAR.daring, 1)):
        text = f"You must {side.actions[2]}. {side.plain_reasons[0]}."
        assert read(CAR, text) == Reading((sign, -0.5, 0.0))


@pytest.mark.parametrize("word", ["not", "never", "the", ",", ".", "would"])
def test_no_word_can_be_put_in_unnoticed(word):
    for topic, answer in answers(40, seed=2):
        words = spelt(answer.text).split()
        for place in range(len(words) + 1):
            text = " ".join([*words[:place], word, *words[place:]])
            if text != spelt(answer.text):
                assert read(topic, text).axes is None, text


def only_the_lead_changed(answer: Answer, changed: str, found: Reading) -> bool:
    """Whether it has the answer's axes, but for the strength if another lead stands there."""
    if found.axes is None or found.axes == answer.axes:
        return True
    leads = next(leads for s, leads in STRENGTHS if s == abs(found.axes[0]))
    return (
        np.sign(found.axes[0]) == np.sign(answer.axes[0])
        and found.axes[1:] == answer.axes[1:]
        and any(spelt(lead) in changed for lead in leads)
    )


def test_without_a_word_or_with_two_exchanged_an_answer_is_not_read_as_another():
    lost = read_all = 0
    for topic, answer in answers(60, seed=3):
        words = spelt(answer.text).split()
        for place in range(len(words)):
            without = [*words[:place], *words[place + 1 :]]
            pair = words[place : place + 2][::-1]
            for changed in (without, [*words[:place], *pair, *words[place + 2 :]]):
                text = " ".join(changed)
                found = read(topic, text)
                assert only_the_lead_changed(answer, text, found), text
                lost, read_all = lost + (found.axes is None), read_all + 1
    assert lost > 0.9 * read_all


MANY = list(answers(30, seed=4))


@given(st.sampled_from(MANY), st.data())
def test_whatever_is_cut_out_or_moved_side_and_tone_are_not_another(case, data):
    topic, answer = case
    words = spelt(answer.text).split()
    for _ in range(data.draw(st.integers(1, 4))):
        first, last = sorted(data.draw(st.integers(0, len(words))) for _ in range(2))
        part, words = words[first:last], words[:first] + words[last:]
        if data.draw(st.booleans()):
            place = data.draw(st.integers(0, len(words)))
            words[place:place] = part
    found = read(topic, " ".join(words))
    if found.axes is not None:
        assert np.sign(found.axes[0]) == np.sign(answer.axes[0])
        assert found.axes[1] == (words.count(".") - 3) / 2
        assert found.axes[2] == answer.axes[2]


@given(st.sampled_from(MANY), st.sampled_from(MANY), st.data())
def test_of_two_answers_put_together_nothing_is_read_that_neither_says(one, two, data):
    """Half of an answer with half of another's: the advice's side is that of its reasons."""
    (topic, first), (_, second) = one, two
    head, tail = spelt(first.text).split(), spelt(second.text).split()
    kept = head[: data.draw(st.integers(0, len(head)))]
    kept += tail[data.draw(st.integers(0, len(tail))) :]
    found = read(topic, " ".join(kept))
    if found.axes is not None:
        assert np.sign(found.axes[0]) in {np.sign(first.axes[0]), np.sign(second.axes[0])}
        assert found.axes[2] in {first.axes[2], second.axes[2]}


VOCABULARY = sorted({word for _, answer in MANY for word in spelt(answer.text).split()})


@given(st.lists(st.sampled_from(VOCABULARY), max_size=40))
def test_words_at_random_are_not_read(words):
    for topic in (CAR, UNSEEN_TOPICS[0]):
        assert read(topic, " ".join([*words, "."])).axes is None


@given(st.text(max_size=60))
def test_whatever_is_written_something_is_said_of_it(text):
    found = read(CAR, text)
    assert found.axes is None
    assert found.why_not in WHY_NOT
