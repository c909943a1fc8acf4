"""What a chain of runs costs, and what happens to a base whose cost is not known."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from local_runs import LORA, lineage_of, run

from murmuration.preference.data.errors import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.chained_record import head_path
from murmuration.privacy.accounting.terms import Caveat, RunTerms
from murmuration.privacy.promise import Promise
from murmuration.server.record.lineage import (
    lineage_of_saved,
    promise_of_run,
)
from murmuration.strategies.config import RunConfig

pytestmark = [pytest.mark.usefixtures("quick_runs"), pytest.mark.settings(**LORA)]


def following(config, name="second", **changes):
    return replace(config, base=config.out + "/model", out=config.out + name, **changes)


def test_what_a_record_says_of_a_run_with_identity_changes_nothing(spent, saved):
    """Its ledger's first line says it, and no hand can make that less."""
    terms = partial(RunTerms, population="a", caveats=frozenset({Caveat.SHARED_PASSES.value}))
    path, run = spent("run", 3, terms)
    config = saved("model", (path, run))
    file = Path(config.base) / "privacy.json"
    about = json.loads(file.read_text())
    about["promise"]["runs"][0] |= {"epsilon": 0.1, "population": "b", "caveats": [], "unit": "row"}
    about["promise"] |= {"epsilon": 0.1, "caveats": [], "private": True}
    file.write_text(json.dumps(about))
    assert lineage_of(config).runs == (run,)
    assert lineage_of(config).caveats == {Caveat.SHARED_PASSES}
    about["promise"]["runs"] = []
    file.write_text(json.dumps(about))
    with pytest.raises(InputError, match="names no run"):
        lineage_of(config)


def test_a_ledger_that_a_record_leaves_out_is_missed(spent, saved):
    config = saved("model", spent("one", 1), spent("two", 2))
    file = Path(config.base) / "privacy.json"
    about = json.loads(file.read_text())
    del about["promise"]["runs"][1]
    file.write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"ledger-2\.jsonl is of a run that privacy\.json"):
        lineage_of(config)


@pytest.mark.parametrize("stated", ["declared public", ["a\nb"], [5], {}])
def test_what_a_record_states_is_a_list_of_names(spent, saved, stated):
    config = saved("model", spent("run", 3), public=True)
    file = Path(config.base) / "privacy.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "stated": stated}))
    with pytest.raises(InputError, match="is not known"):
        lineage_of(config)


def test_a_copy_of_a_ledger_is_no_other_run(spent, saved, tmp_path):
    path, run = spent("run", 3)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    head_path(copy).write_bytes(head_path(path).read_bytes())
    config = saved("model", (path, run))
    for files in ((path,), (path, copy), (copy, path, path)):
        named = replace(config, base_privacy=",".join(map(str, files)))
        assert lineage_of(named).runs == (run,)


def test_what_was_declared_public_stays_so(spent, saved):
    path, run = spent("run", 3)
    config = saved("model", (path, run), public=True)
    _, mine = spent("mine", 2)
    then = lineage_of(config) | Promise((mine,))
    assert then.public
    assert Caveat.DECLARED_PUBLIC in then.to_json()["caveats"]
    assert then.epsilon == pytest.approx(run.epsilon + mine.epsilon)
    assert any("declared public" in text for text in then.sentences)
    # Nor is it asked for again where what was declared public is still there.
    ours = saved("ours", (path, run))
    (Path(ours.base) / "privacy.json").unlink()
    (Path(ours.base) / "murmuration.json").write_text("{}")
    adapter = json.dumps({"base_model_name_or_path": ours.base})
    (Path(config.base) / "adapter_config.json").write_text(adapter)
    assert lineage_of(config).public


