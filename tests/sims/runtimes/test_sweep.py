"""Many runs: each is done once, refusals are kept, and a lost machine loses nothing."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.ledger import LedgerInUse
from murmuration.sims.runtimes import sweep
from murmuration.sims.runtimes.ray_cluster import WorkerFailed
from murmuration.sims.runtimes.sweep import Failed, on_cluster, one_by_one, side_by_side
from murmuration.strategies import registry
from murmuration.strategies.spec import NodeHalf, clip_norm

pytestmark = pytest.mark.settings(test="crowd_test", rounds=3, cohort=10, seed=0)


def named(config, name, **changes):
    """Return these settings for a run in a folder of this name."""
    return replace(config, out=f"{config.out}s/{name}", **changes)


def test_runs_that_are_complete_are_read_and_others_resumed(config, quick_runs):
    configs, heard = [named(config, f"r{seed}", seed=seed) for seed in range(2)], []
    first = one_by_one(configs, heard.append)
    assert heard == ["r0", "r1"]
    written = [json.loads((Path(c.out) / "result.json").read_text()) for c in configs]
    assert written == first
    marked = {**written[0], "stopped": "it was read"}
    (Path(configs[0].out) / "result.json").write_text(json.dumps(marked))
    (Path(configs[1].out) / "result.json").unlink()
    again = one_by_one(configs, heard.append)
    assert again[0] == marked
    assert again[1]["heldout_accuracy"] == first[1]["heldout_accuracy"]
    assert again[1]["epsilon"] == first[1]["epsilon"]


def test_a_refusal_is_an_outcome(config, quick_runs):
    refused, done = one_by_one(
        [named(config, "bad", cohort=10**6), named(config, "good")], lambda _: None
    )
    assert isinstance(refused, str)
    assert "--cohort" in refused
    assert isinstance(done, dict)


def test_a_run_whose_nodes_fail_is_no_refusal_and_no_result(config, quick_runs, monkeypatch):
    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setitem(registry.node_halves(), "uls", NodeHalf(fail, clip_norm))
        (failed,) = one_by_one([named(config, "r")], lambda _: None)
    assert isinstance(failed, Failed)
    assert "ran out of memory" in failed.why
    (done,) = one_by_one([named(config, "r")], lambda _: None)
    assert isinstance(done, dict)


def test_a_lost_process_that_still_holds_the_ledger_is_waited_for(config, monkeypatch):
    tried, slept = [], []

    def execute(config, quiet):
        tried.append(config.resume)
        if len(tried) < 3:
            raise InputError("in use") from LedgerInUse("in use")
        return {"out": config.out}

    monkeypatch.setattr(sweep, "execute", execute)
    monkeypatch.setattr(sweep.time, "sleep", slept.append)
    assert one_by_one([named(config, "r")], lambda _: None) == [{"out": named(config, "r").out}]
    assert tried == [False, True, True]
    assert len(slept) == 2


def test_no_runs():
    assert on_cluster([], lambda _: None) == []


def test_runs_that_no_machine_can_hold_are_refused(config, monkeypatch):
    from contextlib import contextmanager
    from types import SimpleNamespace

    @contextmanager
    def small():
        nodes = [{"Alive": True, "Resources": {"CPU": cpus}} for cpus in (2.0, 4.0)]
        yield SimpleNamespace(nodes=lambda: nodes)

    monkeypatch.setattr(sweep, "cluster", small)
    with pytest.raises(InputError, match=r"--cpus-per-run 6: .* the most is 4"):
        on_cluster([named(config, "r")], lambda _: None, cpus=6)


def noted(configs, seen):
    for config in configs:
        seen.append(config.seed)
        yield config


def test_runs_are_side_by_side_and_no_more_than_there_is_room_for(ray, config):
    """Each of the first two waits until the other has begun."""
    there = Path(config.out).parent
    configs = [named(config, "r", seed=seed) for seed in range(4)]

    def run(one):
        mine, other = (there / f"begun-{seed}" for seed in (one.seed, one.seed ^ 1))
        mine.touch()
        deadline = time.monotonic() + 120
        while one.seed < 2 and not other.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return {"seed": one.seed, "met": other.exists()}

    seen, outcomes = [], {}
    for place, outcome in side_by_side(run, noted(configs, seen), retries=0):
        outcomes[place] = outcome
        assert len(seen) <= 2 + len(outcomes)  # the next is asked for when one has ended
    assert sorted(outcomes) == [0, 1, 2, 3] == seen
    assert all(outcomes[place]["seed"] == place for place in range(4))
    assert outcomes[0]["met"] and outcomes[1]["met"]


def test_whoever_stops_asking_stops_what_goes_on(ray, config):
    there = Path(config.out).parent

    def run(one):
        if one.seed == 1:
            (there / "pid").write_text(str(os.getpid()))
            time.sleep(600)
        while not (there / "pid").exists():
            time.sleep(0.05)
        return {}

    ended = side_by_side(run, [named(config, "r", seed=seed) for seed in range(2)], retries=0)
    assert next(ended) == (0, {})
    ended.close()
    pid, deadline = int((there / "pid").read_text()), time.monotonic() + 60
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(pid)


def test_a_run_whose_worker_is_lost_is_begun_again(ray, config):
    there = Path(config.out).parent

    def run(one):
        if not (there / "begun").exists():
            (there / "begun").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"again": True}

    assert [*side_by_side(run, [named(config, "r")], retries=-1)] == [(0, {"again": True})]


def test_without_retries_a_run_whose_worker_is_lost_has_failed_and_was_begun_once(ray, config):
    folder = Path(config.out).parent

    def run(one):
        (folder / f"begun-{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    ((place, outcome),) = side_by_side(run, [named(config, "r")], retries=0)
    assert place == 0
    assert isinstance(outcome, Failed)
    assert "its worker was lost (WorkerCrashedError" in outcome.why
    assert len(list(folder.glob("begun-*"))) == 1


@pytest.mark.parametrize("name", ["OutOfMemoryError", "NodeDiedError", "OutOfDiskError"])
def test_whatever_ends_a_worker_fails_its_run(ray, monkeypatch, name):
    def get(task):
        raise getattr(ray.exceptions, name)("first line\nsecond line")

    monkeypatch.setattr(ray, "get", get)
    failed = sweep._ended(ray, None)
    assert isinstance(failed, Failed)
    assert name in failed.why and "second" not in failed.why


def test_what_a_run_raises_is_one_line_that_names_the_worker(ray, config):
    def run(one):
        raise ZeroDivisionError("raised")

    line = r"^a worker failed \(process \d+ on [\d.]+\): ZeroDivisionError: raised$"
    with pytest.raises(WorkerFailed, match=line) as failure:
        [*side_by_side(run, [named(config, "r")], retries=0)]
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


@pytest.mark.slow
def test_a_sweep_outlives_a_machine_of_its_cluster(config):
    """Two raylets; the one that does not hold the driver is killed while its runs are going."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    configs = [
        named(config, f"{s}-{epsilon:g}-{seed}", strategy=s, epsilon=epsilon, seed=seed, rounds=300)
        for s in ("uls", "dp-fedavg", "aup")
        for epsilon in (1.0, 3.0, 8.0)
        for seed in range(3)
    ]
    ray.shutdown()  # what another test of this process began
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    lost = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    try:
        ended = []

        def on_run(name):
            ended.append(name)
            if len(ended) == 3:
                raylet = lost.all_processes["raylet"][0].process.pid
                os.kill(raylet, signal.SIGKILL)
                deadline = time.monotonic() + 60
                while psutil.pid_exists(raylet) and time.monotonic() < deadline:
                    if psutil.Process(raylet).status() == psutil.STATUS_ZOMBIE:
                        break
                    time.sleep(0.1)

        outcomes = on_cluster(configs, on_run)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert len(outcomes) == 27
    assert all(isinstance(outcome, dict) for outcome in outcomes), outcomes
    for wanted, outcome in zip(configs, outcomes, strict=True):
        assert outcome["out"] == wanted.out
        assert outcome["strategy"] == wanted.strategy
        assert outcome["epsilon"] <= wanted.epsilon
        assert (Path(wanted.out) / "report.html").exists()
