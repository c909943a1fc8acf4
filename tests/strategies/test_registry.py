"""The node halves by name."""

import math
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from murmuration.client.agent.policy import Policy
from murmuration.preference.data.errors import InputError
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import Mechanism, Status, Unit, select
from murmuration.sims.runtimes.execute import execute
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.registry import check_adjacency as check
from murmuration.strategies.settings.declaration import about, declared, setting
from murmuration.strategies.spec import NodeHalf, Strategy
from murmuration.strategies.uls import ULS

GRADIENTS = ("uls", "dp-fedavg", "els", "group", "adaptive", "aup-published", "nonprivate")


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_the_model_that_is_asked_for(make_best_of, make_examples, name):
    parameters = {"round": 1, "group-size": 16, "clip-norm": 1e6, "probability": 1.0, "middle": 0.5}
    parameters |= {"local-steps": 2, "local-rate": 0.5}

    def asked(examples, model):
        theta_D, users_S = np.linspace(-1, 1, 5, dtype=np.float32), np.arange(3)
        work = TrainRequest({"theta": theta_D}, {**parameters, "model": model}, users_S)
        found = registry.node_halves()[name].client_update(
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


def loading(value):
    """What an entry point of another package does, whose module gives the value, or raises it."""

    def load():
        if isinstance(value, BaseException):
            raise value
        return value

    return load


THEIRS = replace(ULS, name="theirs", node_halves={"theirs": ULS.node_halves["uls"]})


@dataclass(frozen=True)
class _Taken:
    epsilon: float = setting(1.0, "Mine.")


@dataclass(frozen=True)
class _TakenFromOthers:
    variant: str = setting("", "Mine.")


@dataclass(frozen=True)
class _Undeclared:
    often: int = 3


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ("no strategy", "it is no Strategy"),
        (ImportError("no module named torch2"), "no module named torch2"),
        (SystemExit(0), "SystemExit"),
        (replace(THEIRS, name="uls"), "it is called 'uls'"),
        (replace(THEIRS, name="mine"), "it is called 'mine'"),
        (replace(THEIRS, node_halves=ULS.node_halves), "'uls' is taken"),
        (replace(THEIRS, node_halves={"counts": ULS.node_halves["uls"]}), "'counts' is taken"),
        (replace(THEIRS, settings=_Taken), "its setting epsilon is taken"),
        (replace(THEIRS, settings=_TakenFromOthers), "its setting variant is taken"),
        (replace(THEIRS, settings=_Undeclared), "its setting often is not declared"),
    ],
)
def test_what_another_package_brings_takes_nobodys_place_and_stops_nobody(brings, theirs, message):
    brings({"theirs": loading(theirs)})
    assert list(registry.strategies()) == [strategy.name for strategy in registry.OURS]
    assert registry.named("uls") is ULS
    with pytest.raises(InputError, match="--strategy theirs cannot be used: .*" + message):
        registry.named("theirs")
    Policy(strategies=("uls",))
    with pytest.raises(InputError, match="policy strategies must be"):
        Policy(strategies=("theirs",))


def test_a_name_of_anothers_node_half_is_taken(brings):
    brings({"aup-centred": loading(replace(THEIRS, name="aup-centred"))})
    with pytest.raises(InputError, match="'aup-centred' is taken"):
        registry.named("aup-centred")


def test_a_strategy_of_another_package(brings):
    brings({"theirs": loading(THEIRS)})
    found = registry.strategies()
    assert found["theirs"] is THEIRS
    assert list(found)[:-1] == [strategy.name for strategy in registry.OURS]


def test_what_is_not_declared_is_refused():
    """Of a strategy that says nothing of itself nothing is promised, masked, or allowed."""
    with pytest.raises(TypeError):
        NodeHalf(ULS.node_halves["uls"].client_update)  # its bound is not said
    silent = Strategy(name="silent", help="Says nothing.", build=ULS.build)
    for adjacency in Adjacency:
        with pytest.raises(Unsupported, match="no guarantee"):
            silent.check_adjacency(adjacency, silent.settings())
    assert not silent.masks(silent.settings())
    assert not any(silent.adds(noise, silent.settings()) for noise in Mechanism)


# Where each strategy has a guarantee, and what it says where it has none.


def test_every_strategy_has_a_theorem_whatever_its_settings():
    for strategy in registry.strategies().values():
        assert strategy.theorems_of(strategy.settings()), strategy.name


def test_a_strategy_whose_rounds_are_another_release_than_it_names_cannot_be_built(
    brings, few_people, tmp_path
):
    """It would be accounted for all the same, but under whose adjacencies nobody had checked."""
    brings({"theirs": loading(replace(THEIRS, theorems=select(Unit.LABELS)))})
    with pytest.raises(ValueError, match="--strategy theirs does not name its theorem"):
        execute(
            RunConfig(strategy="theirs", adjacency="replace-labels", out=str(tmp_path / "run")),
            quiet=True,
        )


def test_what_is_claimed_or_promises_nothing_is_not_proven():
    unproven = {
        strategy.name: {row.status for row in strategy.theorems} - {Status.PROVEN}
        for strategy in registry.strategies().values()
    }
    assert {name for name, others in unproven.items() if others} == {"aup", "nonprivate"}
    aup = registry.named("aup")
    assert aup.is_proven(aup.settings())
    for published in ("published", "published-as-run", "published-theorem-4"):
        assert not aup.is_proven(aup.settings(variant=published))


def test_what_can_be_masked_says_on_which_grid_its_sums_are():
    """A node takes the grid from its own half, and from no request."""
    numbers = {"clip-norm": 0.5, "middle": 0.5, "group-size": 4.0, "policies": 3.0}
    for strategy in registry.strategies().values():
        if strategy.masks(strategy.settings()):
            half = next(iter(strategy.node_halves.values()))
            steps = half.steps(lambda name, default: numbers.get(name, default))
            assert steps and all(0.0 < step < math.inf for step in steps.values())


def _settings(strategy):
    """Own settings of a strategy: the usual ones, and each choice in place of one."""
    usual = strategy.settings()
    yield usual
    for each in declared(strategy.settings):
        for choice in about(each).choices:
            yield replace(usual, **{each.name: choice})


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("name", registry.strategies())
def test_what_no_theorem_covers_is_refused_and_the_advice_works(name, adjacency):
    strategy = registry.named(name)
    for own in _settings(strategy):
        if any(adjacency in row.adjacencies for row in strategy.theorems_of(own)):
            check(name, adjacency, own)
            continue
        with pytest.raises(Unsupported) as caught:
            check(name, adjacency, own)
        message = str(caught.value)
        assert f"{strategy.as_set(own)} has no guarantee under {adjacency}" in message
        ways, others = message.split("; use ")[1].split("or one of the strategies ")
        for relations in re.findall(r"--adjacency ([a-z -]+)", ways):
            for relation in relations.split(" or "):
                check(name, Adjacency(relation.strip()), own)
        for option, choice in re.findall(r"--(sampling|variant) ([\w-]+)", ways):
            check(name, adjacency, replace(own, **{option.replace("-", "_"): choice}))
        for other in others.split(", "):
            check(other, adjacency, registry.named(other).settings())


def test_a_strategy_that_is_none():
    with pytest.raises(InputError, match="--strategy must be one of uls"):
        check("lottery", Adjacency.ZERO_OUT, None)