def test_what_lies_below_something_public_and_states_its_runs_is_counted(spent, saved):
    """An adapter that was declared public, put on another base than it was trained on."""
    top, mine = saved("top", ledger := spent("one", 1), public=True), spent("below", 5)
    below = saved("private", mine)
    adapter = Path(top.base) / "adapter_config.json"
    adapter.write_text(json.dumps({"base_model_name_or_path": below.base}))
    both = lineage_of(top)
    assert both.public
    assert {run.head for run in both.runs} == {ledger[1].head, mine[1].head}
    (Path(below.base) / "model.safetensors").write_text("other weights")
    with pytest.raises(InputError, match="other weights"):
        lineage_of(top)
    adapter.write_text(json.dumps({"base_model_name_or_path": "/not/here"}))
    assert lineage_of(top).runs == (ledger[1],)


def test_a_record_of_other_weights_is_refused(spent, saved):
    cheap, dear = saved("cheap", spent("one", 1)), saved("dear", ledger := spent("nine", 9))
    for file in ("privacy.json", "ledger-1.jsonl", "ledger-1.jsonl.head"):
        shutil.copy(Path(cheap.base) / file, dear.base)
    with pytest.raises(
        InputError, match=r"not known: privacy\.json is about .* other weights; say"
    ):
        lineage_of(dear)
    found = lineage_of(replace(dear, base_privacy=str(ledger[0])))
    assert found == lineage_of(cheap) | Promise((ledger[1],))


@pytest.mark.parametrize("length", [1, 2])
def test_adapters_in_a_circle_are_refused(tmp_path, length):
    folders = [tmp_path / str(place) for place in range(length)]
    for folder, base in zip(folders, [*folders[1:], folders[0]], strict=True):
        folder.mkdir()
        (folder / "adapter_config.json").write_text(
            json.dumps({"base_model_name_or_path": str(base)})
        )
    for settings in ({"base": str(folders[0])}, {"features": str(folders[0])}):
        with pytest.raises(InputError, match="an adapter that is put on itself") as caught:
            lineage_of(RunConfig(**settings))
        assert "\n" not in str(caught.value)


class Hub(SimpleHTTPRequestHandler):
    """One model of a hub, in a folder."""

    def send_head(self):
        name, _, revision_and_file = self.path.removeprefix("/").partition("/resolve/")
        file = Path(self.directory) / revision_and_file.partition("/")[2]
        if name != "somebody/private" or not file.is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("X-Repo-Commit", "a" * 40)
            self.end_headers()
            return None
        self.send_response(200)
        self.send_header("X-Repo-Commit", "a" * 40)
        self.send_header("ETag", f'"{file.name}"')
        self.send_header("Content-Length", str(file.stat().st_size))
        self.end_headers()
        return file.open("rb")

    def log_message(self, *_):
        pass


def test_the_record_of_a_hubs_model_is_fetched(spent, saved, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    from huggingface_hub import constants

    first, second = spent("one", 1), spent("two", 2)
    folder = Path(saved("model", first, second).base)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # As a run has it, the weights have been asked for before, and nothing else of ours.
    program = """
from transformers.utils.hub import cached_file
from murmuration.server.record.lineage import lineage_of
cached_file("somebody/private", "model.safetensors")
print(*(run.head for run in lineage_of("--base", "somebody/private", "").runs))
"""
    hub = tmp_path / "hub"
    of_hub = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_CACHE": str(hub),
        "HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
    }  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **of_hub}, text=True,
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
    heads = [str(run.head) for run in Promise((first[1], second[1])).runs]
    assert done.stdout.split() == heads, done.stderr
    # Without a network what is in the cache is known; of what is damaged there, nothing.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    config = RunConfig(base="somebody/private")
    assert [str(run.head) for run in lineage_of(config).runs] == heads
    (ledger,) = hub.glob("*/snapshots/*/ledger-2.jsonl")
    ledger.unlink()
    with pytest.raises(InputError, match=r"ledger-2\.jsonl is missing"):
        lineage_of(config)


