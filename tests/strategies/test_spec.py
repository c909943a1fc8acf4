"""The base of a run: with which settings it is read."""

import json
from dataclasses import replace

import pytest

from murmuration.preference.bases import base_of
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.reward import save_language_model
from murmuration.strategies import spec
from murmuration.strategies.config import RunConfig


@pytest.mark.parametrize("more", [{}, {"train": "head"}, {"task": "sft"}, {"task": "policy"}])
def test_nodes_and_the_server_read_texts_after_the_runs_system_prompt(language_model, more):
    """By the description alone."""
    settings = RunConfig(base=language_model("gpt2-chat"), **more)
    prompts = ["what now ?", "\n\nSystem: loan\n\nHuman: what now ?"]
    read = []
    for system in ("", "save it"):
        described = json.loads(json.dumps(spec.described_base(replace(settings, system=system))))
        assert described.get("system", "") == system
        sides = base_of(described), base_of(described, weights=False)
        networks = [getattr(side, "network", None) or side.features.base for side in sides]
        one, other = (network.texts(prompts, ["buy"] * 2).ids.tolist() for network in networks)
        assert one == other
        read.append(networks[0].tokenizer.decode(one))
    assert read[1] == read[0].replace("[USER]", "[BOT] save it [USER]", 1)


def test_a_base_that_learnt_after_a_system_prompt_goes_on_with_it(language_model, tmp_path):
    base = LanguageBase(
        BaseSettings(language_model("gpt2-chat"), "full", task="sft", system="save it")
    )
    save_language_model(tmp_path / "m", base, base.theta())
    settings = RunConfig(base=str(tmp_path / "m"), task="policy")
    assert spec.described_base(settings)["system"] == "save it"
    assert spec.described_base(replace(settings, system="loan"))["system"] == "loan"
    assert "system" not in spec.described_base(replace(settings, task="text"))
