"""Exported folders: plain transformers and peft give the same numbers from them, they hold nothing
that is not for release, and what they cost is known from them."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from local_runs import lineage_of, run

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.likelihood import load_scorer
from murmuration.privacy import attack_bounds
from murmuration.reporting.export import Sharing, export
from murmuration.server.record.lineage import lineage_of_saved
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")

PROMPT, RESPONSE = "what now ?", "put some aside first ."


@pytest.fixture(scope="module")
def trained():
    """Folders of runs by their settings: each is trained once, and copied to whoever wants it."""
    return {}


@pytest.fixture
def made(tmp_path, tmp_path_factory, crowd, crowd_test, language_model, trained):
    """A function: the folder of a run, of features unless a base is given."""

    def make(base="", **changes):
        if base:
            changes = {"base": language_model(base), "lora_rank": 2} | changes
        settings = {"rounds": 2, "cohort": 10, "group_size": 2, "learning_rate": 5.0} | changes
        name = json.dumps(settings, sort_keys=True)
        if name not in trained:
            # As deep as the copies are, since a model may name its base by the way there.
            config = RunConfig(
                data=crowd, test=crowd_test, epsilon=9.0, delta=1e-3, seed=3,
                out=str(tmp_path_factory.mktemp("trained") / "run"), **settings,
            )  # fmt: skip
            trained[name] = Path(run(config)["out"])
        return Path(shutil.copytree(trained[name], tmp_path / "run"))

    return make


def by_transformers(folder, base=None):
    """The score of the response as its card says that it is computed."""
    from peft import PeftModel
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if base is None:
        model = AutoModelForSequenceClassification.from_pretrained(folder)
    else:
        model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
        model.config.pad_token_id = tokenizer.pad_token_id
        model = PeftModel.from_pretrained(model, str(folder))
    pair = tokenizer.cls_token_id is not None
    texts = (PROMPT, RESPONSE) if pair else (f"{PROMPT}\n\n{RESPONSE}",)
    with torch.no_grad():
        ids = tokenizer(*texts, return_tensors="pt", return_token_type_ids=pair)
        return float(model.eval()(**ids).logits)


def head(folder):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


@pytest.mark.parametrize("base", ["llama", "bert"])
@pytest.mark.parametrize("train", ["lora", "full", "head"])
def test_transformers_and_peft_give_the_same_rewards(made, language_model, tmp_path, base, train):
    rate = 100.0 if base == "bert" else 5.0  # whose states are small
    changes = {} if train == "lora" else {"train": train, "lora_rank": 0}
    model = made(base, learning_rate=rate, **changes) / "model"
    expected = load_scorer(model).score(PROMPT, RESPONSE)
    assert abs(expected) > 0.01  # it has learnt: at first all rewards are zero
    out = tmp_path / "out"
    export(model, out, Sharing())
    place = language_model(base) if train == "lora" else None
    assert by_transformers(out, place) == pytest.approx(expected, abs=1e-5)
    assert load_scorer(out, place or "").score(PROMPT, RESPONSE) == pytest.approx(
        expected, abs=1e-5
    )
    if train == "lora":
        export(model, tmp_path / "merged", Sharing(merge=True))
        assert by_transformers(tmp_path / "merged") == pytest.approx(expected, abs=1e-5)
        again = load_scorer(tmp_path / "merged").score(PROMPT, RESPONSE)
        assert again == pytest.approx(expected, abs=1e-5)


def test_what_says_next_tokens_gives_the_same_ones(made, language_model, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = language_model("llama")
    model = made("llama", task="sft") / "model"
    for merge in (False, True):
        out = tmp_path / f"out-{merge}"
        export(model, out, Sharing(merge=merge))
        tokenizer = AutoTokenizer.from_pretrained(out)
        plain = AutoModelForCausalLM.from_pretrained(out if merge else base)
        plain = (plain if merge else PeftModel.from_pretrained(plain, str(out))).eval()
        ids = tokenizer(f"{PROMPT}\n\n{RESPONSE}{tokenizer.eos_token}", return_tensors="pt")
        start = len(tokenizer(PROMPT)["input_ids"])
        with torch.no_grad():
            log_LV = plain(**ids).logits[0].double().log_softmax(1)
        said = ids["input_ids"][0, start:]
        found = float(log_LV[start - 1 : -1].gather(1, said[:, None]).sum())
        assert found == pytest.approx(load_scorer(model).score(PROMPT, RESPONSE), abs=1e-5)
        assert head(out)["pipeline_tag"] == "text-generation"


@pytest.mark.parametrize("merge", [False, True])
def test_a_later_run_knows_what_was_spent(made, tmp_path, merge, language_model, monkeypatch):
    folder = made("llama")
    result = json.loads((folder / "result.json").read_text())
    out = tmp_path / "out"
    export(folder, out, Sharing(merge=merge))  # a run's folder is taken, too
    monkeypatch.setenv("MURMURATION_BASES", str(Path(language_model("llama")).parent))
    lineage = lineage_of(RunConfig(base=str(out), lora_rank=2, epsilon=1.0))
    (before,) = lineage.runs
    assert (str(before.head), before.epsilon) == (result["ledger_head"], result["epsilon"])
    (out / "ledger-1.jsonl").unlink()
    with pytest.raises(InputError, match="what that cost them is not known"):
        lineage_of(RunConfig(base=str(out), lora_rank=2, epsilon=1.0))


def test_a_reward_over_features_is_whole_with_what_it_cost(made, tmp_path):
    folder, out = made(), tmp_path / "out"
    found = export(folder, out, Sharing())
    assert load_scorer(out).score(PROMPT, RESPONSE) == load_scorer(folder / "model").score(
        PROMPT, RESPONSE
    )
    (spent,) = lineage_of_saved("it", str(out), "--privacy", "").runs
    assert spent.epsilon == json.loads((folder / "result.json").read_text())["epsilon"]
    assert set(found.files) == {
        "README.md", "config.json", "model.safetensors", "privacy.json", "ledger-1.jsonl",
        "ledger-1.jsonl.head",
    }  # fmt: skip
    assert json.loads((out / "privacy.json").read_text())["promise"]["epsilon"] >= spent.epsilon


@pytest.mark.parametrize("base", ["", "llama"])
def test_nothing_goes_that_is_not_of_a_model(made, tmp_path, base):
    model = made(base) / "model"
    (model / "private").mkdir()
    (model / "private" / "seed.json").write_text("{}")
    (model / "judgements.jsonl").write_text("{}")
    (model / "notes.safetensors").write_bytes(b"mine")
    (model / "tokenizer.model").symlink_to(tmp_path / "run" / "private" / "seed.json")
    (model / "checkpoint").mkdir()
    out = tmp_path / "out"
    found = export(model, out, Sharing())
    left = {"private", "judgements.jsonl", "notes.safetensors", "tokenizer.model", "checkpoint"}
    assert left == set(found.left_out)
    assert not left & {file.name for file in out.iterdir()}
    place = str(tmp_path.parents[1]).encode()
    assert [file.name for file in out.iterdir() if place in file.read_bytes()] == []


def test_the_card_is_of_what_is_written(made, tmp_path):
    model = made("llama") / "model"
    audit = tmp_path / "audit.json"
    row = {"target": "uls", "adjacency": "add-remove", "epsilon_lower": 1.62,
           "epsilon_claimed": 2.0, "confidence": 0.95}  # fmt: skip
    audit.write_text(json.dumps(row))
    export(model, tmp_path / "a", Sharing(base="org/small", licence="mit", audit=audit))
    told, card = head(tmp_path / "a"), (tmp_path / "a" / "README.md").read_text()
    assert (told["base_model"], told["base_model_relation"]) == ("org/small", "adapter")
    assert (told["license"], told["library_name"]) == ("mit", "peft")
    assert "at least 1.62 with 95% confidence" in told["differential_privacy"]["audit"]
    assert "| audit | epsilon is at least 1.62" in card and "PeftModel" in card
    assert (
        told["differential_privacy"]["audit"]
        == json.loads((tmp_path / "a" / "privacy.json").read_text())["promise"]["audit"]
    )
    export(model, tmp_path / "b", Sharing(merge=True))
    told, card = head(tmp_path / "b"), (tmp_path / "b" / "README.md").read_text()
    assert told["library_name"] == "transformers" and "license" not in told
    assert "PeftModel" not in card and "this folder is whole" in card
    assert "org/small" not in card and "base_model" not in told


def test_an_adapter_is_merged_into_the_base_that_is_given(made, language_model, tmp_path):
    model = made("llama") / "model"
    expected = load_scorer(model).score(PROMPT, RESPONSE)
    far = tmp_path / "a" / "b" / "c" / "far"
    far.parent.mkdir(parents=True)
    model.rename(far)
    with pytest.raises(InputError, match="made on the base 'llama'"):
        export(far, tmp_path / "out", Sharing(merge=True))
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="another model is here"):
        export(far, tmp_path / "out", Sharing(merge=True, base=language_model("gpt2")))
    export(far, tmp_path / "out", Sharing(merge=True, base=language_model("llama")))
    assert by_transformers(tmp_path / "out") == pytest.approx(expected, abs=1e-5)


def test_what_is_refused(made, tmp_path):
    folder, out = made(), tmp_path / "out"
    with pytest.raises(InputError, match="holds no adapter"):
        export(folder, out, Sharing(merge=True))
    with pytest.raises(InputError, match="neither a model that Murmuration saved"):
        export(tmp_path, out, Sharing())
    with pytest.raises(InputError, match="give its name on a hub"):
        Sharing(base="../nowhere")
    with pytest.raises(InputError, match="no such file"):
        export(folder, out, Sharing(audit=tmp_path / "none"))
    with pytest.raises(InputError, match="no line of `murmuration audit"):
        export(folder, out, Sharing(audit=folder / "result.json"))
    audit = folder / "audit.json"
    row = {"target": "t", "epsilon_lower": 10**400, "confidence": 0.9, "epsilon_claimed": 1}
    audit.write_text(json.dumps(row))
    with pytest.raises(InputError, match="no line of `murmuration audit"):
        export(folder, out, Sharing(audit=audit))
    assert not out.exists()
    out.mkdir()
    with pytest.raises(InputError, match="already exists"):
        export(folder, out, Sharing())


def test_without_a_promise_only_if_somebody_says_so(made, tmp_path):
    folder, out = made(strategy="nonprivate"), tmp_path / "out"
    with pytest.raises(InputError, match=r"promised its users nothing.*--without-promise"):
        export(folder, out, Sharing())
    export(folder, out, Sharing(without_promise=True))
    assert "**No privacy.**" in (out / "README.md").read_text()
    assert not (out / "privacy.json").exists()
    moved = tmp_path / "moved"
    (folder / "model").rename(moved)
    with pytest.raises(InputError, match="what that cost them is not known"):
        export(moved, tmp_path / "other", Sharing())


def test_a_card_says_of_attackers_what_the_run_says(made, tmp_path):
    """By the run's whole privacy curve, read from its ledger, and by both accountants."""
    run_folder = made()
    export(run_folder, tmp_path / "out", Sharing())
    shared = head(tmp_path / "out")["differential_privacy"]
    own = head(run_folder / "model")["differential_privacy"]
    assert shared["attack"] == own["attack"]
    assert shared["second_opinion"] == own["second_opinion"]
    by_point = dataclasses.asdict(attack_bounds.of_point(own["epsilon"], own["delta"]))
    assert shared["attack"]["tpr_at_1_percent_fpr"] < by_point["tpr_at_1_percent_fpr"]


