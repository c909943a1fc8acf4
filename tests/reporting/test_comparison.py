"""Runs beside each other: epsilon never too small, and warnings where they do not compare."""

import json
import math
import shutil
from html import escape

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import epsilon_text
from murmuration.reporting.comparison import comparison_page, read_run, warnings_of


@pytest.fixture
def made(tmp_path, make_result):
    """A function: a run's folder, with a ledger; with a result if there are changes to one."""

    def make(
        name,
        result=True,
        adjacency="add-remove",
        delta=1e-5,
        drawn=False,
        noise=1.0,
        **changes,
    ):
        folder = tmp_path / name
        folder.mkdir()
        said = {"strategy": "uls", "delta": delta, "adjacency": adjacency, "rounds": 200}
        (folder / "config.json").write_text(json.dumps({**said, **changes.pop("config", {})}))
        terms = {"adjacency": Adjacency(adjacency), "delta": delta}
        with Ledger(
            folder / "ledger.jsonl", budget=50.0 if noise == 1.0 else None, **terms
        ) as ledger:
            event = PoissonGaussian(0.1, noise)
            ledger.charge(event, round_=1, covers="gradient sum", seeded=drawn)
            head = str(ledger.head)
            spent = ledger.epsilon() if noise == 1.0 else 1.0
        if result:
            same = {"ledger_head": head, "epsilon": spent, "adjacency": adjacency, "delta": delta}
            tested = {"baselines": {"test_digest": "a", "longer_wins": 0.6}}
            (folder / "result.json").write_text(json.dumps(make_result(**same, **tested) | changes))
        return folder

    return make


def test_runs_that_compare(made):
    runs = [read_run(made("a")), read_run(made("b"))]
    assert not [text for text in warnings_of(runs) if "compared" in text]
    assert runs[0].line()[8] == "74.3 % ± 2.5" and runs[0].line()[9] == "60.0 %"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"adjacency": "replace"}, "adjacency (add-remove, replace)"),
        ({"delta": 1e-6}, "δ (1e-5, 1e-6)"),
        ({"one_user_per_row": True}, "unit that is protected (user, row)"),
        ({"baselines": {"test_digest": "b", "longer_wins": 0.6}}, "different people"),
        ({"baselines": None}, "different people"),
    ],
)
def test_what_does_not_compare_is_told(made, changes, told):
    runs = [read_run(made("a")), read_run(made("b", **changes))]
    assert any(told in text for text in warnings_of(runs))
    assert told in comparison_page(runs)


def test_choosing_the_best_by_hand_costs_what_all_cost(made, tmp_path):
    one, two = read_run(made("a")), read_run(made("b"))
    told = f"ε = {epsilon_text(one.epsilon + two.epsilon)}, δ = 2e-5 together"
    for text in (*warnings_of([one, two])[:1], comparison_page([one, two])):
        assert f"choosing the best of them by hand is a release of each: {told}" in text
    shutil.copytree(tmp_path / "a", tmp_path / "copy")  # the same run
    assert told in " ".join(warnings_of([one, read_run(tmp_path / "copy"), two]))
    other = read_run(made("c", adjacency="replace"))
    assert "what that costs together has no figure" in " ".join(warnings_of([one, other]))
    assert not any("by hand" in text for text in warnings_of([one]))


def test_an_unfinished_run_has_the_ledgers_epsilon(made):
    finished, unfinished = read_run(made("a")), read_run(made("b", result=False))
    assert unfinished.epsilon == pytest.approx(finished.epsilon)
    assert "not ended" in warnings_of([unfinished])[0]
    assert unfinished.line()[8] == "not there yet"


def test_epsilon_is_never_smaller_than_the_ledgers(made):
    """Whatever a result says that is not of this ledger, or was edited."""
    right = read_run(made("a")).epsilon
    other_head = {"epsilon": 0.01, "ledger_head": "1:" + "0" * 64}
    for name, edited in (("b", other_head), ("c", {"epsilon": 0.01}), ("d", {"epsilon": -1.0})):
        run = read_run(made(name, **edited))
        assert run.epsilon == pytest.approx(right) and "do not agree" in run.missing[0]


@pytest.mark.parametrize("changes", [{"result": False}, {"seeded": False}])
def test_a_seed_that_the_ledger_knows_follows_epsilon(made, changes):
    folder = made("a", drawn=True, **changes)
    assert read_run(folder).line()[2].endswith("(simulation, seed known)")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_charges_that_cannot_be_composed_are_no_epsilon(made):
    run = read_run(made("a", noise=1e-300))
    assert run.epsilon == math.inf and "cannot be composed" in run.missing[0]


def test_what_the_base_cost_is_said(made):
    promise = {"runs": [{}, {}], "statement": "User-level DP: ε = 4.00 (simulation, seed known)"}
    told = warnings_of([read_run(made("a", promise=promise))])
    assert any("of this run alone" in text and promise["statement"] in text for text in told)


@pytest.mark.parametrize("result", [True, False])
def test_without_a_whole_ledger_it_is_unknown(made, result):
    folder = made("a", result=result)
    ledger = folder / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-40])
    run = read_run(folder)
    assert run.epsilon == math.inf and run.line()[2] == "unknown"


def test_texts_stay_texts(made):
    hostile = "<script>alert(1)</script>"
    text = comparison_page([read_run(made("a", strategy=hostile))])
    assert hostile not in text and escape(hostile) in text and "http" not in text


def test_no_run(tmp_path):
    with pytest.raises(InputError, match="there is no run in it"):
        read_run(tmp_path)
