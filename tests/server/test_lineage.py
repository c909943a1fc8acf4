"""What a chain of runs costs, and what happens to a base whose cost is not known."""

import itertools
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
from local_runs import run

from murmuration.preference.data.judgements import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.chained_record import head_path
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.server.config import RunConfig
from murmuration.server.lineage import (
    Lineage,
    Trained,
    composed,
    lineage_of,
    lineage_of_saved,
)

pytestmark = pytest.mark.usefixtures("quick_runs")


def trained(population="", epsilon=1.0, disjoint=False, adjacency="add-remove", delta=1e-5):
    return Trained(f"1:{population}{epsilon}", epsilon, delta, adjacency, population, disjoint)


def sums(*runs):
    return [(row["populations"], row["epsilon"], row["runs"]) for row in composed(runs)]


def test_the_same_population_adds_up():
    runs = [trained("a", 1.0), trained("a", 2.0), trained("a", 0.5)]
    assert sums(*runs) == [(["a"], 3.5, 3)]
    assert composed(runs)[0]["delta"] == pytest.approx(3e-5, rel=1e-12)


def test_who_is_not_declared_may_be_anybody():
    assert sums() == []
    assert sums(trained(), trained()) == [([], 2.0, 2)]
    assert sums(trained("a"), trained()) == [(["a"], 2.0, 2)]
    assert sums(trained(), trained("a")) == [(["a"], 2.0, 2)]


def test_another_population_stands_apart_only_where_declared_disjoint():
    assert sums(trained("a"), trained("b", 2.0, disjoint=True)) == [
        (["a"], 1.0, 1),
        (["b"], 2.0, 1),
    ]
    assert sums(trained("a"), trained("b", 2.0)) == [
        (["a"], 1.0, 1), (["b"], 2.0, 1), (["a", "b"], 3.0, 2),
    ]  # fmt: skip
    # A third run on one of two that are disjoint counts there alone; on nobody named, in both.
    apart = trained("a"), trained("b", 2.0, disjoint=True)
    assert sums(*apart, trained("a", 4.0)) == [(["b"], 2.0, 1), (["a"], 5.0, 2)]


def test_who_is_not_declared_counts_with_everybody_in_any_order():
    assert sums(trained("", 3.0), trained("b", disjoint=True)) == [(["b"], 4.0, 2)]
    for runs in itertools.permutations([trained("a"), trained("", 4.0), trained("", 8.0)]):
        # Nobody is in a and b, and anybody can have been in what is not declared.
        assert sums(*runs, trained("b", 2.0, disjoint=True)) == [(["a"], 13.0, 3), (["b"], 14.0, 3)]
        first, *then = runs
        assert sums(first, trained("b", 2.0), *then)[-1] == (["a", "b"], 15.0, 4)


@pytest.mark.parametrize(
    ("other", "why"),
    [(trained(adjacency="replace"), "adjacencies differ"), (trained(epsilon=None), "nothing")],
)
def test_where_there_is_no_figure(other, why):
    row = composed([trained(), other])[0]
    assert row["epsilon"] is None
    assert why in row["why"]


@pytest.fixture
def config(lora_config):
    return lora_config


def following(config, name="second", **changes):
    return replace(config, base=config.out + "/model", out=config.out + name, **changes)


@pytest.fixture
def spent(tmp_path):
    """A function: a file with a ledger that rounds were charged to, and what its run is to say."""

    def make(name, rounds):
        path = tmp_path / name / "ledger.jsonl"
        path.parent.mkdir(exist_ok=True)
        adjacency = Adjacency.ADD_REMOVE
        with Ledger(path, adjacency=adjacency, delta=1e-3, budget=None) as ledger:
            for round_ in range(1, rounds + 1):
                ledger.charge(PoissonGaussian(0.5, 1.0), round_=round_, covers="a sum")
            return path, Trained(str(ledger.head), ledger.epsilon(), 1e-3, adjacency.value)

    return make


@pytest.fixture
def saved(tmp_path):
    """A function: the settings of a run on a folder that looks as if these runs had saved it."""

    def make(name, *runs_and_ledgers, public=False):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_text(f"weights of {name}")
        runs = tuple(run for _, run in runs_and_ledgers)
        ledgers = tuple((p.read_bytes(), head_path(p).read_bytes()) for p, _ in runs_and_ledgers)
        for file, content in Lineage(runs, ledgers, public).files(folder).items():
            (folder / file).write_bytes(content)
        return RunConfig(base=str(folder))

    return make


def test_a_named_ledger_is_compared_as_the_folders_is(spent, saved):
    path, run = spent("run", 3)
    named = {"base_privacy": str(path)}
    honest = saved("honest", (path, run))
    assert lineage_of(honest).runs == lineage_of(replace(honest, **named)).runs == (run,)
    # What promised users nothing is not made a promise to them by its ledger.
    nothing = replace(saved("nothing", (path, replace(run, epsilon=None))), **named)
    assert lineage_of(nothing).runs[0].epsilon is None
    for place, changes in enumerate(
        [{"delta": 1e-12}, {"adjacency": "replace"}, {"epsilon": run.epsilon / 2}]
    ):
        other = saved(f"other{place}", (path, replace(run, **changes)))
        for config in (other, replace(other, **named)):
            with pytest.raises(InputError, match=r"of another adjacency or delta|comes to epsilon"):
                lineage_of(config)


