"""The model card: its head, its claims, and that its own example works."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from cards import model_card

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel


def head(card):
    start, front, _ = card.split("---\n", 2)
    assert start == ""
    return front.splitlines()


def test_head(make_result):
    lines = head(model_card(make_result()))
    assert lines[0] == "library_name: murmuration"
    assert "- differential-privacy" in lines and "- reward-model" in lines
    assert "- differential-privacy" not in head(model_card(make_result(private=False)))


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", True),
        ("/home/ada/encoder", False),
        ('a/b"\nevil: true', False),
    ],
)
def test_base_model_only_if_it_is_a_hub_name(make_result, path, named):
    lines = head(model_card(make_result(features={"kind": "encoder", "path": path})))
    assert [line for line in lines if "base_model" in line] == (
        [f"base_model: {path}"] if named else []
    )
    assert not any("evil" in line for line in lines)


def test_claim(make_result):
    card = model_card(make_result(adjacency="replace"))
    assert "**User-level DP: ε = 3.00, δ = 1e-5, under replace adjacency.**" in card
    assert "Neighbouring data sets differ in all judgements of one user" in card
    assert "taken from the registry" in card


def test_guessing_and_the_model_of_preferences(make_result):
    card = model_card(make_result(model="plackett-luce", heldout_chance=0.25))
    assert "Guessing would be right 25 % of the time" in card
    assert "preference model `plackett-luce`" in card
    assert "Guessing would be right half of the time" in model_card(make_result())


def test_nonprivate(make_result):
    card = model_card(make_result(private=False))
    assert "**No privacy.**" in card and "ε" not in card and "noise" not in card


def test_accuracy(make_result):
    card = model_card(make_result())
    assert "74.3 % of the judgements of 330 users" in card and "73.9 % averaged by user" in card
    assert "Not measured." in model_card(make_result(heldout_accuracy=None))


def test_early_stop_is_told(make_result):
    card = model_card(make_result(rounds=150, stopped="The budget is used up."))
    assert "after 150 of 200 planned rounds: The budget is used up." in card


def test_texts_cannot_break_out(make_result):
    card = model_card(
        make_result(
            warnings=["first\n\n# second <img src=x>"],
            features={"kind": "encoder", "path": "x`\n# y"},
        )
    )
    assert "\n# second" not in card and "<img" not in card and "\n# y" not in card


def test_no_path_of_this_machine(make_result):
    assert "/home/ada" not in model_card(make_result())


def test_the_example_in_the_card_runs(tmp_path, make_result):
    card = model_card(make_result())
    folder = tmp_path / "model"
    RewardModel(np.ones(1025), HashingFeatures()).save(folder, card)
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) == 3
    code = code.replace("path/to/this/folder", str(folder)).replace(
        "model.score", "s = model.score"
    )
    names = {}
    exec(code, names)
    assert isinstance(names["s"], float)


LORA = {"kind": "language-model", "train": "lora", "rank": 8, "path": "the-base"}
FULL = {"kind": "language-model", "train": "full", "path": "the-base"}
HEAD = {"kind": "language-head", "path": "the-base"}


@pytest.mark.parametrize(
    ("features", "said", "loaded"),
    [
        (LORA, "LoRA of rank 8, together 1,025 trained weights", "PeftModel.from_pretrained"),
        (FULL, "all 1,025 weights trained", "model = AutoModelForSequenceClassification"),
        (HEAD, "unchanged, with a head of 1,025", "model = AutoModelForSequenceClassification"),
    ],
)
def test_what_a_language_model_is_and_how_it_is_loaded(make_result, features, said, loaded):
    card = model_card(make_result(features=features))
    assert said in card and loaded in card and "`the-base`" in card
    assert ("PeftModel" in card) == (features is LORA)
    assert "A score is the only logit" in card


def test_which_layers_lora_changes(make_result):
    card = model_card(make_result(features={**LORA, "layers": "last:4"}))
    assert "LoRA of rank 8 in layers last:4, together 1,025 trained weights" in card
    assert "in layers" not in model_card(make_result(features=LORA))


def test_states_of_a_language_model_are_features(make_result, tmp_path):
    origin = {"name": "Tiny", "license": "apache-2.0", "sha256": "ab" * 32}
    (tmp_path / "config.json").write_text(json.dumps({"converted_from": origin}))
    states = {"kind": "language-states", "path": str(tmp_path), "layer": 18, "length": "bounded"}
    card = " ".join(model_card(make_result(features=states)).split())
    assert "over the mean states of the first 18 layers of the frozen language model" in card
    assert "and the length of the response" in card and "apache-2.0" in card
    whole = " ".join(model_card(make_result(features={**states, "layer": 0})).split())
    assert "the mean states of the frozen language model" in whole


def test_which_file_a_base_was_made_from(make_result, tmp_path):
    origin = {"name": "Tiny\n# big", "license": "apache-2.0", "sha256": "ab" * 32}
    (tmp_path / "config.json").write_text(json.dumps({"converted_from": origin}))
    card = model_card(make_result(features={**HEAD, "path": str(tmp_path)}))
    sentence = f"GGUF file of Tiny # big (licence: apache-2.0; SHA-256 {origin['sha256']})."
    assert sentence in card
    assert "GGUF" not in model_card(make_result(features=HEAD))


def test_which_file_the_base_below_an_adapter_was_made_from(make_result, tmp_path):
    origin = {"name": "Tiny", "license": "apache-2.0", "sha256": "ab" * 32}
    for name in ("base", "adapter"):
        (tmp_path / name).mkdir()
    (tmp_path / "base" / "config.json").write_text(json.dumps({"converted_from": origin}))
    about = json.dumps({"base_model_name_or_path": str(tmp_path / "base")})
    (tmp_path / "adapter" / "adapter_config.json").write_text(about)
    card = model_card(make_result(features={**LORA, "path": str(tmp_path / "adapter")}))
    assert f"SHA-256 {origin['sha256']}" in card


@pytest.mark.parametrize(
    ("task", "features", "said"),
    [
        ("text", FULL, "all 1,025 weights trained. It was trained on users' own texts."),
        ("sft", LORA, "both of every judgement, whichever was chosen"),
    ],
)
def test_models_that_say_the_next_token(make_result, task, features, said):
    card = model_card(make_result(task=task, features={**features, "task": task}))
    assert said in card
    assert "AutoModelForCausalLM" in card
    assert "SequenceClassification" not in card
    assert "num_labels" not in card
    assert "log-likelihood" in card
    assert ("as in training" in card) == (task == "sft")  # which has prompts, too
    assert ("PeftModel" in card) == (features["train"] == "lora")


@pytest.mark.parametrize("kind", ["hashing", "encoder"])
@pytest.mark.parametrize(
    ("length", "said"),
    [
        ({"length": "bounded"}, "What it pays for length is bounded"),
        ({"length": "none"}, None),
        ({"length": "log"}, "grows without end"),
    ],
)
def test_how_length_counts(make_result, kind, length, said):
    card = model_card(make_result(features={"kind": kind, "path": "minilm", **length}))
    told = {"hashing": "of the response", "encoder": "of the encoder `minilm`"}[kind]
    more = {"hashing": " and its length", "encoder": " and the length of the response"}[kind]
    assert f"{told}{'' if said is None else more}. " in card
    assert ("pays for length" in card) == (said is not None)
    assert said is None or said in card


def test_nothing_is_said_of_length_where_a_language_model_reads(make_result):
    for features in (LORA, HEAD):
        assert "pays for length" not in model_card(make_result(features=features))


@pytest.mark.parametrize(
    ("kind", "reads"), [("hashing", False), ("encoder", True), ("language-head", True)]
)
def test_whether_it_reads_the_prompt_is_said_plainly(make_result, kind, reads):
    card = model_card(make_result(features={"kind": kind, "path": "minilm"}))
    assert ("It reads the prompt and the response together." in card) == reads
    assert ("**It does not read the prompt:**" in card) == (not reads)
    if kind == "hashing":  # as it is
        one, other = HashingFeatures()(["a", "b"], ["save it"] * 2)
        assert np.array_equal(one, other)


def test_others_are_no_language_models(make_result):
    assert "transformers" not in model_card(make_result())


def test_no_line_of_a_card_is_broken(make_result):
    """Wherever the card is shown, a line's end is a paragraph's, an item's or code's."""
    for features in ({"kind": "hashing"}, LORA):
        card = model_card(make_result(features=features, stopped="Stopped."))
        prose = re.sub("```.*?```", "", card.split("---", 2)[2], flags=re.DOTALL)
        for before, after in pairwise(prose.splitlines()):
            assert not (before and after) or after.startswith(("- ", "|"))
        assert "  " not in prose
