"""The node halves by name."""

from dataclasses import replace

import numpy as np
import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies import registry
from murmuration.strategies.protocol.messages import Work
from murmuration.strategies.uls import ULS

GRADIENTS = ("uls", "dp-fedavg", "els", "group", "adaptive", "aup-published", "nonprivate")


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_the_model_that_is_asked_for(make_best_of, make_examples, name):
    parameters = {"round": 1, "group-size": 16, "clip-norm": 1e6, "probability": 1.0, "middle": 0.5}
    parameters |= {"local-steps": 2, "local-rate": 0.5}

    def asked(examples, model):
        theta_D, users_S = np.linspace(-1, 1, 5, dtype=np.float32), np.arange(3)
        work = Work({"theta": theta_D}, {**parameters, "model": model}, users_S)
        found = registry.node_halves()[name].contribute(
            examples, work, np.arange(3, dtype=np.uint64), Randomness(0)
        )
        return np.concatenate([np.ravel(part) for part in found.values()])

    pairs = make_examples([3, 4, 5])
    assert not np.allclose(asked(pairs, "btl"), asked(pairs, "thurstone"), rtol=1e-3)
    np.testing.assert_array_equal(asked(pairs, "btl"), asked(pairs, "plackett-luce"))
    with pytest.raises(InputError, match="use --model plackett-luce"):
        asked(make_best_of([3, 4, 5]), "btl")
    best, ranked = (make_best_of([3, 4, 5], kind=kind) for kind in ("top-1", "ranking"))
    found = [asked(examples, "plackett-luce") for examples in (best, ranked)]
    assert not np.allclose(*found, rtol=1e-2)


def test_every_strategy_has_its_node_half_and_its_own_name():
    for name, strategy in registry.strategies().items():
        assert strategy.name == name
        assert strategy.help.endswith(".") and len(strategy.help) < 90
        assert bool(strategy.node_halves) != strategy.local  # who asks for labels asks for no sum
    halves = [half for s in registry.strategies().values() for half in s.node_halves]
    assert {*halves, registry.COUNTS} == set(registry.node_halves())
    assert len(halves) == len(set(halves))


def test_what_has_no_bound_is_allowed_by_no_policy():
    allowed = registry.allowable()
    for name, strategy in registry.strategies().items():
        bounded = [half.length is not None for half in strategy.node_halves.values()]
        assert (name in allowed) == any(bounded[:1])
    assert "nonprivate" not in allowed
    assert registry.COUNTS not in allowed.values()


class _Point:
    """An entry point of another package."""

    def __init__(self, value):
        self.name, self.value = "theirs", "theirs:THEIRS"
        self.load = lambda: value


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ("no strategy", "names no Strategy"),
        (replace(ULS, node_halves={}), "'uls' is taken"),
        (replace(ULS, name="mine"), "'mine' is taken"),  # its node half is uls's
    ],
)
def test_what_other_packages_bring_takes_nobodys_place(monkeypatch, theirs, message):
    monkeypatch.setattr(registry, "entry_points", lambda group: [_Point(theirs)])
    with pytest.raises(InputError, match=message):
        registry.strategies.__wrapped__()


def test_a_strategy_of_another_package(monkeypatch):
    theirs = replace(ULS, name="mine", node_halves={"mine": ULS.node_halves["uls"]})
    monkeypatch.setattr(registry, "entry_points", lambda group: [_Point(theirs)])
    found = registry.strategies.__wrapped__()
    assert found["mine"] is theirs
    assert list(found)[:-1] == [strategy.name for strategy in registry.OURS]
