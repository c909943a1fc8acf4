"""Each mode of users' passes beside plain training, as far as the time goes."""

import json
from dataclasses import replace

import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.research.bench import gpu
from murmuration.research.bench.gpu import PARTS, measure
from murmuration.research.bench.language_model import Variants

pytest.importorskip("peft")

LAST = {"SmolLM2-135M": "noise and step", "350M": "noise and step", "Aya": "pfl-research"}


@pytest.fixture
def one_part(monkeypatch):
    monkeypatch.setattr(gpu, "PARTS", PARTS[1:2])


@pytest.mark.slow
def test_every_mode_of_every_model():
    rows = list(measure(1000.0, quick=True))
    expected = [
        (part.name, train, way)
        for part in PARTS
        for train in part.trained
        for way in ("plain", "isolated", "shared", LAST[part.name])
    ]
    assert [(row["model"], row["train"], row["way"]) for row in rows] == expected
    for row in rows:
        if row["way"] in ("plain", "isolated", "shared"):
            assert row["users"] == 5
            assert all(row[name] > 0 for name in ("tokens_per_second", "over_plain", "round_s"))
            assert 0 < row["share_of_peak"] < 2 and row["memory_gib"] > 0
    assert "not installed" in rows[-1]["note"]


def test_when_the_time_is_over_there_is_what_was_done(one_part):
    (row,) = measure(0.0, quick=True)
    assert (row["way"], row["users"]) == ("plain", 4)


def test_what_does_not_fit_is_said_and_the_rest_goes_on(one_part, monkeypatch):
    def no_room(self, shared_passes=False):
        raise torch.OutOfMemoryError if shared_passes else InputError("out of memory")

    monkeypatch.setattr(Variants, "kept", no_room)
    rows = {row["way"]: row for row in measure(100.0, quick=True)}
    assert rows["isolated"]["note"] == rows["shared"]["note"] == "out of memory"
    assert rows["plain"]["users"] == 5 and rows["noise and step"]["round_s"] > 0


def test_users_grow_until_the_share_is_used(monkeypatch):
    monkeypatch.setattr(gpu, "_reading", lambda call, users: (float(users), 1.0))
    for share, users in ((3.0, 4), (20.0, 16), (1000.0, 100)):
        assert gpu._grown(lambda users: None, 100, share) == (users, 1.0, 1.0)


def test_ctrl_c_ends_with_the_rows_so_far(cli, monkeypatch):
    def stopped(seconds, quick):
        yield {"model": "350M", "train": "full", "way": "plain", "users": 4}
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu, "measure", stopped)
    code, out, lines = cli("bench", "gpu", "--seconds", 60, "--json")
    assert code == 0
    assert [row["way"] for row in json.loads(out)["rows"]] == ["plain"]
    assert any("stopped" in line for line in lines)


def test_operations_are_counted_by_weights_that_tokens_meet(language_model):
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(language_model("gpt2"))
    inner = sum(p.numel() for name, p in network.transformer.h.named_parameters() if p.ndim == 2)
    head = network.lm_head.weight.numel()
    positions = network.transformer.wpe.weight.numel()
    assert gpu._operations(network) == inner + head + positions


def test_a_small_part_is_of_the_same_kind():
    for part in PARTS:
        small = part.small
        assert bool(small.bench.key_heads) == bool(part.bench.key_heads)
        assert replace(small, bench=part.bench) == part