def test_each_ledger_counts_though_its_head_is_anothers(spent, saved, tmp_path):
    path, run = spent("run", 3)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    head_path(copy).write_bytes(head_path(path).read_bytes())
    link = tmp_path / "link"
    link.symlink_to(path.parent)
    config = saved("model", (path, run))

    def runs(*files):
        return lineage_of(replace(config, base_privacy=",".join(map(str, files)))).runs

    assert runs(path) == runs(path, link / path.name, path) == (run,)
    assert runs(path, copy) == (run, run)
    assert lineage_of(saved("twice", (path, run), (path, run))).runs == (run, run)
    (Path(config.base) / "privacy.json").unlink()
    assert runs(path, path) == (run,)
    assert runs(copy, path) == (run, run)


def test_what_was_declared_public_stays_so(spent, saved):
    path, run = spent("run", 3)
    config = saved("model", (path, run), public=True)
    ledger, mine = spent("mine", 2)
    result = {
        "private": True, "proven": True, "privacy_level": "user", "ledger_head": mine.ledger_head,
        "epsilon": mine.epsilon, "delta": mine.delta, "adjacency": mine.adjacency,
    }  # fmt: skip
    then = lineage_of(config).with_run(result, config, ledger)
    assert then.public
    assert then.to_json()["public"]
    declared, earlier = then.sentences()
    assert "declared public" in declared
    assert "THE BASE WAS TRAINED ON USERS, TOO, by 1 earlier run" in earlier
    assert "figure" not in earlier
    # Nor is it asked for again where what was declared public is still there.
    ours = saved("ours", (path, run))
    (Path(ours.base) / "privacy.json").unlink()
    (Path(ours.base) / "murmuration.json").write_text("{}")
    adapter = json.dumps({"base_model_name_or_path": ours.base})
    (Path(config.base) / "adapter_config.json").write_text(adapter)
    assert lineage_of(config).public


def test_a_record_of_other_weights_is_refused(spent, saved):
    cheap, dear = saved("cheap", spent("one", 1)), saved("dear", ledger := spent("nine", 9))
    for file in ("privacy.json", "ledger-1.jsonl", "ledger-1.jsonl.head"):
        shutil.copy(Path(cheap.base) / file, dear.base)
    with pytest.raises(
        InputError, match=r"not known: privacy\.json is about .* other weights; say"
    ):
        lineage_of(dear)
    found = lineage_of(replace(dear, base_privacy=str(ledger[0]))).runs
    assert found == (*lineage_of(cheap).runs, ledger[1])


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
from murmuration.server.config import RunConfig
from murmuration.server.lineage import lineage_of
cached_file("somebody/private", "model.safetensors")
print(*(run.ledger_head for run in lineage_of(RunConfig(base="somebody/private")).runs))
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
    heads = [run.ledger_head for _, run in (first, second)]
    assert done.stdout.split() == heads, done.stderr
    # Without a network what is in the cache is known; of what is damaged there, nothing.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    config = RunConfig(base="somebody/private")
    assert [run.ledger_head for run in lineage_of(config).runs] == heads
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
    (row,) = second["lineage"]["composed"]
    assert row["epsilon"] == pytest.approx(first["epsilon"] + second["epsilon"], rel=1e-12)
    card = (Path(then.out) / "model" / "README.md").read_text()
    assert "THE BASE WAS TRAINED ON USERS, TOO" in card
    (Path(config.out) / "model" / "ledger-1.jsonl").unlink()
    with pytest.raises(InputError, match=r"--features .*ledger-1\.jsonl is missing"):
        run(replace(then, out=config.out + "third"))
    ledger = Path(config.out) / "ledger.jsonl"
    named = replace(then, base_privacy=str(ledger), population="b", disjoint=True)
    assert lineage_of(named).runs[0].ledger_head == first["ledger_head"]


@pytest.mark.parametrize("part", ["lora", "full", "head"])
def test_a_run_on_a_run(config, part):
    first = run(config)
    assert first["lineage"] is None
    then = following(config, train=part, lora_rank=2 if part == "lora" else 0, epsilon=1.0)
    second = run(then)
    row = second["lineage"]["composed"][0]
    assert row["epsilon"] == pytest.approx(first["epsilon"] + second["epsilon"], rel=1e-12)
    assert row["delta"] == 2e-3
    assert [entry["ledger_head"] for entry in second["lineage"]["runs"]] == [
        first["ledger_head"], second["ledger_head"],
    ]  # fmt: skip
    card = (Path(then.out) / "model" / "README.md").read_text()
    assert "THE BASE WAS TRAINED ON USERS, TOO" in card
    (shown,) = {*re.findall(r"whoever was trained on, epsilon = (\S+) and delta = 0\.002", card)}
    assert 0 <= float(shown) - row["epsilon"] <= 1e-4
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
    about["runs"][0]["epsilon"] /= 2
    (model / "privacy.json").write_text(json.dumps(about))
    refused("comes to epsilon")
    (model / "privacy.json").unlink()
    refused(r"not known: .*privacy\.json")
    (model / "murmuration.json").unlink()  # the card still says whose it is
    refused(r"not known: .*privacy\.json")
    public = replace(then, base_privacy="public")
    assert lineage_of(public).public
    assert "declared public" in lineage_of(public).sentences()[0]
    ledger = Path(config.out) / "ledger.jsonl"
    (found,) = lineage_of(replace(then, base_privacy=str(ledger))).runs
    result = json.loads((Path(config.out) / "result.json").read_text())
    assert (found.epsilon, found.ledger_head) == (result["epsilon"], result["ledger_head"])
    with pytest.raises(InputError, match=r"--base-privacy .*nowhere"):
        lineage_of(replace(then, base_privacy=str(tmp_path / "nowhere")))


