"""Nodes are sent what they need to answer: no seed, no folder or file of the server, no setting
that nobody here has thought of.
"""

import json
from pathlib import Path

import pytest

from murmuration.client.app import app as client_app
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")
#: A number that is nowhere by chance.
SEED = 740_119_283
#: Whom it is about, what is computed of them, at which model, and what it may cost.
NEEDED = {"users", "salt", "round", "counts", "model", "theta", "centre", "middle", "length"}
NEEDED |= {"scale"}
NEEDED |= {"features", "kind", "responses", "one-user-per-row", "group-size", "clip-norm"}
NEEDED |= {"shared-passes", "trains", "local-rate", "local-steps", "probability"}
NEEDED |= {
    "strategy",
    "adjacency",
    "epsilon",
    "delta",
    "level",
    "cap",
    "plan",
    "parties",
    "pairing",
    "policies",  # how many there are to choose from
}


class NotingGrid(LocalGrid):
    """Nodes with data of their own; notes what each message holds."""

    def __init__(self, data, state, labels):
        own = {"data": data, "state": str(state), "public-items": True}
        labels_only = {"label-epsilon": 8.0} if labels else {}
        super().__init__(client_app, 1, {}, [{**own, **labels_only}])
        self.names, self.values = set(), []

    def _answer(self, message):
        for record in message.content.config_records.values():
            self.names |= set(record)
            self.values += list(record.values())
        for record in message.content.array_records.values():
            self.names |= set(record)
        assert not message.content.metric_records
        return super()._answer(message)


@pytest.mark.parametrize("strategy", sorted(registry.strategies().keys() - {"exponential"}))
def test_messages_hold_what_is_on_the_list(crowd, tmp_path, strategy):
    named = registry.named(strategy)
    config = RunConfig(
        strategy=strategy, adjacency=min(named.adjacencies).value, epsilon=8.0, delta=1e-3,
        cohort=10, users=20, seed=SEED, out=str(tmp_path / "run"), data="",
        test=crowd, registration="", **({} if named.rounds else {"rounds": 1}),
    )  # fmt: skip
    if strategy == "ranking":
        rows = map(json.loads, Path(crowd).read_text(encoding="utf-8").splitlines())
        items = sorted({row[name] for row in rows for name in ("chosen", "rejected")})
        config = config.changed(items=json.dumps(items), test="", heldout=0.0)
    if strategy == "aup-corrected":  # of a small cohort no filtered mean could be released
        config = config.changed(cohort=20, epsilon=60.0)
    if strategy == "survey":
        config = config.changed(test="", heldout=0.0)
    grid = NotingGrid(crowd, tmp_path / "state", labels=strategy == "local-label")
    run_training(config, grid)
    assert grid.names <= NEEDED
    assert {"users", "plan"} <= grid.names  # it was noted
    held = b"\n".join(v if isinstance(v, bytes) else repr(v).encode() for v in grid.values)
    for private in (SEED, tmp_path, crowd):
        assert str(private).encode() not in held
