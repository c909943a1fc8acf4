"""What one user holds moves that user's share and no other's, to the last bit, in every node half.

Sums of clipped vectors are exact, so a node's sum is that of its users asked one by one: whatever
else there is, in any order, on any number of nodes. Vectors that are not summed are compared
themselves.
"""

import math

import language_models
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language_models import model_on

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.linear import gradients
from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.linear.gradients import windows
from murmuration.preference.linear.likelihoods import Gaussian
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import ABSENT, pair_model, preference_model
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies import registry
from murmuration.strategies.protocol.messages import TrainRequest

#: Model, kind of judgements, and how many others the widest of anybody's is over.
KINDS = [
    ("btl", "pairs", 1),
    ("thurstone", "pairs", 1),
    ("plackett-luce", "pairs", 1),
    ("plackett-luce", "top-1", 5),
    ("plackett-luce", "ranking", 5),
    ("thumbs", "thumbs", 1),
]
SUMMED = ["uls", "dp-fedavg", "els", "adaptive", "aup-centred"]
DIMENSION = 37


def user(seed, count, others, spoil=1.0):
    """One user's rows (N, W, D) and y (N, W), of judgements over up to so many others."""
    generator = np.random.default_rng(seed)
    x = (generator.standard_normal((count, others, DIMENSION)) * spoil).clip(-3e38, 3e38)
    x = x.astype(np.float32)
    shown = generator.integers(1, others + 1, count)
    absent = np.arange(others) >= shown[:, None]
    y = np.where(absent, ABSENT, 1.0).astype(np.float32)
    return np.where(absent[:, :, None], np.float32(0.0), x), y


def hosted(users, kind, width):
    """A node's examples: each user's judgements in rows as wide as anybody's may be."""
    parts_x, parts_y, start = [], [], [0]
    for x, y in users:
        if kind == "thumbs":
            y = np.where(np.arange(len(y))[:, None] % 3 == 0, np.float32(0.0), y)
        missing = ((0, 0), (0, width - x.shape[1]))
        parts_x.append(np.pad(x, (*missing, (0, 0))).reshape(-1, DIMENSION))
        parts_y.append(np.pad(y, missing, constant_values=ABSENT).reshape(-1))
        start.append(start[-1] + len(x))
    none_x, none_y = np.empty((0, DIMENSION), np.float32), np.empty(0, np.float32)
    x_RD, y_R = np.concatenate([none_x, *parts_x]), np.concatenate([none_y, *parts_y])
    return PairExamples(
        torch.from_numpy(x_RD),
        torch.from_numpy(y_R),
        torch.tensor(start),
        width,
        flip_J=None,
        kind=kind,
    )


def crowds(others):
    """Users as (seed, count, widest, spoil): nobody's judgements to very many, and any numbers."""
    return st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.one_of(st.integers(0, 20), st.sampled_from([0, 1, 300])),
            st.integers(1, others),
            st.sampled_from([1.0, 1.0, 1e-20, 1e19, 1e38, math.nan, math.inf]),
        ),
        min_size=1,
        max_size=9,
    )


THETA_D = torch.linspace(-1.0, 1.0, DIMENSION) / 4


def keys(names):
    return np.array(names, dtype=np.uint64) * np.uint64(104729) + np.uint64(17)


def vectors(given, names, model, kind, width, local, group_size=7):
    """By name, each user's vector as bytes, where these are a node's users in this order."""
    examples = hosted([given[name] for name in names], kind, width)
    words_S = Randomness(3).user_words("window", 1, keys(names))
    taken = windows(examples.start_U, np.arange(len(names)), group_size, words_S)
    work = gradients._Work.of(examples, THETA_D, *taken, model)
    found = [work.local_updates(chunk, local) for chunk in range(work.chunks)]
    assert sum(map(len, found)) == len(names)
    return dict(zip(names, (row.tobytes() for part in found for row in part.numpy()), strict=True))


@pytest.mark.parametrize("local", [LocalSteps(1, 1.0), LocalSteps(3, 0.2)], ids=["one", "three"])
@pytest.mark.parametrize(("name", "kind", "others"), [*KINDS, ("own", "pairs", 1)])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_users_vector_is_that_user_s_alone(monkeypatch, name, kind, others, local, data):
    monkeypatch.setattr(gradients, "CHUNK_BYTES", data.draw(st.sampled_from([1, 9_000, 2**22])))
    drawn = data.draw(crowds(others))
    given = dict(enumerate(user(*one) for one in drawn))
    order = data.draw(st.permutations(list(given)))
    cut = data.draw(st.integers(0, len(order)))
    for node in (order[:cut], order[cut:], list(given)):
        # As wide as anybody's there, or as is declared for all.
        widest = max([given[n][0].shape[1] for n in node], default=1)
        for width in {widest, others}:
            model = pair_model("own", Gaussian()) if name == "own" else None
            model = model or preference_model(name, kind, width)
            found = vectors(given, node, model, kind, width, local)
            for one in node:
                mine = given[one][0].shape[1]
                alone = model if name == "own" else preference_model(name, kind, mine)
                assert found[one] == vectors(given, [one], alone, kind, mine, local)[one]


