"""A head of K rows on a language model: against oracles, that the weights stay, and as saved."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from language_models import WORDS, start, taken
from safetensors.numpy import load_file
from scipy.optimize import minimize

from murmuration import personalize
from murmuration.api.scoring import score
from murmuration.preference.bases import base_of
from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.kinds import language_tastes
from murmuration.preference.kinds.language_tastes import (
    LanguageHeadTastes,
    LanguageTastes,
    TasteTokens,
)
from murmuration.preference.language.checkpoint import weights_digest
from murmuration.preference.language.reward import SavedReward
from murmuration.preference.linear.basis_start import START
from murmuration.preference.linear.examples import pairs_with_texts
from murmuration.preference.linear.tastes import NEITHER, accuracy_at, halves
from murmuration.preference.models import preference_model
from murmuration.preference.reward import RewardModel
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.sharing.export import Sharing, export
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.spec import described_base

BTL = preference_model("btl")
CLIP = UserClip(0.1)
COUNTS = [3, 1, 6, 2, 5]
ROWS = 3


def pairs(counts):
    """Rows of users who have seen other answers in each pair, so that both halves are full."""
    draw = np.random.default_rng(4)
    words = np.array(WORDS[3:18])
    for user, count in enumerate(counts):
        for _ in range(count):
            chosen, rejected = (" ".join(draw.choice(words, draw.integers(2, 7))) for _ in "ab")
            row = {"user_id": f"u{user}", "prompt": "What now?"}
            yield {**row, "chosen": chosen, "rejected": rejected}


@pytest.fixture
def model(language_model):
    """A function: what `--tastes` trains on a tiny model."""

    def make(kind="gpt2", train="lora", **more):
        rank = {"rank": 2} if train == "lora" else {}
        config = {"kind": "language-model", "path": language_model(kind), "train": train, **rank}
        return base_of({**config, "tastes": ROWS, **more})

    return make


@pytest.fixture
def examples(model):
    return model().examples(Judgements.from_rows(pairs(COUNTS)))


def gradients(examples, theta_D, **how):
    chunks = examples.user_gradients(theta_D, *taken(examples, 9), BTL, **how)
    return torch.cat([chunk.clone() for chunk in chunks])


def objective(v, z_MK):
    z_M = z_MK[:, 0] + z_MK[:, 1:] @ v
    return float(np.logaddexp(0.0, -z_M).sum() + 0.5 * v @ v)


def oracle(examples, theta_D, judgements):
    """One user's gradient by autograd through the network, with weights that scipy solves for."""
    base = examples.base
    base.put(theta_D)
    with base.differentiable() as parameters:
        row = [
            [base.rows(examples.tokens, np.array([text]))[0] for text in examples.text_JK[one]]
            for one in judgements
        ]
        z_MK = torch.stack([first - second for first, second in row])
        known_MK, half_M = z_MK.detach().double().numpy(), examples.half_J[judgements]
        total = torch.zeros(())
        for fit, looked in ((0, 1), (1, 0), (None, NEITHER)):
            v, mine_MK = np.zeros(ROWS - 1), known_MK[half_M == fit] if fit is not None else []
            if len(mine_MK):
                v = minimize(objective, v, (mine_MK,), tol=1e-12).x
            w_K = torch.tensor([1.0, *v], dtype=torch.float32)
            rest_M = z_MK[torch.from_numpy(half_M == looked)] @ w_K
            total = total - torch.nn.functional.logsigmoid(rest_M).sum() / len(judgements)
        total.backward()
        parts = [
            (torch.zeros_like(p) if p.grad is None else p.grad).reshape(1, -1)
            for p in parameters.values()
        ]
        return base.to_theta(torch.cat(parts, dim=1))[0]


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_equal_to_autograd_for_ragged_users(model, kind, train):
    examples = model(kind, train).examples(Judgements.from_rows(pairs(COUNTS)))
    assert {0, 1} <= {*examples.half_J}
    theta_D = start(examples.base, 0.5)
    result = gradients(examples, theta_D)
    ends = examples.start_U.tolist()
    for user, found_D in enumerate(result):
        expected_D = oracle(examples, theta_D, np.arange(ends[user], ends[user + 1]))
        assert (found_D - expected_D).norm() <= 1e-5 * expected_D.norm()
    base = examples.base
    parts = result[1].split([p.numel() for p in base.trained])
    of_head = [base.is_of_head(name) and name.endswith(".weight") for name in base._trained]
    head_KH = parts[of_head.index(True)].reshape(ROWS, 16)
    assert head_KH[0].any()
    assert not head_KH[1:].any()  # of one judgement nothing is left to find weights by


