"""Language models saved and loaded."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from language_models import model_on

from murmuration.preference.bases import base_of
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.features.words import DEFINITION
from murmuration.preference.kinds.starting import described_features
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.reward import save_language_model, system_of
from murmuration.preference.language.row_cache import FOLDER
from murmuration.preference.model_folder import SaveOptions
from murmuration.preference.reward import RewardModel
from murmuration.reporting.export import Sharing, export


@pytest.fixture
def trained(language_model):
    """A LoRA model away from its beginning."""
    base = LanguageBase(BaseSettings(language_model("gpt2"), rank=2))
    theta_D = np.random.default_rng(0).standard_normal(base.dimension).astype(np.float32) * 0.2

    def save(folder, *options, **more):
        model_on(base).save(folder, theta_D, "btl", SaveOptions(*options, **more))

    def score(prompts, responses):
        return model_on(base).scores([theta_D], prompts, responses)[0]

    return SimpleNamespace(base=base, theta_D=theta_D, save=save, score=score)


def test_a_saved_reward_looks_up_no_tokens_and_keeps_none(language_model, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    head = LanguageHead(path=language_model("llama"))
    save_language_model(tmp_path / "m", head, np.ones(head.dimension, dtype=np.float32))
    RewardModel.load(tmp_path / "m").score_batch(["What now?"], ["Save it."])
    assert not (tmp_path / "kept").exists()


def test_scores_survive_saving(trained, tmp_path, make_rows):
    trained.save(tmp_path / "m", "a card")
    assert (tmp_path / "m" / "README.md").read_text() == "a card\n"
    judgements = Judgements.from_rows(make_rows([3]))
    logits_R = model_on(trained.base).examples(judgements).logits_R(trained.theta_D)
    loaded = RewardModel.load(tmp_path / "m")
    chosen, rejected = zip(*judgements.responses, strict=True)
    found = loaded.score(judgements.prompts, chosen) - loaded.score(judgements.prompts, rejected)
    np.testing.assert_allclose(found, logits_R.numpy(), atol=1e-5)
    unsaved = trained.score(judgements.prompts, chosen) - trained.score(
        judgements.prompts, rejected
    )
    np.testing.assert_allclose(unsaved, found, atol=1e-5)


def test_a_model_is_replaced_only_if_asked(trained, tmp_path):
    trained.save(tmp_path / "m")
    with pytest.raises(InputError, match="already exists"):
        trained.save(tmp_path / "m")
    trained.save(tmp_path / "m", "new", overwrite=True)
    assert (tmp_path / "m" / "README.md").read_text() == "new\n"


def test_weights_that_do_not_fit(trained, tmp_path):
    for theta_D in (np.zeros(3), np.full(trained.base.dimension, np.nan)):
        with pytest.raises(InputError, match="finite numbers"):
            save_language_model(tmp_path / "m", trained.base, theta_D)
        assert not (tmp_path / "m").exists()


def test_a_linear_model_is_loaded_as_one(tmp_path):
    features = HashingFeatures(dimension=9)
    assert base_of(features.to_config()) == model_on(features)
    model_on(features).save(tmp_path / "m", np.ones(9), "btl")
    assert isinstance(RewardModel.load(tmp_path / "m"), RewardModel)


def test_folders_that_are_none(trained, tmp_path):
    with pytest.raises(InputError, match="no such model folder"):
        RewardModel.load(tmp_path / "none")
    trained.save(tmp_path / "m")
    about = json.loads((tmp_path / "m" / "murmuration.json").read_text())
    (tmp_path / "m" / "murmuration.json").write_text(json.dumps({**about, "format": "x"}))
    with pytest.raises(InputError, match="of format"):
        RewardModel.load(tmp_path / "m")
    (tmp_path / "m" / "murmuration.json").write_text(json.dumps({**about, "base": []}))
    with pytest.raises(InputError, match="of format"):
        RewardModel.load(tmp_path / "m")
    about["base"]["path"] = str(tmp_path / "gone")
    (tmp_path / "m" / "murmuration.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="no such folder"):
        RewardModel.load(tmp_path / "m")


def test_a_setting_that_there_is_no_more_is_refused_and_not_read_as_if_it_were_not_there(
    language_model, tmp_path
):
    """A head that learnt the mean of all states would give other scores on the last."""
    head = LanguageHead(path=language_model("llama"))
    save_language_model(tmp_path / "m", head, np.ones(head.dimension, np.float32))
    place = tmp_path / "m" / "murmuration.json"
    about = json.loads(place.read_text())
    about["base"]["head_pooling"] = "mean"
    place.write_text(json.dumps(about))
    start = {"kind": "hashing", "words": DEFINITION}
    for read in (
        RewardModel.load,
        system_of,
        lambda folder: described_features(start, str(folder)),
        lambda folder: export(folder, tmp_path / "out", Sharing(without_promise=True)),
    ):
        with pytest.raises(InputError, match="head_pooling: settings that this version does not"):
            read(tmp_path / "m")


def test_accuracy_is_that_of_its_scores(trained, tmp_path, make_rows):
    trained.save(tmp_path / "m")
    loaded, rows = RewardModel.load(tmp_path / "m"), make_rows([3, 2, 4])
    judgements = Judgements.from_rows(rows)
    chosen, rejected = zip(*judgements.responses, strict=True)
    margin_R = loaded.score(judgements.prompts, chosen) - loaded.score(judgements.prompts, rejected)
    right_R = np.where(margin_R == 0, 0.5, margin_R > 0)[judgements.y_R != 0.5]
    accuracy = loaded.accuracy(rows)
    assert accuracy.pooled == pytest.approx(right_R.mean())
    assert (accuracy.judgements, accuracy.users) == (len(right_R), 3)
    assert re.fullmatch(r"SavedReward\(btl, \d[\d,]* weights\)", repr(loaded))


@pytest.mark.parametrize("train", ["lora", "head", "full"])
def test_a_reward_reads_texts_after_the_system_prompt_it_learnt(language_model, tmp_path, train):
    settings = {"path": language_model("gpt2-chat"), "system": "wait and compare"}
    base = (
        LanguageHead(**settings)
        if train == "head"
        else LanguageBase(BaseSettings(**settings, train=train))
    )
    theta_D = 0.2 * np.random.default_rng(0).standard_normal(base.dimension).astype(np.float32)
    save_language_model(tmp_path / "m", base, theta_D)
    assert system_of(tmp_path / "m") == "wait and compare"
    loaded = RewardModel.load(tmp_path / "m")
    (own,), (plain,) = (
        loaded.score_batch([f"{system}\n\nHuman: what now ?"], ["save it"])
        for system in ("\n\nSystem: wait and compare", "\n\nSystem: buy")
    )
    assert loaded.score("what now ?", "save it") == own != plain
    assert system_of(settings["path"]) == ""