def test_a_ledger_that_is_named_leaves_no_other_run_out(config):
    first = run(config)
    middle = following(config, epsilon=1.0)
    second = run(middle)
    model, last = Path(middle.out) / "model", following(middle, "third")
    both = first["epsilon"] + second["epsilon"]
    (model / "ledger-1.jsonl").unlink()
    own = replace(last, base_privacy=str(Path(middle.out) / "ledger.jsonl"))
    with pytest.raises(InputError, match=r"ledger-1\.jsonl is missing"):
        lineage_of(own)
    every = ",".join(str(Path(c.out) / "ledger.jsonl") for c in (config, middle))
    found = lineage_of(replace(last, base_privacy=every))
    assert sum(one.epsilon for one in found.runs) == both
    # What is given is counted, whatever the folder says of itself, and each run once.
    (model / "ledger-1.jsonl").write_bytes((Path(config.out) / "ledger.jsonl").read_bytes())
    assert lineage_of(own).runs == found.runs
    assert lineage_of(last).runs == found.runs
    (model / "privacy.json").unlink()
    assert sum(one.epsilon for one in lineage_of(replace(last, base_privacy=every)).runs) == both


def test_disjoint_populations_are_said_to_be_so(config):
    run(replace(config, population="a"))
    said = run(following(config, population="b", disjoint=True))["warnings"][0]
    assert "for the population 'a', epsilon" in said
    assert "for the population 'b', epsilon" in said
    assert said.endswith("Nobody is in two of these populations, as was declared.")


def test_a_base_of_others_has_none(config):
    assert lineage_of(config).runs == ()
    assert lineage_of(replace(config, base="", lora_rank=0)).runs == ()


def test_settings_that_belong_together(config):
    with pytest.raises(InputError, match="--disjoint is about a population"):
        replace(config, disjoint=True)
    for settings in ({"base_privacy": "public"}, {"disjoint": True, "population": "a"}):
        with pytest.raises(InputError, match="is about a language model or an encoder"):
            RunConfig(**settings, features="hashing:64")


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
    assert (run.ledger_head, run.epsilon) == (result["ledger_head"], result["epsilon"])
    assert (run.population, run.disjoint, run.adjacency) == ("clinic", False, "add-remove")
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
    assert (named.ledger_head, named.epsilon) == (run.ledger_head, run.epsilon)


def test_a_head_of_a_run_that_says_too_little_is_refused(head):
    model = head("a", "--epsilon", 2)
    path = model.parent / "result.json"
    result = json.loads(path.read_text())
    for wrong in ({"epsilon": 0.1}, {"ledger_head": "3:" + "0" * 64}, {"delta": 1e-9}):
        path.write_text(json.dumps({**result, **wrong}))
        with pytest.raises(InputError, match="is not known"):
            lineage_of_saved(REWARD[0], str(model), REWARD[1], "")
    path.write_text(
        json.dumps({**result, "lineage": {"public": False, "runs": [{"ledger_head": "x"}]}})
    )
    with pytest.raises(InputError, match="encoder came from runs"):
        lineage_of_saved(REWARD[0], str(model), REWARD[1], "")
    path.unlink()
    with pytest.raises(InputError, match="is not known"):
        lineage_of_saved(REWARD[0], str(model), REWARD[1], "")


def test_another_runs_head_is_not_believed_in_a_runs_place(head):
    model, other = head("a", "--epsilon", 2), head("b", "--strategy", "nonprivate")
    shutil.rmtree(model)
    shutil.copytree(other, model)
    with pytest.raises(InputError, match="weights are not those that the run beside it saved"):
        lineage_of_saved(REWARD[0], str(model), REWARD[1], "")


def test_a_run_that_promised_nothing_makes_nothing_private(head):
    model = head("a", "--strategy", "nonprivate")
    ledger = model.parent / "ledger.jsonl"
    for given in ("", str(ledger)):
        with pytest.raises(InputError, match="promised its users nothing"):
            lineage_of_saved(REWARD[0], str(model), REWARD[1], given)


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
    assert lineage_of_saved("--policy", base, "--policy-privacy", "", may_be_base=True) == Lineage()