def contributed(strategy, given, names, model, kind, width):
    """What a node half answers for these users of a node of theirs."""
    parameters = {
        "round": 1, "group-size": 7, "clip-norm": 0.3, "model": model, "probability": 0.7,
        "middle": 0.5, "local-steps": 3, "local-rate": 0.2, "length": 0.0,
    }  # fmt: skip
    arrays = {"theta": THETA_D.numpy()}
    if strategy == "aup-centred":
        arrays["centre"] = np.linspace(-0.1, 0.1, DIMENSION, dtype=np.float32)
    examples = hosted([given[name] for name in names], kind, width)
    work = TrainRequest(arrays, parameters, np.arange(len(names)))
    found = registry.node_halves()[strategy].client_update(
        examples, work, keys(names), Randomness(5)
    )
    return np.concatenate([np.asarray(value, np.float64).ravel() for value in found.values()])


@pytest.mark.parametrize(
    ("strategy", "name", "kind", "others"),
    [
        # els takes each judgement by itself, and refuses thumbs, which have an offset of a user's
        *(
            (strategy, *of)
            for strategy in SUMMED
            for of in KINDS
            if (strategy, of[0]) != ("els", "thumbs")
        ),
        *(("label-moment", *of) for of in (KINDS[0], KINDS[3])),
        ("objective-perturbation", *KINDS[0]),
    ],
)
@given(data=st.data())
def test_a_nodes_sum_is_that_of_its_users_one_by_one(strategy, name, kind, others, data):
    drawn = data.draw(crowds(others))
    given = dict(enumerate(user(*one) for one in drawn))
    asked = (strategy, given)
    one_by_one = sum(contributed(*asked, [one], name, kind, others) for one in given)
    order = data.draw(st.permutations(list(given)))
    cut = data.draw(st.integers(0, len(order)))
    nodes = [node for node in (order[:cut], order[cut:]) if node]
    assert np.isfinite(one_by_one).all()
    assert np.array_equal(
        sum(contributed(*asked, node, name, kind, others) for node in nodes), one_by_one
    )


@pytest.mark.parametrize(("name", "kind", "others"), KINDS)
@given(data=st.data())
def test_rows_that_filters_compare_are_their_users_alone(name, kind, others, data):
    drawn = data.draw(crowds(others))
    given = dict(enumerate(user(*one) for one in drawn))
    order = data.draw(st.permutations(list(given)))
    whole = contributed("aup-corrected", given, order, name, kind, others)
    stack_SD, present_S = np.split(whole, [len(order) * DIMENSION])
    for row_D, present, one in zip(stack_SD.reshape(-1, DIMENSION), present_S, order, strict=True):
        alone = contributed("aup-corrected", given, [one], name, kind, others)
        assert np.array_equal(alone, [*row_D, present])


WORDS = tuple(dict.fromkeys(language_models.WORDS))


def sentence(seed, words):
    generator = np.random.default_rng(seed)
    return " ".join(generator.choice(WORDS, words))


def written(task, one):
    """The rows of a user of so many texts, the longest of so many words."""
    seed, count, words = one
    if task == "text":
        return [{"text": sentence((seed, n), 2 + n * words % 29)} for n in range(count)]
    return [
        {
            "prompt": sentence((seed, n, 0), 1 + words % 7),
            "chosen": sentence((seed, n, 1), 1 + words % 9),
            "rejected": sentence((seed, n, 2), 1 + words),
        }
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def bases(language_model):
    """Loaded models by kind, what is trained, and task."""
    return {
        (kind, train, task): LanguageBase(
            BaseSettings(language_model(kind), train, rank=2, task=task, batch_tokens=70)
        )
        for kind, train, task in (
            ("gpt2", "lora", "reward"),
            ("gpt2", "full", "text"),
            ("llama", "lora", "sft"),
            ("bert", "full", "reward"),
            ("gpt2", "lora", "policy"),
        )
    }


def hosted_texts(base, users):
    """A node's examples, of rows by user."""
    rows = [{"user_id": f"u{name}", **row} for name, found in users for row in found]
    if base.settings.task == "text":
        placed = (("f", number, row) for number, row in enumerate(rows))
        return model_on(base).examples(UserTexts.from_placed_rows(placed))
    return model_on(base).examples(Judgements.from_rows(rows))


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("local", [None, LocalSteps(2, 0.1)], ids=["one", "two"])
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_users_vector_by_a_language_model_is_that_user_s_alone(bases, which, local, data):
    (_, _, task), base = list(bases.items())[which]
    crowd = st.tuples(st.integers(0, 99), st.integers(1, 5), st.integers(1, 25))
    drawn = data.draw(st.lists(crowd, min_size=2, max_size=4))
    given = [(name, written(task, one)) for name, one in enumerate(drawn)]
    generator = torch.Generator().manual_seed(1)
    theta_D = 0.1 * torch.randn(base.dimension, generator=generator)
    model = preference_model("btl")

    def found(users):
        examples = hosted_texts(base, users)
        words_S = Randomness(3).user_words("window", 1, keys([name for name, _ in users]))
        taken = windows(examples.start_U, np.arange(len(users)), 3, words_S)
        if local:
            chunks = examples.user_gradients(theta_D, *taken, model, local)
        else:
            chunks = examples.user_gradients(theta_D, *taken, model)
        return [row.numpy().tobytes() for part in chunks for row in part.clone()]

    alone = {name: found([(name, rows)])[0] for name, rows in given}
    order = data.draw(st.permutations(given))
    assert found(order) == [alone[name] for name, _ in order]
    if task == "reward":
        whole = hosted_texts(base, order).logits_R(theta_D).tolist()
        assert whole == [
            logit for one in order for logit in hosted_texts(base, [one]).logits_R(theta_D).tolist()
        ]
