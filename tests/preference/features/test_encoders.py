import json
import shutil

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.features import encoders
from murmuration.preference.features.encoders import EncoderFeatures, resolve_encoder
from murmuration.preference.features.hashing import (
    chosen_features,
    feature_map,
    finite_features,
    parse_features,
)
from murmuration.preference.language import checkpoint
from murmuration.preference.language.checkpoint import minilm_folder

PROMPTS = ["spend it ?", "save all now later it spend", "?", "spend it ?"]
RESPONSES = ["save", "spend it all now " * 5, "later unknown", "spend"]


@pytest.fixture
def encoder(language_model, tmp_path):
    """A tiny BERT whose tokenizer says, too, which tokens are the response's."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "there" / "encoder"
    names = ["input_ids", "token_type_ids", "attention_mask"]
    shutil.copytree(language_model("bert"), folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, model_input_names=names)
    tokenizer.save_pretrained(folder)
    return folder


def test_shape_norm_and_length(encoder):
    features = EncoderFeatures(str(encoder), length_weight=0.5)
    phi_RD = finite_features(features, PROMPTS, RESPONSES)
    assert phi_RD.shape == (4, features.dimension) == (4, 17)
    np.testing.assert_allclose(np.linalg.norm(phi_RD[:, :-1], axis=1), 1, rtol=1e-5)
    more = 1 + np.array([1, 20, 2, 1])
    np.testing.assert_allclose(phi_RD[:, -1], 0.5 * np.tanh(np.log(more / 25)), rtol=1e-6)
    assert features(["p"] * 0, []).shape == (0, 17)


def test_mean_pooling_is_the_mean_of_the_texts_own_tokens(encoder):
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(encoder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    words = ["[CLS]", "spend", "it", "?", "[SEP]", "save", "[SEP]"]
    ids = torch.tensor([tokenizer.convert_tokens_to_ids(words)])
    with torch.no_grad():
        states = model(
            input_ids=ids, token_type_ids=torch.tensor([[0] * 5 + [1] * 2])
        ).last_hidden_state[0]
    for pooling, expected in (("mean", states.mean(0)), ("cls", states[0])):
        features = EncoderFeatures(str(encoder), pooling=pooling)
        got = features(PROMPTS, RESPONSES)[0, :-1]
        np.testing.assert_allclose(got, expected / expected.norm(), atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_texts_features_are_the_same_bits_beside_any_others(encoder, pooling):
    features = EncoderFeatures(str(encoder), pooling=pooling)
    together = features(PROMPTS * 20, RESPONSES * 20)
    alone = np.concatenate(
        [features([p], [r]) for p, r in zip(PROMPTS, RESPONSES, strict=True)] * 20
    )
    np.testing.assert_array_equal(together, alone)


def test_the_prompt_counts(encoder):
    features = EncoderFeatures(str(encoder))
    assert features.uses_prompt
    one, other = features(["save", "spend"], ["it", "it"])
    assert not np.allclose(one, other)


def test_long_texts_are_cut_and_the_response_is_kept(encoder):
    features = EncoderFeatures(str(encoder), max_tokens=10_000)  # the model takes 64
    long = ["spend it all now later " * 50] * 2
    save, later = features(long, ["save", "later"])
    assert not np.allclose(save[:-1], later[:-1])
    assert np.isfinite(features(long, long)).all()


def test_config_round_trip(encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(encoder.parent)
    features = feature_map(parse_features(encoder.name))
    config = json.loads(json.dumps(features.to_config()))
    monkeypatch.chdir(tmp_path)  # a node may run elsewhere
    again = feature_map(config)
    assert config["path"] == str(encoder)
    assert np.array_equal(features(PROMPTS, RESPONSES), again(PROMPTS, RESPONSES))


@pytest.mark.parametrize(
    "options", [{"pooling": "max"}, {"max_tokens": 4}, {"length_weight": -1}, {"length": "no"}]
)
def test_bad_options(encoder, options):
    with pytest.raises(InputError):
        EncoderFeatures(str(encoder), **options)


def test_a_folder_with_a_damaged_encoder(encoder, tmp_path):
    for file in encoder.iterdir():
        (tmp_path / file.name).write_bytes(
            file.read_bytes()[: 100 if "model" in file.name else None]
        )
    with pytest.raises(InputError, match="the folder gives no encoder") as caught:
        EncoderFeatures(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_hub_name_that_the_hub_does_not_give(monkeypatch):
    transformers = pytest.importorskip("transformers")

    def offline(path, local_files_only, trust_remote_code):
        assert local_files_only and not trust_remote_code
        raise OSError(f"We couldn't connect to the hub to load {path}\nmore")

    monkeypatch.setattr(encoders, "hub_is_reachable", lambda: False)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", offline)
    with pytest.raises(
        InputError, match=r"^--features owner/encoder: .* without a network"
    ) as caught:
        EncoderFeatures("owner/encoder")
    assert "We couldn't connect" not in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setattr("murmuration.preference.language.checkpoint.hub_is_reachable", lambda: True)
    with pytest.raises(InputError, match=r"the hub gives no encoder: .*to load owner/encoder$"):
        EncoderFeatures("owner/encoder")


@pytest.mark.parametrize(("typed", "meant"), [("minilmm", "minilm"), ("hashin", "hashing")])
def test_a_slip_is_no_name_of_a_hub(typed, meant):
    with pytest.raises(InputError, match=f"^--features {typed}: .*did you mean {meant}"):
        encoders.resolve_encoder(typed)
    assert encoders.resolve_encoder("bert-base-uncased") == "bert-base-uncased"


def test_without_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'murmuration-rlhf\[encoders\]'"):
        EncoderFeatures(str(tmp_path))


def test_a_missing_folder_is_not_asked_from_the_hub(tmp_path):
    with pytest.raises(InputError, match="--features: no such folder"):
        resolve_encoder(str(tmp_path / "gone"))
    file = tmp_path / "encoder.bin"
    file.write_text("")
    with pytest.raises(InputError, match="--features: no such folder"):
        resolve_encoder(str(file))


needs_minilm = pytest.mark.skipif(minilm_folder() is None, reason="needs the extra minilm")


@needs_minilm
def test_minilm_is_named_and_not_its_place():
    features = feature_map(parse_features("minilm"))
    assert features.to_config()["path"] == "minilm"
    assert features.dimension == 385
    phi_RD = features(["Spend or save?"] * 3, ["Save it.", "Put it aside.", "Bananas are blue."])
    alike, unlike = (float(phi_RD[0, :-1] @ phi_RD[row, :-1]) for row in (1, 2))
    assert alike > unlike + 0.1
    same_RD = feature_map(parse_features(str(minilm_folder())))(["Spend or save?"], ["Save it."])
    np.testing.assert_array_equal(same_RD[0], phi_RD[0])


@needs_minilm
def test_auto_takes_minilm():
    assert chosen_features("auto") == "minilm"


def test_without_minilm(monkeypatch, tmp_path):
    """Auto takes hashing, and who asks for it is told what to install; no network is asked."""
    monkeypatch.setattr(checkpoint, "minilm_folder", lambda: None)
    monkeypatch.setattr(encoders, "hub_is_reachable", lambda: pytest.fail("asked for a network"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert chosen_features("auto") == "hashing"
    with pytest.raises(InputError, match=r"pip install 'murmuration-rlhf\[minilm\]'"):
        feature_map(parse_features("minilm"))


def test_auto_is_no_feature_of_a_run():
    with pytest.raises(InputError, match="auto is for commands"):
        parse_features("auto")
    assert chosen_features("hashing:65") == "hashing:65"
