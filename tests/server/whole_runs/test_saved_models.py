"""Folders of models, of every kind that a run saves: they name no place of this machine, say what
hubs read, and are loaded wherever they and their base are."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_runs import LORA, run

from murmuration import RewardModel
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.likelihood import load_scorer
from murmuration.reporting.export import Sharing, export

pytestmark = [pytest.mark.usefixtures("quick_runs"), pytest.mark.settings(**LORA)]

ASKED = (["what now ?", "what now ?"], ["put some aside first .", "take loan , spend all of it"])
WHOLE = {"base": "", "lora_rank": 0}
#: What is changed of a LoRA run on GPT-2.
KINDS = {
    "hashing": WHOLE,
    "encoder": {**WHOLE, "features": "bert"},
    "lora": {},
    "lora of an encoder": {"base": "bert"},
    "full": {"train": "full", "lora_rank": 0},
    "head": {"train": "head", "lora_rank": 0},
    "sft": {"task": "sft"},
    "policy": {"task": "policy"},
}


#: Runs that tests of this process read, by kind.
_SAVED: dict[str, tuple] = {}


@pytest.fixture
def own(config, language_model, tmp_path):
    """A function: the model folder of a run of one kind, and the base that it was made on."""

    def make(kind):
        changes = dict(KINDS[kind])
        option = "features" if "features" in changes else "base"
        named = changes.get(option, "gpt2")
        base = ""
        if named:
            base = tmp_path / "bases" / named
            shutil.copytree(language_model(named), base)
            changes[option] = str(base)
        return Path(run(replace(config, **changes))["out"]) / "model", base

    return make


@pytest.fixture
def saved(own):
    """The same, made once for all tests that change neither folder."""

    def make(kind):
        if kind not in _SAVED:
            _SAVED[kind] = own(kind)
        return _SAVED[kind]

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_names_a_place_of_this_machine(saved, kind, tmp_path_factory):
    model, _ = saved(kind)
    place = str(tmp_path_factory.getbasetemp()).encode()  # of all tests, and the bases
    files = [file for file in model.rglob("*") if file.is_file()]
    assert len(files) > 2
    assert [file.name for file in files if place in file.read_bytes()] == []


@pytest.mark.parametrize("kind", ["encoder", "lora", "sft"])
def test_a_model_that_was_moved_is_loaded_on_the_base_that_is_given(own, kind, tmp_path):
    model, base = own(kind)
    before = load_scorer(model).score_batch(*ASKED)
    far = tmp_path / "a" / "b" / "c" / "given-away"
    far.parent.mkdir(parents=True)
    model.rename(far)
    kept = tmp_path / "kept"
    base.rename(kept)
    with pytest.raises(InputError, match=rf"made on the base '{base.name}' \(SHA-256 .*--base"):
        load_scorer(far)
    np.testing.assert_allclose(load_scorer(far, str(kept)).score_batch(*ASKED), before, atol=1e-6)
    assert not np.allclose(before[0], before[1])


@pytest.mark.parametrize("kind", ["encoder", "lora"])
def test_another_base_is_refused(saved, kind, language_model):
    model, _ = saved(kind)
    with pytest.raises(InputError, match="another model is here than the one that was stated"):
        RewardModel.load(model, str(language_model("llama")))


@pytest.mark.parametrize("kind", ["hashing", "encoder", "lora", "full", "head"])
def test_every_reward_is_opened_and_takes_strings_and_messages(saved, kind):
    model, _ = saved(kind)
    reward = RewardModel.load(model)
    many = reward.score_batch(*ASKED)
    assert many.shape == (2,) and many.dtype == np.float64
    user = [{"role": "user", "content": ASKED[0][0]}]
    answers = [[{"role": "assistant", "content": text}] for text in ASKED[1]]
    np.testing.assert_allclose(reward.score_batch([user, user], answers), many, atol=1e-6)
    assert reward.score(user, answers[0]) == pytest.approx(many[0], abs=1e-5)
    reads = "It reads the prompt and the response together" in (model / "README.md").read_text()
    assert reads == (kind != "hashing")
    other = reward.score("live on bet", ASKED[1][0])
    assert (other == reward.score(ASKED[0][0], ASKED[1][0])) == (kind == "hashing")


@pytest.mark.parametrize("kind", ["sft", "policy"])
def test_what_says_the_next_token_is_no_reward(saved, kind):
    model, _ = saved(kind)
    with pytest.raises(InputError, match="which gives no reward"):
        RewardModel.load(model)


@pytest.mark.parametrize(
    ("kind", "library", "pipeline"),
    [
        ("hashing", "murmuration", "text-classification"),
        ("lora", "peft", "text-classification"),
        ("full", "transformers", "text-classification"),
        ("sft", "peft", "text-generation"),
    ],
)
def test_what_a_hub_reads(saved, kind, library, pipeline):
    yaml = pytest.importorskip("yaml")
    model, _ = saved(kind)
    card = (model / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert (head["library_name"], head["pipeline_tag"]) == (library, pipeline)
    result = json.loads((model.parent / "result.json").read_text())
    told = head["differential_privacy"]
    assert told["epsilon"] >= result["epsilon"] and told["delta"] == result["delta"]
    assert told["audit"].startswith("none was made")
    (index,) = head["model-index"]  # the test is public
    found = {metric["name"]: metric["value"] for metric in index["results"][0]["metrics"]}
    assert found["Accuracy"] == pytest.approx(result["heldout_accuracy"], abs=1e-4)


def test_without_a_public_test_nothing_was_measured_for_a_hub(config):
    run(replace(config, **WHOLE, test=""))
    card = (Path(config.out) / "model" / "README.md").read_text()
    assert "model-index" not in card


@pytest.mark.parametrize("kind", ["lora", "head", "policy"])
def test_a_system_prompt_is_in_the_model_on_its_card_and_in_what_is_passed_on(
    config, language_model, tmp_path, kind
):
    changes = {"base": language_model("gpt2-chat"), "system": "wait and `compare`\nit"}
    out = run(replace(config, **KINDS[kind], **changes))["out"]
    export(Path(out), tmp_path / "passed-on", Sharing(without_promise=True, base=changes["base"]))
    for folder in (Path(out) / "model", tmp_path / "passed-on"):
        about = json.loads((folder / "murmuration.json").read_text())
        assert about["base"]["system"] == changes["system"]
        card = (folder / "README.md").read_text()
        assert "The system prompt \"wait and 'compare' it\" stands before each prompt" in card
    plain = run(replace(config, **KINDS[kind], base=changes["base"], out=f"{out}-plain"))["out"]
    assert "system prompt" not in (Path(plain) / "model" / "README.md").read_text()