def test_rows_but_the_crowds_begin_at_small_signs_in_thetas_unit(model, language_model):
    base = model().network
    plain = base_of({**base.to_config(), "tastes": 1}).network
    assert base.dimension == plain.dimension + 2 * 16
    assert "tastes" not in plain.to_config()
    head = base.tastes_at(np.zeros(base.dimension, np.float32))
    assert set(np.abs(head).ravel()) == {np.float32(START * 0.25)}  # 1/√16
    (unit,) = {u for u, name in zip(base._units, base._trained, strict=True) if "score" in name}
    assert unit == 0.25


def test_no_bit_of_a_user_depends_on_others(examples):
    theta_D = start(examples.base, 0.5)
    together = gradients(examples, theta_D)
    for user, found_D in enumerate(together):
        alone = gradients(examples.select(np.array([user])), theta_D)
        assert torch.equal(alone[0], found_D)


def test_users_in_one_batch_are_those_of_their_own(examples):
    theta_D = start(examples.base, 0.5)
    single, together = (gradients(examples, theta_D, batch_users=b) for b in (False, True))
    torch.testing.assert_close(together, single, rtol=1e-4, atol=1e-6)


def test_weights_that_know_others_would_be_caught(examples, monkeypatch):
    """A seeded fault: what is solved for one user moves what is solved for the next."""
    honest, seen = language_tastes.weights_of_halves, []

    def remembering(z_MK, y_M, half_M):
        seen.append(z_MK)
        return honest(z_MK, y_M, half_M) + np.float32(1e-3 * (len(seen) > 1))

    monkeypatch.setattr(language_tastes, "weights_of_halves", remembering)
    theta_D = start(examples.base, 0.5)
    together = gradients(examples, theta_D)
    seen.clear()
    alone = gradients(examples.select(np.array([2])), theta_D)
    assert not torch.equal(alone[0], together[2])


@pytest.mark.parametrize("scale", [0.05, 3.0])
def test_one_user_moves_the_sum_by_the_clip_norm_and_no_more(examples, scale):
    theta_D, chosen = start(examples.base, scale), taken(examples, 9)
    summed = lambda one, how: one.sum_over_users(theta_D, *how, CLIP.clip_sum, BTL)  # noqa: E731
    whole = summed(examples, chosen)
    moved = []
    for user in range(len(COUNTS)):
        others = examples.select(np.delete(np.arange(len(COUNTS)), user))
        moved.append(float((whole - summed(others, taken(others, 9))).norm()))
    assert max(moved) <= CLIP.sensitivity(Adjacency.ADD_REMOVE)
    assert max(moved) > 0.99 * CLIP.norm


def test_the_first_look_finds_what_it_is_to_find(model):
    learnt = model(targets="c_fc")
    trial = learnt.trial_examples(PAIRS)
    assert isinstance(trial, TasteTokens)
    trial.check(BTL)
    layer = learnt.network.model.get_base_model().transformer.h[0].mlp.c_fc

    def fused(x):
        change = layer.lora_A["default"].weight.T @ layer.lora_B["default"].weight.T
        return layer.base_layer(x) + x @ change

    layer.forward = fused
    with pytest.raises(InputError, match=r"lora_A.* is used outside its own layer"):
        trial.check(BTL)
    del layer.forward
    with pytest.raises(InputError, match="--tastes is for pairs"):
        learnt.trial_examples(Schema("top-1", 3))


def test_accuracy_is_of_the_other_half(examples):
    theta_D = start(examples.base, 0.5).numpy()
    result = examples.accuracy(theta_D)
    assert examples.measures_personal
    examples.base.put(theta_D)
    texts = np.arange(len(examples.tokens.lengths_T))
    with torch.no_grad():
        row_TK = torch.cat([examples.base.rows(examples.tokens, texts[[t]]) for t in texts])
    z_JK = (row_TK[examples.text_JK[:, 0]] - row_TK[examples.text_JK[:, 1]]).double().numpy()
    own, crowd = [], []
    for first, end in pairwise(examples.start_U.tolist()):
        mine_MK, half_M = z_JK[first:end], examples.half_J[first:end]
        v_H = [minimize(objective, [0.0, 0.0], (mine_MK[half_M == h],)).x for h in (1, 0)]
        v_M = np.array([v_H[h] if h != NEITHER else [0.0, 0.0] for h in half_M])
        own.append((mine_MK[:, 0] + (mine_MK[:, 1:] * v_M).sum(1) > 0).mean())
        crowd.append((mine_MK[:, 0] > 0).mean())
    assert result.personal == pytest.approx(np.mean(own))
    assert result.by_user == pytest.approx(np.mean(crowd))
    assert result.personal != result.by_user


