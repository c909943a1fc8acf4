"""Runs that learn a policy: every strategy, labels randomized at home, resuming, refusals."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from local_runs import AT_HOME, LORA, run, theta

from murmuration.client import store
from murmuration.preference.language.base.network import language_base
from murmuration.preference.language.likelihood import load_scorer
from murmuration.preference.language.row_cache import FOLDER
from murmuration.preference.policy_losses import POLICY_LOSSES
from murmuration.strategies.registry import base_config

pytestmark = [
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.settings(**{**LORA, "test": ""}, task="policy"),
]


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "uls"},
        {"strategy": "uls", "adjacency": "replace-labels"},
        {"strategy": "uls", "train": "full", "lora_rank": 0},
        {"strategy": "els"},
        {"strategy": "group"},
        {"strategy": "dp-fedavg", "local_steps": 2, "local_rate": 0.1},
        {"strategy": "adaptive"},
        {"strategy": "aup"},
        {"strategy": "nonprivate"},
        AT_HOME,
        {**AT_HOME, "loss": "square-chipo"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_strategy(config, crowd, changes):
    config = config.changed(test=crowd, **changes)
    result = run(config)
    assert (result["task"], result["rounds"]) == ("policy", config.rounds)
    assert result["epsilon"] is None or 1.5 < result["epsilon"] <= 2.0 + 1e-9
    assert 0.0 <= result["heldout_accuracy"] <= 1.0
    assert result["heldout_chance"] == 0.5 and result["heldout_loss"] is None
    assert 0.0 <= result["policy"]["saturated"] <= 1.0
    assert result["policy"]["chosen_tokens"] > 1.0 and result["policy"]["written_tokens"] >= 0.0
    assert np.abs(theta(config)).max() > 0
    assert result["policy"]["moved"] >= 0.0
    shown = result["baselines"]["examples"]
    assert {each["kind"] for each in shown} <= {"right", "wrong", "close"} and shown
    assert any(each["reward_preferred"] != each["reward_other"] for each in shown)


@pytest.mark.parametrize(
    ("rate", "words"), [(1e-6, "Hardly different from its base"), (1e6, "FAR FROM ITS BASE")]
)
def test_a_run_that_learnt_nothing_or_broke_its_policy_says_so(config, rate, words):
    result = run(config.changed(learning_rate=rate, heldout=0.0))
    assert any(words in warning for warning in result["warnings"])


@pytest.mark.parametrize("loss", POLICY_LOSSES)
def test_every_loss_learns_without_noise(config, crowd, loss):
    clip = {} if loss in ("dpo", "ipo", "robust-dpo") else {"r_max": 100.0}
    result = run(
        config.changed(
            strategy="nonprivate",
            rounds=3,
            cohort=50,
            loss=loss,
            beta=0.5,
            test=crowd,
            **clip,
        )
    )
    assert result["heldout_accuracy"] > 0.6


@pytest.mark.parametrize("loss", ["robust-dpo", "square-chipo"])
def test_labels_of_high_epsilon_told_at_home_teach(config, crowd, loss):
    settings = config.changed(**{**AT_HOME, "epochs": 48}, loss=loss, epsilon=400.0,
                      beta=0.5, test=crowd)  # fmt: skip
    assert run(settings)["heldout_accuracy"] > 0.6


def test_nodes_that_tell_labels_load_no_weights(config, crowd, tmp_path, monkeypatch):
    """The server fits; nodes look at how long texts are."""
    loaded, base_of = [], store.base_of

    def look(described, weights=True):
        loaded.append(weights)
        return base_of(described, weights)

    monkeypatch.setattr(store, "base_of", look)
    store._base.cache_clear()
    data = str(shutil.copy(crowd, tmp_path / "again.jsonl"))  # a process keeps what it made of one
    assert run(config.changed(data=data, test=crowd, **AT_HOME))["rounds"] == 1
    assert loaded == [False]
    assert run(config.changed(data=data, **AT_HOME, out=config.out + "2"))["rounds"] == 1
    assert loaded == [False, True]  # users held out are asked how often a policy agrees


def test_pairs_beyond_the_clip_are_counted(config, crowd):
    far = config.changed(strategy="nonprivate", rounds=3, cohort=50, loss="square-dpo", beta=5.0,
                 r_max=0.05, test=crowd)  # fmt: skip
    result = run(far)
    assert result["policy"]["saturated"] > 0.5
    assert result["policy"]["chosen_ratio"] > result["policy"]["rejected_ratio"]
    free = run(far.changed(loss="dpo", r_max=0.0, out=far.out + "2"))
    assert free["policy"]["saturated"] == 0.0


def test_held_out_users_are_asked_once_and_with_noise(config):
    settings = config.changed(heldout_epsilon=2.0)
    result = run(settings)
    assert result["heldout_epsilon"] == 2.0 and result["heldout_noise"] > 0.0
    spent = [json.loads(line) for line in (Path(settings.out) / "ledger.jsonl").open()]
    assert sum("held-out" in str(line.get("covers")) for line in spent) == 1


def test_runs_on_the_same_texts_compute_references_once(config, crowd, tmp_path, monkeypatch):
    def referred(settings):
        """Users' texts that were computed where a policy begins, by a run."""
        base = language_base(base_config(settings))
        found = []

        def look(module, args, kwargs):
            ids = (args or list(kwargs.values()))[0]
            begun = all(bool((p == 0).all()) for p in base.trained[1::2])  # LoRA's second factors
            if begun and not torch.is_grad_enabled() and ids.shape[1] < base.texts.limit:
                found.append(tuple(ids.reshape(-1).tolist()))

        words = next(m for m in base.model.modules() if isinstance(m, torch.nn.Embedding))
        handle = words.register_forward_pre_hook(look, with_kwargs=True)
        run(settings)
        handle.remove()
        return found

    # Its own answers are of no user's texts.
    monkeypatch.setattr("murmuration.server.run.measured", lambda base, theta_D: (0.1, []))
    one, found, weights = config.changed(rounds=4), [], []
    for number in (1, 2, 3):  # on a copy: a process keeps what it made of a file
        copy = str(shutil.copy(crowd, tmp_path / f"{number}.jsonl"))
        settings = one.changed(data=copy, out=one.out + str(number))
        found.append(referred(settings))
        weights.append(theta(settings))
        np.testing.assert_array_equal(weights[-1], weights[0])
        monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    plain, filling, kept = found
    assert len({*plain}) > 5 and {*filling} == {*plain} and not kept


