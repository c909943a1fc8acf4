"""Prompts of users are refused, told in one line, and never filtered."""

import json

import pytest

from murmuration.alignment.public_prompts import public_prompts, refuse_private
from murmuration.preference.data.errors import InputError
from murmuration.sims.population.population import Population
from murmuration.sims.runtimes.shown_prompts import PLACE, keep


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    for name in ("private", "model"):
        (folder / name).mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    keep(folder, ["Lend to a friend?", "Save it?"])
    return folder


@pytest.fixture
def asked(tmp_path):
    path = tmp_path / "prompts.jsonl"
    texts = ["Buy now?", "save  it?", "Wait?", "lend to a friend?"]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return str(path)


def test_users_prompts_are_refused_without_their_text(run, asked):
    with pytest.raises(InputError) as refused:
        public_prompts(asked, None, 0, [run / "model"])
    said = str(refused.value)
    assert "2 of 4" in said
    assert "in row 2" in said
    assert "--prompts-public" in said
    assert "\n" not in said
    assert "ave it" not in said
    assert "friend" not in said


def test_a_refusal_is_labelled_for_the_operator_and_a_full_stop_does_not_evade_it(run, tmp_path):
    path = tmp_path / "evading.jsonl"
    path.write_text(json.dumps({"prompt": "Lend to a friend?."}) + "\n")
    with pytest.raises(InputError, match="operator only: 1 of 1 are prompts"):
        public_prompts(str(path), None, 0, [run / "model"])


def test_any_of_several_models_refuses(run, asked, tmp_path):
    with pytest.raises(InputError, match="2 of 4"):
        public_prompts(asked, None, 0, [tmp_path / "elsewhere" / "model", str(run / "model")])


def test_a_model_that_an_adapter_is_put_on_refuses(run, asked, tmp_path):
    adapter = tmp_path / "later" / "model"
    adapter.mkdir(parents=True)
    about = {"base_model_name_or_path": str(run / "model"), "peft_type": "LORA"}
    (adapter / "adapter_config.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="2 of 4"):
        public_prompts(asked, None, 0, [adapter])


def test_a_link_to_a_model_leads_to_its_run(run, asked, tmp_path):
    link = tmp_path / "reward"
    link.symlink_to(run / "model")
    with pytest.raises(InputError, match="2 of 4"):
        public_prompts(asked, None, 0, [link])


def test_declared_public_nothing_is_compared(run, asked):
    (run / PLACE).write_text("damaged, and not looked at")
    found = public_prompts(asked, None, 0, [run / "model"], declared_public=True)
    assert found == ["Buy now?", "save  it?", "Wait?", "lend to a friend?"]


def test_what_can_and_cannot_be_compared(run, asked, tmp_path):
    assert refuse_private(["Buy now?"], asked, run / "model") is True
    assert refuse_private(["Save it?"], asked, tmp_path / "copied" / "model") is False
    assert refuse_private(["Save it?"], asked, "somebody/reward") is False
    (run / PLACE).unlink()  # as where a run was deployed
    assert refuse_private(["Save it?"], asked, run / "model") is False
    (run / "result.json").unlink()
    with pytest.raises(InputError, match="--resume"):
        refuse_private(["Save it?"], asked, run / "model")


def test_the_populations_are_not_compared(run):
    wanted = list(Population().prompts("test", 3, 7))
    keep(run, wanted)
    assert public_prompts("population:seen", 3, 7, [run / "model"]) == wanted
