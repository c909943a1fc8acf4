"""A search from its grid to its winner: what it promises, what it forgets, how it goes on."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from murmuration import InputError, Run, train, tune
from murmuration.api.ledgers import all_runs
from murmuration.privacy.accounting.ledger import read_account, read_charges
from murmuration.privacy.accounting.terms import Caveat
from murmuration.privacy.selection.random_stopping import CandidateCost, RandomStopping
from murmuration.server.record.lineage import lineage_of_saved
from murmuration.sims.runtimes import execute as execution
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import Reason, RunAborted
from murmuration.tuning import calibration
from murmuration.tuning import candidates as search_candidates
from murmuration.tuning.candidates import CandidateFailed
from murmuration.tuning.search import caveats_of

SMALL: dict[str, Any] = {
    "epsilon": 16.0,
    "delta": 1e-3,
    "rounds": 2,
    "cohort": 10,
    "users": 40,
    "expected_runs": 3,
}
GRID = {"clip_norm": [0.05, 0.2, 0.8]}
#: Of which four candidates are drawn.
SEED = 4

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Candidates are calibrated coarsely: with more noise than they need."""
    monkeypatch.setattr(calibration, "_HALVINGS", 3)


@pytest.fixture
def candidates(monkeypatch):
    """The result, settings and private folder's content of each candidate that was run."""
    seen, whole = [], execution.execute

    def execute(config, **more):
        folder = Path(config.out).parent
        state = json.loads((folder.parents[1] / "search.json").read_text())
        others = sorted(path.name for path in folder.parent.iterdir() if path != folder)
        result = whole(config, **more)
        seen.append((result, config, state, others))
        return result

    monkeypatch.setattr(execution, "execute", execute)
    return seen


def texts_in(folder):
    return b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_caveats_are_those_of_any_point_of_the_grid():
    plain = RunConfig(adjacency="zero-out", heldout=0.2, delta=1e-5, seed=-1)
    assert caveats_of([plain]) == set()
    private = replace(plain, adjacency="add-remove")
    assert caveats_of([plain, private]) == {Caveat.EXACT_USERS.value}
    assert caveats_of([replace(private, users=40)]) == set()
    rows = replace(plain, one_user_per_row=True)
    assert caveats_of([plain, rows]) == {Caveat.ROWS_ARE_USERS.value}
    together = replace(plain, user_passes="shared")
    assert caveats_of([plain, together]) == {Caveat.SHARED_PASSES.value}
    large = replace(plain, features="hashing:262144")  # too many for noise on a grid
    assert caveats_of([large, plain]) == {Caveat.FLOATING_POINT.value}
    chosen = replace(plain, chosen_from_data=True)
    assert caveats_of([plain, chosen]) == {Caveat.CHOSEN_FROM_DATA.value}
    assert caveats_of([replace(large, seed=3), plain]) == {Caveat.SEEDED.value}


def test_a_point_that_no_noise_is_there_for_is_refused_before_anything_is_spent(crowd, tmp_path):
    settings = {**SMALL, "grid": {"features": ["hashing", "hashing:262144"]}, "noise": "discrete"}
    with pytest.raises(InputError, match="for at most 100,000 weights"):
        tune(crowd, out=tmp_path / "t", **settings)
    assert not (tmp_path / "t").exists()


