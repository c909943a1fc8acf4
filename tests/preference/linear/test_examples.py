import numpy as np
import pytest
import torch

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import Schema
from murmuration.preference.features import mapped_rows
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.linear import examples as module
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.preference.models import ABSENT


class Counting:
    """Numbers in a text, and which texts were asked for."""

    dimension = 3

    def __init__(self, uses_prompt):
        self.uses_prompt = uses_prompt
        self.asked = []

    def __call__(self, prompts, responses):
        self.asked += zip(prompts, responses, strict=True)
        return np.array(
            [[float(r), float(r) ** 2, len(p)] for p, r in zip(prompts, responses, strict=True)],
            dtype=np.float32,
        ).reshape(-1, 3)

    def to_config(self):
        return {}


def judgements_of(rows):
    return Judgements.from_rows(
        {"user_id": u, "prompt": p, "chosen": a, "rejected": b, "tie": tie}
        for u, p, a, b, tie in rows
    )


ROWS = [
    ("u", "p", "1", "2", False),
    ("v", "qq", "2", "1", True),
    ("u", "qq", "3", "1", False),
    ("w", "p", "5", "3", False),
]


@pytest.mark.parametrize("uses_prompt", [False, True])
@pytest.mark.parametrize("chunk", [1, 2, 3, 4096])
def test_differences_of_features(monkeypatch, uses_prompt, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    features = Counting(uses_prompt)
    got = pair_examples(judgements_of(ROWS), features)
    assert got.x_RD.tolist() == [[-1, -3, 0], [2, 8, 0], [1, 3, 0], [2, 16, 0]]
    assert got.x_RD.dtype == got.y_R.dtype == torch.float32
    assert got.y_R.tolist() == [1, 1, 0.5, 1]
    assert got.start_U.tolist() == [0, 2, 3, 4]
    assert got.start_U.dtype == torch.int64
    assert got.counts_U.tolist() == [2, 1, 1]
    assert got.dimension == 3
    assert len(features.asked) == len(set(features.asked)) == (7 if uses_prompt else 4)


def test_a_users_examples_do_not_depend_on_who_shares_the_node():
    judgements = judgements_of(ROWS)
    features = HashingFeatures(dimension=65)
    whole = pair_examples(judgements, features)
    alone = pair_examples(judgements.select([2]), features)
    assert torch.equal(alone.x_RD, whole.x_RD[3:4])


def test_examples_are_copies():
    judgements = judgements_of(ROWS)
    examples = pair_examples(judgements, HashingFeatures(dimension=9))
    examples.y_R.zero_()
    examples.start_U.zero_()
    assert judgements.y_R.sum() == 3.5
    assert judgements.start_U[-1] == 4


BEST = [
    ("u", "p", ["1", "2", "3"], 2),
    ("v", "q", ["4", "1"], [0, 1]),
    ("u", "p", ["2", "5", "3", "1"], [1, 3]),
    ("v", "p", ["7", "2", "2", "1"], [2]),
]


def best_of(rows):
    return Judgements.from_rows(
        (
            {"user_id": u, "prompt": p, "responses": shown, "best": best}
            for u, p, shown, best in rows
        ),
        schema=Schema("top-1", 4),
    )


@pytest.mark.parametrize("uses_prompt", [False, True])
@pytest.mark.parametrize("chunk", [1, 2, 3, 4096])
def test_the_best_of_several(monkeypatch, uses_prompt, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    features = Counting(uses_prompt)
    got = pair_examples(best_of(BEST), features)
    assert (got.width, got.kind, got.flip_J) == (3, "top-1", None)
    assert got.x_RD[:, 0].tolist() == [
        *(3 - 1, 3 - 2, 0),  # u: 3 above 1 and 2; nothing third
        *(5 - 1, 5 - 2, 5 - 3),  # u: 5 and 1 tie, above 2 and 3
        *(4 - 1, 0, 0),
        *(2 - 2, 2 - 7, 2 - 1),  # v: 2 is there twice, so it ties with itself
    ]
    assert got.x_RD[2].tolist() == [0, 0, 0]
    half, away = 0.5, ABSENT
    assert got.y_R.tolist() == [1, 1, away, half, 1, 1, half, away, away, half, 1, 1]
    assert got.start_U.tolist() == [0, 2, 4]
    assert got.counts_U.tolist() == [2, 2]
    assert len(features.asked) == len(set(features.asked))


def test_a_tie_of_three_has_two_thirds_on_each_other():
    got = pair_examples(best_of([("u", "p", ["1", "2", "3", "4"], [0, 1, 3])]), Counting(False))
    assert got.x_RD[:, 0].tolist() == [1 - 2, 1 - 4, 1 - 3]
    assert got.y_R.tolist() == pytest.approx([2 / 3, 2 / 3, 1.0])


def test_rankings():
    rows = [
        {"user_id": "u", "prompt": "p", "responses": ["1", "2", "3"], "ranking": [2, 3, 1]},
        {"user_id": "u", "prompt": "p", "responses": ["1", "2"], "ranking": [2, 1]},
    ]
    schema = Schema("ranking", 3)
    got = pair_examples(Judgements.from_rows(rows, schema=schema), Counting(False))
    assert (got.width, got.kind) == (2, "ranking")
    assert got.x_RD[:, 0].tolist() == [3 - 1, 3 - 2, 2 - 1, 0]
    assert got.y_R.tolist() == [1, 1, 1, ABSENT]


def test_a_ranking_with_ties_says_what_ties_with_the_response_before_it():
    texts = [f"text {n}" for n in range(4)]
    ranks = [[1, 2, 2, 3], [1, 1, 2, 3], [1, 1, 1, 1], [1, 2, 3], [1, 2, 2], [1, 1]]
    rows = [
        {"user_id": "a", "prompt": "p", "responses": texts[: len(ranking)], "ranking": ranking}
        for ranking in ranks
    ]
    judgements = Judgements.from_rows(rows, schema=Schema("ranking", 4))
    found = pair_examples(judgements, HashingFeatures(dimension=17)).y_R.view(-1, 3)
    expected = [[1, 0.5, 1], [0.5, 1, 1], [0.5] * 3, [1, 1, ABSENT], [1, 0.5, ABSENT]]
    assert found.tolist() == [*expected, [0.5, ABSENT, ABSENT]]


def test_thumbs_are_the_features_themselves():
    features = HashingFeatures(dimension=17)
    rows = [
        {"user_id": user, "prompt": "p", "completion": text, "label": label}
        for user, text, label in [
            ("a", "one", True),
            ("b", "two words", False),
            ("a", "two words", True),
        ]
    ]
    judgements = Judgements.from_rows(rows, schema=Schema("thumbs"))
    found = pair_examples(judgements, features)
    expected = torch.from_numpy(features(["p"] * 3, ["one", "two words", "two words"]))
    assert torch.equal(found.x_RD, expected)
    assert (found.y_R.tolist(), found.start_U.tolist()) == ([1.0, 1.0, 0.0], [0, 2, 3])
    assert (found.width, found.kind) == (1, "thumbs")


def test_flip_probabilities_travel_with_the_judgements():
    rows = [
        {"user_id": u, "prompt": "p", "chosen": "1", "rejected": "2", "flip_probability": flip}
        for u, flip in (("u", 0.1), ("v", 0.2), ("u", 0.3))
    ]
    randomized = Judgements.from_rows(rows, schema=Schema(labels="randomized"))
    got = pair_examples(randomized, Counting(False))
    assert got.flip_J.tolist() == [0.1, 0.3, 0.2]
    assert got.select(np.array([1])).flip_J.tolist() == [0.2]
    assert got.flip_J.dtype == torch.float64


@pytest.mark.parametrize("chunk", [1, 4096])
def test_a_text_without_finite_features_is_named_by_its_row(monkeypatch, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    rows = [*ROWS, ("w", "p", "1", "nan", False)]
    with pytest.raises(InputError, match="features of row 5 "):
        pair_examples(judgements_of(rows), Counting(uses_prompt=False))


def test_memory_is_the_result_and_little_else(monkeypatch):
    """Texts that are all distinct, in small chunks: no temporary as large as the result."""
    monkeypatch.setattr(module, "CHUNK", 64)
    rows = [("u", "p", f"a{i}", f"b{i}", False) for i in range(640)]
    largest = 0

    class Watching(HashingFeatures):
        def __call__(self, prompts, responses):
            nonlocal largest
            largest = max(largest, len(responses))
            return super().__call__(prompts, responses)

    pair_examples(judgements_of(rows), Watching(dimension=9))
    assert largest == 64


@pytest.mark.parametrize(
    ("x", "y", "start"),
    [
        (torch.zeros(2), torch.ones(2), [0, 2]),
        (torch.zeros(2, 3), torch.ones(3), [0, 2]),
        (torch.zeros(2, 3), torch.ones(2), [0, 1]),
    ],
)
def test_inconsistent_examples_are_refused(x, y, start):
    with pytest.raises(InputError):
        PairExamples(x, y, torch.tensor(start))


@pytest.mark.parametrize("more", [{"width": 2}, {"flip_J": torch.zeros(3)}])
def test_inconsistent_widths_and_flips_are_refused(more):
    x_RD, y_R, start_U = torch.zeros(2, 3), torch.ones(2), torch.tensor([0, 2])
    with pytest.raises(InputError):
        PairExamples(x_RD, y_R, start_U, **more)


@pytest.mark.parametrize("rows", [ROWS, BEST])
@pytest.mark.parametrize("users", [[1, 0], [1], [0], []])
def test_selecting_examples_is_selecting_judgements(users, rows):
    judgements = (judgements_of if rows is ROWS else best_of)(rows)
    features = HashingFeatures(dimension=33)
    whole = pair_examples(judgements, features)
    got = whole.select(np.array(users))
    assert got.width == whole.width  # as on the whole node
    expected = pair_examples(judgements.select(users), features)
    assert got.start_U.tolist() == expected.start_U.tolist()
    there = torch.isfinite(got.y_R)
    expected_there = torch.isfinite(expected.y_R)
    assert torch.equal(got.x_RD[there], expected.x_RD[expected_there])
    assert torch.equal(got.y_R[there], expected.y_R[expected_there])
    assert not got.x_RD[~there].any()


def test_lengths_of_rows_are_computed_once_in_double_precision():
    x_RD = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e25, 1e25]])
    examples = PairExamples(x_RD, torch.ones(3), torch.tensor([0, 3]))
    assert examples.lengths_R.tolist() == pytest.approx([5.0, 0.0, 2**0.5 * 1e25])
    assert examples.lengths_R is examples.lengths_R


@pytest.mark.parametrize("rows", [ROWS, BEST])
@pytest.mark.parametrize("uses_prompt", [False, True])
def test_in_a_file_they_are_the_same_bit_for_bit(monkeypatch, rows, uses_prompt):
    judgements = (judgements_of if rows is ROWS else best_of)(rows)
    generator = np.random.default_rng(1)
    features = Counting(uses_prompt)
    noise = generator.standard_normal(3).astype(np.float32)
    shifted = type("Shifted", (), {"__call__": lambda self, *given: features(*given) * noise})()
    shifted.dimension, shifted.uses_prompt = 3, uses_prompt
    monkeypatch.setattr(module, "CHUNK", 2)
    wanted = pair_examples(judgements, shifted)
    monkeypatch.setattr(mapped_rows, "IN_MEMORY", 0)
    found = pair_examples(judgements, shifted)
    assert torch.equal(found.x_RD, wanted.x_RD)
    assert torch.equal(found.select([1, 0]).x_RD, wanted.select([1, 0]).x_RD)
    assert torch.equal(found.lengths_R, wanted.lengths_R)
