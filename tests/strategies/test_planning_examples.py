"""``murmuration plan`` for ELS and group privacy."""

import json
from dataclasses import replace

import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.strategies import registry
from murmuration.strategies.planning import PlanQuery

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
    return PlanQuery("", **{**WHOLE, **changes})


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
        ({"rounds": 0}, "needs --rounds"),
        ({"delta": None}, "needs --delta"),
        ({"noise_multiplier": None}, "one of --epsilon and --noise-multiplier"),
        ({"epsilon": 1.0}, "one of --epsilon and --noise-multiplier"),
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


def test_command_line_refusals(cli):
    els = ["--strategy", "els", "--users", 400, "--group-size", 4, "--rounds", 20]
    code, _, said = plan(
        cli, *els, "--cohort", 5, "--delta", 1e-5, "--epsilon", 1, "--adjacency", "replace"
    )
    assert code == 2
    assert "no guarantee under replace" in said
    uls = ["--strategy", "uls", "--users", 400, "--cohort", 5, "--rounds", 20, "--epsilon", 1]
    code, _, said = plan(cli, *uls, "--delta", 1e-5, "--group-size", 3)
    assert code == 2
    assert "leave them out" in said


def test_delta_by_the_number_of_users(cli):
    options = ["--cohort", 40, "--rounds", 20, "--noise-multiplier", 20, "--delta", "n^-1.1"]
    code, stdout, _ = plan(cli, "--users", 400, *options, "--json")
    assert code == 0
    assert json.loads(stdout.splitlines()[-1])["delta"] == pytest.approx(400**-1.1)
    code, _, said = plan(cli, *options, "--epsilon", 1)
    assert code == 2
    assert "needs --users" in said