@pytest.mark.parametrize("part", ["lora", "full"])
def test_an_encoder_that_was_trained_on_users(config, part):
    first = run(replace(config, train=part, lora_rank=2 if part == "lora" else 0))
    then = RunConfig(
        data=config.data, test=config.test, features=config.out + "/model", epsilon=1.0,
        delta=1e-3, rounds=2, cohort=10, group_size=2, learning_rate=0.05, seed=3,
        out=config.out + "second",
    )  # fmt: skip
    second = run(then)
    (row,) = second["promise"]["composed"]
    assert row["epsilon"] == pytest.approx(first["epsilon"] + second["epsilon"], rel=1e-12)
    card = (Path(then.out) / "model" / "README.md").read_text()
    assert "THE BASE WAS TRAINED ON USERS, TOO" in card
    (Path(config.out) / "model" / "ledger-1.jsonl").unlink()
    with pytest.raises(InputError, match=r"--features .*ledger-1\.jsonl is missing"):
        run(replace(then, out=config.out + "third"))
    ledger = Path(config.out) / "ledger.jsonl"
    named = replace(then, base_privacy=str(ledger), population="b", disjoint=True)
    assert str(lineage_of(named).runs[0].head) == first["ledger_head"]
    # What the head's folder says stays, whatever lies where its encoder did.
    whole, head = promise_of_run(Path(then.out)), Path(then.out) / "model"
    assert len(whole.runs) == 2
    shutil.rmtree(config.out)
    shutil.copytree(config.base, f"{config.out}/model")
    assert promise_of_run(Path(then.out)) == whole
    assert lineage_of_saved(REWARD[0], str(head), REWARD[1], "") == whole
    (head / "privacy.json").unlink()
    with pytest.raises(InputError, match="its encoder came from runs whose ledgers are not there"):
        promise_of_run(Path(then.out))


@pytest.mark.parametrize("part", ["lora", "full", "head"])
def test_a_run_on_a_run(config, part):
    first = run(config)
    assert [one["run"] for one in first["promise"]["runs"]] == [first["run"]]
    then = following(config, train=part, lora_rank=2 if part == "lora" else 0, epsilon=1.0)
    second = run(then)
    row = second["promise"]["composed"][0]
    assert row["epsilon"] == pytest.approx(first["epsilon"] + second["epsilon"], rel=1e-12)
    assert row["delta"] == 2e-3
    heads = {entry["ledger_head"] for entry in second["promise"]["runs"]}
    assert heads == {first["ledger_head"], second["ledger_head"]}
    card = (Path(then.out) / "model" / "README.md").read_text()
    assert "THE BASE WAS TRAINED ON USERS, TOO" in card
    (shown,) = {*re.findall(r"whoever was trained on, ε = ([\d.]+), δ = 0\.002", card)}
    assert 0 <= float(shown) - row["epsilon"] <= 1e-2
    assert any("was merged into the weights" in text for text in second["warnings"])
    shutil.rmtree(config.out)
    scores = RewardModel.load(Path(then.out) / "model").score(
        ["What now?"] * 2, ["Save it.", "Bet on it."]
    )
    assert scores[0] != scores[1]
    assert len(lineage_of(following(then)).runs) == 2


def test_an_unknown_base_of_ours_is_refused(config, tmp_path):
    run(config)
    model, then = Path(config.out) / "model", following(config)

    def refused(match):
        with pytest.raises(InputError, match=match):
            run(then)
        assert not Path(then.out).exists()

    whole = {file.name: file.read_bytes() for file in model.iterdir()}
    (model / "ledger-1.jsonl").unlink()
    refused(r"not known: ledger-1\.jsonl is missing; say what it cost with --base-privacy")
    lines = whole["ledger-1.jsonl"].splitlines(keepends=True)
    (model / "ledger-1.jsonl").write_bytes(b"".join(lines[:-1]))
    refused("was rolled back|not known")
    (model / "ledger-1.jsonl").write_bytes(whole["ledger-1.jsonl"])
    about = json.loads(whole["privacy.json"])
    about["promise"]["runs"][0]["ledger_head"] = "1:" + "0" * 64
    (model / "privacy.json").write_text(json.dumps(about))
    refused("does not end where the run's did")
    (model / "privacy.json").unlink()
    refused(r"not known: .*privacy\.json")
    (model / "murmuration.json").unlink()  # the card still says whose it is
    refused(r"not known: .*privacy\.json")
    public = replace(then, base_privacy="public")
    with pytest.raises(InputError, match="takes back nothing"):  # its run is beside it
        lineage_of(public)
    public = replace(public, base=str(shutil.copytree(model, tmp_path / "elsewhere")))
    assert lineage_of(public).public
    assert "declared public" in lineage_of(public).sentences[0]
    ledger = Path(config.out) / "ledger.jsonl"
    (found,) = lineage_of(replace(then, base_privacy=str(ledger))).runs
    result = json.loads((Path(config.out) / "result.json").read_text())
    assert (found.epsilon, str(found.head)) == (result["epsilon"], result["ledger_head"])
    with pytest.raises(InputError, match=r"--base-privacy .*nowhere"):
        lineage_of(replace(then, base_privacy=str(tmp_path / "nowhere")))


