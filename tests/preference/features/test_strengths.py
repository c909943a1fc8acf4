"""A strength for each response on a public list: its scale, its company, its config, its list."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures, feature_map, parse_features
from murmuration.preference.features.strengths import (
    MOST_ITEMS,
    Strengths,
    item_digest,
    text_features,
)
from murmuration.preference.linear.examples import pair_examples
from murmuration.preference.reward import RewardModel

LISTED = ("Save it.", "Spend it!")
texts = st.one_of(st.sampled_from(LISTED), st.text("ab \n.é字\ud800", max_size=30))


def features(text="hashing:65", length="bounded"):
    return feature_map(parse_features(f"strengths+{text}", length, json.dumps(LISTED)))


def phi(*responses, **options):
    return features(**options)([""] * len(responses), responses)


def test_a_place_on_the_list_and_the_text_beside():
    got, text = phi("Spend it!", "other words"), HashingFeatures(65)
    assert got.shape == (2, 2 + 65) and got.dtype == np.float32
    np.testing.assert_allclose(got[:, :2], [[0, np.sqrt(0.5)], [0, 0]], rtol=1e-6)
    alone = text(["", ""], ["Spend it!", "other words"])
    np.testing.assert_allclose(got[:, 2:-1], np.sqrt(0.5) * alone[:, :-1], rtol=1e-6)
    assert np.array_equal(got[:, -1], alone[:, -1])


def test_alone_there_is_the_length_beside_and_the_scale_is_one():
    got = feature_map(parse_features("strengths", items=json.dumps(LISTED)))
    long = "word " * 99
    np.testing.assert_allclose(
        got(["", ""], ["Save it.", long]), [[1, 0, -0.2915], [0, 0, 0.2647]], atol=1e-4
    )
    assert not feature_map(parse_features("strengths", "none", json.dumps(LISTED)))(
        [""], [long]
    ).any()


@given(texts, st.sampled_from(["hashing:1", "hashing:17"]))
def test_the_bound_is_that_of_texts(text, beside):
    """Norm at most 1 without the length, which is within its weight."""
    phi_D = phi(text, text=beside)[0]
    assert np.linalg.norm(phi_D[:-1]) <= 1.0 + 1e-6
    assert abs(phi_D[-1]) <= 0.3


@given(st.lists(texts, max_size=5), texts)
def test_a_text_has_the_same_features_in_any_company(company, text):
    assert np.array_equal(phi(*company, text)[-1], phi(text)[0])


def test_no_features_come_of_what_users_have():
    """The same list whatever was judged: a response that is not on it stays without a place."""
    rows = [
        {"user_id": f"u{n}", "prompt": "p", "chosen": "a new one", "rejected": "Save it."}
        for n in range(9)
    ]
    x_JD = pair_examples(Judgements.from_rows(rows), features()).x_RD.numpy()
    assert x_JD.shape == (9, 67)
    np.testing.assert_allclose(x_JD[:, :2], np.tile([-np.sqrt(0.5), 0.0], (9, 1)), rtol=1e-6)


def test_blanks_around_and_composed_letters_are_the_same_response():
    assert item_digest(" caf\u00e9\n") == item_digest("caf\u00e9")
    assert item_digest("Cafe") != item_digest("cafe")


def test_it_comes_back_from_its_config_which_has_no_text():
    config = json.loads(json.dumps(features().to_config()))
    assert feature_map(config) == features()
    assert not any(text in json.dumps(config) for text in LISTED)
    assert feature_map(config, keep=False).to_config() == config


def test_a_saved_reward_carries_its_list(tmp_path):
    theta_D = np.random.default_rng(0).normal(size=67).astype(np.float32)
    model = RewardModel(theta_D, features())
    model.save(tmp_path / "model")
    shown = ["Save it.", "Spend it!", "neither"]
    again = RewardModel.load(tmp_path / "model")
    assert np.array_equal(again.score_batch([""] * 3, shown), model.score_batch([""] * 3, shown))
    assert again.score("", "Save it.") == pytest.approx(
        float(theta_D.astype(float) @ phi("Save it.")[0])
    )


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("", "needs --items"),
        ("[]", "1 to 10,000 responses, and this has 0"),
        ('["a", "A"]', "looks like 'a'"),
        (json.dumps([str(n) for n in range(MOST_ITEMS + 1)]), "this has 10,001"),
        ("no-such-file.txt", "cannot be used"),
    ],
)
def test_lists_that_cannot_be_used(items, message):
    with pytest.raises(InputError, match=message) as refused:
        feature_map(parse_features("strengths", items=items))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("strengths", [5, "", [], ["0", "0"], [["0"]]])
def test_configs_of_others_are_refused_in_a_line(strengths):
    with pytest.raises(InputError):
        feature_map({**HashingFeatures(3).to_config(), "strengths": strengths})


@pytest.mark.parametrize("option", ["strengths+", "strengths+strengths", "strengths+./none"])
def test_options_that_name_no_text_features(option):
    with pytest.raises(InputError):
        parse_features(option, items=json.dumps(LISTED))


def test_what_is_named_beside():
    assert text_features(" strengths ") == ("strengths", "")
    assert text_features("strengths+/a+b") == ("strengths+", "/a+b")
    assert text_features("/strengths+b") == ("", "/strengths+b")
    with pytest.raises(InputError, match="twice"):
        Strengths(("0", "0"), HashingFeatures(3))


def test_it_is_learnt_who_wins(tmp_path, write_rows):
    """Alike in all but which they are: no words and no length tell them apart."""
    import murmuration

    rows = [
        {"user_id": f"u{n}", "prompt": "p", "chosen": "b a", "rejected": "a b"} for n in range(400)
    ]
    run = murmuration.train(
        rows, features="strengths", items=["a b", "b a"], out=tmp_path / "run",
        epsilon=8, delta=1e-4, rounds=20, cohort=100, heldout=0.0, seed=1,
    )  # fmt: skip
    better, worse, off = run.model.score(["p"] * 3, ["b a", "a b", "c d"])
    assert better > off > worse
    with pytest.raises(murmuration.InputError, match="items"):
        murmuration.train(out=tmp_path / "run", resume=True, items=["a b", "b c"])
