"""The bound on a round's memory is above what a process takes, and not far above."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from murmuration.preference.language import memory
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.machine import MOST_ROW_BYTES
from murmuration.preference.language.memory import round_bytes
from murmuration.research.bench.language_model import LmBench, saved_model

pytest.importorskip("peft")

SMALL = LmBench(users=2, layers=1, width=64, vocabulary=300, tokens=128)
ROUND = """
import json, sys
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.memory import round_bytes
from murmuration.research.bench.language_model import LmBench, Variants, examples, texts
from murmuration.research.bench.memory import OwnMemory

path, train, task, shared = *sys.argv[1:4], sys.argv[4] == "shared"
bench = LmBench(users=16, judgements=8, layers=6, width=256, vocabulary=4000, tokens=128)
settings = BaseSettings(path, train, task=task, max_tokens=128, dtype="float32")
outline = LanguageBase(settings, weights=False)
each = 1 if task == "text" else 2
bound = round_bytes(outline, 8 * each, users=16, shared_passes=shared)
with OwnMemory() as own:
    base = LanguageBase(settings)
    given = texts(bench, base) if task == "text" else examples(bench, base)
    Variants(given).kept(shared_passes=shared)
print(json.dumps([own.most_mib * 2**20, bound.total]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "task", "mode"),
    [("full", "text", "isolated"), ("full", "reward", "shared"), ("lora", "reward", "isolated")],
)
def test_a_round_takes_less_than_its_bound_and_more_than_a_third(train, task, mode):
    bench = LmBench(layers=6, width=256, vocabulary=4000, tokens=128)
    with saved_model(bench) as path:
        command = [sys.executable, "-P", "-c", ROUND, path, train, task, mode]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured, bound = json.loads(done.stdout.splitlines()[-1])
    assert bound / 3 < measured < bound


def outline(path, **settings):
    return LanguageBase(BaseSettings(path, **settings), weights=False)


@pytest.fixture
def large():
    """350 M weights, of which there are only shapes."""
    with saved_model(SMALL) as path:
        config = Path(path) / "config.json"
        shape = {"n_layer": 24, "n_embd": 1024, "n_head": 16, "vocab_size": 50_257}
        config.write_text(json.dumps(json.loads(config.read_text()) | shape))
        yield path


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("shared", [False, True])
def test_all_weights_of_350_million_take_less_than_60_gb(large, monkeypatch, device, shared):
    monkeypatch.setattr(memory, "usual_device", lambda: torch.device(device))
    base = outline(large, train="full", task="text", max_tokens=128, dtype="bfloat16")
    assert 3.5e8 < base.dimension < 3.6e8
    bound = round_bytes(base, 16, users=1024, shared_passes=shared)
    assert bound.total + (bound.server if device == "cpu" else 0) < 60e9


def test_each_part_is_as_large_as_what_decides_it(monkeypatch):
    monkeypatch.setitem(MOST_ROW_BYTES, "cpu", 2**20)
    with saved_model(replace(SMALL, layers=4)) as path:
        lora, full = (outline(path, train=train) for train in ("lora", "full"))
        more = outline(path, train="lora", checkpointing=True)
        fewer = outline(path, train="lora", batch_tokens=128)
        once = outline(path, train="lora", once_per_text=True)

    def parts(base, texts=4, users=1000, shared=False):
        return vars(round_bytes(base, texts, users=users, shared_passes=shared))

    alone, together = parts(lora), parts(lora, shared=True)
    assert alone["rows"] == 4 * lora.dimension
    assert together["rows"] == 2**20 // (4 * lora.dimension) * 4 * lora.dimension
    assert parts(lora, users=3, shared=True)["rows"] == 3 * alone["rows"]
    assert parts(once, texts=7)["rows"] == (2**20 // (4 * lora.dimension) + 8) * alone["rows"]
    assert parts(lora, texts=1)["activations"] < alone["activations"] < together["activations"]
    assert parts(fewer)["activations"] == parts(lora, texts=1)["activations"]
    assert parts(more)["activations"] < alone["activations"]
    assert parts(full)["server"] == 80 * full.dimension
    assert parts(full)["network"] == 4 * full.dimension


def test_a_base_that_states_are_kept_of(language_model):
    some = outline(language_model("gpt2"), layers="last:1")
    assert round_bytes(some, 2, users=1, shared_passes=False).states == 512 * 2**20
