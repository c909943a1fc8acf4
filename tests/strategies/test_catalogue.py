"""The node halves by name."""

from server.config import STRATEGIES
from strategies.catalogue import NODE_HALVES

#: Strategies that run the same at the nodes as another.
SHARED = {
    "group": "els",
    "aup-centred": "adaptive",
    "aup-corrected": "stacks",
    "aup-published": "stacks",
}


def test_every_strategy_has_its_node_half():
    assert set(STRATEGIES) <= {name.split("-")[0] for name in NODE_HALVES} | set(NODE_HALVES)
    for name, half in NODE_HALVES.items():
        module = SHARED.get(name, name).replace("-", "_")
        assert half.__module__ == f"strategies.{module}"
