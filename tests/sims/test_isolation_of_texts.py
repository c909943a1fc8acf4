"""One user's texts move that user's share and nothing else, where a model computes on batches.

As ``tests/sims/test_isolation.py``, with language models and with features from an encoder.
"""

import pytest
from neighbours import Change, named
from watch import assert_none, compare

pytestmark = pytest.mark.usefixtures("quick_runs")


#: On a language model, of 12 users.
LANGUAGE = {
    "text": ({"task": "text"}, "text"),
    "text, all weights": ({"task": "text", "train": "full", "lora_rank": 0}, "text"),
    "sft": ({"task": "sft"}, "pairs"),
    "reward": ({}, "pairs"),
    "reward, best of four": ({}, "top-1"),
    "reward head": ({"train": "head", "lora_rank": 0}, "pairs"),
    "text, adaptive": ({"task": "text", "strategy": "adaptive"}, "text"),
    "text, els": ({"task": "text", "strategy": "els"}, "text"),
    "reward, dp-fedavg": ({"strategy": "dp-fedavg", "local_steps": 2, "local_rate": 0.1}, "pairs"),
}


def attack_language(watch, base: str, name: str, change: Change) -> list[str]:
    options, kind = LANGUAGE[name]
    settings = {
        "base": base, "lora_rank": 2, "group_size": 2, "learning_rate": 0.05, "rounds": 1,
        "features": "hashing",
    }  # fmt: skip
    return compare(watch, {**settings, **options}, change, kind=kind)


@pytest.mark.parametrize("name", ["gone", "one word", "blank text", "200 kB", "no JSON", "moves"])
def test_texts(watch, language_model, name):
    change = named("text")[name]
    assert_none(attack_language(watch, language_model("gpt2"), "text", change))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("change", named("text"))
@pytest.mark.parametrize("name", LANGUAGE)
def test_language_models(watch, language_model, name, change):
    kind = LANGUAGE[name][1]
    found = attack_language(watch, language_model("gpt2"), name, named(kind)[change])
    assert_none(found)


@pytest.mark.parametrize("name", ["gone", "one row", "200 kB", "blank text"])
def test_encoders(watch, language_model, name):
    """Features from a transformer, which takes the texts of several users at a time."""
    options = {"features": language_model("bert")}
    assert_none(compare(watch, options, named("pairs")[name]))