@pytest.mark.parametrize("train", ["head", "lora", "full"])
def test_what_is_saved_is_the_crowds_reward_and_the_basis_beside_it(
    language_model, model, train, tmp_path
):
    from transformers import AutoModelForSequenceClassification

    if train == "head":
        learnt = base_of({"kind": "language-head", "path": language_model("gpt2"), "tastes": ROWS})
        assert isinstance(learnt, LanguageHeadTastes) and learnt.dimension == ROWS * 16
    else:
        learnt = model(train=train)
        assert isinstance(learnt, LanguageTastes)
    theta_D = 0.5 * np.random.default_rng(2).standard_normal(learnt.dimension).astype(np.float32)
    learnt.save(tmp_path / "m", theta_D, "btl")
    prompts, responses = ["What now?"] * 3, ["save it", "wait and compare", "put some aside first"]
    crowd = learnt.scores([theta_D], prompts, responses)[0]
    saved = RewardModel.load(tmp_path / "m")
    assert isinstance(saved, SavedReward)
    assert saved.tastes_VH.shape == (ROWS - 1, 16)
    np.testing.assert_allclose(saved.score_batch(prompts, responses), crowd, atol=1e-5)
    # Whoever knows nothing of tastes finds an ordinary reward.
    if train == "lora":
        assert load_file(tmp_path / "m" / "adapter_model.safetensors")[HEAD].shape == (1, 16)
    else:
        plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "m").eval()
        assert plain.score.weight.shape == (1, 16)
    # And what was learned goes on as it was.
    again = learnt.scores([theta_D], prompts, responses)[0]
    np.testing.assert_array_equal(again, crowd)


HEAD = "base_model.model.score.weight"


@pytest.fixture
def saved(model, tmp_path):
    learnt = model()
    theta_D = start(learnt.network, 1.0).numpy()
    learnt.save(tmp_path / "m", theta_D, "btl")
    return tmp_path / "m", learnt, theta_D


def test_a_reward_of_ones_own_is_that_of_the_basis(saved, write_rows):
    folder, learnt, theta_D = saved
    mine = [*pairs([6])]
    own = RewardModel.load(folder).personal(mine)
    examples = learnt.examples(Judgements.from_rows(mine))
    learnt.network.put(theta_D)
    texts = np.arange(len(examples.tokens.lengths_T))
    with torch.no_grad():
        row_TK = learnt.network.rows(examples.tokens, texts).double().numpy()
    z_JK = row_TK[examples.text_JK[:, 0]] - row_TK[examples.text_JK[:, 1]]
    v = minimize(objective, [0.0, 0.0], (z_JK,), tol=1e-12).x
    assert np.abs(v).max() > 0.05
    prompts = ["What now?"] * len(texts)
    text = [*dict.fromkeys(t for row in mine for t in (row["chosen"], row["rejected"]))]
    np.testing.assert_allclose(
        own.score_batch(prompts, text), row_TK @ [1.0, *v], rtol=1e-4, atol=1e-4
    )
    file = write_rows(mine, "mine.jsonl")
    np.testing.assert_allclose(
        score(folder, "What now?", text, judgements=file), own.score_batch(prompts, text), atol=1e-6
    )
    assert own.accuracy(mine).pooled >= RewardModel.load(folder).accuracy(mine).pooled


def test_own_weights_leave_out_what_does_not_fit_and_say_nothing_of_it(saved):
    reward = RewardModel.load(saved[0])
    mine = [*pairs([6])]
    too_long = {**mine[0], "chosen": "save it " * 2000}
    left_out = LeftOut("skip")
    with_V = reward.own_weights(Judgements.from_rows([*mine, too_long]), left_out)
    assert left_out.rows == 1
    np.testing.assert_allclose(with_V, reward.own_weights(Judgements.from_rows(mine)), atol=1e-5)


