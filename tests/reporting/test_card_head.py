"""The head of a card: read by YAML, and by the hub's own reader; and what an export changes."""

import math

import pytest
import yaml

from murmuration.preference.data.errors import InputError
from murmuration.reporting.card_head import amended, head, hub_name, loading, measured

PROMISE = {"unit": "a user: all", "epsilon": 3.0, "delta": 1e-5, "sampling": None, "audit": "none"}


def parsed(card):
    return yaml.safe_load(card.split("---\n")[1])


def made(**changes):
    given = {"writes": False, "tags": ["a", "rlhf"], "promise": PROMISE, "base": "org/small"}
    return head(**(given | changes)) + "\n# Title\n"


def test_what_a_hub_reads():
    index = measured("It's: a model", "task", "text-classification", "org/test",
                     {"Accuracy": ("accuracy", 0.71236), "Loss": ("loss", None)})  # fmt: skip
    found = parsed(made(index=index, library="peft", relation="adapter"))
    assert found["library_name"] == "peft" and found["base_model"] == "org/small"
    assert (found["pipeline_tag"], found["tags"]) == (
        "text-classification",
        ["a", "rlhf", "murmuration"],
    )
    assert found["differential_privacy"] == {
        "unit": "a user: all", "epsilon": 3.0, "delta": 1e-5, "audit": "none",
    }  # fmt: skip
    assert math.isclose(found["differential_privacy"]["delta"], 1e-5)  # and no text
    (result,) = found["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "name": "Accuracy", "value": 0.7124}]
    assert result["dataset"] == {"name": "org/test", "type": "org/test"}


def test_the_hubs_own_reader_takes_the_index():
    hub = pytest.importorskip("huggingface_hub")
    index = measured("m", "t", "text-generation", "my.jsonl", {"Accuracy": ("accuracy", 0.7)})
    (found,) = hub.ModelCard(made(index=index)).data.eval_results
    assert (found.metric_value, found.dataset_name) == (0.7, "my.jsonl")


@pytest.mark.parametrize("text", ["a\n---\nevil: 1", "yes", "3", "- x", "{a: b}", '"', "ä: #"])
def test_no_text_breaks_out(text):
    found = parsed(made(promise={"unit": text}, base=text, tags=[text]))
    assert found["differential_privacy"]["unit"] == found["base_model"] == found["tags"][0] == text
    assert "evil" not in found


@pytest.mark.parametrize(
    ("path", "name"),
    [("org/small", "org/small"), ("minilm", "sentence-transformers/all-MiniLM-L6-v2"),
     ("/home/ada/small", ""), ("./small", ""), ("gpt2", "")],
)  # fmt: skip
def test_names_of_a_hub(path, name):
    assert hub_name(path) == name


def test_an_export_changes_whole_entries():
    old = "\n| promise | |\n|---|---|\n| audit | none |\nlast\n"
    card = made() + loading(False, adapter=True) + old
    changes = {"license": "mit", "base_model": "my/own", "tags": None}
    changes["differential_privacy"] = {"audit": "at least | 1"}
    table = "| promise | |\n|---|---|\n| audit | at least / 1 |\n| caveats | seed |\n"
    found = amended(card, changes, loading(False, base="my/own", adapter=False), table)
    told = parsed(found)
    assert (told["license"], told["base_model"]) == ("mit", "my/own")
    assert "tags" not in told and told["differential_privacy"]["audit"] == "at least | 1"
    assert "PeftModel" not in found and found.count("By transformers alone") == 1
    assert found.endswith(f"{table}last\n") and "# Title" in found
    assert "| audit | none |" not in found
    bare = amended(made(), {}, "", table)  # a card without a table gets one
    assert bare.endswith(f"## Privacy\n\n{table}\n")


def test_a_card_without_a_head_gets_one():
    assert parsed(amended("# Old\n", {"license": "mit"})) == {"license": "mit"}
    assert amended("# Old\n", {"license": "mit"}).endswith("---\n# Old\n")


@pytest.mark.parametrize("front", ["a: [", "- just\n- a list"])
def test_a_head_that_somebody_broke_is_said(front):
    with pytest.raises(InputError, match=r"README\.md: its head is"):
        amended(f"---\n{front}\n---\n# Title\n", {"license": "mit"})


def test_a_head_that_is_nested_too_deep_is_refused_in_a_line():
    with pytest.raises(InputError, match="its head is no YAML"):
        amended(f"---\na: {'[' * 5000}\n---\n", {})