def test_a_ledger_that_is_named_leaves_no_other_run_out(config):
    first = run(config)
    middle = following(config, epsilon=1.0)
    second = run(middle)
    model, last = Path(middle.out) / "model", following(middle, "third")
    both = first["epsilon"] + second["epsilon"]
    of_first = (Path(config.out) / "ledger.jsonl").read_bytes()
    # Runs that begin in one second are in no particular order.
    (one,) = (file for file in model.glob("ledger-?.jsonl") if file.read_bytes() == of_first)
    one.unlink()
    own = replace(last, base_privacy=str(Path(middle.out) / "ledger.jsonl"))
    with pytest.raises(InputError, match=f"{one.name} is missing"):
        lineage_of(own)
    every = ",".join(str(Path(c.out) / "ledger.jsonl") for c in (config, middle))
    found = lineage_of(replace(last, base_privacy=every))
    assert sum(each.epsilon for each in found.runs) == both
    # What is given is counted, whatever the folder says of itself, and each run once.
    one.write_bytes(of_first)
    assert lineage_of(own).runs == found.runs
    assert lineage_of(last).runs == found.runs
    (model / "privacy.json").unlink()
    assert sum(each.epsilon for each in lineage_of(replace(last, base_privacy=every)).runs) == both


def test_what_stands_on_a_seeded_run_is_not_private(config):
    run(config)
    second = run(following(config, seed=-1))
    assert second["seeded"] is False
    assert second["private"] is second["promise"]["private"] is False


def test_disjoint_populations_are_said_to_be_so(config):
    run(replace(config, population="a"))
    said = run(following(config, population="b", disjoint=True))["warnings"][0]
    assert "for the population 'a', ε = " in said
    assert "for the population 'b', ε = " in said
    assert said.endswith("Nobody is in two of these populations, as was declared.")


def test_disjoint_is_about_runs_that_are_there(config):
    """A word about a public base, or about people whom nobody named, is about nobody."""
    apart = replace(config, population="b", disjoint=True)
    for settings in (apart, following(config, population="b", disjoint=True)):
        if settings is not apart:
            run(config)  # whose population nobody named
        with pytest.raises(InputError, match="leave it out"):
            run(settings)


def test_what_was_said_of_one_run_is_said_of_no_other(config):
    """Two runs on the same people, of which one names them otherwise and says that they are
    disjoint from another run's: whoever has both has paid for both, in any order."""
    run(replace(config, population="a"))
    run(following(config, population="b", disjoint=True))
    other = replace(config, out=config.out + "other", population="c")
    run(other)
    first, second, third = (
        promise_of_run(Path(place)) for place in (config.out, config.out + "second", other.out)
    )
    assert second.epsilon == pytest.approx(max(run.epsilon for run in second.runs))
    for whole in (second | third, third | second, third | first | second):
        assert whole.epsilon == pytest.approx(
            third.epsilon + max(run.epsilon for run in second.runs)
        )


