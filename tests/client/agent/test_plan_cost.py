"""What plans cost, within limits: the same figure, or a refusal that says which limit."""

import io
import resource
import sys

import pytest

from murmuration.client.agent import plan_cost
from murmuration.client.agent.plan_cost import Costly, bounded_cost
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.protocol.stated_plan import StatedPlan, cost

GAUSSIAN = PoissonGaussian(0.2, 2.0)


def plan(run="a1", adjacency=Adjacency.ZERO_OUT, charges=None):
    charges = charges or {GAUSSIAN: 10}
    return StatedPlan.of(run, adjacency, 1e-6, sum(charges.values()), charges)


def test_it_is_the_cost():
    plans = [plan(), plan("b2", charges={MixtureGaussian(4.0, 8, 0.01): 20})]
    assert bounded_cost(plans, 1e-6) == cost(plans, 1e-6)
    assert bounded_cost([plan(charges={PoissonGaussian(1.0, 0.01): 1})], 1e-6) == float("inf")


def test_what_has_no_guarantee_is_refused_with_its_reason():
    swapped = plan(adjacency=Adjacency.REPLACE, charges={MixtureGaussian(4.0, 8, 0.01): 20})
    with pytest.raises(Costly, match="no guarantee under replace"):
        bounded_cost([swapped], 1e-6)


def test_it_ends_in_time_whatever_there_is_to_compute():
    with pytest.raises(Costly, match=r"more than 0\.05 seconds$"):
        bounded_cost([plan()], 1e-6, patience=0.05)
    wide = plan(charges={PoissonGaussian(0.5, 0.146 + i / 10000): 1 for i in range(8)})
    with pytest.raises(Costly, match="more than 1 seconds of a processor"):
        bounded_cost([wide], 1e-6, seconds=1)


def test_who_dies_of_it_has_not_accounted_for_it(monkeypatch, tmp_path):
    dead = tmp_path / "python"
    dead.write_text("#!/bin/sh\nexit 1\n")
    dead.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(dead))
    with pytest.raises(Costly, match="memory"):
        bounded_cost([plan()], 1e-6)


def test_time_and_memory_are_bounded_before_anything_is_computed(monkeypatch, capsys):
    """In this process, where the limits are only looked at."""
    limits = {}
    monkeypatch.setattr(plan_cost.resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(plan_cost, "cost", lambda plans, delta: float(len(limits)))
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"delta": 1e-6, "plans": [], "seconds": 7}'))
    plan_cost.main()
    assert capsys.readouterr().out == '{"epsilon": 2.0}'
    most = 4 << 30
    assert limits == {resource.RLIMIT_AS: (most, most), resource.RLIMIT_CPU: (7, 8)}


@pytest.mark.parametrize("in_one", [True, False])
def test_there_is_a_budget_of_events(in_one, monkeypatch):
    monkeypatch.setattr(plan_cost.subprocess, "run", None)  # nothing is computed
    many = plan_cost.MOST_EVENTS if in_one else plan_cost.MOST_EVENTS_IN_ALL
    charges = [(PoissonGaussian(0.2, 2.0 + i), 10) for i in range(many + 1)]
    plans = [plan(f"r{i}", charges=dict([charge])) for i, charge in enumerate(charges)]
    with pytest.raises(Costly, match=f"more than {many}"):
        bounded_cost([plan(charges=dict(charges))] if in_one else plans, 1e-6)


def test_runs_of_the_same_settings_are_one_event(monkeypatch):
    plans = [plan(f"r{i}", charges={GAUSSIAN: 1}) for i in range(200)]
    assert bounded_cost(plans, 1e-6) == cost([plan(charges={GAUSSIAN: 200})], 1e-6)