def falsified(card):
    """As somebody edits it who wants a smaller figure, and no caveats."""
    card = card.replace("9.00", "0.10").replace("epsilon: 9.0", "epsilon: 0.1")
    card = card.replace("private: false", "private: true").replace(" (simulation, seed known)", "")
    card = card.replace("  - simulation, seed known\n", "")
    return "".join(line for line in card.splitlines(True) if not line.startswith("> **Warning.**"))


def test_a_card_that_was_edited_says_what_the_ledger_says(made, tmp_path):
    folder, out = made(), tmp_path / "out"
    card = folder / "model" / "README.md"
    card.write_text(falsified(card.read_text()))
    assert "**User-level DP: ε = 0.10, δ" in card.read_text()
    export(folder, out, Sharing())
    text = (out / "README.md").read_text()
    assert "0.10" not in text.split("## Accuracy")[0]
    statement = "User-level DP: ε = 9.00, δ = 0.001, add-remove (simulation, seed known)"
    assert f"**{statement}.**" in text and f"| statement | {statement} |" in text
    assert "SIMULATION, SEED KNOWN: somebody chose the seed" in text
    assert text.count("## Privacy\n") == text.count("| promise | |") == 1
    again = tmp_path / "again"
    export(out, again, Sharing(privacy=str(folder / "ledger.jsonl")))
    assert (again / "README.md").read_text() == text


def test_a_card_tells_no_promise_where_none_is_known(made, tmp_path):
    moved, out = tmp_path / "moved", tmp_path / "out"
    (made() / "model").rename(moved)
    (moved / "README.md").write_text(falsified((moved / "README.md").read_text()))
    export(moved, out, Sharing(without_promise=True))
    text = (out / "README.md").read_text()
    assert "differential_privacy" not in text and "differential-privacy" not in text
    assert "ε" not in text and "| promise | |" not in text
    assert "## Privacy\n\n**What its users were promised is not known.**\n\n## Accuracy" in text
