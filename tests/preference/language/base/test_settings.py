"""Settings of a transformer that is trained: what is refused, and what they stand for."""

from dataclasses import replace

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.language import machine
from murmuration.preference.language.base.settings import KIND, BaseSettings, resolved


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train": "half"}, "--train"),
        ({"rank": 0}, "--lora-rank"),
        ({"max_tokens": 0}, "--max-tokens"),
        ({"batch_tokens": -1}, "--batch-tokens"),
        ({"dtype": "float8"}, "--dtype"),
        ({"task": "write"}, "--task"),
        ({"task": "sft", "train": "head"}, "--task sft has no head of its own to train"),
        ({"system": "a" * 10_001}, "--system must be Unicode text of at most 10,000 characters"),
        ({"system": "\ud800"}, "--system must be Unicode text"),
        ({"system": ["a"]}, "--system must be Unicode text"),
        ({"system": "a", "task": "text"}, "--system is for prompts"),
    ],
)
def test_settings_that_no_model_could_have(changes, said):
    with pytest.raises(InputError, match=said):
        BaseSettings("x", **changes)


@pytest.mark.parametrize(("there", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_takes_bfloat16_where_the_processor_multiplies_it(
    language_model, monkeypatch, there, expected
):
    """And what nobody asked for stays float32 there."""
    monkeypatch.setattr(machine, "multiplies_bfloat16", lambda: there)
    path = language_model("gpt2")
    assert resolved(BaseSettings(path, dtype="auto")).dtype == expected
    assert resolved(BaseSettings(path)).dtype == "float32"


def test_what_is_at_a_path_is_what_was_described(language_model):
    path = language_model("gpt2")
    result = resolved(BaseSettings(path))
    assert len(result.digest) == 64
    assert resolved(result) == result
    with pytest.raises(InputError):
        resolved(replace(result, digest="0" * 64))
    with pytest.raises(InputError, match="no such folder"):
        resolved(BaseSettings("./not/here"))


def test_a_description_is_of_every_setting():
    settings = BaseSettings("x", rank=3, layers="last:2", once_per_text=True, system="a")
    described = settings.to_config()
    assert described.pop("kind") == KIND
    assert BaseSettings(**described) == settings


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"path": "y", "loss": "ipo", "beta": 0.1, "once_per_text": True}, True),
        ({"dtype": "bfloat16"}, False),
        ({"train": "full"}, False),
        ({"rank": 3}, False),
        ({"targets": "all-linear"}, False),
        ({"digest": "0"}, False),
        ({"layers": "last:2"}, False),
        ({"system": "a"}, False),
    ],
)
def test_what_a_reference_depends_on(changes, same):
    settings = BaseSettings("x", task="policy")
    assert (replace(settings, **changes).of_reference == settings.of_reference) == same


def test_a_description_without_a_system_prompt_is_that_of_earlier_versions():
    assert "system" not in BaseSettings("x").to_config()
    assert "system" not in BaseSettings("x").of_reference
