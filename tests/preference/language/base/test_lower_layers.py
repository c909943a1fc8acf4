"""States below the first layer that LoRA changes: once for each text, and the same bits always."""

from itertools import combinations

import numpy as np
import pytest
import torch
from language_models import model_on, save_gpt2

from murmuration.preference.data.files.packed_texts import PackedTexts
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.features import frozen_states
from murmuration.preference.language.base import layers
from murmuration.preference.language.base.lower_layers import LowerLayers
from murmuration.preference.language.base.network import LanguageBase, language_base
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.loading import last_or_all
from murmuration.preference.language.row_cache import FOLDER
from murmuration.preference.models import preference_model

BTL = preference_model("btl")
COUNTS = [3, 1, 2]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))


def loaded(path, task="reward", layers="last:1", **settings):
    return LanguageBase(BaseSettings(path, "lora", task=task, layers=layers, rank=2, **settings))


def examples_of(base, make_rows):
    return model_on(base).examples(Judgements.from_rows(make_rows(COUNTS)))


def gradients(examples, theta_D, **options):
    every_N = torch.arange(int(examples.start_U[-1]))
    rows = examples.user_gradients(theta_D, every_N, examples.counts_U, BTL, **options)
    return torch.cat([row_BD.clone() for row_BD in rows])


def check_entered(base, examples):
    """Gradients are those of the whole network: at most 1e-5 of their length apart, because only
    shapes, and so the order of sums, differ."""
    theta_D = base.random_theta()
    entered = gradients(examples, theta_D)
    assert base.lower is not None
    base.lower = None
    whole = gradients(examples, theta_D)
    assert ((entered - whole).norm(dim=1) <= 1e-5 * whole.norm(dim=1)).all()
    assert whole.any(dim=1).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_read_and_computed_states_are_the_same_bits(
    language_model, make_rows, computed, kind, dtype
):
    """In one process, and in the next."""
    first = examples_of(loaded(language_model(kind), dtype=dtype), make_rows)
    theta_D = first.base.random_theta()
    fresh = gradients(first, theta_D)
    assert sum(computed) == len(np.unique(first.text_JK))
    computed.clear()
    assert torch.equal(gradients(first, theta_D), fresh)
    again = examples_of(loaded(language_model(kind), dtype=dtype), make_rows)
    assert torch.equal(gradients(again, theta_D), fresh)
    assert not computed
    assert fresh.any(dim=1).all()


