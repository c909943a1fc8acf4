"""Labels that come randomized: told as they are, never for more than they were promised."""

from dataclasses import replace

import numpy as np
import pytest

from murmuration.client.labels.memory import LabelState
from murmuration.client.labels.pre_randomized import stated_labels
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.public_items import canonical, item_id
from murmuration.preference.data.schema import Schema
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness

USER = LabelPromise(2.0)


def randomized(rows, options=2):
    kind = "pairs" if options == 2 else "top-1"
    return Judgements.from_rows(rows, schema=Schema(kind, options, labels="randomized"))


def rows(counts, flips, options=2, **more):
    found = []
    for user, (count, flip) in enumerate(zip(counts, flips, strict=True)):
        for number in range(count):
            texts = [f"{word} {number}" for word in ("tea", "milk", "cocoa")[:options]]
            row = {"user_id": f"u{user}", "prompt": "What to drink?", "flip_probability": flip}
            if options == 2:
                row |= {"chosen": texts[number % 2], "rejected": texts[1 - number % 2]}
            else:
                row |= {"responses": texts, "best": number % options}
            found.append(row | more)
    return randomized(found, options)


def flip(epsilon, options=2):
    return RandomizedResponse(epsilon, options).flip_probability


@pytest.mark.parametrize("options", [2, 3])
def test_they_are_told_as_they_stand(options):
    judgements = rows([3, 1], [flip(2 / 3, options), flip(2.0, options)], options)
    told = stated_labels(judgements, USER)
    assert told.start_U.tolist() == [0, 3, 4]
    assert told.per_label_U == pytest.approx([2 / 3, 2.0])
    wanted = [flip(2 / 3, options)] * 3 + [flip(2.0, options)]
    assert told.flips_N == pytest.approx(wanted, rel=1e-9)
    by_item = dict(zip(told.items_N.tolist(), told.answers_N.tolist(), strict=True))
    for prompt, responses in zip(judgements.prompts, judgements.responses, strict=True):
        place = by_item[item_id(prompt, responses)]
        assert canonical(responses)[place] == responses[0]


def test_what_a_state_told_comes_back_the_same():
    true = Judgements.from_rows(
        {"user_id": "ada", "prompt": "p", "chosen": f"c{n}", "rejected": f"r{n}"} for n in range(40)
    )
    answer = LabelState(None).answer(true, USER, Randomness(1))
    told = []
    for number, row in enumerate(answer.rows_N):
        shown = canonical(true.responses[row])
        place = int(answer.labels.answers_N[number])
        told.append(
            {
                "user_id": "ada",
                "prompt": "p",
                "chosen": shown[place],
                "rejected": shown[1 - place],
                "flip_probability": float(answer.labels.flips_N[number]),
            }
        )
    again = stated_labels(randomized(told), USER)
    assert np.array_equal(again.items_N, answer.labels.items_N)
    assert np.array_equal(again.answers_N, answer.labels.answers_N)
    assert again.per_label_U == pytest.approx(answer.labels.per_label_U, rel=1e-9)


@pytest.mark.parametrize(
    ("counts", "flips", "promise", "words"),
    [
        ([3], [flip(0.7)], USER, "less protection than is asked for"),
        ([2], [0.0], USER, "flip probability 0"),
    ],
)
def test_what_was_promised_less_is_not_told(counts, flips, promise, words):
    with pytest.raises(InputError, match=words):
        stated_labels(rows(counts, flips), promise)


def test_stronger_protection_is_good_enough():
    assert len(stated_labels(rows([3], [flip(0.2)]), USER).answers_N) == 3


def test_a_user_with_several_epsilons_is_refused():
    mixed = randomized(
        {
            "user_id": "ada",
            "prompt": "p",
            "chosen": f"c{n}",
            "rejected": "r",
            "flip_probability": flip(0.2 + n / 10),
        }
        for n in range(2)
    )
    with pytest.raises(InputError, match="several epsilons"):
        stated_labels(mixed, USER)


def test_a_tie_is_no_randomized_label():
    with pytest.raises(InputError, match="is a tie"):
        stated_labels(rows([1], [flip(1.0)], tie=True), USER)


def test_of_equal_texts_either_is_the_best():
    twice = randomized(
        [
            {"user_id": "u", "prompt": "p", "responses": texts, "best": best}
            | {"flip_probability": flip(0.5, 3)}
            for texts, best in ((["tea", "milk", "tea"], 2), (["milk", "tea", "tea"], 0))
        ],
        3,
    )
    told = stated_labels(twice, USER)
    assert sorted(told.answers_N.tolist()) == [0, 1]  # milk is the first in canonical order
    with pytest.raises(InputError, match="is a tie"):
        row = {"user_id": "u", "prompt": "p", "responses": ["a", "b", "a"], "best": [0, 1]}
        stated_labels(randomized([row | {"flip_probability": 0.1}], 3), USER)


def test_more_labels_than_the_cap_are_not_told():
    judgements = rows([3, 1], [flip(0.5)] * 2)
    assert len(stated_labels(judgements, LabelPromise(2.0, cap=3)).answers_N) == 4
    with pytest.raises(InputError, match="told 3 labels, more than the cap of 2"):
        stated_labels(judgements, LabelPromise(2.0, cap=2))


def test_a_user_without_judgements_told_nothing():
    one = rows([1], [flip(1.0)])
    both = replace(one, user_ids=("u0", "z"), start_U=np.array([0, 1, 1]))
    found = stated_labels(both, USER)
    assert found.start_U.tolist() == [0, 1, 1]
    assert found.answers_N.tolist() == stated_labels(one, USER).answers_N.tolist()
