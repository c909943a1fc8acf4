"""Runs that train a language model: every strategy, resuming, what is saved, what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from local_runs import LORA, run, theta
from safetensors.numpy import load_file

from murmuration.preference.bases import base_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base import settings as base_settings
from murmuration.preference.language.base.network import language_base
from murmuration.preference.reward import RewardModel
from murmuration.strategies.registry import base_config

pytestmark = [pytest.mark.usefixtures("quick_runs"), pytest.mark.settings(**LORA)]


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "uls"},
        {"strategy": "uls", "train": "full"},
        {"strategy": "uls", "lora_layers": "last:1"},
        {"strategy": "adaptive", "train": "head", "lora_rank": 0},
        {"strategy": "dp-fedavg", "local_steps": 2, "local_rate": 0.1, "lora_layers": "last:1"},
        {"strategy": "els"},
        {"strategy": "els", "once_per_text": True},
        {"strategy": "group"},
        {"strategy": "dp-fedavg", "local_steps": 2, "local_rate": 0.1},
        {"strategy": "adaptive"},
        {"strategy": "aup"},
        {"strategy": "aup", "once_per_text": True},
        {"strategy": "nonprivate"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_strategy_trains_layers(config, changes):
    config = config.changed(**changes)
    result = run(config)
    assert result["rounds"] == 2
    assert result["epsilon"] is None or 1.5 < result["epsilon"] <= 2.0
    assert 0.0 <= result["heldout_accuracy"] <= 1.0
    assert np.abs(theta(config)).max() > 0


@pytest.mark.parametrize("strategy", ["uls", "els", "adaptive", "aup"])
def test_once_per_text_is_the_same_run(config, strategy):
    """Noise, cohorts and charges, and the model but for roundings."""
    once = config.changed(strategy=strategy, once_per_text=True, seed=3)
    usual = replace(once, once_per_text=False, out=f"{config.out}-usual")
    first, second = run(once), run(usual)
    assert first["epsilon"] == second["epsilon"]
    assert np.linalg.norm(theta(once) - theta(usual)) < 1e-3 * np.linalg.norm(theta(usual))


def test_once_per_text_ends_where_users_take_steps_of_their_own(config):
    several = {"strategy": "dp-fedavg", "once_per_text": True}
    with pytest.raises(InputError, match="--once-per-text: after a local step"):
        config.changed(**several, local_steps=2)
    assert run(config.changed(**several, local_steps=1))["rounds"] == 2


def test_without_noise_it_learns(config):
    config = replace(config, strategy="nonprivate", rounds=12, cohort=50)
    assert run(config)["heldout_accuracy"] > 0.55


def test_a_run_does_not_go_on_in_other_layers(config, broken_off, monkeypatch):
    broken = replace(config, rounds=4)
    broken_off(broken, after=2)
    monkeypatch.setattr(base_settings, "last_or_all", lambda *_: "last:1")
    ledger = (Path(broken.out) / "ledger.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"the base has layers last:1 .* begun with all"):
        run(replace(broken, resume=True))
    assert (Path(broken.out) / "ledger.jsonl").read_bytes() == ledger
    monkeypatch.undo()
    assert run(replace(broken, resume=True))["rounds"] == 4


def scores(config):
    prompts, responses = ["What now?"] * 2, ["Save it.", "Bet on it."]
    return RewardModel.load(Path(config.out) / "model").score(prompts, responses)


@pytest.mark.parametrize("part", ["lora", "full", "head"])
def test_pairs_of_a_public_test_are_told_as_of_a_linear_model(config, crowd_test, part):
    rank = 2 if part == "lora" else 0
    config = replace(config, train=part, lora_rank=rank, test=crowd_test)
    found = run(config)["baselines"]
    assert {each["kind"] for each in found["examples"]} == {"right", "wrong", "close"}
    model = RewardModel.load(Path(config.out) / "model")
    for each in found["examples"]:
        rewards = model.score([each["prompt"]] * 2, [each["preferred"], each["other"]])
        told = [each["reward_preferred"], each["reward_other"]]
        np.testing.assert_allclose(rewards, told, atol=1e-4)
    assert found["near"] is None or found["near"]["pairs"] > 0


@pytest.mark.parametrize("part", ["lora", "full", "head"])
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_what_is_saved_is_what_was_trained(config, language_model, kind, part):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    base = language_model(kind)
    rank = 2 if part == "lora" else 0
    config = replace(config, base=base, train=part, lora_rank=rank, strategy="nonprivate")
    result = run(config)
    folder = Path(config.out) / "model"
    expected = scores(config)
    assert abs(expected[0] - expected[1]) > 1e-6
    if part == "lora":
        from peft import PeftModel

        model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
        model = PeftModel.from_pretrained(model, folder)
    else:
        model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer, found = AutoTokenizer.from_pretrained(folder), []
    model.config.pad_token_id = tokenizer.pad_token_id
    for response in ("Save it.", "Bet on it."):
        if kind == "bert":
            ids = tokenizer("What now?", response, return_tensors="pt")
            second = (ids["input_ids"][0] == tokenizer.sep_token_id).nonzero()[0]
            ids["token_type_ids"] = (torch.arange(ids["input_ids"].shape[1]) > second).long()[None]
        else:
            ids = tokenizer("What now?\n\n" + response, return_tensors="pt")
            ids.pop("token_type_ids", None)
        with torch.no_grad():
            found.append(float(model.eval()(**ids).logits))
    np.testing.assert_allclose(expected, found, atol=1e-5)
    card = (folder / "README.md").read_text()
    assert f"`{kind}`" in card and base not in card  # a folder goes by its last name
    assert "from_pretrained" in card
    assert f"{result['dimension']:,}" in card
    exec(
        card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(folder)), {}
    )


def test_held_out_users_are_asked_too(config):
    result = run(replace(config, test="", heldout=0.3))
    assert 0 < result["heldout_users"] < 50


def test_a_node_without_the_memory_ends_the_run_before_anything_is_charged(
    config, tmp_path, monkeypatch
):
    shutil.copytree(config.base, tmp_path / "base")  # one that nothing was tried on yet
    config = replace(config, base=str(tmp_path / "base"))
    base = language_base(base_config(config))
    forward = base.model.forward

    def limited(**inputs):
        if inputs["input_ids"].numel() > 200:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return forward(**inputs)

    monkeypatch.setattr(base.model, "forward", limited, raising=False)
    with pytest.raises(
        InputError, match=r"out of memory.*lower --batch-tokens.*--checkpointing"
    ) as refused:
        run(config)  # though no user's text is that long
    assert "\n" not in str(refused.value)
    assert not Path(config.out).exists()
    assert run(replace(config, batch_tokens=100, max_tokens=50))["rounds"] == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base": "./nowhere"}, "--base: no such folder"),
        ({"features": "x"}, "--features is for a linear head"),
        ({"length": "none"}, "--length is for a linear head"),
        ({"strategy": "label-moment", "adjacency": "replace-labels", "rounds": 1, "cohort": 500,
          "group_size": 0, "learning_rate": 0.0}, "--train head"),
        ({"lora_targets": "nothing"}, "--lora-targets nothing"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be(config, changes, said):
    with pytest.raises(InputError, match=said):
        run(replace(config, **changes))


@pytest.mark.parametrize("together", [False, True])
def test_what_holds_between_users_stands_in_the_result(config, together):
    result = run(replace(config, user_passes="shared" if together else ""))
    assert result["user_isolation"] == ("empirical" if together else "by construction")
    assert any("--user-passes shared" in text for text in result["warnings"]) == together


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_runs_in_half_the_bits(config, tmp_path, dtype):
    """Its θ is float32 throughout, and about that of a run in float32 without noise."""
    config = replace(config, strategy="nonprivate", cohort=50, checkpointing=True)
    run(config)
    half = replace(config, dtype=dtype, out=str(tmp_path / "half"))
    result = run(half, nodes=2)
    assert (result["features"]["dtype"], theta(half).dtype) == (dtype, theta(config).dtype)
    apart = np.linalg.norm(theta(half) - theta(config)) / np.linalg.norm(theta(config))
    assert 0.0 < apart < 0.5  # Adam's steps are as long for the smallest gradients as for others
    about = json.loads((Path(half.out) / "model" / "murmuration.json").read_text())
    assert about["base"]["dtype"] == dtype
    scores(half)


def test_a_head_on_states_of_half_the_bits(config, tmp_path):
    config = replace(config, strategy="nonprivate", cohort=50, train="head", lora_rank=0)
    run(config)
    half = replace(config, dtype="bfloat16", out=str(tmp_path / "half"))
    assert run(half)["features"]["dtype"] == "bfloat16"
    saved = load_file(Path(half.out) / "model" / "model.safetensors")
    assert saved["score.weight"].dtype == np.float32
    exact = load_file(Path(config.out) / "model" / "model.safetensors")["score.weight"]
    apart = np.linalg.norm(saved["score.weight"] - exact) / np.linalg.norm(exact)
    assert 0.0 < apart < 32 * 2**-9


def test_the_size_of_batches_is_the_device_types_unless_it_is_given(config):
    assert run(config)["features"]["batch_tokens"] == 0
    given = replace(config, batch_tokens=99, out=config.out + "-given")
    assert run(given)["features"]["batch_tokens"] == 99


@pytest.mark.parametrize("part", ["lora", "full"])
def test_the_server_has_no_base_before_there_is_something_to_save(config, part, monkeypatch):
    """Without a test: the nodes are other processes here, whose base is another's."""
    config = replace(config, test="", heldout=0.3, train=part, lora_rank=2 * (part == "lora"))
    seen, real = [], base_of

    def watched(described, weights=True):
        seen.append((weights, real(described, weights)))
        return seen[-1][1]

    monkeypatch.setattr("murmuration.server.run.base_of", watched)
    result = run(config)
    ((weights, outline),) = seen
    assert not weights
    assert all(tensor.is_meta for tensor in outline.network.model.state_dict().values())
    assert result["dimension"] == outline.dimension
    scores(config)


