"""Rows that models of private runs wrote: whom they name, and what must be named for them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from local_runs import LORA, run

from murmuration.preference.data import sources
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.terms import Caveat
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.server.record.lineage import lineage_of_saved, promise_of_run
from murmuration.server.record.marks import lineage_of_data, lineage_of_rows, mark_of, mark_of_model
from murmuration.strategies.config import RunConfig

pytestmark = [pytest.mark.usefixtures("quick_runs"), pytest.mark.settings(**LORA)]


def test_rows_that_models_made_name_their_runs(spent, saved, write_rows):
    path, one = spent("run", 3)
    promise = Promise((one,))
    marked = write_rows([{"prompt": "a", "response": "b"} | mark_of(promise)], "marked.jsonl")
    plain = write_rows([{"prompt": "a", "response": "b"}], "plain.jsonl")
    assert lineage_of_rows("--sft", plain, "--sft-privacy", "") == Promise()
    with pytest.raises(InputError, match=rf"models of private runs \({one.name}\).*--sft-privacy"):
        lineage_of_rows("--sft", marked, "--sft-privacy", "")
    with pytest.raises(InputError, match="models of private runs"):
        lineage_of_rows("--sft", marked, "--sft-privacy", "public")
    with pytest.raises(InputError, match="models of private runs"):
        lineage_of_rows("--sft", marked, "--sft-privacy", str(spent("other", 1)[0]))
    assert lineage_of_rows("--sft", marked, "--sft-privacy", str(path)) == promise


def test_rows_of_a_model_whose_cost_is_not_known_say_so(spent, saved, write_rows):
    path, one = spent("run", 3)
    folder = Path(saved("model", (path, one)).base)
    assert mark_of_model(str(folder)) == mark_of(Promise((one,)))
    (folder / "privacy.json").unlink()
    (folder / "README.md").write_text("---\nlibrary_name: murmuration\n---\n")
    marked = write_rows([{"prompt": "a", "response": "b"} | mark_of_model(str(folder))], "a.jsonl")
    with pytest.raises(InputError, match=r"private runs \(not-known\).*--sft-privacy"):
        lineage_of_rows("--sft", marked, "--sft-privacy", "")
    assert lineage_of_rows("--sft", marked, "--sft-privacy", str(path)) == Promise((one,))
    assert lineage_of_rows("--sft", marked, "--sft-privacy", "public").public


@pytest.mark.parametrize("mark", [["ab" * 16], 5, {"a": 1}])
def test_a_mark_that_is_no_text_is_refused(tmp_path, mark):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "a", "response": "b", "private_runs": mark}) + "\n")
    with pytest.raises(InputError, match="private_runs is no text"):
        lineage_of_rows("--sft", str(path), "--sft-privacy", "public")


def test_a_mark_names_a_run_as_its_ledger_was(spent, write_rows, tmp_path):
    """A later state of the run covers it; a copy that went on by itself does not."""
    path, one = spent("run", 2)
    mark = mark_of(Promise((one,)))
    assert mark["private_runs"] == f"{one.name}@{one.head.index}:{one.head.hash[:16]}"
    marked = write_rows([{"prompt": "a", "response": "b"} | mark], "marked.jsonl")
    shutil.copytree(path.parent, tmp_path / "copy")
    for folder in (path.parent, tmp_path / "copy"):
        promise = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-3, "budget": None}
        with Ledger(folder / "ledger.jsonl", **promise) as ledger:
            ledger.charge(PoissonGaussian(0.5, 1.0), round_=9, covers="a sum")
    later, forked = path, tmp_path / "copy" / "ledger.jsonl"
    for ledger in (later, forked):  # both go on from where the rows were made
        run = ReleasedRun.read(ledger)
        assert lineage_of_rows("--sft", marked, "--sft-privacy", str(ledger)).runs == (run,)
    of_fork = {"prompt": "a", "response": "b"} | mark_of(Promise((ReleasedRun.read(forked),)))
    both = write_rows([of_fork], "fork.jsonl")
    with pytest.raises(InputError, match=rf"private runs \({one.name}\)"):
        lineage_of_rows("--sft", both, "--sft-privacy", str(later))
    every = lineage_of_rows("--sft", both, "--sft-privacy", f"{later},{forked}")
    assert len(every.counted) == 2
    headless = write_rows([{"prompt": "a", "response": "b", "private_runs": one.name}], "e.jsonl")
    with pytest.raises(InputError, match=rf"private runs \({one.name}\)"):
        lineage_of_rows("--sft", headless, "--sft-privacy", str(path))


def test_a_deployments_server_has_no_rows_to_look_at():
    assert lineage_of_data("--data", "", "") == Promise()


def marked_rows():
    """Rows from a function, as a hub's are: from no file."""
    row = {"user_id": "a", "prompt": "p", "chosen": "c", "rejected": "r"}
    yield row | {"private_runs": "f" * 32}


