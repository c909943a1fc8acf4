"""The node halves by name."""

import numpy as np
import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.protocol.messages import Work
from murmuration.strategies.registry import NODE_HALVES
from murmuration.strategies.settings import STRATEGIES

#: Strategies that run the same at the nodes as another.
SHARED = {
    "group": "els",
    "aup-centred": "adaptive",
    "aup-corrected": "stacks",
    "aup-published": "stacks",
}


GRADIENTS = ("uls", "dp-fedavg", "els", "group", "adaptive", "aup-published", "nonprivate")


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_the_model_that_is_asked_for(make_best_of, make_examples, name):
    parameters = {"round": 1, "group-size": 16, "clip-norm": 1e6, "probability": 1.0, "middle": 0.5}
    parameters |= {"local-steps": 2, "local-rate": 0.5}

    def asked(examples, model):
        theta_D, users_S = np.linspace(-1, 1, 5, dtype=np.float32), np.arange(3)
        work = Work({"theta": theta_D}, {**parameters, "model": model}, users_S)
        found = NODE_HALVES[name](examples, work, np.arange(3, dtype=np.uint64), Randomness(0))
        return np.concatenate([np.ravel(part) for part in found.values()])

    pairs = make_examples([3, 4, 5])
    assert not np.allclose(asked(pairs, "btl"), asked(pairs, "thurstone"), rtol=1e-3)
    np.testing.assert_array_equal(asked(pairs, "btl"), asked(pairs, "plackett-luce"))
    with pytest.raises(InputError, match="use --model plackett-luce"):
        asked(make_best_of([3, 4, 5]), "btl")
    best, ranked = (make_best_of([3, 4, 5], kind=kind) for kind in ("top-1", "ranking"))
    found = [asked(examples, "plackett-luce") for examples in (best, ranked)]
    assert not np.allclose(*found, rtol=1e-2)


def test_every_strategy_has_its_node_half():
    gradients = set(STRATEGIES) - {"local-label"}  # which asks for labels
    assert gradients <= {name.split("-")[0] for name in NODE_HALVES} | set(NODE_HALVES)
    for name, half in NODE_HALVES.items():
        module = SHARED.get(name, name).replace("-", "_")
        assert half.__module__ == f"strategies.{module}"
