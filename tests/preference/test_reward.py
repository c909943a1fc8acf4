import json
import math

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from murmuration.preference.accuracy import Accuracy
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.features.words import DEFINITION
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.preference.models import ABSENT
from murmuration.preference.reward import RewardModel

FEATURES, NINE = HashingFeatures(dimension=33), HashingFeatures(dimension=9)


@pytest.fixture
def model():
    return RewardModel(np.random.default_rng(0).normal(size=33), FEATURES)


def examples(x, y, start):
    return PairExamples(torch.tensor(x)[:, None], torch.tensor(y), torch.tensor(start))


def test_accuracy_counts_judgements_and_users():
    got = examples(
        [1.0, -1.0, 0.0, 2.0, 5.0, -3.0, -1.0],
        [1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 0.5],
        [0, 4, 6, 7],
    ).accuracy(np.ones(1))
    # user 0: right, wrong, half, right; user 1: a tie, wrong; user 2: a tie only
    mean = (2.5 / 4 + 0) / 2
    assert got == Accuracy(pooled=2.5 / 5, by_user=mean, users=2, judgements=5, chance=0.5)


def test_accuracy_of_a_flipped_label():
    assert examples([1.0, -1.0], [0.0, 0.0], [0, 2]).accuracy(np.ones(1)).pooled == 0.5
    assert examples([1.0, -1.0, 2.0], [0.0, 1.0, 0.0], [0, 3]).accuracy(-np.ones(1)).pooled == 1


def test_accuracy_without_anything_decided():
    got = examples([1.0], [0.5], [0, 1]).accuracy(torch.ones(1))
    assert math.isnan(got.pooled) and math.isnan(got.by_user) and math.isnan(got.chance)
    assert (got.users, got.judgements) == (0, 0)


def test_a_zero_model_is_right_half_of_the_time():
    assert examples([1.0, -2.0], [1.0, 1.0], [0, 1, 2]).accuracy(np.zeros(1)).pooled == 0.5


def best_of(x_JWD, y, start=None, kind="top-1"):
    x_JWD = torch.tensor(x_JWD)
    start = [0, len(x_JWD)] if start is None else start
    return PairExamples(
        x_JWD.flatten(0, 1)[:, None],
        torch.tensor(y).flatten(),
        torch.tensor(start),
        x_JWD.shape[1],
        kind=kind,
    )


