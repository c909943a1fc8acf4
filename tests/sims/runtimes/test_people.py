"""What all runs below a folder cost the same people: exactly those who were in them, never less."""

import json
import shutil
import stat

import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.terms import RunTerms
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import ReleasedRun
from murmuration.sims.runtimes.people import PLACE, book, keep, paid_before

EVENT = PoissonGaussian(0.5, 1.0)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "murmuration" / "people.key"


@pytest.fixture
def run(tmp_path):
    """A function: a run's folder, unfinished, on these people; its epsilon."""

    def make(name, people=(), rounds=2, adjacency=Adjacency.ADD_REMOVE):
        folder = tmp_path / "runs" / name
        (folder / "private").mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        path = folder / "ledger.jsonl"
        terms = RunTerms(caveats=frozenset())
        with Ledger(path, adjacency=adjacency, delta=1e-5, budget=None, terms=terms) as ledger:
            for round_ in range(1, rounds + 1):
                ledger.charge(EVENT, round_=round_, covers="a sum")
        if people:
            keep(folder, people)
        return folder, ReleasedRun.read(path).epsilon

    return make


def test_whoever_was_in_more_runs_paid_more(run, tmp_path):
    one, first = run("a", ["ann", "bob", "cem"])
    two, second = run("deep/b", ["cem", "dan"], rounds=5)
    dearest, *others = book(tmp_path / "runs")
    assert (dearest.people, dearest.runs) == (1, (one, two))
    assert dearest.promise.epsilon == pytest.approx(first + second)
    assert [(row.people, row.runs) for row in others] == [(1, (two,)), (2, (one,))]
    assert json.loads(json.dumps(dearest.to_json()))["promise"]["epsilon"] == pytest.approx(
        first + second
    )


def test_a_run_that_noted_nobody_counts_for_everybody(run, tmp_path):
    one, first = run("a", ["ann"])
    two, second = run("killed")
    (row,) = book(tmp_path / "runs")
    assert row.runs == (one, two) and row.promise.epsilon == pytest.approx(first + second)
    (one / PLACE).unlink()
    (row,) = book(tmp_path / "runs")
    assert row.people is None and row.promise.epsilon == pytest.approx(first + second)


def test_under_another_key_nobody_is_told_apart(run, tmp_path, home):
    _, first = run("a", ["ann"])
    home.unlink()
    _, second = run("b", ["zoe"])
    assert book(tmp_path / "runs")[0].promise.epsilon == pytest.approx(first + second)


def test_a_run_without_its_settings_is_paid_all_the_same(run, tmp_path):
    one, first = run("a", ["ann"])
    (one / "config.json").unlink()
    assert book(tmp_path / "runs")[0].promise.epsilon == pytest.approx(first)


def test_a_copied_run_is_paid_once(run, tmp_path):
    one, first = run("a", ["ann"])
    shutil.copytree(one, tmp_path / "runs" / "copy")
    assert book(tmp_path / "runs")[0].promise.epsilon == pytest.approx(first)


def test_where_nothing_can_be_added_that_comes_first(run, tmp_path):
    run("a", ["ann"])
    run("b", ["ann", "bob"], adjacency=Adjacency.REPLACE)
    dearest, other = book(tmp_path / "runs")
    assert dearest.promise.epsilon is None and "adjacencies differ" in dearest.promise.statement
    assert other.promise.epsilon is not None


def test_whatever_has_a_ledger_is_counted(run, tmp_path):
    _, first = run("a", ["ann"])
    folder, second = run("figures")
    (folder / "config.json").unlink()  # as of a release that is no run
    (paid,) = book(tmp_path / "runs")
    assert (paid.people, len(paid.runs)) == (1, 2)
    assert paid.promise.epsilon == pytest.approx(first + second)
    keep(folder, ["ann", "bob"])
    assert [row.people for row in book(tmp_path / "runs")] == [1, 1]


def test_runs_of_nobody_are_named(run, tmp_path):
    folder, cost = run("a")
    keep(folder, [])
    (paid,) = book(tmp_path / "runs")
    assert (paid.people, paid.runs) == (None, (folder,))
    assert paid.promise.epsilon == pytest.approx(cost)