def test_the_winner_has_the_promise_of_the_search_and_nothing_of_the_others(
    crowd, tmp_path, candidates, capfd
):
    run = tune(crowd, grid=GRID, out=tmp_path / "t", seed=SEED, progress=True, **SMALL)
    shown = "".join(capfd.readouterr())
    assert len(candidates) > 2
    results = [result for result, *_ in candidates]
    assert len({result["heldout_accuracy"] for result in results}) > 1
    best = max(result["heldout_accuracy"] for result in results)
    assert run.result["heldout_accuracy"] == best

    # One charge, and the promise is what it composes to.
    (charge,) = read_charges(tmp_path / "t" / "ledger.jsonl")
    assert isinstance(charge.event, RandomStopping)
    assert run.promise.epsilon == run.result["epsilon"] <= 16.0
    assert run.promise.seeded and not run.promise.private
    saved = lineage_of_saved("--reward", str(tmp_path / "t" / "model"), "--reward-privacy", "")
    assert saved.epsilon == run.promise.epsilon
    card = (tmp_path / "t" / "model" / "README.md").read_text()
    assert "THE BEST OF SEVERAL" in card
    assert f"epsilon: {run.result['epsilon']:.2f}"[:12] in card
    assert Caveat.SEEDED.value in read_account(tmp_path / "t" / "ledger.jsonl")[0].terms.caveats

    # Every candidate cost what was charged for; while it ran, one other was kept at most.
    (cost,) = charge.event.candidates
    for _, config, state, others in candidates:
        assert config.epsilon < 16.0 and config.heldout_epsilon == 0.0
        assert len(others) <= 1
        assert len(state["done"]) < len(state["points"]) == len(candidates)
    assert cost.heldout_epsilon == run.result["heldout_epsilon"]

    # Nothing of the others is left, or was shown, nor how many there were.
    losers = [result for result in results if result["heldout_accuracy"] != best]
    left = texts_in(tmp_path / "t")
    for result in losers:
        for secret in (result["run"], result["weights"], repr(result["heldout_accuracy"])):
            assert secret.encode() not in left
            assert secret not in shown
    assert "accuracy" not in shown
    private = {path.name for path in (tmp_path / "t" / "private").iterdir()}
    assert private <= {"lock", "shown.json"}
    times = {path.stat().st_mtime for path in (tmp_path / "t").rglob("*")}
    assert len(times) == 1  # how long it took tells how many there were
    assert Run.load(tmp_path / "t").result == run.result


def test_the_figure_has_noise_and_not_too_much(crowd, tmp_path):
    """A budget for held-out users: its scale is one over that, both ways."""
    few = {**SMALL, "expected_runs": 1.2}
    run = tune(crowd, grid=GRID, out=tmp_path / "t", seed=SEED, **few)
    held, users = run.result["heldout_epsilon"], run.result["heldout_users"]
    assert 0.2 / (held * users) <= run.result["heldout_noise"] <= 8.0 / (held * users)
    (charge,) = read_charges(tmp_path / "t" / "ledger.jsonl")
    assert isinstance(charge.event, RandomStopping)
    assert charge.event.candidates[0].heldout_epsilon == held < 16.0
    assert charge.event.candidates[0].share == 0.2


def test_a_search_that_is_interrupted_goes_on_as_the_same(crowd, tmp_path, monkeypatch, candidates):
    straight = tune(crowd, grid=GRID, out=tmp_path / "a", seed=SEED, **SMALL)
    before, count = len(candidates), 0
    whole = execution.execute

    def killed(config, **more):
        nonlocal count
        count += 1
        result = whole(config, **more)
        if count == 2:  # it has ended, and the search does not know yet
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(execution, "execute", killed)
    with pytest.raises(KeyboardInterrupt):
        tune(crowd, grid=GRID, out=tmp_path / "b", seed=SEED, **SMALL)
    ledger = (tmp_path / "b" / "ledger.jsonl").read_bytes()
    resumed = tune(out=tmp_path / "b", resume=True)
    assert (tmp_path / "b" / "ledger.jsonl").read_bytes().startswith(ledger)
    assert len(read_charges(tmp_path / "b" / "ledger.jsonl")) == 1
    for name in ("heldout_accuracy", "weights", "outcome", "epsilon"):
        assert resumed.result[name] == straight.result[name]
    drawn = [state["points"] for _, _, state, _ in candidates]
    assert all(points == drawn[0] for points in drawn)
    assert len(candidates) == 2 * before + 1
    private = {path.name for path in (tmp_path / "b" / "private").iterdir()}
    assert private <= {"lock", "shown.json"}
    again = tune(out=tmp_path / "b", resume=True)
    assert again.result == resumed.result and len(candidates) == 2 * before + 1


