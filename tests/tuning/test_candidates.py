"""Candidates on a cluster: the search that they make is that of one process, bit for bit."""

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from murmuration import InputError, tune
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.sims.runtimes import Runtime
from murmuration.sims.runtimes import execute as execution
from murmuration.sims.runtimes.sweep import Failed
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import Reason, RunAborted
from murmuration.tuning import calibration, candidates
from murmuration.tuning.candidates import CandidateFailed

SMALL: dict[str, Any] = {
    "grid": {"clip_norm": [0.05, 0.2, 0.8]},
    "epsilon": 16.0,
    "delta": 1e-3,
    "rounds": 2,
    "cohort": 10,
    "users": 40,
    "expected_runs": 3,
    "seed": 4,
}


@pytest.fixture(scope="module")
def here(crowd, tmp_path_factory):
    """A search in one process, and the results of its four candidates."""
    results, whole = [], execution.execute

    def execute(config, **more):
        results.append(whole(config, **more))
        return results[-1]

    out = tmp_path_factory.mktemp("here") / "t"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "_HALVINGS", 3)
        patch.setattr(execution, "execute", execute)
        winner = tune(crowd, out=out, **SMALL)
    return winner, results


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_on_ray_the_search_is_the_same(ray, here, crowd, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(calibration, "_HALVINGS", 3)
    one, results = here
    out = tmp_path / "t"
    winner = tune(crowd, out=out, runtime="ray", progress=True, **SMALL)
    shown = "".join(capfd.readouterr())
    for name in ("heldout_accuracy", "heldout_noise", "weights", "outcome", "epsilon"):
        assert winner.result[name] == one.result[name], name
    models = [run.path / "model" / "model.safetensors" for run in (winner, one)]
    assert models[0].read_bytes() == models[1].read_bytes()
    assert len(read_charges(out / "ledger.jsonl")) == 1
    # A reader of the folder sees no more than of a search in one process.
    assert files(out) == files(one.path)
    assert (out / "config.json").read_bytes() == (one.path / "config.json").read_bytes()
    assert len({path.stat().st_mtime for path in out.rglob("*")}) == 1
    left = b"\n".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    losers = [each for each in results if each["weights"] != winner.result["weights"]]
    assert len(losers) == 3
    for loser in losers:
        for secret in (loser["weights"], repr(loser["heldout_accuracy"])):
            assert secret.encode() not in left and secret not in shown
    assert "candidate" not in shown and shown.count("how many runs there are is secret") == 1


def test_an_interrupted_search_goes_on_where_it_is_said(ray, here, crowd, tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "_HALVINGS", 3)
    whole, heard = candidates.side_by_side, []

    def stopped(*given, **more):
        for each in whole(*given, **more):
            heard.append(each)
            yield each
            if len(heard) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(candidates, "side_by_side", stopped)
    with pytest.raises(KeyboardInterrupt):
        tune(crowd, out=tmp_path / "t", runtime="ray", **SMALL)
    state = json.loads((tmp_path / "t" / "private" / "search.json").read_text())
    assert len(state["done"]) == 2 and len(state["points"]) == 4
    resumed = tune(out=tmp_path / "t", resume=True)  # in one process
    for name in ("heldout_accuracy", "weights", "outcome", "epsilon"):
        assert resumed.result[name] == here[0].result[name]
    assert files(tmp_path / "t") == files(here[0].path)


def test_a_candidate_whose_worker_dies_is_not_begun_again(ray, crowd, tmp_path, monkeypatch):
    """Coins that killed it may decide what it would have come to."""
    monkeypatch.setattr(calibration, "_HALVINGS", 3)
    begun = tmp_path / "begun"
    begun.mkdir()

    def dies(config, **more):
        Path(tempfile.mkdtemp(dir=begun))
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(candidates, "afresh", dies)
    one = {**SMALL, "expected_runs": 1.2}
    with pytest.raises(CandidateFailed, match=r"every candidate failed.* worker was lost"):
        tune(crowd, out=tmp_path / "t", runtime="ray", **one)
    state = json.loads((tmp_path / "t" / "private" / "search.json").read_text())
    assert len(list(begun.iterdir())) <= len(state["points"]) == len(state["done"])
    assert not (tmp_path / "t" / "result.json").exists()


def test_a_failure_on_ray_is_said_as_in_one_process(ray, crowd, tmp_path):
    config = RunConfig(data=crowd, test=crowd, out=str(tmp_path / "r"))
    Path(config.out).mkdir()
    for runtime in (Runtime.LOCAL, Runtime.RAY):
        ((place, outcome),) = candidates.run_all(runtime, None, 1)([config])
        assert place == 0
        assert isinstance(outcome, Failed) and "--test" in outcome.why


def test_more_processors_than_there_are(ray, tmp_path):
    run = candidates.run_all(Runtime.RAY, None, 3)
    with pytest.raises(InputError, match=r"--cpus-per-run 3: .* the most is 2"):
        list(run([RunConfig(out=str(tmp_path / "r"))]))


def test_a_candidate_is_alone_below_a_new_folder(tmp_path, monkeypatch):
    seen = []

    def execute(config, *, runtime, users_per_node, quiet, on_note):
        seen.append((Path(config.out), runtime, users_per_node, quiet, on_note("line")))
        raise RunAborted(Reason.NO_ANSWERS)

    monkeypatch.setattr(execution, "execute", execute)
    configs = [RunConfig(out=str(tmp_path))] * 2
    outcomes = dict(candidates.run_all(Runtime.LOCAL, 7, 1)(configs))
    assert [*outcomes] == [0, 1]
    assert all(isinstance(each, Failed) and "answered" in each.why for each in outcomes.values())
    folders = [out for out, *_ in seen]
    assert len({out.parent for out in folders}) == 2
    for out in folders:
        assert out.parent.parent == tmp_path and not out.exists()
        assert [*out.parent.iterdir()] == []
    assert {tuple(more) for _, *more in seen} == {(Runtime.LOCAL, 7, True, None)}
