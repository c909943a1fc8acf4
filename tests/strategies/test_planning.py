"""``murmuration plan`` for ELS and group privacy."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from murmuration.planning.plan import about_correlation
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.toeplitz import Workload
from murmuration.research.theory.analytic_gaussian import calibrate_noise
from murmuration.strategies import registry
from murmuration.strategies.adaptive import (
    DEFAULT_QUANTILE,
    DEFAULT_START,
    AdaptivePlan,
    QuantileRule,
)
from murmuration.strategies.planning import PlanQuery, largest
from murmuration.strategies.settings.own import AupSettings, Sampled
from murmuration.strategies.steps.optimizers import OptimizerSettings, ServerOptimizer, workload

WHOLE = {
    "users": 400,
    "group_size": 4,
    "sampling_probability": 0.02,
    "cohort": None,
    "rounds": 20,
    "delta": 1e-5,
    "epsilon": None,
    "noise_multiplier": 8.0,
}
ADD = Adjacency.ADD_REMOVE


def solve(strategy, asked, adjacency):
    """What ``murmuration plan`` solves for this strategy."""
    return registry.named(strategy).solve(replace(asked, strategy=strategy), adjacency)


def asked(**changes):
    return PlanQuery(strategy="", **{**WHOLE, **changes})


def test_epsilon_and_back():
    found = solve("els", asked(), ADD)
    event = MixtureGaussian(8.0, 4, 0.02)
    assert found["epsilon"] == accountant.epsilon([(event, 20)], adjacency=ADD, delta=1e-5)
    assert found["batch"] == pytest.approx(32)
    back = solve("els", asked(noise_multiplier=None, epsilon=found["epsilon"]), ADD)
    assert back["noise_multiplier"] == pytest.approx(8.0, rel=1e-3)
    assert back["epsilon"] <= found["epsilon"]


def test_group_privacy_costs_more():
    loud = asked(noise_multiplier=4.0, sampling_probability=0.2)
    els, group = (solve(name, loud, ADD)["epsilon"] for name in ("els", "group"))
    assert group > 1.05 * els


def test_cohort_instead_of_probability():
    found = solve("els", asked(sampling_probability=None, cohort=5), ADD)
    assert found["sampling_probability"] == pytest.approx(5 * 16 / (400 * 4))
    assert found["batch"] == pytest.approx(80)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": None}, "needs --users"),
        ({"group_size": None}, "needs --group-size"),
        ({"rounds": 0}, "--rounds must be positive"),
        ({"delta": None}, "needs --delta"),
        ({"noise_multiplier": None}, "exactly one of --epsilon, --noise-multiplier"),
        ({"epsilon": 1.0}, "exactly one of --epsilon, --noise-multiplier"),
        ({"sampling_probability": None}, "one of --sampling-probability"),
        ({"cohort": 5}, "one of --sampling-probability"),
    ],
)
def test_what_is_missing_is_named(changes, message):
    with pytest.raises(InputError, match=message):
        solve("els", asked(**changes), ADD)


def test_refusals():
    with pytest.raises(Unsupported, match="no guarantee under replace"):
        solve("els", asked(), Adjacency.REPLACE)
    with pytest.raises(ValueError, match=r"largest --group-size that works here is \d+"):
        solve("group", asked(group_size=3000), ADD)


def plan(cli, *options):
    code, stdout, stderr = cli("plan", *options)
    return code, stdout, " ".join(stderr)


PEOPLE = {"users": 2_700, "cohort": 540, "rounds": 20, "delta": 1e-5}


BANDED = {"strategy": "uls", **PEOPLE, "settings": Sampled(sampling="banded")}


def test_the_error_of_banded_noise_beside_independent_noise():
    numbers = solve("uls", PlanQuery(**{**BANDED, "cohort": 540, "rounds": 20}, epsilon=8.0), ADD)
    coins = solve("uls", PlanQuery(strategy="uls", **PEOPLE, epsilon=8.0), ADD)
    assert numbers["noise_multiplier_if_independent"] == coins["noise_multiplier"]
    errors = {b: numbers.get(f"error_with_{b}_bands") for b in (2, 4, 8)}
    assert errors[8] is None  # a cohort is a fifth of the users
    assert numbers["bands"] == min((2, 4), key=lambda b: errors[b])


BUFFERED = Sampled(sampling="blt")
CYCLIC = {"strategy": "uls", **PEOPLE, "settings": BUFFERED}


def test_the_error_of_buffered_noise_beside_both_kinds_of_independent_noise():
    query = {**CYCLIC, "cohort": 540, "rounds": 20}
    numbers = solve("uls", PlanQuery(**query, epsilon=8.0), ADD)
    coins = solve("uls", PlanQuery(strategy="uls", **PEOPLE, epsilon=8.0), ADD)
    once = accountant.noise_multiplier_for(
        8.0, delta=numbers["delta"], probability=1.0, rounds=1, adjacency=ADD
    )
    assert numbers["noise_multiplier"] == pytest.approx(once, rel=1e-4)
    assert (numbers["rounds_apart"], numbers["rounds_of_a_user"]) == (5, 4)
    assert numbers["error_over_same_turns"] < 1.0
    spread = numbers["error_over_same_turns"] * math.sqrt(4)
    expected = spread * numbers["noise_multiplier"] / coins["noise_multiplier"]
    assert numbers["error_over_poisson"] == pytest.approx(expected, rel=1e-4)
    assert ("less" if expected < 1 else "more") in about_correlation(numbers)
    assert "no secret coins" in about_correlation(numbers)


@pytest.mark.parametrize("left", ["users", "cohort", "delta", "rounds", "epsilon"])
@pytest.mark.parametrize("shared", [BANDED, CYCLIC], ids=["bands", "buffers"])
def test_what_is_not_solved_for_where_rounds_share_noise(shared, left):
    query = {**shared, "epsilon": 3.0, "noise_multiplier": 2.0, left: None}
    with pytest.raises(InputError, match=f"needs --{left}, to solve for --noise-multiplier"):
        solve("uls", PlanQuery(**query), ADD)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "users", "rounds", "best"),
    [(3.0, 5, 200, 1.0), (8.0, 5, 200, 0.97), (3.0, 20, 200, 0.93), (3.0, 100, 1_000, 0.70)],
)
def test_the_least_error_of_prefix_sums(epsilon, users, rounds, best):
    """As found elsewhere, with one round's average counted as often as any other's."""
    added = Workload.of_matrix(np.tri(rounds))
    errors = []
    for bands in (1, 2, 4, 8, 16):
        if bands <= users:
            sigma = accountant.noise_multiplier_for(
                epsilon, delta=1e-5, probability=min(1.0, bands / users),
                rounds=-(-rounds // bands), adjacency=ADD,
            )  # fmt: skip
            errors.append(sigma * added.error(Banded.chosen(added, bands)))
    assert min(errors) / errors[0] == pytest.approx(best, abs=0.01)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_workload_is_what_the_optimizer_does(momentum):
    """Steps with unit releases, one round each, by the optimizer itself."""
    settings = OptimizerSettings("sgd", 1.0, 8, momentum=momentum)
    rows = np.zeros((9, 8))
    for round_ in range(1, 9):
        made = ServerOptimizer(settings, np.zeros(1, np.float32))
        for t in range(1, 9):
            made.step(t, np.array([1.0 if t == round_ else 0.0]))
            rows[t - 1, round_ - 1] = float(made.theta[0])
        rows[8, round_ - 1] = float(made._average[0]) / made._averaged
    rows[:8] /= np.linalg.norm(rows[:8])
    rows[8] /= np.linalg.norm(rows[8])
    expected = Workload.of_matrix(rows).gram_TT
    np.testing.assert_allclose(workload(settings).gram_TT, expected, atol=1e-12)


def test_bands_on_the_command_line(cli):
    given = ("plan", "--epsilon", 3, "--delta", "1e-5", "--rounds", 20, "--users", 2_700)
    banded = (*given, "--sampling", "banded")
    code, out, _ = cli(*banded, "--cohort", 540)
    assert code == 0
    assert "error with 4 bands" in out
    assert re.search("less noise|gains nothing here", out)
    code, _, err = cli(*banded, "--cohort", 1_400)
    assert code != 0 and "--cohort" in " ".join(err)


def test_contract(cli):
    options = [
        "--strategy", "els", "--users", 400, "--group-size", 4, "--sampling-probability", 0.02,
        "--rounds", 20, "--delta", 1e-5,
    ]  # fmt: skip
    code, stdout, _ = plan(cli, *options, "--noise-multiplier", 8, "--json")
    found = json.loads(stdout.splitlines()[-1])
    assert code == 0
    assert found["noise_multiplier"] == 8.0
    assert found["epsilon"] == solve("els", asked(), ADD)["epsilon"]
    code, stdout, _ = plan(cli, *options, "--noise-multiplier", 8)
    assert (code, "sampling probability" in stdout) == (0, True)


def test_delta_by_the_number_of_users(cli):
    options = ["--cohort", 40, "--rounds", 20, "--noise-multiplier", 20, "--delta", "n^-1.1"]
    code, stdout, _ = plan(cli, "--users", 400, *options, "--json")
    assert code == 0
    assert json.loads(stdout.splitlines()[-1])["delta"] == pytest.approx(400**-1.1)
    code, _, said = plan(cli, *options, "--epsilon", 1)
    assert code == 2
    assert "needs --users" in said


@pytest.mark.parametrize("edge", [0, 1, 2, 7, 8, 9])
@pytest.mark.parametrize("most", [1, 5, 8, 100])
def test_the_largest_number_that_fits(edge, most):
    tried = []

    def fits(number):
        tried.append(number)
        return number <= edge

    assert largest(fits, most) == min(edge, most)
    assert max(tried) <= max(2 * edge, 1)


# Plans without sampling: three numbers, of which two are given.


LABELS = Adjacency.REPLACE_LABELS


def unsampled_query(**change):
    values = {
        "users": 1000, "group_size": None, "sampling_probability": None, "cohort": None,
        "rounds": None, "delta": 1e-5, "epsilon": 3.0, "noise_multiplier": None, **change,
    }  # fmt: skip
    return PlanQuery(strategy="", **values)


def test_noise_is_the_analytic_gaussians():
    found = solve("label-moment", unsampled_query(), LABELS)
    assert found["noise_multiplier"] == pytest.approx(2 * calibrate_noise(3.0, 1e-5), rel=1e-3)
    assert (found["rounds"], found["cohort"], found["users"]) == (1, 1000, 1000)
    two = solve("label-moment", unsampled_query(rounds=2), LABELS)
    assert two["noise_multiplier"] == pytest.approx(
        math.sqrt(2) * found["noise_multiplier"], rel=1e-3
    )


@pytest.mark.parametrize("missing", ["epsilon", "delta"])
def test_there_and_back(missing):
    found = solve("objective-perturbation", unsampled_query(), LABELS)
    given = {**found, missing: None}
    query = unsampled_query(**{k: given[k] for k in ("epsilon", "delta", "noise_multiplier")})
    again = solve("objective-perturbation", query, LABELS)
    assert again[missing] == pytest.approx(found[missing], rel=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 3}, "takes --rounds 1 or 2"),
        ({"cohort": 10}, "everybody takes part"),
        ({"users": None}, "needs --users"),
        ({"epsilon": None}, "exactly one"),
        ({"noise_multiplier": 1.0}, "exactly one"),
        ({"epsilon": -1.0}, "--epsilon must be positive"),
    ],
)
def test_refusals_without_sampling(change, message):
    with pytest.raises(InputError, match=message):
        solve("label-moment", unsampled_query(**change), LABELS)


# The plan of what shares its budget: it must be the plan that a run would use.


SIZES = {"users": 1000, "cohort": 200, "rounds": 20, "delta": 1e-5}


def solve_shared(strategy, variant, shared_query, adjacency):
    """What ``murmuration plan`` solves for this strategy."""
    own = AupSettings(variant=variant)
    query = replace(shared_query, strategy=strategy, settings=own)
    return registry.named(strategy).solve(query, adjacency)


def shared_query(**change: float | None) -> PlanQuery:
    values = {
        "group_size": None,
        "sampling_probability": None,
        "epsilon": 3.0,
        "noise_multiplier": None,
        **SIZES,
        **change,
    }
    return PlanQuery(strategy="", **values)  # type: ignore[arg-type]


def plain_noise() -> float:
    return accountant.noise_multiplier_for(
        3.0, delta=1e-5, probability=0.2, rounds=20, adjacency=Adjacency.ADD_REMOVE
    )


@pytest.mark.parametrize("strategy", ["adaptive", "aup"])
def test_a_counted_quantile_costs_a_little_noise(strategy):
    found = solve_shared(strategy, "centred", shared_query(), Adjacency.ADD_REMOVE)
    assert plain_noise() < found["noise_multiplier"] < 1.1 * plain_noise()
    plan = AdaptivePlan(
        adjacency=Adjacency.ADD_REMOVE,
        noise_multiplier=found["noise_multiplier"],
        count_noise=found["count_noise"],
        rule=QuantileRule(DEFAULT_START, DEFAULT_QUANTILE),
        **SIZES,  # type: ignore[arg-type]
    )
    spent = accountant.epsilon(plan.charges.items(), adjacency=plan.adjacency, delta=1e-5)
    assert 2.99 < spent <= 3.0


def test_tests_are_charged_in_full():
    found = solve_shared("aup", "above-threshold", shared_query(), Adjacency.ADD_REMOVE)
    rest = accountant.epsilon(
        [(PoissonGaussian(0.2, found["noise_multiplier"]), 20)],
        adjacency=Adjacency.ADD_REMOVE,
        delta=1e-5,
    )
    assert found["tests"] * found["test_epsilon"] > 0
    assert rest < 3.0 < rest + found["tests"] * found["test_epsilon"]


@pytest.mark.parametrize(
    ("strategy", "variant"),
    [("aup", "published"), ("aup", "published-as-run"), ("aup-corrected", "centred")],
)
def test_filters_need_more_noise_than_one_sum(strategy, variant):
    found = solve_shared(strategy, variant, shared_query(), Adjacency.ADD_REMOVE)
    assert found["noise_multiplier"] > plain_noise()
    assert found["epsilon"] == 3.0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epsilon": None}, "--epsilon"),
        (
            {"noise_multiplier": 2.0},
            "leave out --noise-multiplier, to solve for it, and give the rest$",
        ),
        ({"users": None}, "--users"),
        ({"cohort": 0}, "--cohort"),
        ({"rounds": None}, "--rounds"),
        ({"delta": -1.0}, "--delta"),
    ],
)
def test_what_is_missing_of_a_shared_budget_is_named(change, named):
    with pytest.raises(InputError, match=named):
        solve_shared("adaptive", "centred", shared_query(**change), Adjacency.ADD_REMOVE)
