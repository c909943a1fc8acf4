"""One set of numbers: what a run by them states is what the policies written beside them allow."""

import pytest

from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.plan_check import check_asked, within
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.deploy import plan
from murmuration.deploy.plan import compared, usual_request
from murmuration.deploy.terms import Terms, read_settings, usual_run
from murmuration.preference.data.errors import InputError
from murmuration.strategies.protocol.stated_plan import cost

TERMS = [
    Terms(users=2),
    Terms(users=2, rounds=5, epsilon=0.5),
    pytest.param(
        Terms(users=40, cohort=3, rounds=7, delta=1e-9, clip_norm=1.5, group_size=3, repeats=1),
        marks=pytest.mark.slow,
    ),
    pytest.param(Terms(users=3000), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("test", ["", "public.jsonl"])
def test_a_run_fits_the_policy_as_it_was_written_and_a_second_does_not(tmp_path, terms, test):
    (tmp_path / "run.toml").write_text(terms.run_text())
    (tmp_path / "policy.toml").write_text(terms.policy_text())
    policy = Policy.load(tmp_path / "policy.toml")
    assert policy == terms.policy
    settings = read_settings(tmp_path / "run.toml")
    assert usual_run(settings) == terms.run
    work = usual_request(usual_run({**settings, "test": test}))
    ledger = OwnLedger.empty(tmp_path / "own")

    def of_all(plans):
        ledger.plans.update((plan.run, plan) for plan in plans)
        return within(policy, cost(plans, policy.delta))

    check_asked(policy, ledger, work, 0, of_all, hosted=1)
    (plan,) = ledger.plans.values()
    assert (plan.figures == 0) == bool(test)
    assert terms.epsilon * 0.999 < cost([plan], policy.delta) <= terms.epsilon
    work.parameters["plan"] = plan.to_json().replace('"usual"', '"another"')
    with pytest.raises(PolicyRefusal, match="max_epsilon"):
        check_asked(policy, ledger, work, 0, of_all, hosted=1)


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("max_epsilon", {"epsilon": 3.01}),
        ("max_epsilon", {"delta": 1e-5}),  # as the page had it: at the policy's delta it is more
        ("max_clip", {"clip_norm": 0.11}),
        ("max_group_size", {"group_size": 17}),
        ("max_rounds", {"rounds": 401}),
        ("adjacency", {"adjacency": "replace"}),
        ("strategies", {"strategy": "dp-fedavg"}),
    ],
)
def test_a_run_by_other_numbers_is_compared_with_the_policy(tmp_path, rule, changes):
    terms = Terms(users=2)
    run = tmp_path / "run.toml"
    run.write_text(terms.run_text())
    said, allowed = compared(run, terms.policy, tmp_path / "state", hosted=1)
    assert allowed
    assert "uls, 200 rounds, epsilon 3 at delta 1e-06: allowed, at epsilon 3 of 3" in said
    settings = {**terms.settings, **changes}
    run.write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    said, allowed = compared(run, terms.policy, tmp_path / "state", hosted=1)
    assert not allowed
    assert f"refused. the owner's policy refuses ({rule})" in said
    assert not (tmp_path / "state").exists()


def test_a_run_that_cannot_be_compared_says_so(tmp_path):
    run = tmp_path / "run.toml"
    for text, said in (
        ("rounds = ", "cannot be used"),
        ("rounds = " + "[" * 20_000, "cannot be used"),
        (".".join(["a"] * 20_000) + " = 1", "more than 200 dots"),
        ("sounds = 3\n", "unknown setting"),
        ('strategy = "els"\nusers = 9\ncohort = 3\nadjacency = "zero-out"\n', "set it"),
        ('strategy = "local-label"\nadjacency = "replace-labels"\n', "no plan"),
    ):
        run.write_text(text)
        with pytest.raises(InputError, match=said):
            compared(run, Policy(), tmp_path / "state", hosted=1)
    with pytest.raises(InputError, match="cannot be used"):
        compared(tmp_path / "none", Policy(), tmp_path / "state", hosted=1)


@pytest.mark.parametrize("users", [10**9, 10**18])
def test_nobody_is_made_up_for_a_run_of_as_many_users_as_fill_the_memory(
    tmp_path, monkeypatch, users
):
    def arange(*_, **__):
        raise AssertionError("users are made up")

    run = tmp_path / "run.toml"
    run.write_text(Terms(users=2).run_text().replace("users = 2", f"users = {users}"))
    monkeypatch.setattr(plan.np, "arange", arange)
    with pytest.raises(
        InputError, match=r"users is 1e\+\d\d, and a run of more than 10,000,000 is"
    ):
        compared(run, Policy(), tmp_path / "state", hosted=1)


@pytest.mark.parametrize(
    ("usual", "changed", "message"),
    [
        ("users = 2\ncohort = 2", "users = 0\ncohort = 1000000000", "cohort is 1e"),
        ("rounds = 200", "rounds = 100000000", "rounds is 1e"),
        ("epsilon = 3.0", "epsilon = 1e8", "epsilon is 1e"),
    ],
)
def test_no_run_is_compared_whose_numbers_take_minutes(
    tmp_path, monkeypatch, usual, changed, message
):
    def usual_request(_):
        raise AssertionError("it is compared")

    run = tmp_path / "run.toml"
    text = Terms(users=2).run_text()
    assert usual in text
    run.write_text(text.replace(usual, changed))
    monkeypatch.setattr(plan, "usual_request", usual_request)
    with pytest.raises(InputError, match=f"{message}.* is not compared"):
        compared(run, Policy(), tmp_path / "state", hosted=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": 0}, "--users"),
        ({"rounds": 0}, "--rounds"),
        ({"group_size": -1}, "--group-size"),
        ({"repeats": 0}, "--repeats"),
        ({"cohort": 3}, "--cohort"),
        ({"clip_norm": 0.0}, "--clip-norm"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
    ],
)
def test_numbers_of_which_there_is_no_run(changes, message):
    with pytest.raises(InputError, match=message):
        Terms(**{"users": 2, **changes})


def test_everybody_takes_part_where_they_are_few():
    assert Terms(users=7).cohort == 7
    assert Terms(users=7000).cohort == 500
