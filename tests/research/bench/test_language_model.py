"""The benchmark's three ways compute what they should; how fast is not tested."""

import json
import sys

import pytest
import torch

from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.policies import PolicyExamples
from murmuration.privacy.mechanisms.clipping import NoClip
from murmuration.research.bench import language_model
from murmuration.research.bench.language_model import (
    TASKS,
    LmBench,
    Variants,
    examples,
    measure,
    texts,
)
from murmuration.research.bench.rivals import Trl

SMALL = LmBench(users=3, judgements=2, tokens=6, layers=1, width=16, vocabulary=50, rank=2)

pytest.importorskip("peft")


@pytest.mark.parametrize("task", [*TASKS, "text"])
@pytest.mark.parametrize("train", ["lora", "full"])
def test_ours_and_the_loop_agree(train, task, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with language_model.saved_model(SMALL) as path:
        settings = BaseSettings(path, train, rank=2, max_tokens=6, batch_tokens=30, task=task)
        base = LanguageBase(settings)
        ways = Variants((texts if task == "text" else examples)(SMALL, base))
    ours, loop = ways.ours(), ways.loop()
    assert (ours - loop).norm() / loop.norm() < 1e-5
    # Without a clip, the sum over users is plain training's gradient.
    ways._clip = NoClip()
    plain_D = base.to_theta(ways.plain()[None])[0]
    torch.testing.assert_close(ways.ours(), plain_D, atol=1e-6, rtol=1e-4)
    first, both = ways.first(1).ours(), ways.first(2).ours()
    assert not torch.allclose(first, both) and not torch.allclose(both, ways.ours())
    assert not any(p.requires_grad or p.grad is not None for p in base.trained)


def test_of_a_policy_the_reference_is_computed_or_kept():
    with language_model.saved_model(SMALL) as path:
        settings = BaseSettings(path, "lora", rank=2, max_tokens=6, task="policy")
        given = examples(SMALL, LanguageBase(settings))
        ways = Variants(given)
    assert isinstance(given, PolicyExamples)
    first = ways.ours()
    calls = []
    body = next(m for m in given.base.model.modules() if type(m).__name__ == "GPT2Block")
    body.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    assert torch.equal(ways.kept(), first)
    assert calls.count(False) == 0
    assert torch.equal(ways.ours(), first)
    assert calls.count(False) == len(given.tokens.second_T)


def test_a_keeper_is_told_of_the_models_folder(monkeypatch):
    """Which it removes if the benchmark is killed."""
    real, scratches = language_model.kept, []
    monkeypatch.setattr(
        language_model, "kept", lambda *a, **k: scratches.append(k["scratch"]) or real(*a, **k)
    )
    with language_model.saved_model(SMALL) as path:
        assert [str(folder) for folder in scratches] == [path]


@pytest.mark.parametrize("train", ["lora", "full"])
def test_figures(train, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    figures = measure(SMALL, train, 1)
    for name in ("ours_ratio", "loop_ratio", "plain_ms_a_judgement"):
        assert figures[name] > 0
    assert "trl_ratio" not in figures
    assert not list(tmp_path.iterdir())


def test_the_command(cli, monkeypatch):
    monkeypatch.setitem(language_model.SIZES, "16M", SMALL)
    code, out, _ = cli("bench", "lm", "--quick", "--judgements", "1,2", "--json")
    assert code == 0
    figures = json.loads(out.splitlines()[-1])
    assert figures["name"] == "lm"
    found = [(row["train"], row["judgements"], row["users"]) for row in figures["rows"]]
    assert found == [("lora", 1, 4), ("full", 1, 4), ("lora", 2, 4), ("full", 2, 4)]
    assert all(row["ours_ratio"] > 0 for row in figures["rows"])


@pytest.mark.parametrize("asked", [("--sizes", "7B"), ("--judgements", "0"), ("--judgements", "x")])
def test_what_there_is_not_is_refused(cli, asked):
    code, _, err = cli("bench", "lm", *asked)
    assert code == 2
    assert asked[1] in str(err)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("train", ["lora", "full"])
def test_trl_steps_on_the_same_pairs(train, task):
    pytest.importorskip("trl")
    with language_model.saved_model(SMALL) as path:
        settings = BaseSettings(path, train, rank=2, max_tokens=6, batch_tokens=30, task=task)
        base = LanguageBase(settings)
        rival = Trl(base, examples(SMALL, base))
        assert rival.seconds() > 0
        network = rival._trainer.model
        assert sum(p.numel() for p in network.parameters() if p.requires_grad) == base.dimension
        assert {p.dtype for p in network.parameters()} == {torch.float32}
        assert rival._trainer.args.gradient_accumulation_steps == 3  # of two pairs: all six


def test_a_benchmark_without_trl_says_so(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", None)
    monkeypatch.setitem(language_model.SIZES, "16M", SMALL)
    code, out, err = cli("bench", "lm", "--quick", "--rivals", "--json")
    assert code == 0
    assert "TRL is not installed" in str(err)
    assert len(json.loads(out.splitlines()[-1])["rows"]) == 2