def test_what_these_people_paid_before(run, tmp_path):
    new = tmp_path / "runs" / "new"
    assert paid_before(new, ["ann"]) is None
    _, first = run("a", ["ann", "bob"])
    _, second = run("b", ["bob"])
    assert paid_before(new, ["zoe"]) is None
    assert paid_before(new, ["ann", "zoe"]).promise.epsilon == pytest.approx(first)
    paid = paid_before(new, ["ann", "bob"])
    assert (paid.people, len(paid.runs)) == (1, 2)
    assert paid.promise.epsilon == pytest.approx(first + second)
    assert paid.sentence(new.parent).startswith(
        f"1 person of this data set paid before, in 2 runs below {new.parent} (the first: a), which"
    )


def test_nothing_shows_who_it_was(run, home):
    folder, _ = run("a", ["ann@example.org", "bob"])
    text = (folder / PLACE).read_text()
    assert "ann" not in text and "bob" not in text
    for path in (folder / PLACE, home):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert home.read_text() not in text
    people = json.loads(text)["people"]
    assert people == sorted(people) and len(people) == 2


def test_what_is_damaged_is_said(run, tmp_path, home):
    with pytest.raises(InputError, match="no run below it"):
        book(tmp_path)
    folder, _ = run("a", ["ann"])
    (folder / PLACE).write_text('{"key": "x"}')
    with pytest.raises(InputError, match=r"people\.json is damaged"):
        book(tmp_path)
    (folder / PLACE).unlink()
    home.write_text("zz")
    with pytest.raises(InputError, match=r"people\.key cannot be used"):
        keep(folder, ["ann"])
    home.write_text("00")
    with pytest.raises(InputError, match="is damaged: it has 1 bytes"):
        keep(folder, ["ann"])


@pytest.mark.parametrize("people", [5, [[1, 2], [3, 4]]])
def test_what_is_no_list_of_people_is_refused(run, tmp_path, people):
    folder, _ = run("a", ["ann"])
    kept = json.loads((folder / PLACE).read_text())
    (folder / PLACE).write_text(json.dumps({**kept, "people": people}))
    with pytest.raises(InputError, match=r"people\.json is damaged"):
        book(tmp_path)


def test_who_is_noted_twice_paid_once(run, tmp_path):
    folder, epsilon = run("a", ["ann"])
    kept = json.loads((folder / PLACE).read_text())
    (folder / PLACE).write_text(json.dumps({**kept, "people": kept["people"] * 2}))
    (paid,) = book(tmp_path)
    assert (paid.runs, paid.promise.epsilon) == ((folder,), epsilon)


def test_run_says_who_paid_before_and_ledger_all_adds_it_up(cli, crowd, tmp_path, quick_runs):
    """On the terminal, labelled; and in nothing that is for release."""
    common = ("run", "--data", crowd, "--rounds", 2, "--cohort", 10, "--delta", 1e-3, "--users", 40)
    code, _, first = cli(*common, "--epsilon", 2, "--out", tmp_path / "runs" / "one")
    assert code == 0 and not any("paid before" in line for line in first)
    code, _, lines = cli(*common, "--epsilon", 1, "--out", tmp_path / "runs" / "two")
    (told,) = [line for line in lines if "paid before" in line]
    assert told.startswith("operator only: 50 people of this data set paid before, in 1 run")
    assert "ε = 2.00" in told
    code, out, _ = cli("ledger", tmp_path / "runs", "--all-runs", "--json")
    (row,) = json.loads(out)
    assert row["people"] == 50 and len(row["runs"]) == 2
    assert row["promise"]["epsilon"] == pytest.approx(3, rel=0.01)
    code, out, _ = cli("ledger", tmp_path / "runs", "--all-runs")
    assert code == 0 and "50 of the people: User-level DP: ε = 3.00, δ = 0.002" in out
    for path in (tmp_path / "runs").rglob("*"):
        if path.is_file() and "private" not in path.parts:
            assert b"paid before" not in path.read_bytes()


def test_made_up_people_pay_nothing(cli, tmp_path, quick_runs, few_people):
    options = ("--rounds", 2, "--users", 4000, "--epsilon", 1, "--features", "hashing:64")
    assert cli("run", *options, "--out", tmp_path / "runs" / "demo")[0] == 0
    kept = json.loads((tmp_path / "runs" / "demo" / PLACE).read_text())
    assert kept["people"] == []
