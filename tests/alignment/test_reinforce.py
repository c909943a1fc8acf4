"""Policy gradients by TRL: on our tokens and our reading of answers, towards what is rewarded."""

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from language_models import assert_equal_but_for_roundings, direction

from murmuration.alignment import reinforce
from murmuration.alignment.likelihoods import AnswerLikelihoods
from murmuration.alignment.reinforce import Steps, train_policy
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.generation import Sampling, Writer

pytest.importorskip("peft")
pytest.importorskip("trl")

SAMPLING = Sampling(max_new_tokens=5)
PROMPTS = ["what now ?", "save it or spend it ?", "loan ?", "keep the old one ?"]


def policy(language_model, kind="llama", depth=1, **more):
    size, targets = ({"layers": depth}, "all-linear") if kind == "llama" else ({}, "")
    path = str(language_model(kind, **size))
    return LanguageBase(BaseSettings(path, task="policy", rank=4, targets=targets, **more))


def saves(prompts, responses):
    """How many words of an answer are `save`."""
    return np.array([float(text.split().count("save")) for text in responses])


def run(base, folder, reward=saves, on_step=lambda _: False, every=100, progress=None, **steps):
    how = Steps(**{"steps": 2, "batch": 8, "answers": 4, "rate": 0.02, "beta": 0.01, **steps})
    told = {} if progress is None else {"progress": progress}
    saved = {"folder": folder, "on_step": on_step, "every": every}
    train_policy(base, PROMPTS, reward, how, SAMPLING, seed=0, **saved, **told)
    return base


@pytest.mark.parametrize("method", ["rloo", "grpo"])
def test_what_is_rewarded_is_said_more_often(language_model, tmp_path, method):
    base = policy(language_model)

    def often():
        written = Writer(base.model, base.texts).write(PROMPTS * 50, SAMPLING, 1)
        return saves(PROMPTS, written).mean()

    before = often()
    run(base, tmp_path, method=method, steps=25, batch=16)
    assert often() > 2 * before + 0.2
    assert not any(parameter.requires_grad for parameter in base.model.parameters())


def test_a_reward_of_nothing_moves_nothing(language_model, tmp_path):
    base = policy(language_model)
    run(base, tmp_path, reward=lambda prompts, _: np.full(len(prompts), 7.0), beta=0.0)
    assert np.abs(base.theta()).max() == 0.0


def test_a_dear_divergence_keeps_the_policy_near(language_model, tmp_path):
    ends = []
    for beta in (0.0, 5.0):
        base = policy(language_model)
        run(base, tmp_path / str(beta), beta=beta, steps=12, batch=16)
        written = Writer(base.model, base.texts).write(PROMPTS * 50, SAMPLING, 1)
        ends.append(saves(PROMPTS, written).mean())
    assert ends[0] > ends[1]


def test_it_goes_on_from_a_checkpoint_as_if_nothing_had_happened(language_model, tmp_path):
    whole, steps = policy(language_model), []
    run(whole, tmp_path / "whole", steps=4, every=2)

    class Killed(Exception):
        pass

    def killed(step):
        steps.append(step)
        if step == 4:
            raise Killed
        return False

    with pytest.raises(Killed):
        run(policy(language_model), tmp_path / "parts", steps=4, every=2, on_step=killed)
    again = policy(language_model)
    run(again, tmp_path / "parts", steps=4, every=2, on_step=lambda step: steps.append(step))
    assert steps == [2, 4, 4]
    np.testing.assert_allclose(again.theta(), whole.theta(), atol=1e-6)


@pytest.fixture
def gradients(monkeypatch):
    """A function: train as `run` does, and return each step's gradient before it is clipped.

    Adaptive optimizers divide a small gradient by its own size, rounding and all. So what is
    compared is what they are given, and they are given other numbers, the same in every run: all
    runs are at the same weights in each step, to the last bit.
    """
    from accelerate import Accelerator

    honest, seen = Accelerator.clip_grad_norm_, []

    def noted(self, parameters, *given, **more):
        parameters = [p for p in parameters if p.grad is not None]
        seen.append(torch.cat([p.grad.flatten() for p in parameters]).double())
        for parameter in parameters:
            parameter.grad.copy_(direction(len(seen), parameter.shape))
        return honest(self, parameters, *given, **more)

    def train(base, folder, **steps):
        seen.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Accelerator, "clip_grad_norm_", noted)
            run(base, folder, **steps)
        return list(seen)

    return train


