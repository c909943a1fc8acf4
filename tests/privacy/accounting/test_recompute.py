"""The stand-alone recomputation by dp-accounting: releases, parts, and what it leaves out."""

import ast
import inspect
import math
import sys

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from murmuration.privacy.accounting import accountant, events, recompute
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    BufferedGaussian,
    BufferedLater,
    DiscretizedGaussian,
    GroupGaussian,
    HoldOut,
    MixtureGaussian,
    ParallelEvent,
    PoissonGaussian,
    PureChoice,
    PureDp,
    RandomizedLabels,
    Unprotected,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.selection.random_stopping import CandidateCost, RandomStopping

GAUSSIAN = PoissonGaussian(0.2, 4.0)
TERMS = {"adjacency": "add-remove", "delta": 1e-5}


def told(*charges):
    return [(events.to_json(event), times) for event, times in charges]


def test_it_needs_nothing_but_dp_accounting():
    named = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(inspect.getsource(recompute)))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    others = {name.split(".")[0] for name in named} - set(sys.stdlib_module_names)
    assert others == {"dp_accounting"}


@pytest.mark.parametrize(
    ("event", "theirs"),
    [
        (
            GAUSSIAN,
            dp_accounting.PoissonSampledDpEvent(0.2, dp_accounting.GaussianDpEvent(4.0)),
        ),
        (PoissonGaussian(1.0, 40.0), dp_accounting.GaussianDpEvent(40.0)),
        (
            MixtureGaussian(20.0, 2, 0.1),
            dp_accounting.dp_event.MixtureOfGaussiansDpEvent(20.0, [0, 1, 2], [0.81, 0.18, 0.01]),
        ),
    ],
)
def test_it_is_what_its_accountant_makes_of_its_events(event, theirs):
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    expected = accountant.compose(theirs, 50).get_epsilon(1e-5)
    assert recompute.epsilon(told((event, 50)), **TERMS) == pytest.approx(expected, rel=1e-5)


def test_tests_are_counted_each_time():
    assert recompute.epsilon(told((PureDp(0.1), 5)), adjacency="replace", delta=1e-12) == (
        pytest.approx(0.5, abs=1e-3)
    )


def test_a_user_pays_for_the_dearest_part():
    parts = told(
        (ParallelEvent(0, GAUSSIAN), 50),
        (ParallelEvent(1, DiscretizedGaussian(GAUSSIAN, 9, 20)), 100),
        (PureDp(0.1), 1),
    )
    alone = recompute.epsilon(told((GAUSSIAN, 100), (PureDp(0.1), 1)), **TERMS)
    assert recompute.epsilon(parts, **TERMS) == pytest.approx(alone, rel=1e-12)


def test_groups_of_bands_cost_what_the_dearest_does():
    event = BandedGaussian(3, 0.2, 4.0)
    parts = told(*((ParallelEvent(group, event), 34 - bool(group)) for group in range(3)))
    plain = told((PoissonGaussian(0.2, 4.0), 34))
    assert recompute.training(parts) == [plain, told((PoissonGaussian(0.2, 4.0), 33))]
    assert recompute.epsilon(parts, **TERMS) == recompute.epsilon(plain, **TERMS)


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace", "replace-labels"])
def test_a_run_with_buffered_noise_is_one_gaussian_release(adjacency):
    charges = {BufferedGaussian(9, 3, 4.0): 2, BufferedLater(9, 3, 4.0): 8}
    terms = {"adjacency": adjacency, "delta": 1e-5}
    theirs = recompute.epsilon(told(*charges.items()), **terms)
    terms["adjacency"] = Adjacency(adjacency)
    assert theirs == pytest.approx(accountant.epsilon(charges.items(), **terms), abs=1e-4)
    assert recompute.unpaid(told(*charges.items())) == 0
    for later in ((9, 3, 4.5), (9, 4, 4.0), (8, 3, 4.0)):
        assert recompute.unpaid(told(*charges.items(), (BufferedLater(*later), 1))) == 1
    assert recompute.unpaid(told(*charges.items(), (BufferedLater(9, 3, 4.0), 9))) == 1


def test_what_has_no_event_there_is_left_out_and_named():
    more = [
        *HoldOut(0.2, 0.5).charges.items(),
        (PureChoice(0.1), 1),
        (ParallelEvent(0, DiscretizedGaussian(GAUSSIAN, 9, 20)), 5),
        (GroupGaussian(4.0, 3, 0.2), 5),
        (RandomizedLabels(0.1), 1),
        (ParallelEvent(0, BandedGaussian(3, 0.2, 4.0)), 5),
        (BufferedGaussian(9, 3, 4.0), 1),
        (BufferedLater(9, 3, 4.0), 8),
        (RandomStopping(0.0, 0.1, (CandidateCost(0.1, 4.0, 5),)), 1),
        (Unprotected(), 1),
    ]
    plain = told((GAUSSIAN, 5))
    assert recompute.by_our_rules(plain) == []
    assert recompute.by_our_rules(told(*more)) == list(recompute.RULES.values())
    whole = told((PoissonGaussian(1.0, 4.0), 1))
    (exposed,) = recompute.training(told(*more))
    assert sorted(map(str, exposed)) == sorted(map(str, [*plain * 3, *whole]))
    assert recompute.training(told(*more[:3])) == [[]]


def test_every_kind_of_event_is_computed_or_named():
    computed = {"poisson-gaussian", "mixture-gaussian", "pure-dp"}
    assert computed | recompute.RULES.keys() == events._KINDS.keys()


def test_examples_have_no_guarantee_where_they_are_replaced():
    with pytest.raises(ValueError, match="no guarantee under replace"):
        recompute.epsilon(told((MixtureGaussian(8.0, 2, 0.1), 1)), adjacency="replace", delta=1e-5)


def test_the_rule_for_hold_outs_is_the_one_that_is_charged():
    """Written out as the script words it, with a Gaussian's closed form as the training's delta."""
    from murmuration.privacy.mechanisms.hold_out import mixed_delta
    from murmuration.research.theory.analytic_gaussian import delta_of

    h, held, target = 0.2, 0.5, 1.0
    a, into, back = math.exp(target), 0.0, 0.0
    for y in (math.exp(held), math.exp(-held)):
        p, s = 1 / (1 + y), 1 - a * h * y
        into += (1 - h) * p * delta_of(1.0, math.log((a - h * y) / (1 - h)))
        back += p * s * delta_of(1.0, math.log(a * (1 - h) / s))
    ours = mixed_delta(target, HoldOut(h, held), lambda e: delta_of(1.0, e))
    assert max(into, back) == pytest.approx(ours, rel=1e-9)