def test_personalize_measures_it_by_the_basis_and_by_nothing_else(saved, tmp_path):
    folder, _, _ = saved
    people = [*pairs([6] * 30)]
    result = personalize(folder, people, 400.0, out=tmp_path / "p")
    assert result.own == "basis"
    features = RewardModel.load(folder).as_features
    judged, text_JK = pairs_with_texts(Judgements.from_rows(people), features)
    half_J = halves(text_JK, judged.start_U.numpy())
    exact = accuracy_at(judged, half_J, np.eye(ROWS, dtype=np.float32))
    assert result.measured.personal == pytest.approx(exact.personal, abs=0.02)
    with pytest.raises(InputError, match="leave out step"):
        personalize(folder, people, 400.0, out=tmp_path / "q", step=0.1)


def test_what_is_exported_has_the_basis(saved, language_model, tmp_path):
    export(saved[0], tmp_path / "out", Sharing(without_promise=True))
    there, here = (
        RewardModel.load(folder, language_model("gpt2")) for folder in (saved[0], tmp_path / "out")
    )
    np.testing.assert_array_equal(there.tastes_VH, here.tastes_VH)


def test_one_reward_for_all_has_none_of_ones_own(language_model, tmp_path):
    plain = base_of({"kind": "language-model", "path": language_model("gpt2"), "rank": 2})
    plain.save(tmp_path / "m", np.zeros(plain.dimension, np.float32), "btl")
    with pytest.raises(InputError, match="one reward for all: train it with --tastes"):
        RewardModel.load(tmp_path / "m").personal([*pairs([2])])
    with pytest.raises(InputError, match="train it with tastes=2 or more"):
        personalize(tmp_path / "m", [*pairs([2])], 1.0, out=tmp_path / "p")


def test_what_is_made_of_users_judgements_reads_each_text_by_itself(saved):
    """Else somebody's texts would move the last digits of another's rewards."""
    reward = RewardModel.load(saved[0])
    texts = [f"text {'and more ' * (n % 5)}{n}" for n in range(40)]
    prompts = ["prompt"] * len(texts)
    rows = reward.as_features(prompts, texts)
    for some in (slice(0, 1), slice(7, 9), slice(3, 40)):
        np.testing.assert_array_equal(reward.as_features(prompts[some], texts[some]), rows[some])


def test_tastes_that_do_not_fit_are_refused(saved):
    from safetensors.numpy import save_file
    from safetensors.torch import save_file as save_torch

    file = saved[0] / "tastes.safetensors"
    one = np.ones((1, 16), np.float32)
    long, many = np.ones((2, 5), np.float32), np.ones((32, 16), np.float32)
    before = weights_digest(saved[0])
    for wrong in (long, one * np.nan, many, one[:0], one.astype(np.float64), one.astype(bool)):
        save_file({"tastes_VH": wrong}, file)
        with pytest.raises(InputError, match="are not 1 to 31 rows of 16 finite float32 numbers"):
            RewardModel.load(saved[0])
    assert weights_digest(saved[0]) != before  # they are among the weights that a promise names
    save_torch({"tastes_VH": torch.ones(1, 16, dtype=torch.bfloat16)}, file)
    with pytest.raises(InputError, match="does not hold tastes"):
        RewardModel.load(saved[0])
    file.write_bytes(b"no")
    with pytest.raises(InputError, match="does not hold tastes"):
        RewardModel.load(saved[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tastes": 33}, "--tastes must be 1 to 32; got 33"),
        ({"tastes": 2.0}, "--tastes must be 1 to 32"),
        ({"once_per_text": True}, "not with --once-per-text"),
        ({"task": "text"}, "tastes are for a reward"),
        ({"task": "policy"}, "tastes are for a reward"),
    ],
)
def test_what_cannot_be_described_is_refused(model, changes, message):
    with pytest.raises(InputError, match=message):
        model(**changes)


def test_a_description_makes_an_equal_model(model):
    learnt = model()
    again = base_of(json.loads(json.dumps(learnt.to_config())))
    assert again.to_config() == learnt.to_config()
    assert learnt.to_config()["tastes"] == ROWS
    outline = base_of(learnt.to_config(), weights=False)
    assert outline.dimension == learnt.dimension and not outline.computes


@pytest.mark.parametrize("more", [{}, {"train": "head"}, {"task": "sft"}])
def test_a_run_without_tastes_knows_of_none(language_model, more):
    settings = Settings(base=language_model("gpt2"), **more)
    assert "tastes" not in described_base(settings)
    if "task" not in more:
        assert described_base(replace(settings, tastes=2))["tastes"] == 2