def test_copies_that_both_end_are_two_runs(crowd, tmp_path, monkeypatch):
    whole = execution.execute

    def copied(config, **more):
        if not (tmp_path / "runs" / "copy").exists():
            shutil.copytree(tmp_path / "runs" / "one", tmp_path / "runs" / "copy")
        return whole(config, **more)

    monkeypatch.setattr(execution, "execute", copied)
    one = tune(crowd, grid=GRID, out=tmp_path / "runs" / "one", seed=SEED, **SMALL)
    # Of the copy only the charge is there: it has released nothing.
    shutil.rmtree(tmp_path / "runs" / "copy" / "private" / "candidates")
    assert all_runs(tmp_path / "runs").promise.epsilon == one.promise.epsilon
    two = tune(out=tmp_path / "runs" / "copy", resume=True)
    both = one.promise.epsilon + two.promise.epsilon
    assert all_runs(tmp_path / "runs").promise.epsilon == pytest.approx(both)


@pytest.mark.parametrize("stop", [None, 2])
def test_in_which_order_candidates_end_decides_nothing(
    crowd, tmp_path, monkeypatch, candidates, stop
):
    straight = tune(crowd, grid=GRID, out=tmp_path / "a", seed=SEED, **SMALL)
    heard = []

    def run_all(*given):
        def backwards(configs):
            ended = [*whole(*given)(configs)]
            heard.append(len(ended))
            for count, each in enumerate(reversed(ended)):
                if len(heard) == 1 and count == stop:
                    raise KeyboardInterrupt
                yield each

        return backwards

    whole = search_candidates.run_all
    monkeypatch.setattr(search_candidates, "run_all", run_all)
    if stop is not None:
        with pytest.raises(KeyboardInterrupt):
            tune(crowd, grid=GRID, out=tmp_path / "b", seed=SEED, **SMALL)
        state = json.loads((tmp_path / "b" / "private" / "search.json").read_text())
        assert state["done"] == [3, 2]
        best = max(candidates[4:][2:], key=lambda one: one[0]["heldout_accuracy"])
        folder = tmp_path / "b" / "private" / "candidates" / state["best"]["folder"]
        assert json.loads((folder / "result.json").read_text())["run"] == best[0]["run"]
        backwards = tune(out=tmp_path / "b", resume=True)
        assert heard == [4, 2]
    else:
        backwards = tune(crowd, grid=GRID, out=tmp_path / "b", seed=SEED, **SMALL)
    for name in ("heldout_accuracy", "weights", "outcome", "epsilon"):
        assert backwards.result[name] == straight.result[name]


@pytest.mark.parametrize(
    "error",
    [RunAborted(Reason.NO_ANSWERS), InputError("the disk is full"), MemoryError()],
    ids=["aborted", "refused", "memory"],
)
def test_a_candidate_that_fails_is_the_worst_and_the_others_are_run(
    crowd, tmp_path, monkeypatch, candidates, capfd, error
):
    tune(crowd, grid=GRID, out=tmp_path / "a", seed=SEED, **SMALL)
    score, whole = [result["heldout_accuracy"] for result, *_ in candidates], execution.execute
    best = score.index(max(score))
    begun = []

    def fails(config, **more):
        begun.append(config)
        if len(begun) == best + 1:
            raise error
        return whole(config, **more)

    monkeypatch.setattr(execution, "execute", fails)
    capfd.readouterr()
    run = tune(crowd, grid=GRID, out=tmp_path / "b", seed=SEED, **SMALL)
    assert len(begun) == len(score)
    assert run.result["heldout_accuracy"] == max(score[:best] + score[best + 1 :])
    assert "fail" not in "".join(capfd.readouterr())
    assert str(error).encode() not in texts_in(tmp_path / "b") or not str(error)
    assert not (tmp_path / "b" / "private" / "candidates").exists()


