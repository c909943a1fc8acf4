"""Who takes part: at the start, and when users come and go."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_runs import private_log

from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server import participants as module
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol.availability import RunAborted

pytestmark = pytest.mark.settings(
    data="", test="crowd_test", epsilon=8.0, rounds=6, cohort=10, users=20, timeout=0.5
)


@pytest.fixture(autouse=True)
def come_and_go(refreshed):
    refreshed(2)


class Coming(LocalGrid):
    """Nodes with files of their own, of which some are away in some rounds."""

    def __init__(self, files, away=()):
        super().__init__(client_app, len(files), {"seed": 3})
        for context, file in zip(self._contexts.values(), files, strict=True):
            context.node_config = {"data": file}
        self.away, self.asked = dict(away), []

    def get_node_ids(self):
        return [node for node in self._contexts if not self._gone(node)]

    def _gone(self, node):
        return self.round in self.away.get(node, ())

    @property
    def round(self):
        return max([r for r, _ in self.asked], default=0)

    def push_messages(self, outgoing):
        outgoing = list(outgoing)
        self.asked += [(int(m.metadata.group_id), m.metadata.dst_node_id) for m in outgoing]
        return super().push_messages(outgoing)

    def pull_messages(self, ids):
        here = [i for i in ids if i not in self._pending or not self._gone(self._to(i))]
        return super().pull_messages(here)

    def _to(self, message_id):
        return self._pending[message_id].metadata.dst_node_id


@pytest.fixture
def files(make_rows, tmp_path):
    """Files of three nodes: users 0–3, 4–6 and 7–8."""
    found = []
    rows = make_rows([3] * 9)
    for start, stop in ((0, 4), (4, 7), (7, 9)):
        names = {f"u{user:03}" for user in range(start, stop)}
        path = tmp_path / f"{start}.jsonl"
        mine = [row for row in rows if row["user_id"] in names]
        path.write_text("".join(json.dumps(row) + "\n" for row in mine))
        found.append(str(path))
    return found


def cohort_nodes(grid, round_):
    return {node for r, node in grid.asked if r == round_}


def test_who_comes_later_is_asked_from_the_next_refresh_on(quick_runs, config, files):
    grid = Coming(files, {3: (0, 1)})
    run_training(replace(config, cohort=20), grid)
    assert all(3 not in cohort_nodes(grid, r) for r in (1, 2))
    assert all(3 in cohort_nodes(grid, r) for r in (3, 4, 5, 6))


def test_who_leaves_counts_as_zero_and_everybody_stays_charged(quick_runs, config, files, tmp_path):
    grid = Coming(files, {2: range(3, 100)})
    result = run_training(replace(config, cohort=20), grid)
    assert result["rounds"] == 6
    assert len(read_charges(tmp_path / "run" / "ledger.jsonl")) == 6
    late = {
        line["round"] for line in private_log(config) if line.get("left out") == "no reply in time"
    }
    assert late == {3, 4, 5, 6}  # still invited: the sampling does not know who is there
    assert result["cohort"] == 20  # and the denominator is the nominal one


def test_who_comes_back_is_counted_again(quick_runs, config, files, tmp_path):
    grid = Coming(files, {1: (3, 4)})
    run_training(replace(config, cohort=20), grid)
    late = {line["round"] for line in private_log(config) if "left out" in line}
    assert late == {3, 4}


def test_a_node_that_fails_ends_a_run_only_where_nobody_may_come_and_go(
    quick_runs, config, files, tmp_path, refreshed
):
    (tmp_path / "0.jsonl").unlink()
    assert run_training(config, Coming(files))["rounds"] == 6
    refreshed(0)
    with pytest.raises(InputError, match="data of this node cannot be read"):
        run_training(replace(config, out=config.out + "-fixed"), Coming(files))


def test_too_few_nodes(quick_runs, config, files):
    grid, folder = Coming(files), Path(config.out)
    with pytest.raises(RunAborted, match="too few nodes"):
        run_training(replace(config, min_nodes=4), grid)
    assert grid.asked == []
    assert json.loads((folder / "aborted.json").read_text())["aborted"] == "too few nodes"
    (line,) = private_log(config)
    assert line["nodes online"] == 3
    result = run_training(replace(config, resume=True), Coming(files))
    assert result["rounds"] == 6
    assert not (folder / "aborted.json").exists()


def test_a_refresh_that_finds_nobody_changes_nothing(quick_runs, config, files, monkeypatch):
    grid, folder = Coming(files), RunDirectory(config)
    first = module.participants(config, grid, folder, json.dumps(HashingFeatures().to_config()))
    strategy = type("S", (), {"participants": first, "slow": set(), "features": "nonsense"})()
    module.refresh(config, grid, folder, strategy, 3)
    assert len(strategy.participants.registry) == len(first.registry)
    assert np.array_equal(strategy.participants.train, first.train)