def test_settings_reach_the_base(config):
    given = {"max_tokens": 33, "batch_tokens": 44, "user_passes": "shared"}
    more = {"dtype": "bfloat16", "checkpointing": True}
    more["once_per_text"] = True
    described = base_config(replace(config, **given, **more))
    assert {name: described[name] for name in more} == more
    assert described["kind"] == "language-model"
    assert (described["max_tokens"], described["batch_tokens"]) == (33, 44)
    assert described["train"] == "lora"
    head = base_config(replace(config, train="head", lora_rank=0))
    assert json.dumps(head)
    assert head["kind"] == "language-head"


@pytest.mark.parametrize("part", ["lora", "head"])
def test_a_response_that_does_not_fit_is_a_bad_row(config, write_rows, make_rows, caplog, part):
    rows = make_rows([2] * 20)
    rows[3]["rejected"] = "save it " * 50
    test = make_rows([2] * 5, seed=3)
    test[1]["chosen"] = "save it " * 50
    config = replace(
        config, data=write_rows(rows), test=write_rows(test, "test.jsonl"), train=part,
        lora_rank=2 if part == "lora" else 0,
    )  # fmt: skip
    with pytest.raises(InputError, match="does not fit into the"):
        run(config)
    result = run(replace(config, on_bad_rows="skip"))
    assert result["rounds"] == 2
    assert result["heldout_users"] == 5
    said = [record.getMessage() for record in caplog.records]
    for start in ("are left out, the first: row 4", "of --test are left out, the first: row 2"):
        assert any(text.startswith(f"operator only: 1 rows {start}") for text in said)


@pytest.mark.parametrize("part", ["lora", "head"])
def test_data_of_which_nothing_fits_is_refused_before_anything_is_charged(
    config, write_rows, make_rows, caplog, part
):
    rows = make_rows([2] * 20)
    for row in rows:
        row["chosen"] = "save it " * 50
    config = replace(
        config, data=write_rows(rows), test="", train=part, lora_rank=2 if part == "lora" else 0,
        on_bad_rows="skip",
    )  # fmt: skip
    with pytest.raises(ValueError, match="nothing to learn from"):
        run(config)
    assert not list(Path(config.out).glob("ledger*"))
    said = [record.getMessage() for record in caplog.records]
    assert any("40 rows are left out" in text and "does not fit" in text for text in said)


def test_a_test_of_bad_rows_alone_is_refused(config, write_rows, make_rows):
    test = make_rows([2] * 2)
    for row in test:
        row["chosen"] = "save it " * 50
    config = replace(config, test=write_rows(test), on_bad_rows="skip")
    with pytest.raises(InputError, match="all 4 rows are bad, the first: row 1: a response"):
        run(config)