@pytest.mark.parametrize("method", ["rloo", "grpo"])
def test_a_step_is_the_same_however_many_answers_go_through_at_a_time(
    language_model, tmp_path, monkeypatch, method, gradients
):
    steps = {"method": method, "batch": 16, "beta": 0.5}
    whole = gradients(policy(language_model), tmp_path / "whole", **steps)
    told = []

    def two(batch, tokens, new_tokens, base):
        told.append(batch)
        return 2

    monkeypatch.setattr(reinforce, "answers_together", two)
    parts = gradients(policy(language_model), tmp_path / "parts", **steps)
    assert told == [16]
    assert_equal_but_for_roundings(parts, whole)


def test_how_many_answers_go_through_at_a_time(language_model, monkeypatch):
    base = policy(language_model, depth=2)
    layer = 128 * base.model.config.hidden_size  # numbers of an answer's states in each of two
    monkeypatch.setattr(reinforce, "_STATES", 2 * layer * 16)
    together = reinforce.answers_together
    assert together(64, 128, 5, base) == 16
    assert together(12, 128, 5, base) == 12
    assert together(64, 256, 5, base) == 8
    assert together(64, 10**9, 5, base) == 1
    last = policy(language_model, depth=2, layers="last:1")  # below: not gone back through
    assert together(64, 128, 5, last) == 32
    base.most_logits = base.words * 5 * 8
    assert together(64, 128, 5, base) == 4


def test_likelihoods_are_trls_but_for_roundings(language_model, tmp_path, monkeypatch, gradients):
    """With those that TRL computes itself, by the whole network, the policy learns the same."""
    steps = {"steps": 3, "beta": 0.5}
    ours = gradients(policy(language_model, layers="last:1"), tmp_path / "ours", **steps)
    from trl.trainer.rloo_trainer import RLOOTrainer

    theirs = RLOOTrainer._get_per_token_logps_and_entropies
    honest, used = RLOOTrainer.__init_subclass__, []

    def counted(*given, **more):
        used.append(1)
        return theirs(*given, **more)

    def without_ours(cls, **more):
        cls._get_per_token_logps_and_entropies = counted
        honest(**more)

    monkeypatch.setattr(RLOOTrainer, "__init_subclass__", classmethod(without_ours))
    base = policy(language_model, layers="last:1")
    expected = gradients(base, tmp_path / "theirs", **steps)
    assert len(used) == 9  # the policy, the reference, and what is learnt from, of each step
    assert_equal_but_for_roundings(ours, expected)


@pytest.mark.parametrize("method", ["rloo", "grpo"])
@pytest.mark.parametrize(
    ("kind", "checkpointing"), [("llama", False), ("llama", True), ("gpt2-chat", False)]
)
def test_what_a_step_learns_from_is_what_the_writer_writes(
    language_model, tmp_path, method, kind, checkpointing
):
    """By draws that depend on the seed and the step alone."""
    base, seen = policy(language_model, kind, checkpointing=checkpointing), []

    def reward(prompts, responses):
        seen.append((prompts, responses))
        return saves(prompts, responses)

    torch.manual_seed(5)
    run(base, tmp_path, reward=reward, steps=1, rate=1e-6, method=method)
    ((prompts, responses),) = seen
    assert prompts[:4] == [prompts[0]] * 4
    writer = Writer(policy(language_model, kind).model, base.texts)
    assert any(responses)
    assert list(responses) == writer.write(prompts, SAMPLING, (0, 1, 0, 0))


def test_nothing_is_dropped_at_random(language_model, tmp_path):
    """As everywhere here: states that are kept for a step would have one draw in all of it."""
    base = policy(language_model, "gpt2")
    dropping = [m for m in base.model.modules() if isinstance(m, torch.nn.Dropout)]
    assert any(module.p > 0 for module in dropping)
    drops, trains = [], []
    for module in dropping:
        module.register_forward_hook(lambda m, *_: drops.append(m.training and m.p > 0))
    # Some networks drop by functions that ask whether they are trained.
    base.model.get_base_model().register_forward_hook(lambda m, *_: trains.append(m.training))
    run(base, tmp_path, steps=1)
    assert drops and not any(drops)
    assert trains and not any(trains)


