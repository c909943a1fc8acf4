"""The node halves by name."""

from server.config import STRATEGIES
from strategies.catalogue import NODE_HALVES
from strategies.nonprivate import NonPrivate
from strategies.uls import Uls


def test_every_strategy_has_its_node_half():
    assert set(NODE_HALVES) == set(STRATEGIES) == {Uls.name, NonPrivate.name}
    for name, half in NODE_HALVES.items():
        assert half.__module__ == f"strategies.{name}"
