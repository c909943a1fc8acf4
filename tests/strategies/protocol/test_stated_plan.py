"""Plans as nodes see them: what is stated arrives unchanged, and what it costs is computed anew."""

import json
import math
import tracemalloc

import pytest
from scipy import stats

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.accountant import epsilon
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    BufferedGaussian,
    BufferedLater,
    GroupGaussian,
    ParallelEvent,
    PoissonGaussian,
    PureChoice,
    PureDp,
)
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.distributed import DistributedNoise
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.selection.random_stopping import CandidateCost, RandomStopping
from murmuration.strategies.protocol.stated_plan import (
    MOST_EVENTS,
    MOST_EVENTS_IN_ALL,
    StatedPlan,
    charged,
    cost,
)

GAUSSIAN = PoissonGaussian(0.2, 2.0)
PURE = {"kind": "pure-dp", "epsilon": 1.0}


def plan(run="a1", adjacency=Adjacency.ZERO_OUT, delta=1e-6, rounds=10, charges=None):
    return StatedPlan.of(run, adjacency, delta, rounds, charges or {GAUSSIAN: rounds})


def test_a_plan_arrives_as_it_was_stated():
    stated = plan(charges={GAUSSIAN: 10, PureDp(0.5): 1})
    assert StatedPlan.from_json(stated.to_json()) == stated


