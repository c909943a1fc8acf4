"""A data set of preferences on disk: whole or not at all, with what it stands on beside it."""

import json

import pytest

from murmuration.alignment import data_set
from murmuration.alignment.data_set import Made, card, save
from murmuration.alignment.synthesis import Preferences
from murmuration.preference.data.rows import InputError
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.terms import RunTerms
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.reporting.promise import paragraphs
from murmuration.server.lineage import lineage_of_model, lineage_of_rows, mark_of

NOTHING = {"empty answers": 0, "equal texts": 2, "equal scores": 0}
ROW = {
    "prompt": "Spend\u2028or save?",
    "chosen": "Save it.",
    "rejected": "Spend!",
    "score_chosen": 1.5,
    "score_rejected": -0.25,
}
FOUND = Preferences([ROW] * 3, NOTHING)
MADE = Made("ab" * 32, "cd" * 32, "", "", "public prompts", 5, 4, {"pairs": "all", "seed": 0})


@pytest.fixture
def lineage(tmp_path):
    """A function: a lineage of runs with honest ledgers, from adjacency and population of each."""

    def make(*runs):
        promise = Promise()
        for number, (adjacency, population) in enumerate(runs):
            path = tmp_path / f"of{number}.jsonl"
            terms = RunTerms(population=population, caveats=frozenset({"floating-point noise"}))
            adjacency = Adjacency(adjacency)
            with Ledger(path, adjacency=adjacency, delta=1e-5, budget=None, terms=terms) as ledger:
                ledger.charge(PoissonGaussian(0.1, 1.0), round_=1, covers="a sum")
            promise |= Promise((ReleasedRun.read(path),))
        return promise

    return make


def test_the_folder_says_what_it_stands_on(lineage, tmp_path):
    one, out = lineage(("add-remove", "")), tmp_path / "new" / "data"
    save(out, FOUND, MADE, one)
    names = ["README.md", "ledger-1.jsonl", "ledger-1.jsonl.head", "privacy.json", "train.jsonl"]
    assert sorted(path.name for path in out.iterdir()) == names
    lines = (out / "train.jsonl").read_text().split("\n")
    assert [json.loads(line) for line in lines[:-1]] == [ROW | mark_of(one)] * 3
    run, head = json.loads(lines[0])["private_runs"].split("@")
    assert run == one.runs[0].terms.run and str(one.runs[0].head).startswith(head)
    assert lineage_of_model("data", str(out), "advice") == one
    assert lineage_of_rows("--sft", str(out / "train.jsonl"), "--sft-privacy", "") == one
    assert [path.name for path in out.parent.iterdir()] == ["data"]
    assert "drawn in floating point" in (out / "README.md").read_text()


def test_a_populations_name_is_no_markup(lineage):
    text = card(FOUND, MADE, lineage(("add-remove", "<img src=x>"), ("add-remove", "b")))
    assert "&lt;img" in text and "<img" not in text


def test_other_rows_are_not_what_it_is_about(lineage, tmp_path):
    save(tmp_path / "data", FOUND, MADE, lineage(("add-remove", "")))
    with (tmp_path / "data" / "train.jsonl").open("a") as file:
        file.write(json.dumps(ROW) + "\n")
    with pytest.raises(InputError, match="about other rows"):
        lineage_of_model("data", str(tmp_path / "data"), "advice")


def test_a_ledger_that_was_edited_is_noticed(lineage, tmp_path):
    save(tmp_path / "data", FOUND, MADE, lineage(("add-remove", "")))
    ledger = tmp_path / "data" / "ledger-1.jsonl"
    ledger.write_text(
        ledger.read_text().replace('"noise_multiplier": 1.0', '"noise_multiplier": 9.0')
    )
    with pytest.raises(InputError, match="not known"):
        lineage_of_model("data", str(tmp_path / "data"), "advice")


def test_what_is_declared_public_stays_so(tmp_path):
    save(tmp_path / "data", FOUND, MADE, Promise().declared_public())
    found = lineage_of_model("data", str(tmp_path / "data"), "advice")
    assert found.public
    assert found.runs == ()


def test_nothing_is_overwritten_or_left_behind(lineage, tmp_path):
    one = lineage(("add-remove", ""))
    save(tmp_path / "data", FOUND, MADE, one)
    with pytest.raises(InputError, match="already exists"):
        save(tmp_path / "data", FOUND, MADE, one)
    with pytest.raises(InputError, match=r"no pair is left of 5 prompts .*2 pairs of equal texts"):
        save(tmp_path / "none", Preferences([], NOTHING), MADE, one)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        save(tmp_path / "file" / "data", FOUND, MADE, one)
    assert not (tmp_path / "none").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".data")]


def test_interrupted_nothing_is_there(lineage, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(data_set, "files_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "data", FOUND, MADE, Promise())
    assert list(tmp_path.iterdir()) == []


def test_epsilons_of_runs_on_the_same_people_are_added(lineage):
    both = lineage(("add-remove", ""), ("add-remove", ""))
    text = card(FOUND, MADE, both)
    total = sum(run.epsilon for run in both.runs)
    said = float(text.split("ε = ")[1].split(",")[0])
    assert total <= said <= total * 1.02 + 0.01
    for words in ("2 runs together", "δ = 2e-5", "User-level DP", Adjacency.ADD_REMOVE.sentence):
        assert words in text
    assert "basic composition" in " ".join(paragraphs(both))


def test_the_card(lineage):
    text = card(FOUND, MADE, lineage(("add-remove", "clinic")))
    head, body = text.removeprefix("---\n").split("\n---\n")
    assert "data_files: train.jsonl" in head
    assert "- differential-privacy" in head
    for said in (
        "the population 'clinic'",
        "any trainer",
        "no user of these runs any further",
        "DPOTrainer",
    ):
        assert said in body
    for said in ("no user column", "`score_chosen`", "2 pairs of equal texts", "cd" * 32):
        assert said in body
    public = card(FOUND, MADE, Promise().declared_public())
    assert "differential-privacy" not in public
    assert "ε =" not in public
