"""A deadline from made-up users: of the public sizes, and of nothing else."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from murmuration.client.app import app as client_app
from murmuration.server import probe
from murmuration.server.probe import FACTOR, FLOOR, OF_NODES, deadline
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import registry
from murmuration.strategies.spec import NodeHalf, clip_norm

pytestmark = [
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.settings(test="crowd_test", epsilon=8.0, rounds=1, cohort=20, out=""),
]


@pytest.fixture
def built(monkeypatch, tmp_path):
    """A function: what a config builds, and the deadline of its probe."""

    def of(config):
        found = []
        real = deadline

        def watched(config, built, base, measured):
            found.append((config, built, base, real(config, built, base, measured)))
            return found[-1][-1]

        monkeypatch.setattr("murmuration.server.training.deadline", watched)
        config = replace(config, out=str(tmp_path / f"run-{len(list(tmp_path.iterdir()))}"))
        run_training(config, LocalGrid(client_app, 1, config.to_run_config()))
        ((config, made, base, seconds),) = found
        return config, made, base, seconds

    return of


def test_a_choice_is_waited_for_as_long_as_anything(choice_config, built, monkeypatch):
    monkeypatch.setattr(probe, "_seconds", None)  # so many policies are not tried out
    _, made, _, seconds = built(choice_config)
    assert seconds == made.strategy.timeout == FLOOR


# One of them chooses among policies, which must be named: above; one needs a list of items.
@pytest.mark.parametrize(
    "strategy", sorted(registry.strategies().keys() - {"exponential", "ranking"})
)
def test_every_strategy_has_one(config, built, strategy):
    adjacency = min(registry.named(strategy).adjacencies).value
    if strategy == "survey":  # which measures nobody
        config = replace(config, test="", heldout=0.0)
    _, made, _, seconds = built(replace(config, strategy=strategy, adjacency=adjacency))
    assert seconds == made.strategy.timeout == FLOOR


@pytest.mark.parametrize("variant", ["corrected", "published"])
def test_of_the_filters(config, built, variant):
    wide = replace(config, cohort=50, users=50, epsilon=200.0, clip_norm=50.0)
    assert built(wide.changed(strategy="aup", variant=variant))[3] == FLOOR


@pytest.mark.parametrize("task", ["reward", "sft", "text"])
def test_of_language_models(config, built, crowd_texts, language_model, task, monkeypatch):
    base = {"base": language_model("gpt2"), "lora_rank": 2, "task": task, "max_tokens": 9}
    if task == "text":
        base |= {"data": crowd_texts, "test": crowd_texts}
    monkeypatch.setattr(probe, "_seconds", None)  # nodes have tried it, not the server
    config, made, found, seconds = built(replace(config, **base))
    assert seconds >= FLOOR
    whole = 20 * made.group_size
    measured = [1e-6, 2.0, 2.0, 2.0, 1e9]  # one node's word does not count
    assert deadline(config, made, found, measured) == max(FLOOR, OF_NODES * 2.0 * whole)
    assert deadline(config, made, found, [2000.0]) == OF_NODES * 2000.0 * whole


def test_it_is_a_multiple_of_what_a_cohort_would_take(config, built, monkeypatch):
    """A clock that goes on by a second for each judgement of the work."""
    now = [0.0]
    monkeypatch.setattr(probe, "time", SimpleNamespace(monotonic=lambda: now[0]))
    config, made, base, _ = built(config)
    asked = []

    def node_half(examples, work, keys_S, source):
        asked.append(examples.start_U.numpy())
        assert np.array_equal(work.arrays["theta"], made.strategy.optimizer.theta_D)
        assert examples.dimension == base.dimension
        now[0] += float(asked[-1][-1]) / 1000
        return {}

    monkeypatch.setitem(registry.node_halves(), "uls", NodeHalf(node_half, clip_norm))
    whole = 20 * made.group_size
    assert deadline(config, made, base) == max(FLOOR, FACTOR * whole / 1000)
    longer = replace(config, cohort=20_000)
    assert deadline(longer, made, base) == pytest.approx(FACTOR * 20_000 * made.group_size / 1000)
    assert all(max(np.diff(start_U)) <= made.group_size for start_U in asked)
    assert max(start_U[-1] for start_U in asked) == 64  # the first that takes long enough


def test_what_is_asked_for_is_not_probed(config, monkeypatch, tmp_path):
    monkeypatch.setattr("murmuration.server.training.deadline", None)
    config = replace(config, timeout=7.0, out=str(tmp_path / "run"))
    run_training(config, LocalGrid(client_app, 1, config.to_run_config()))


def test_a_server_that_cannot_do_the_work_waits_as_long_as_it_must(config, monkeypatch, tmp_path):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("murmuration.server.training.deadline", fail)
    out = tmp_path / "run"
    config = replace(config, out=str(out))
    assert run_training(config, LocalGrid(client_app, 1, config.to_run_config()))["rounds"] == 1
    log = (out / "private" / "log.jsonl").read_text().splitlines()
    assert json.loads(log[0]) == {"timeout": FLOOR, "not probed": "MemoryError: "}
