"""The model of tastes: its description, what is saved of it, and what it refuses."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from murmuration.preference.bases import base_of
from murmuration.preference.data.rows import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.kinds.tastes import TastesModel
from murmuration.preference.linear.basis_start import START, start_KD
from murmuration.preference.reward import RewardModel

FEATURES = HashingFeatures(dimension=16)


def test_a_description_makes_an_equal_model():
    model = base_of({**FEATURES.to_config(), "tastes": 3})
    assert isinstance(model, TastesModel)
    assert model.dimension == 48
    again = base_of(json.loads(json.dumps(model.to_config())))
    assert again.to_config() == model.to_config() == {**FEATURES.to_config(), "tastes": 3}


@pytest.mark.parametrize("tastes", [0, 1, 33, 2.0, True, "2", None])
def test_a_number_of_tastes_that_is_none_is_refused(tastes):
    with pytest.raises(InputError, match="tastes must be a whole number, 2 to 32"):
        base_of({**FEATURES.to_config(), "tastes": tastes})


def test_tastes_of_what_is_no_linear_reward_are_refused():
    with pytest.raises(InputError, match="not for 'items'"):
        base_of({"kind": "items", "items": ["a", "b"], "boards": [""], "tastes": 2})


def test_what_is_saved_is_the_crowds_reward_and_the_basis_beside_it(tmp_path):
    model = TastesModel(FEATURES, 3)
    theta_E = np.linspace(-1, 1, 48, dtype=np.float32)
    model.save(tmp_path / "m", theta_E, "btl")
    assert set(load_file(tmp_path / "m" / "model.safetensors")) == {"theta_D", "tastes_VD"}
    saved = RewardModel.load(tmp_path / "m")
    np.testing.assert_array_equal(saved.theta_D, theta_E[:16])
    expected = theta_E[16:].reshape(2, 16) + start_KD(3, 16)[1:]
    np.testing.assert_array_equal(saved.tastes_VD, expected)
    assert START > 0
    crowd = saved.score_batch(["p"], ["some answer"])
    np.testing.assert_array_equal(model.scores([theta_E], ["p"], ["some answer"])[0], crowd)


def test_a_saved_model_whose_basis_does_not_fit_is_refused(tmp_path):
    for wrong in (np.ones((2, 5)), np.full((1, 16), np.nan), np.ones(16)):
        with pytest.raises(InputError, match="do not fit features of dimension 16, or are not"):
            RewardModel(np.ones(16), FEATURES, tastes_VD=wrong)


def test_made_up_judgements_are_of_the_features_dimension():
    from murmuration.preference.data.schema import Schema

    made = TastesModel(FEATURES, 3).largest_examples(Schema(), 2, 4)
    assert made.dimension == 48
    assert made.pairs.dimension == 16