def test_where_every_candidate_fails_nothing_is_released(crowd, tmp_path, monkeypatch):
    begun = []

    def fails(config, **more):
        begun.append(config)
        raise InputError("the disk is full")

    monkeypatch.setattr(execution, "execute", fails)
    with pytest.raises(CandidateFailed, match=r"every candidate failed.*disk is full.*another"):
        tune(crowd, grid=GRID, out=tmp_path / "t", seed=SEED, **SMALL)
    there = {path.name for path in (tmp_path / "t").iterdir()}
    assert there == {"config.json", "ledger.jsonl", "ledger.jsonl.head", "private"}
    with pytest.raises(CandidateFailed, match="failed before"):  # and none is run again
        tune(out=tmp_path / "t", resume=True)
    assert len(begun) == 4


def test_what_was_drawn_is_never_drawn_again(crowd, tmp_path, monkeypatch):
    def killed(config, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(execution, "execute", killed)
    out = tmp_path / "t"
    with pytest.raises(KeyboardInterrupt):
        tune(crowd, grid=GRID, out=out, **SMALL)
    state = (out / "private" / "search.json").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        tune(out=out, resume=True)
    assert json.loads(state)["points"] == json.loads(
        (out / "private" / "search.json").read_bytes()
    )["points"]  # fmt: skip
    with pytest.raises(InputError, match="holds a run already"):
        tune(crowd, grid=GRID, out=out, **SMALL)
    with pytest.raises(InputError, match="no settings"):
        tune(out=out, resume=True, epsilon=9.0)
    with pytest.raises(InputError, match="is a search"):
        train(out=out, resume=True)
    (out / "private" / "search.json").unlink()
    with pytest.raises(InputError, match="not drawn again"):
        tune(out=out, resume=True)
    (out / "private" / "search.json").write_bytes(state)
    ledger = (out / "ledger.jsonl").read_bytes()
    (out / "ledger.jsonl").write_bytes(ledger.replace(b'"rounds": 2', b'"rounds": 1'))
    with pytest.raises(InputError):
        tune(out=out, resume=True)
    shutil.rmtree(out)
    with pytest.raises(InputError, match="there is no search"):
        tune(out=out, resume=True)


def test_a_candidate_that_costs_more_than_was_charged_ends_the_search(crowd, tmp_path, monkeypatch):
    spent = CandidateCost.of_charges

    def dearer(charges):
        return spent({event: times + 1 for event, times in charges.items()})

    monkeypatch.setattr(CandidateCost, "of_charges", staticmethod(dearer))
    with pytest.raises(InputError, match="charged more than was planned"):
        tune(crowd, grid=GRID, out=tmp_path / "t", seed=SEED, **SMALL)
    assert not (tmp_path / "t" / "model").exists()
    assert not (tmp_path / "t" / "result.json").exists()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"strategy": "els"}, 'strategy="els" cannot be searched'),
        ({"strategy": "adaptive"}, 'strategy="adaptive" cannot be searched'),
        ({"strategy": "nonprivate"}, 'strategy="nonprivate" cannot be searched'),
        ({"sampling": "all", "adjacency": "zero-out"}, 'sampling="poisson"'),
        ({"sampling": "banded"}, 'sampling="poisson"'),
        ({"adjacency": "replace"}, 'adjacency="replace" cannot be searched'),
        ({"heldout": 0.0}, "needs a score"),
        ({"task": "sft", "base": "x"}, "."),
        ({"noise": "distributed", "secure_aggregation": True}, "."),
        ({"clip_norm": 0.3}, "beside the grid"),
        ({"expected_runs": 1.0}, "expected_runs"),
        ({"eta": -1.0}, "eta"),
        ({"grid": {"rounds": [0, 2]}}, "."),
        ({"grid": {"strategy": ["uls", "els"]}}, 'strategy="els" cannot be searched'),
        ({"grid": None}, "grid"),
        ({"epsilon": 0.001, "expected_runs": 300.0, "delta": 1e-9}, "."),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything(crowd, tmp_path, settings, why):
    given: dict[str, Any] = {**SMALL, "grid": GRID, **settings}
    with pytest.raises(InputError, match=why):
        tune(crowd, out=tmp_path / "t", **given)
    assert not (tmp_path / "t").exists()
