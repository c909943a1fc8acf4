"""The worst case over all runs below a folder: never less than what somebody may have paid."""

import json
import shutil

import numpy as np
import pytest

from murmuration.api.ledgers import all_runs
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.terms import RunTerms, new_run_id
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import ReleasedRun

EVENT = PoissonGaussian(0.5, 1.0)


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def run(runs):
    """A function: a run's folder, unfinished; its epsilon."""

    def make(name, rounds=2, adjacency=Adjacency.ADD_REMOVE, **terms):
        folder = runs / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"strategy": "uls"}')
        path = folder / "ledger.jsonl"
        terms = RunTerms(**{"run": new_run_id(), "caveats": frozenset(), **terms})
        with Ledger(path, adjacency=adjacency, delta=1e-5, budget=None, terms=terms) as ledger:
            for round_ in range(1, rounds + 1):
                ledger.charge(EVENT, round_=round_, covers="a sum")
        return folder, ReleasedRun.read(path).epsilon

    return make


def test_all_runs_add_up(run, runs):
    one, first = run("a")
    two, second = run("deep/b", rounds=5)
    (two / "config.json").unlink()  # as of a release that is no run
    total = all_runs(runs)
    assert (total.runs, total.without_ledger) == ((one, two), ())
    assert total.promise.epsilon == pytest.approx(first + second)
    assert total.statement.startswith("2 runs, for whoever was in all of them: User-level DP")
    told = json.loads(json.dumps(total.to_json()))
    assert told["promise"]["epsilon"] == pytest.approx(first + second)
    assert [each["epsilon"] for each in told["costs"]] == [first, second]


def test_but_for_those_that_were_declared_disjoint(run, runs):
    _, first = run("a", population="a", run="1" * 32)
    _, second = run("b", 5, population="b", disjoint_from=frozenset({"1" * 32}))
    assert all_runs(runs).promise.epsilon == pytest.approx(max(first, second))
    _, third = run("c", population="c")  # of which nobody said anything
    assert all_runs(runs).promise.epsilon == pytest.approx(max(first, second) + third)


def test_a_copied_run_is_paid_once_unless_both_went_on(run, runs):
    one, first = run("a")
    shutil.copytree(one, runs / "copy")
    assert all_runs(runs).promise.epsilon == pytest.approx(first)
    head = ReleasedRun.read(one / "ledger.jsonl")
    for folder in (one, runs / "copy"):
        with Ledger(
            folder / "ledger.jsonl",
            adjacency=head.adjacency,
            delta=head.delta,
            budget=None,
            terms=head.terms,
        ) as ledger:
            ledger.charge(EVENT, round_=3, covers="a sum")
    both = ReleasedRun.read(one / "ledger.jsonl").epsilon
    assert all_runs(runs).promise.epsilon == pytest.approx(2 * both)


def test_where_nothing_can_be_added_there_is_no_figure(run, runs):
    run("a")
    run("b", adjacency=Adjacency.REPLACE)
    assert all_runs(runs).promise.epsilon is None
    assert "adjacencies differ" in all_runs(runs).statement


def test_each_run_is_listed_with_what_it_cost(run, runs, cli):
    folder, _ = run("a")
    _, out, _ = cli("ledger", runs, "--all-runs")
    line = next(line for line in out.splitlines() if str(folder) in line)
    assert "ε = " in line and "δ = " in line


@pytest.mark.parametrize(
    ("trace", "text"),
    [
        ("config.json", '{"strategy": "uls"}'),
        ("config.json", '{"search": {}}'),
        ("result.json", '{"ledger_head": "1:a"}'),
        ("metrics.jsonl", ""),
        ("released.json", "{}"),
        ("aborted.json", "{}"),
        ("ledger.jsonl.head", ""),
        ("private/keys.json", "{}"),
        ("private/search.json", "{}"),
        ("model/privacy.json", "{}"),
        ("model/README.md", "library_name: murmuration\n"),
    ],
)
def test_a_trace_of_a_run_without_its_ledger_makes_the_sum_unknown(run, runs, cli, trace, text):
    run("a")
    path = runs / "b" / trace
    path.parent.mkdir(parents=True)
    path.write_text(text)
    code, out, _ = cli("ledger", runs, "--all-runs")
    first, *others = out.splitlines()
    assert code == 1 and others == [f"  {runs / 'a'}"]
    assert first.startswith(f"what all runs cost is not known: {runs / 'b'} has files of a run")
    code, out, _ = cli("ledger", runs, "--all-runs", "--json")
    assert code == 1 and json.loads(out)["promise"] is None
    assert json.loads(out)["without_ledger"] == [str(runs / "b")]


def test_what_is_no_run_is_none(run, runs):
    _, first = run("a")
    for name, text in (
        ("bert/config.json", '{"model_type": "bert"}'),
        ("align/config.json", '{"format": "murmuration-aligned-1"}'),
        ("align/metrics.jsonl", ""),
        ("winrate/result.json", '{"models": []}'),
    ):
        (runs / name).parent.mkdir(parents=True, exist_ok=True)
        (runs / name).write_text(text)
    (runs / "mine").mkdir()
    RewardModel(np.zeros(64), HashingFeatures(64)).save(runs / "mine" / "model")
    total = all_runs(runs)
    assert not total.without_ledger and total.promise.epsilon == pytest.approx(first)


def test_what_is_damaged_is_said(run, runs, tmp_path):
    with pytest.raises(InputError, match="no run below it"):
        all_runs(tmp_path)
    folder, _ = run("a")
    (folder / "ledger.jsonl").write_text("")
    with pytest.raises(InputError, match=f"{folder}: .*was emptied"):
        all_runs(runs)


def test_other_ids_of_the_same_people_hide_nothing(cli, make_rows, write_rows, runs, quick_runs):
    """E-mails in one file and numbers in the other: both runs count, and one that was deleted."""
    rows = make_rows([4] * 50)
    common = ("--rounds", 2, "--cohort", 10, "--delta", 1e-3, "--users", 40, "--epsilon", 1)
    for name, ids in (("mail", "{}@example.org"), ("number", "{}")):
        named = [row | {"user_id": ids.format(row["user_id"])} for row in rows]
        data = write_rows(named, f"{name}.jsonl")
        assert cli("run", "--data", data, *common, "--out", runs / name)[0] == 0
    code, out, _ = cli("ledger", runs, "--all-runs", "--json")
    assert code == 0 and json.loads(out)["promise"]["epsilon"] == pytest.approx(2, rel=0.01)
    code, out, _ = cli("ledger", runs, "--all-runs")
    assert code == 0 and "User-level DP: ε = 2.00, δ = 0.002" in out.splitlines()[0]
    for file in runs.glob("number/ledger.jsonl*"):
        file.unlink()
    code, out, _ = cli("ledger", runs, "--all-runs")
    assert code == 1 and str(runs / "number") in out and "ε" not in out