@pytest.mark.parametrize("task", ["reward", "policy", "sft", "text"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_gradients_are_those_of_the_whole_network(language_model, make_rows, kind, task):
    base = loaded(language_model(kind), task)
    if task == "text":
        texts = ["Save it, or bet on it.", "Buy it today!", "What now?"]
        examples = model_on(base).examples(
            UserTexts(("a", "b"), np.array([0, 2, 3]), PackedTexts.pack(texts))
        )
    else:
        examples = examples_of(base, make_rows)
    check_entered(base, examples)


def test_no_other_user_moves_a_users_gradient(language_model, make_rows):
    examples = examples_of(loaded(language_model("llama")), make_rows)
    theta_D = examples.base.random_theta()
    whole = gradients(examples, theta_D)
    for user in range(len(COUNTS)):
        base = loaded(language_model("llama"))
        base.lower._cache._path = None  # nothing of the others' run
        alone = examples_of(base, make_rows).select(np.array([user]))
        assert torch.equal(gradients(alone, theta_D)[0], whole[user])


def test_what_has_no_room_is_computed_when_needed(language_model, make_rows, monkeypatch, computed):
    examples = examples_of(loaded(language_model("llama")), make_rows)
    theta_D = examples.base.random_theta()
    whole = gradients(examples, theta_D)
    for path in examples.base.lower._cache._path.parent.iterdir():
        path.unlink()
    state = 4 * 16
    monkeypatch.setattr(frozen_states, "WHOLE_IN_MEMORY", 30 * state)
    monkeypatch.setattr(frozen_states, "WHOLE_ON_DISK", 30 * state)
    scarce = examples_of(loaded(language_model("llama")), make_rows)
    computed.clear()
    for _ in range(2):
        assert torch.equal(gradients(scarce, theta_D), whole)
    assert sum(computed) > len(np.unique(scarce.text_JK))
    assert 0 < scarce.base.lower._bytes <= 30 * state


def test_nothing_is_kept_on_disk_without_a_folder(language_model, make_rows, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, "")
    examples = examples_of(loaded(language_model("llama")), make_rows)
    gradients(examples, examples.base.random_theta())
    assert examples.base.lower._bytes > 0
    assert not (tmp_path / "kept").exists()


def test_another_layer_or_type_is_kept_elsewhere(tmp_path, make_rows, computed):
    save_gpt2(tmp_path / "g", n_layer=3)
    path = str(tmp_path / "g")
    for settings in ({}, {"layers": "last:2"}, {"layers": "3-3"}, {"dtype": "bfloat16"}):
        computed.clear()
        examples = examples_of(loaded(path, **settings), make_rows)
        gradients(examples, examples.base.random_theta())
        is_known = settings.get("layers") == "3-3"  # as last:1 of three
        assert sum(computed) == (0 if is_known else len(np.unique(examples.text_JK)))


def test_layers_in_the_middle_alone_are_changed(tmp_path, make_rows):
    save_gpt2(tmp_path / "g", n_layer=3)
    base = loaded(str(tmp_path / "g"), layers="2-2")
    assert {name.split(".h.")[1][0] for name in base._names if ".h." in name} == {"1"}
    check_entered(base, examples_of(base, make_rows))


def test_all_layers_counted_are_all(language_model, make_rows):
    base = loaded(language_model("llama"), layers="last:2")
    assert base.lower is None
    plain = loaded(language_model("llama"), layers="all")
    theta_D = base.random_theta()
    last, expected = (gradients(examples_of(b, make_rows), theta_D) for b in (base, plain))
    assert torch.equal(last, expected)


@pytest.mark.parametrize("layers", ["last:3", "2-3", "2-1"])
def test_layers_that_there_are_not(language_model, layers):
    with pytest.raises(InputError, match=rf"--lora-layers {layers}: .* has layers 1 to 2"):
        loaded(language_model("llama"), layers=layers)


def test_where_nobody_says_the_last_two_are_changed_and_told(tmp_path, make_rows):
    save_gpt2(tmp_path / "g", n_layer=3)
    base = loaded(str(tmp_path / "g"), layers="auto")
    assert base.to_config()["layers"] == "last:2"
    assert not any(".h.0." in name for name in base._names)
    assert any(".h.1." in name for name in base._names)
    assert base.lower is not None
    again = LanguageBase(BaseSettings(**base.settings.described))
    assert again.dimension == base.dimension


def test_where_nobody_says_all_are_changed_of_what_has_no_known_layers(language_model, monkeypatch):
    path = str(language_model("llama"))
    assert last_or_all(path, True, "one", 1) == "last:1"
    monkeypatch.setattr(layers, "blocks_of", lambda model: [])
    assert last_or_all(path, True, "another", 1) == "all"


def test_the_same_network_is_meant_by_whoever_says_and_whoever_does_not(language_model):
    """A process keeps it once."""
    path = str(language_model("llama"))
    named, unnamed = (
        language_base({"path": path, "task": "sft", "layers": layers}) for layers in ("all", "auto")
    )
    assert named is unnamed


def test_layers_are_for_lora():
    with pytest.raises(InputError, match="--lora-layers is for --train lora"):
        BaseSettings("x", "full", layers="last:1")
    with pytest.raises(
        InputError, match="--lora-layers must be auto, all, last:COUNT or FIRST-LAST"
    ):
        BaseSettings("x", "lora", layers="last")


def test_a_saved_adapter_is_of_these_layers_alone(language_model, make_rows, tmp_path):
    from murmuration.preference.language.reward import SavedReward, save_language_model

    base = loaded(language_model("llama"))
    theta_D = base.random_theta()
    save_language_model(tmp_path / "m", base, theta_D.numpy())
    prompts, responses = ["What now?", "What?"], ["Save it.", "Bet on it, or not."]
    base.put(theta_D)
    with torch.no_grad():
        expected = base.rewards(base.texts(prompts, responses), np.arange(2))
    scores = SavedReward.load(tmp_path / "m").score_batch(prompts, responses)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    assert abs(scores[0] - scores[1]) > 1e-3


def test_a_policys_reference_and_writing_use_the_whole_network(language_model, make_rows):
    base = loaded(language_model("llama"), "policy")
    examples = examples_of(base, make_rows)
    entered_JK = examples.ratios(base.random_theta())
    examples.figures(base.random_theta().numpy())  # writes
    base.lower = None
    whole = examples_of(base, make_rows)
    whole.reference_T[:-1] = np.nan
    torch.testing.assert_close(entered_JK, whole.ratios(base.random_theta()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "kind",
    ["qwen2", "qwen3", "gemma2", "gemma3_text", "falcon", "gpt_neox", "opt", "phi3", "bloom"],
)
def test_architectures_can_be_entered(language_model, kind, make_rows):
    """FrozenStates that are scaled, or have places added, and blocks that give tuples."""
    base = loaded(language_model(kind))
    check_entered(base, examples_of(base, make_rows))


def test_a_network_that_cannot_be_entered_is_computed_whole(language_model, monkeypatch, make_rows):
    monkeypatch.setattr(LowerLayers, "can_be_entered", lambda *_: False)
    base = loaded(language_model("llama"))
    assert base.lower is None
    assert gradients(examples_of(base, make_rows), base.random_theta()).any()


def test_states_after_another_system_prompt_are_never_read(
    language_model, make_rows, computed, tmp_path
):
    rows = []
    for system in ("", "save it", "wait"):
        examples = examples_of(loaded(language_model("gpt2-chat"), system=system), make_rows)
        computed.clear()
        rows.append(gradients(examples, examples.base.random_theta()))
        assert sum(computed) == len(np.unique(examples.text_JK))
    assert not any(torch.equal(one, other) for one, other in combinations(rows, 2))
    assert len([*(tmp_path / "kept").glob("*.states")]) == 3