def test_what_is_saved_says_responses(config, language_model):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    config = config.changed(loss="chipo", beta=0.2, strategy="nonprivate")
    run(config)
    folder = Path(config.out) / "model"
    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(language_model("gpt2")), folder)
    assert load_scorer(folder).score(["What now?"], ["Save it."])[0] < 0
    card = (folder / "README.md").read_text()
    assert "`chipo` (beta 0.2)" in card and "AutoModelForCausalLM" in card
    assert "text-generation" in card and "reward-model" not in card
    exec(
        card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(folder)), {}
    )


def test_several_responses(config, crowd_of_four, of_four):
    result = run(config.changed(data=crowd_of_four, **of_four))
    assert result["rounds"] == 2 and 0.0 <= result["heldout_accuracy"] <= 1.0
    if of_four["kind"] == "top-1":  # a whole ranking is no single label
        home = config.changed(data=crowd_of_four, **of_four, **AT_HOME, out=config.out + "2")
        assert run(home)["rounds"] == 1


def randomized(crowd, write_rows, flip):
    rows = [json.loads(line) for line in Path(crowd).read_text().splitlines()]
    return write_rows([row | {"flip_probability": flip} for row in rows])


def test_who_takes_randomized_labels_for_true_is_told(config, crowd, write_rows):
    data = randomized(crowd, write_rows, 0.3)
    for loss, biased in (("dpo", True), ("robust-dpo", False)):
        settings = config.changed(data=data, labels="randomized", loss=loss, out=config.out + loss)
        said = " ".join(run(settings)["warnings"])
        assert ("THE POLICY IS BIASED" in said) == biased


def test_coins_come_with_the_data_and_not_from_an_option(config, tmp_path, crowd, write_rows):
    paths = []
    for flip in (0.1, 0.3):
        data = randomized(crowd, write_rows, flip)
        data = Path(data).rename(tmp_path / f"{flip}.jsonl")  # a process keeps what it read
        settings = {"data": str(data), "labels": "randomized", "loss": "robust-dpo"}
        # Clipped to one length, vectors of both would be the same.
        paths.append(config.changed(strategy="nonprivate", **settings, out=config.out + str(flip)))
        run(paths[-1])
    assert not np.allclose(theta(paths[0]), theta(paths[1]), atol=1e-3)
