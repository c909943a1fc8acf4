"""The reward that TRL's trainers take, in a trainer of TRL's."""

import numpy as np
import pytest

from murmuration import Run, reward_function
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel


@pytest.fixture
def folder(tmp_path):
    theta = np.random.default_rng(0).normal(size=65).astype(np.float32)
    RewardModel(theta, HashingFeatures(dimension=65)).save(tmp_path / "model")
    return tmp_path / "model"


def test_strings_are_scored_as_score_does(folder):
    prompts, completions = ["Buy?", "Rent?"], ["Wait.", "Rent for a year."]
    reward = reward_function(folder)
    found = reward(prompts=prompts, completions=completions, completion_ids=[[1]])
    said = [[{"role": "assistant", "content": text}] for text in completions]
    assert reward([[{"role": "user", "content": text}] for text in prompts], said) == found
    assert found == RewardModel.load(folder).score(prompts, completions).tolist()
    assert all(type(value) is float for value in found)


def test_a_model_is_taken_as_its_folder_is(folder):
    texts = ["Buy?"], ["Wait."]
    assert reward_function(RewardModel.load(folder))(*texts) == reward_function(folder)(*texts)
    run = Run(folder.parent, {})
    assert reward_function(run)(*texts) == reward_function(folder)(*texts)


def test_a_folder_that_is_none():
    with pytest.raises(InputError, match="no such model folder"):
        reward_function("nowhere")


def test_trl_trains_with_it(folder, language_model, tmp_path):
    """Twenty steps of a tiny policy, in TRL's words alone."""
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path, told = str(language_model("llama")), reward_function(folder)
    calls = []

    def counted(**given):
        calls.append(len(given["prompts"]))
        return told(**given)

    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(path),
        processing_class=AutoTokenizer.from_pretrained(path),
        reward_funcs=counted,
        train_dataset=Dataset.from_dict({"prompt": ["what now ?", "loan ?"] * 8}),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "out"), max_steps=20, per_device_train_batch_size=4,
            num_generations=4, max_completion_length=5, report_to=[], disable_tqdm=True,
            use_cpu=True, save_strategy="no", bf16=False, gradient_checkpointing=False,
        ),
    )  # fmt: skip
    trainer.train()
    assert calls == [4] * 20