def test_accuracy_of_the_best_of_several():
    y = [[1.0, 1.0, 1.0]] * 5
    margins = [[1.0, 2.0, 0.5], [1.0, -0.1, 5.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [3.0, 1.0, 0.0]]
    got = best_of(margins, y, [0, 2, 5]).accuracy(np.ones(1))
    # right, wrong; tied with one, tied with all, tied with one
    assert got.pooled == pytest.approx((1 + 0 + 1 / 2 + 1 / 4 + 1 / 2) / 5)
    assert got.by_user == pytest.approx((1 / 2 + (1 / 2 + 1 / 4 + 1 / 2) / 3) / 2)
    assert (got.users, got.judgements, got.chance) == (2, 5, 0.25)


def test_a_zero_model_guesses_among_what_is_there():
    y = [[1.0, ABSENT, ABSENT], [1.0, 1.0, 1.0]]
    got = best_of([[5.0, 0.0, 0.0], [1.0, 2.0, 3.0]], y).accuracy(np.zeros(1))
    assert got.pooled == got.chance == pytest.approx((1 / 2 + 1 / 4) / 2)


def test_of_a_ranking_with_ties_a_first_place_that_several_share_is_left_out():
    x_JWD = [[1.0, 2.0], [1.0, -2.0], [1.0, 2.0], [-1.0, 2.0]]
    y = [1.0, 0.5, 1.0, 0.5, 0.5, 1.0, 0.5, 0.5]  # first alone, first alone, two first, all first
    found = best_of(x_JWD, y, kind="ranking").accuracy(np.ones(1))
    assert (found.judgements, found.pooled) == (2, 0.5)


def thumbs(x, y, start):
    return PairExamples(
        torch.tensor(x)[:, None], torch.tensor(y), torch.tensor(start), kind="thumbs"
    )


def test_of_thumbs_a_users_liked_responses_are_compared_with_their_others():
    """Whatever offset they have: the second user's rewards are all below the first one's."""
    x = [3.0, 1.0, 2.0, 2.0, -5.0, -7.0, 1.0, 9.0]
    y = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    found = thumbs(x, y, [0, 4, 6, 8, 8]).accuracy(np.ones(1))
    assert found.by_user == pytest.approx((3.5 / 4 + 0.0) / 2)
    assert found.pooled == pytest.approx((4 * 3.5 / 4 + 2 * 0.0) / 6)
    assert (found.users, found.judgements, found.chance) == (2, 6, 0.5)
    assert math.isnan(thumbs(x[6:], y[6:], [0, 2]).accuracy(np.ones(1)).by_user)


def test_what_is_absent_does_not_win():
    y = [[1.0, ABSENT], [1.0, ABSENT]]
    assert best_of([[2.0, 0.0], [-2.0, 0.0]], y).accuracy(np.ones(1)).pooled == 0.5


@pytest.mark.parametrize(
    "y", [[0.5, 1.0, 1.0], [2 / 3, 2 / 3, 1.0], [0.75, 0.75, 0.75], [0.5, ABSENT, ABSENT]]
)
def test_ties_among_the_best_of_several_are_left_out(y):
    got = best_of([[1.0] * 3, [1.0] * 3], [y, [1.0] * 3]).accuracy(np.ones(1))
    assert (got.pooled, got.judgements) == (1.0, 1)


def test_of_a_ranking_the_first_place_counts():
    got = best_of([[1.0, 0.5], [-1.0, 2.0]], [[1.0] * 2] * 2, kind="ranking").accuracy(np.ones(1))
    assert got.pooled == 0.5


def test_models_of_preferences_are_saved(tmp_path, model):
    assert model.model == "btl"
    RewardModel(model.theta_D, FEATURES, "plackett-luce").save(tmp_path / "m")
    assert RewardModel.load(tmp_path / "m").model == "plackett-luce"
    config = json.loads((tmp_path / "m/config.json").read_text())
    assert config.pop("model") == "plackett-luce"
    (tmp_path / "m/config.json").write_text(json.dumps(config))
    assert RewardModel.load(tmp_path / "m").model == "btl"
    (tmp_path / "m/config.json").write_text(json.dumps({**config, "model": "elo"}))
    with pytest.raises(InputError, match="'elo' is not one of btl"):
        RewardModel.load(tmp_path / "m")


def judgements(tie=False):
    rows = [("a", "save it now", "spend"), ("a", "Spend", "save all of it"), ("b", "no", "yes it")]
    return Judgements.from_rows(
        {"user_id": u, "prompt": "p", "chosen": c, "rejected": r, "tie": tie} for u, c, r in rows
    )


def test_accuracy_agrees_with_scores(model):
    data = judgements()
    pairs = data.responses
    right = [model.score("p", chosen) > model.score("p", rejected) for chosen, rejected in pairs]
    got = model.accuracy(data)
    assert got.pooled == pytest.approx(np.mean(right))
    assert got.by_user == pytest.approx((np.mean(right[:2]) + right[2]) / 2)
    assert got == pair_examples(data, FEATURES).accuracy(model.theta_D)


def test_texts_with_equal_features_are_half_right(model):
    row = {"user_id": "a", "prompt": "p", "chosen": "save it", "rejected": "Save it!"}
    assert model.accuracy(Judgements.from_rows([row])).pooled == 0.5


def test_scores(model):
    one = model.score("p", "save it now")
    assert isinstance(one, float)
    expected = FEATURES(["p"], ["save it now"])[0] @ model.theta_D
    assert one == pytest.approx(float(expected), rel=1e-5)
    many = model.score(["p"] * 5000, ["save it now", "spend"] * 2500)
    assert many.shape == (5000,)
    assert many[4998] == pytest.approx(one)
    assert many[4999] == pytest.approx(model.score("p", "spend"))
    assert model.score([], []).shape == (0,)


def test_a_text_that_cannot_be_scored_is_named_by_its_row():
    class Numbers:
        dimension = 1
        uses_prompt = False

        def __call__(self, prompts, responses):
            return np.array([[float(response)] for response in responses])

        def to_config(self):
            return {}

    with pytest.raises(InputError, match="features of row 4999 "):
        RewardModel(np.ones(1), Numbers()).score(["p"] * 5000, ["1"] * 4998 + ["inf", "1"])


@pytest.mark.parametrize("theta", [np.zeros(32), np.zeros((33, 1)), np.full(33, np.nan)])
def test_weights_that_do_not_fit(theta):
    with pytest.raises(InputError, match="weights"):
        RewardModel(theta, FEATURES)


def test_a_model_keeps_its_own_weights():
    theta_D = torch.zeros(33)
    model = RewardModel(theta_D, FEATURES)
    theta_D += 1
    assert not model.theta_D.any()


def test_weights_from_a_read_only_buffer():
    theta_D = np.frombuffer(np.ones(33, np.float32).tobytes(), np.float32)
    assert RewardModel(theta_D, FEATURES).theta_D.flags.writeable
    assert examples([1.0], [1.0], [0, 1]).accuracy(theta_D[:1]).pooled == 1


def test_save_and_load(model, tmp_path):
    place = tmp_path / "deep" / "model"
    model.save(place, "# A card\nof two lines")
    again = RewardModel.load(str(place))
    assert np.array_equal(again.theta_D, model.theta_D)
    assert again.theta_D.dtype == np.float32
    assert again.features == FEATURES
    assert (place / "README.md").read_text() == "# A card\nof two lines\n"
    assert sorted(file.name for file in place.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert [file.name for file in place.parent.iterdir()] == ["model"]
    assert place.stat().st_mode & 0o777 == tmp_path.joinpath("deep").stat().st_mode & 0o777
    with pytest.raises(InputError, match="already exists"):
        model.save(place)
    RewardModel(np.zeros(33), FEATURES).save(place, overwrite=True)
    assert not RewardModel.load(place).theta_D.any()


def test_save_never_replaces_what_is_not_a_model(model, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not a reward model"):
        model.save(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def edit(place, **changes):
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | changes))


def hold(place, **tensors):
    save_file(tensors, place / "model.safetensors")


THETA_D = np.zeros(33, np.float32)
GONE = {"kind": "encoder", "path": "/gone/encoder", "words": DEFINITION}
FAULTS = {
    "no such model folder": lambda place: place.rename(place.with_name("elsewhere")),
    "it has no config.json": lambda place: (place / "config.json").unlink(),
    "cannot be read": lambda place: (place / "config.json").write_text("{"),
    "not a reward model of format": lambda place: edit(place, format="llama"),
    "config.json: not a reward model": lambda place: (place / "config.json").write_text("[]"),
    "the model is not complete": lambda place: (place / "model.safetensors").unlink(),
    "does not hold a": lambda place: (place / "model.safetensors").write_bytes(b"junk"),
    r"weights \('theta_D'\)": lambda place: hold(place, other=THETA_D),
    "do not fit dimension 33": lambda place: hold(place, theta_D=THETA_D[:3]),
    "must be finite": lambda place: hold(place, theta_D=THETA_D + np.nan),
    "features of dimension 9": lambda place: edit(place, features=NINE.to_config()),
    "no such folder: /gone/encoder": lambda place: edit(place, features=GONE),
    "count words as": lambda place: edit(place, features={"kind": "hashing", "dimension": 33}),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_what_cannot_be_loaded(model, tmp_path, reason):
    place = tmp_path / "model"
    model.save(place)
    FAULTS[reason](place)
    with pytest.raises(InputError, match=reason) as caught:
        RewardModel.load(place)
    assert "\n" not in str(caught.value)
    assert str(place) in str(caught.value)