def test_marks_are_read_wherever_rows_come_from(monkeypatch):
    named = f"{__name__}:{marked_rows.__name__}"
    for option in ("--data", "--test"):
        with pytest.raises(InputError, match=rf"{option} .*private runs \({'f' * 32}\)"):
            lineage_of_data(option, named, "")
    monkeypatch.setattr(sources, "_hub_rows", lambda named: _each_marked())
    with pytest.raises(InputError, match=r"--data someone/rows: .*private runs"):
        lineage_of_data("--data", "someone/rows", "")


def _each_marked():
    return ((f"row {n}", n, row) for n, row in enumerate(marked_rows(), start=1))


def test_a_run_on_rows_that_models_of_private_runs_wrote(config, crowd, write_rows, tmp_path):
    """Its epsilon is about the rows; whoever the models were trained on is in its promise, too."""
    plain = {"data": crowd, "rounds": 2, "cohort": 10, "delta": 1e-3}
    first = RunConfig(**plain, epsilon=3.0, out=str(tmp_path / "first"), seed=5)
    run(first)
    before = promise_of_run(Path(first.out))
    ledger = {"base_privacy": str(Path(first.out) / "ledger.jsonl")}
    rows = [json.loads(line) | mark_of(before) for line in Path(crowd).read_text().splitlines()]
    made = str(write_rows(rows, "rows.jsonl"))
    second = RunConfig(**plain | {"data": made}, epsilon=1.0, out=str(tmp_path / "second"))
    with pytest.raises(InputError, match=r"--data .*private runs .* with --base-privacy$"):
        run(second)
    result = run(replace(second, **ledger))
    promise = promise_of_run(Path(second.out))
    assert len(promise.counted) == 2 and promise.epsilon == pytest.approx(
        sum(one.epsilon for one in promise.runs)
    )
    assert Caveat.SEEDED in promise.caveats and result["private"] is False
    assert result["promise"]["statement"] == promise.statement
    assert result["warnings"][0].startswith("MODELS THAT WROTE THE DATA WERE TRAINED ON USERS, TOO")
    assert promise.statement in (Path(second.out) / "model" / "README.md").read_text()
    model = str(Path(second.out) / "model")
    assert lineage_of_saved("--reward", model, "--reward-privacy", "") == promise
    # A test of such rows: its figures come from the runs too, whose people it does not name.
    theirs = [row | {"user_id": f"other-{row['user_id']}"} for row in rows]
    test = str(write_rows(theirs, "test.jsonl"))
    tested = replace(first, test=test, seed=-1, out=str(tmp_path / "tested"))
    with pytest.raises(InputError, match=r"--test .*private runs .* with --base-privacy$"):
        run(tested)
    run(replace(tested, **ledger))
    of_test = promise_of_run(Path(tested.out))
    assert {one.name for one in before.runs} < {one.name for one in of_test.counted}
    assert of_test.epsilon == pytest.approx(sum(one.epsilon for one in of_test.counted))
    # What is named counts, whatever rows say.
    unmarked = RunConfig(**plain, **ledger, epsilon=1.0, out=str(tmp_path / "unmarked"))
    run(unmarked)
    assert len(promise_of_run(Path(unmarked.out)).counted) == 2