def test_the_cost_is_computed_from_the_charges():
    expected = epsilon([(GAUSSIAN, 10)], adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    assert plan().epsilon() == pytest.approx(expected)
    assert cost([plan(), plan("b2")], 1e-6) == pytest.approx(
        epsilon([(GAUSSIAN, 20)], adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    )
    assert cost([], 1e-6) == 0.0


@pytest.mark.parametrize(
    "charges",
    [
        {BufferedLater(52, 5, 4.0): 10},
        {BufferedLater(52, 5, 4.0): 52, BufferedGaussian(52, 5, 4.0): 1},
        {BufferedLater(52, 5, 4.0): 10, BufferedGaussian(52, 6, 4.0): 1},
        {BufferedLater(52, 5, 4.0): 10, ParallelEvent(0, BufferedGaussian(52, 5, 4.0)): 1},
        {ParallelEvent(0, BufferedGaussian(52, 5, 4.0)): 1},
    ],
)
def test_what_no_first_one_pays_for_is_no_plan(charges):
    with pytest.raises(ValueError, match="first ones pay for"):
        plan(charges=charges)


def test_a_plan_with_buffered_noise_costs_what_one_release_does():
    charges = {BufferedGaussian(52, 5, 4.0): 1, BufferedLater(52, 5, 4.0): 51}
    stated = plan(rounds=52, charges=charges)
    assert StatedPlan.from_json(stated.to_json()) == stated
    whole = [(PoissonGaussian(1.0, 4.0), 1)]
    expected = epsilon(whole, adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    assert stated.epsilon() == pytest.approx(expected, abs=2e-4)


def test_whose_turn_it_is_nobody_can_see_at_a_node():
    """Groups are the server's word: everybody counts as being in all of them."""
    event = BandedGaussian(2, 0.4, 2.0)
    stated = plan(charges={ParallelEvent(0, event): 5, ParallelEvent(1, event): 5})
    assert StatedPlan.from_json(stated.to_json()) == stated
    plain = plan(charges={PoissonGaussian(0.4, 2.0): 10})
    assert stated.epsilon() == pytest.approx(plain.epsilon(), abs=2e-4)


def test_who_promises_nothing_costs_everything():
    assert cost([StatedPlan("a", Adjacency.ZERO_OUT, 1e-6, 5, ())], 1e-6) == math.inf
    for event in (PoissonGaussian(1.0, 1e-9), ParallelEvent(1, PoissonGaussian(1.0, 1e-9))):
        assert cost([plan(charges={event: 10})], 1e-6) == math.inf


def test_what_pays_for_fewer_releases_than_it_has_rounds_costs_everything():
    others = {PureDp(0.1): 5, PureChoice(0.1): 5, HoldOut(0.2, 0.1): 5}
    short = plan(charges={GAUSSIAN: 9, **others})
    assert cost([short], 1e-6) == cost([plan("b2"), short], 1e-6) == math.inf
    assert (
        cost([plan(charges={ParallelEvent(1, GAUSSIAN): 4, ParallelEvent(2, GAUSSIAN): 6})], 1e-6)
        < 10.0
    )


@pytest.mark.parametrize(
    "charges",
    [
        {MixtureGaussian(4.0, 10**6, 0.01): 10},
        {GroupGaussian(100.0, 1001, 0.01): 10},
        {PoissonGaussian(1.0, 0.049): 1, PoissonGaussian(0.2, 20.0): 9},
        {RandomStopping(1.0, 0.1, (CandidateCost(0.1, 2.0, 5),)): 10},
        {DiscretizedGaussian(MixtureGaussian(4.0, 10**5, 0.01), 33, 28): 10},
        {DiscretizedGaussian(MixtureGaussian(1e6, 10**6, 1e-3), 33, 28): 10},
        {MixtureGaussian(0.5, 1000, 0.5): 10},
        {GroupGaussian(0.06, 2, 1.0): 1000},
        {PoissonGaussian(1.0, 1.0): 100_000},
        {ParallelEvent(1, PoissonGaussian(1.0, 0.06)): 1000},
        {PureDp(1.0): 10**6, GAUSSIAN: 10},
        # Eight, none of which is wide by itself: this took minutes.
        {PoissonGaussian(1.0, 0.06 + i / 1000): 2 for i in range(8)},
        {ParallelEvent(i, PoissonGaussian(1.0, 0.06 + i / 1000)): 2 for i in range(8)},
    ],
)
def test_what_would_keep_a_node_computing_for_long_is_refused_before(charges, monkeypatch):
    monkeypatch.setattr(
        "murmuration.strategies.protocol.stated_plan.accountant.epsilon", None
    )  # is not asked
    assert cost([plan(charges=charges)], 1e-6) == math.inf


@pytest.mark.parametrize("in_one", [True, False])
def test_there_is_a_budget_of_events(in_one, monkeypatch):
    monkeypatch.setattr(
        "murmuration.strategies.protocol.stated_plan.accountant.epsilon", None
    )  # is not asked
    many = MOST_EVENTS if in_one else MOST_EVENTS_IN_ALL
    charges = [(PoissonGaussian(0.2, 2.0 + i), 10) for i in range(many + 1)]
    plans = [plan(f"r{i}", charges=dict([charge])) for i, charge in enumerate(charges)]
    with pytest.raises(ValueError, match=f"more than {many}"):
        cost([plan(charges=dict(charges))] if in_one else plans, 1e-6)


WORST = {
    "far": (lambda i: PoissonGaussian(1e-9, 0.2 + i * 1e-6), 10_000, Adjacency.REPLACE),
    "often": (lambda i: PoissonGaussian(1e-3, 1e6 + i), 1_000_000, Adjacency.ZERO_OUT),
    "often, of groups": (
        lambda i: MixtureGaussian(1e5 + i, 1000, 0.5),
        10_000,
        Adjacency.ZERO_OUT,
    ),
    "groups": (lambda i: MixtureGaussian(1000.0 + i, 1000, 0.5), 1, Adjacency.ZERO_OUT),
    "converted": (lambda i: GroupGaussian(0.2, 1000 - i, 1e-6), 1, Adjacency.REPLACE),
}


#: Refused before anything is computed: no grid is coarse enough.
REFUSED = {"often, of groups", "groups"}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_that_is_computed_is_bounded_in_work_and_memory(name, monkeypatch):
    """As many different events as there may be, all of them as dear as one can be."""
    made, times, adjacency = WORST[name]
    events = [made(i) for i in range(MOST_EVENTS_IN_ALL)]
    plans = [
        plan(
            f"r{i}", adjacency, rounds=1, charges=dict.fromkeys(events[i : i + MOST_EVENTS], times)
        )
        for i in range(0, MOST_EVENTS_IN_ALL, MOST_EVENTS)
    ]
    grids, real = [], accountant.epsilon

    def noted(*charges, interval, **terms):
        grids.append(interval)
        return real(*charges, interval=interval, **terms)

    monkeypatch.setattr("murmuration.strategies.protocol.stated_plan.accountant.epsilon", noted)
    tracemalloc.start()
    try:
        if name in REFUSED:
            with pytest.raises(ValueError, match="would take minutes"):
                cost(plans, 1e-6)
        else:
            assert cost(plans, 1e-6) >= 0.0
        assert tracemalloc.get_traced_memory()[1] < 600e6
    finally:
        tracemalloc.stop()
    (interval,) = grids
    dearest, size = events[0], 1
    if isinstance(dearest, MixtureGaussian):
        size = dearest.group_size
    elif isinstance(dearest, GroupGaussian):  # accounted for as of one example, then converted
        dearest = PoissonGaussian(dearest.probability, dearest.noise_multiplier)
    numbers = (stats.binom.pmf(range(size + 1), size, dearest.probability) > 1e-25).sum()
    points = sum(len(loss.mass_N) for loss in dearest.loss(adjacency, interval))
    assert len(events) * points * numbers < 2e8


def test_as_many_releases_as_can_be_stated_are_refused_in_time():
    events = [PoissonGaussian(1e-3, 1e6 + i) for i in range(MOST_EVENTS)]
    with pytest.raises(ValueError, match="too many"):
        cost([plan(f"r{i}", charges=dict.fromkeys(events, 10_000_000)) for i in range(1000)], 1e-6)


def test_a_coarser_grid_for_many_events_errs_upward():
    events = [PoissonGaussian(1e-6, 0.2 + i / 1000) for i in range(16)]
    plans = [plan(f"r{i}", rounds=1, charges={event: 2}) for i, event in enumerate(events)]
    runs = [[(event, 2)] for event in events]
    fine = epsilon(*runs, adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    assert fine < cost(plans, 1e-6) <= fine * 1.01


def test_runs_of_the_same_settings_are_one_event():
    plans = [plan(f"r{i}", rounds=1, charges={GAUSSIAN: 1}) for i in range(200)]
    assert cost(plans, 1e-6) == cost([plan(charges={GAUSSIAN: 200})], 1e-6)


def test_what_has_no_guarantee_has_no_cost():
    swapped = plan(adjacency=Adjacency.REPLACE, charges={MixtureGaussian(4.0, 8, 0.01): 20})
    with pytest.raises(ValueError, match="no guarantee under replace"):
        cost([swapped], 1e-6)


def test_what_runs_state_is_computed():
    for event, times in (
        (MixtureGaussian(4.0, 32, 0.01), 2000),
        (PoissonGaussian(0.01, 0.5), 1000),
        (PoissonGaussian(1.0, 50.0), 10_000),
        (GroupGaussian(20.0, 4, 0.1), 200),
    ):
        assert cost([plan(charges={event: times})], 1e-6) < 100.0


def test_a_wide_loss_is_computed_on_a_coarser_grid_which_errs_upward():
    event = PoissonGaussian(1.0, 0.2)
    fine = epsilon([(event, 1)], adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    assert fine < cost([plan(charges={event: 1}, rounds=1)], 1e-6) <= fine * 1.001


def test_parts_are_added_up_because_nobody_here_can_see_that_they_are_disjoint():
    both = plan(charges={ParallelEvent(1, GAUSSIAN): 10, ParallelEvent(2, GAUSSIAN): 10}, rounds=20)
    assert cost([both], 1e-6) == pytest.approx(
        epsilon([(GAUSSIAN, 20)], adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    )
    one, other = (plan(f"run{n}", charges={ParallelEvent(n, GAUSSIAN): 10}) for n in (1, 2))
    assert cost([one, other], 1e-6) == pytest.approx(cost([both], 1e-6))


def test_who_is_held_out_from_one_run_may_be_in_the_next():
    held = HoldOut(0.2, 0.5)
    one, other = (plan(run, charges={GAUSSIAN: 10, **held.charges}) for run in ("a", "b"))
    alone = epsilon([(GAUSSIAN, 10)], adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    assert cost([one], 1e-6) < alone
    together = epsilon([(GAUSSIAN, 20), (PureDp(0.5), 2)], adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    assert cost([one, other], 1e-6) == pytest.approx(together)


def test_a_share_held_out_beyond_half_is_not_believed():
    """With a share of 0.999999 and next to nothing said of them, any run came to nothing."""
    for share, believed in ((0.2, True), (0.5, True), (0.51, False), (0.999999, False)):
        held = HoldOut(share, 1e-9)
        found = plan(charges={PoissonGaussian(1.0, 1.0): 10, **held.charges})
        assert found.held_out == share
        assert math.isfinite(cost([found], 1e-6)) == believed
    assert plan().held_out == 0.0
    hidden = plan(charges={GAUSSIAN: 10, ParallelEvent(1, HoldOut(0.9, 0.1)): 1})
    assert hidden.held_out == 0.9


def test_how_many_releases_about_held_out_users_a_plan_pays_for():
    held = HoldOut(0.2, 0.5)
    assert plan().figures == plan(charges={GAUSSIAN: 10, held.coins: 1}).figures == 0
    assert plan(charges={GAUSSIAN: 10, **held.charges}).figures == 1
    assert plan(charges={GAUSSIAN: 10, held.coins: 1, held: 3}).figures == 3


def test_charges_are_counted_over_plans_and_parts():
    plans = [
        plan(charges={ParallelEvent(1, GAUSSIAN): 4, GAUSSIAN: 6}),
        plan("b", charges={GAUSSIAN: 10}),
    ]
    assert charged(plans) == {GAUSSIAN: 20}


def test_no_sum_over_adjacencies():
    with pytest.raises(ValueError, match="different adjacencies"):
        cost([plan(), plan("b", adjacency=Adjacency.REPLACE)], 1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"run": ""},
        {"run": "a b"},
        {"run": "x" * 65},
        {"adjacency": "sideways"},
        {"delta": 0.0},
        {"delta": "nan"},
        {"rounds": 0},
        {"rounds": 2.5},
        {"rounds": True},
        {"charges": [[{"kind": "magic"}, 1]]},
        {"charges": [[{"kind": "pure-dp", "epsilon": 1.0}, -1]]},
        {"charges": [[{"kind": "pure-dp", "epsilon": 1.0}, 1]] * 65},
        {"charges": 7},
    ],
)
def test_what_is_no_plan_is_refused(change):
    data = {**json.loads(plan().to_json()), **change}
    with pytest.raises(ValueError, match=r"plan|run|delta|rounds|charges"):
        StatedPlan.from_json(json.dumps(data))


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "poisson-gaussian", "probability": 1.0, "noise_multiplier": 10**400},
        {"kind": "on-part", "part": 1, "event": 5},
        {"kind": "on-part", "part": 1, "event": {"kind": "on-part", "part": 1, "event": PURE}},
        {"kind": "on-part", "part": [1], "event": PURE},
    ],
)
def test_events_that_are_none_are_refused(event):
    data = {**json.loads(plan().to_json()), "charges": [[event, 10]]}
    with pytest.raises(ValueError, match="not a plan"):
        StatedPlan.from_json(json.dumps(data))


def test_many_charges_are_refused_before_any_is_looked_at(monkeypatch):
    monkeypatch.setattr("murmuration.strategies.protocol.stated_plan.events.from_json", None)
    data = {**json.loads(plan().to_json()), "charges": [[{}, 1]] * 100_000}
    with pytest.raises(ValueError, match="at most 64 kinds"):
        StatedPlan.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "[" * 100_000])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match="not a plan"):
        StatedPlan.from_json(text)


def test_what_the_server_itself_sees_of_a_plan():
    """Of noise that agents add, what everybody in every round costs; of other noise, no promise."""
    shares = DistributedNoise(10, 4).charged(PoissonGaussian(0.1, 8.0))
    plan = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 10, {shares: 10})
    everybody = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 10, {PoissonGaussian(1.0, 8.0): 10})
    assert plan.against_server(4).epsilon() == pytest.approx(everybody.epsilon(), abs=1e-4)
    assert plan.against_server(9) == plan.against_server(4)
    assert plan.against_server(2).epsilon() > plan.against_server(4).epsilon()
    assert StatedPlan.from_json(plan.to_json()) == plan
    assert everybody.against_server(4).epsilon() == math.inf


@pytest.mark.parametrize("second", [{HoldOut(0.3): 1}, {ParallelEvent(1, HoldOut(0.2)): 1}])
def test_two_coins_are_two_runs_and_no_plan(second):
    charges = {GAUSSIAN: 10, HoldOut(0.2): 1, **second}
    with pytest.raises(ValueError, match="the events of several runs"):
        StatedPlan.of("a1", Adjacency.ADD_REMOVE, 1e-5, 10, charges)