@pytest.mark.parametrize("damage", ["cut", "of other weights", "no ledger", "a ledger cut"])
def test_a_word_takes_back_no_statement_that_is_damaged(spent, saved, damage):
    config = saved("base", spent("run", 2))
    folder = Path(config.base)
    if damage == "cut":
        (folder / "privacy.json").write_text((folder / "privacy.json").read_text()[:40])
    elif damage == "of other weights":
        (folder / "model.safetensors").write_text("others")
    elif damage == "no ledger":
        (folder / "ledger-1.jsonl").unlink()
    else:
        lines = (folder / "ledger-1.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "ledger-1.jsonl").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(InputError, match="takes back nothing that it stated: bring back") as said:
        lineage_of(replace(config, base_privacy="public"))
    assert "--base-privacy public" not in str(said.value)


def test_a_record_that_leaves_out_a_run_is_refused(spent, saved):
    """Though ledgers and heads that it has fit each other."""
    config = saved("base", spent("one", 1), spent("two", 2))
    folder = Path(config.base)
    about = json.loads((folder / "privacy.json").read_text())
    assert len(lineage_of(config).runs) == 2
    del about["promise"]["runs"][1]
    (folder / "privacy.json").write_text(json.dumps(about))
    for file in folder.glob("ledger-2.*"):
        file.unlink()
    with pytest.raises(InputError, match="leaves out a run"):
        lineage_of(config)


def test_a_record_that_leaves_out_a_caveat_is_refused(spent, saved):
    config = saved("base", spent("run", 1), public=True)
    file = Path(config.base) / "privacy.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps({**about, "stated": []}))
    with pytest.raises(InputError, match="a caveat"):
        lineage_of(config)


def test_a_word_about_a_model_of_nobody_is_taken(saved, language_model):
    assert lineage_of(RunConfig(base=language_model("gpt2"), base_privacy="public")).public


def test_a_base_of_others_has_none(config):
    assert lineage_of(config).runs == ()
    assert lineage_of(replace(config, base="", lora_rank=0)).runs == ()


@pytest.fixture
def head(cli, crowd, quick_runs, tmp_path):
    """A function: the model of a run of a linear head, by more options."""

    def make(name, *options):
        out = tmp_path / name
        common = ("--data", crowd, "--rounds", 2, "--cohort", 10, "--seed", 1, "--delta", 1e-3)
        assert cli("run", *common, *options, "--out", out)[0] == 0
        return out / "model"

    return make


REWARD = ("--reward", "--reward-privacy")


def test_a_linear_head_stands_on_its_run(head):
    model = head("a", "--epsilon", 2, "--population", "clinic")
    what, option = REWARD
    found = lineage_of_saved(what, str(model), option, "")
    result = json.loads((model.parent / "result.json").read_text())
    (run,) = found.runs
    assert (str(run.head), run.epsilon) == (result["ledger_head"], result["epsilon"])
    assert (run.terms.population, run.adjacency) == ("clinic", "add-remove")
    assert Caveat.SEEDED in run.terms.caveats
    # A word does not take back what the folder states.
    public = lineage_of_saved(what, str(model), option, "public")
    assert (public.runs, public.public) == (found.runs, True)
    # Named, it counts once; of a copy it is all that is known.
    ledger = model.parent / "ledger.jsonl"
    assert lineage_of_saved(what, str(model), option, str(ledger)) == found
    copy = shutil.copytree(model, model.parent.parent / "copy")
    with pytest.raises(InputError, match=r"is not known: .*--reward-privacy LEDGER"):
        lineage_of_saved(what, str(copy), option, "")
    (named,) = lineage_of_saved(what, str(copy), option, str(ledger)).runs
    assert named == run


def test_a_head_of_a_run_that_says_too_little_is_refused(head):
    model = head("a", "--epsilon", 2)
    path = model.parent / "result.json"
    result = json.loads(path.read_text())
    honest = lineage_of_saved(REWARD[0], str(model), REWARD[1], "")
    for wrong in ({"epsilon": 0.1}, {"delta": 1e-9}, {"private": True, "seeded": False}):
        path.write_text(json.dumps({**result, **wrong}))
        assert lineage_of_saved(REWARD[0], str(model), REWARD[1], "") == honest
        assert promise_of_run(model.parent) == honest
    path.write_text(json.dumps({**result, "ledger_head": "3:" + "0" * 64}))
    with pytest.raises(InputError, match="is not known"):
        lineage_of_saved(REWARD[0], str(model), REWARD[1], "")
    with pytest.raises(InputError, match="is not known"):
        promise_of_run(model.parent)
    runs = [*result["promise"]["runs"], {"ledger_head": "x"}]
    path.write_text(json.dumps({**result, "promise": {**result["promise"], "runs": runs}}))
    with pytest.raises(InputError, match="came from runs whose ledgers"):
        lineage_of_saved(REWARD[0], str(model), REWARD[1], "")
    path.unlink()
    with pytest.raises(InputError, match="is not known"):
        lineage_of_saved(REWARD[0], str(model), REWARD[1], "")


@pytest.mark.parametrize(
    "changes", [{"features": []}, {"features": None}, {"promise": []}, {"promise": {"runs": [5]}}]
)
def test_a_result_that_no_run_wrote_is_refused_in_a_line(head, changes):
    model = head("a", "--epsilon", 2)
    path = model.parent / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    for read in (promise_of_run, partial(lineage_of_saved, REWARD[0], option="", given="")):
        folder = model.parent if read is promise_of_run else str(model)
        with pytest.raises(InputError, match="is not known"):
            read(folder) if read is promise_of_run else read(path=folder)


def test_another_runs_head_is_not_believed_in_a_runs_place(head):
    model, other = head("a", "--epsilon", 2), head("b", "--strategy", "nonprivate")
    shutil.rmtree(model)
    shutil.copytree(other, model)
    with pytest.raises(InputError, match="weights are not those that the run beside it saved"):
        lineage_of_saved(REWARD[0], str(model), REWARD[1], "")
    result = json.loads((model.parent / "result.json").read_text())
    result["weights"] = ""
    (model.parent / "result.json").write_text(json.dumps(result))
    with pytest.raises(InputError, match="weights are not those that the run beside it saved"):
        lineage_of_saved(REWARD[0], str(model), REWARD[1], "")


def test_a_run_that_promised_nothing_makes_nothing_private(head):
    model = head("a", "--strategy", "nonprivate")
    ledger = model.parent / "ledger.jsonl"
    for given in ("", str(ledger)):
        with pytest.raises(InputError, match="promised its users nothing"):
            lineage_of_saved(REWARD[0], str(model), REWARD[1], given)


def test_what_promised_nothing_hides_nothing_below_it(head):
    """That the last run's data were public is no word about those before it."""
    first = head("a", "--epsilon", 2)
    middle = head("b", "--strategy", "nonprivate", "--start", first)
    ours = lineage_of_saved(REWARD[0], str(first), REWARD[1], "").runs
    public = lineage_of_saved(REWARD[0], str(middle), REWARD[1], "public")
    assert (public.runs, public.public) == (ours, True)


def test_what_is_gone_is_missed_even_where_a_word_says_that_all_was_public(head):
    first = head("a", "--epsilon", 2)
    second = head("b", "--epsilon", 1, "--start", first)

    def refused(model):
        with pytest.raises(InputError, match="takes back nothing that it stated"):
            lineage_of_saved(REWARD[0], str(model), REWARD[1], "public")

    for file in [second / "privacy.json", *second.glob("ledger-*")]:
        file.unlink()
    refused(second)
    (first.parent / "ledger.jsonl").unlink()
    refused(first)


def test_a_run_that_protected_rows_promised_people_nothing(head):
    """What is made with its model must not say that it is private for users."""
    model = head("a", "--epsilon", 2, "--one-user-per-row")
    assert json.loads((model.parent / "result.json").read_text())["one_user_per_row"] is True
    with pytest.raises(InputError, match="promised its users nothing"):
        lineage_of_saved(REWARD[0], str(model), REWARD[1], "")


def test_only_a_base_may_be_of_nobody(saved, language_model):
    base = language_model("gpt2")
    with pytest.raises(InputError, match="is not known"):
        lineage_of_saved(REWARD[0], base, REWARD[1], "")
    assert lineage_of_saved("--policy", base, "--policy-privacy", "", may_be_base=True) == Promise()