@pytest.mark.parametrize("method", ["rloo", "grpo"])
@pytest.mark.parametrize(
    ("vllm", "mode", "address"),
    [("colocate", "colocate", None), ("http://gpu:8000", "server", "http://gpu:8000")],
)
def test_vllm_writes_where_it_is_asked_to(
    language_model, tmp_path, monkeypatch, method, vllm, mode, address
):
    """It is not installed here, so another stands for it: what is checked is what it is given, that
    its weights follow the policy's, and that the policy learns from what it wrote."""
    base, given, synced = policy(language_model), {}, []
    answers = [base.texts.tokenizer(text)["input_ids"][:5] for text in ("save it", "spend it")]

    class Vllm:
        def __init__(self, **settings):
            given.update(settings)
            self.vllm_client = SimpleNamespace(
                get_server_info=lambda: {"model_config": {"logprobs_mode": "processed_logprobs"}}
            )

        def sync_weights(self):
            synced.append(base.theta().copy())

        def generate(self, prompts, images, num_generations, profiler=None):
            written = [answers[place % 2] for place in range(len(prompts))]
            # GRPO weighs an answer by how likely its writer thought it; here, as the policy does.
            likely = [[[None] for _ in ids] for ids in written]
            return prompts, written, likely, likely

    for name in ("rloo_trainer", "grpo_trainer"):
        module = importlib.import_module("trl.trainer." + name)
        monkeypatch.setattr(module, "VLLMGeneration", Vllm)
    prefix = [base.texts.openings([PROMPTS[0]], 5)[0]]
    likelihoods = AnswerLikelihoods(base, 1.0)

    def margin():
        save, spend = (likelihoods(prefix, [ids]).sum().item() for ids in answers)
        likelihoods.forget()
        return save - spend

    before = margin()
    run(base, tmp_path, method=method, steps=4, vllm=vllm, beta=0.0)
    assert margin() > before
    assert (given["mode"], given["server_base_url"]) == (mode, address)
    assert len(synced) == 4 and not np.array_equal(synced[0], synced[-1])


@pytest.mark.parametrize("vllm", ["colocate", "http://127.0.0.1:9"])
def test_where_vllm_is_not_there_it_is_named(language_model, tmp_path, vllm):
    if importlib.util.find_spec("vllm"):
        pytest.skip("vLLM is installed")
    with pytest.raises(InputError, match=f"--vllm {vllm}.*vLLM"):
        run(policy(language_model), tmp_path, vllm=vllm)


def test_every_step_is_told_and_it_ends_where_it_is_told_to(language_model, tmp_path):
    steps, done = [], []
    run(
        policy(language_model), tmp_path, steps=9, every=2, progress=done.append,
        on_step=lambda step: steps.append(step) or step == 4,
    )  # fmt: skip
    assert (steps, done) == ([2, 4], [1, 2, 3, 4])


def test_fewer_prompts_than_a_step_takes_are_refused(language_model, tmp_path):
    with pytest.raises(InputError, match="4 prompts are fewer than the 8 of a step"):
        run(policy(language_model), tmp_path, batch=32)


def test_nothing_is_left_of_the_copy_that_trl_makes(language_model, tmp_path):
    base = run(policy(language_model), tmp_path)
    assert list(base.model.peft_config) == ["default"]
    with torch.no_grad(), base.model.disable_adapter():
        ids = torch.tensor([[8, 9, 10]])
        off = base.model(input_ids=ids).logits
    base.put(torch.zeros(base.dimension))
    torch.testing.assert_close(base.model(input_ids=ids).logits, off)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"method": "ppo"}, "--method must be one of rloo, grpo"),
        ({"steps": 0}, "--steps"),
        ({"batch": 10, "answers": 4}, "divide --batch-size"),
        ({"answers": 1}, "--num-generations must be at least 2"),
        ({"rate": 0.0}, "--learning-rate"),
        ({"beta": -1.0}, "--kl-coef"),
        ({"optimizer": "lbfgs"}, "--optimizer"),
        ({"vllm": "gpu:8000"}, "--vllm must be colocate or a vLLM server's address"),
    ],
)
def test_values_out_of_range(steps, said):
    with pytest.raises(InputError, match=said):
        Steps(**steps)
