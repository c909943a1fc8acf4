"""``murmuration plan``: each of six numbers from the other five, before data is touched."""

import json
from dataclasses import astuple, replace

import pytest

from murmuration.planning.plan import plan
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.attack_bounds import of_run
from murmuration.strategies.planning import PlanQuery
from murmuration.strategies.uls import sampled_users

# Much noise, so that distributions are narrow and quick to compose.
WHOLE = {"noise_multiplier": 20.0, "rounds": 30, "cohort": 40, "users": 400, "delta": 1e-5}


def spent(adjacency=Adjacency.ADD_REMOVE, **changes):
    value = {**WHOLE, **changes}
    event = PoissonGaussian(value["cohort"] / value["users"], value["noise_multiplier"])
    return accountant.epsilon([(event, value["rounds"])], adjacency=adjacency, delta=value["delta"])


@pytest.fixture(scope="module")
def whole():
    """All six, consistent with each other."""
    return {**WHOLE, "epsilon": spent()}


@pytest.mark.parametrize("missing", ["epsilon", "rounds", "cohort", "users"])
def test_solves_for_each(whole, missing):
    found = sampled_users(
        PlanQuery(strategy="uls", **{**whole, missing: None}), Adjacency.ADD_REMOVE
    )
    assert {name: found[name] for name in whole} == pytest.approx(whole)
    bounds = ("tpr_at_1_percent_fpr", "tpr_at_0_1_percent_fpr", "gdp_mu")
    charges = [(PoissonGaussian(0.1, 20.0), 30)]
    exact = of_run(charges, adjacency=Adjacency.ADD_REMOVE, epsilon=spent(), delta=1e-5)
    assert tuple(found[name] for name in bounds) == pytest.approx(astuple(exact), rel=1e-2)
    assert set(found) == {*whole, *bounds}


def test_solves_for_the_noise(whole):
    found = sampled_users(
        PlanQuery(strategy="uls", **{**whole, "noise_multiplier": None}), Adjacency.ADD_REMOVE
    )
    assert found["noise_multiplier"] == pytest.approx(20.0, rel=1e-3)
    assert spent(noise_multiplier=found["noise_multiplier"]) <= whole["epsilon"]


def test_solves_for_delta(whole):
    found = sampled_users(
        PlanQuery(strategy="uls", **{**whole, "delta": None}), Adjacency.ADD_REMOVE
    )
    assert found["delta"] == pytest.approx(1e-5, rel=0.02)


@pytest.mark.parametrize(("missing", "step"), [("rounds", 1), ("cohort", 1), ("users", -1)])
def test_whole_numbers_are_the_last_that_fit(whole, missing, step):
    target = whole["epsilon"] * 1.01
    found = sampled_users(
        PlanQuery(strategy="uls", **{**whole, "epsilon": target, missing: None}),
        Adjacency.ADD_REMOVE,
    )
    assert found["epsilon"] == spent(**{missing: found[missing]}) <= target
    assert spent(**{missing: found[missing] + step}) > target


def test_millions_of_users_are_found_up_to_the_most_that_can_be_summed():
    given = {"cohort": 2_100_000, "rounds": 10, "delta": 1e-8, "noise_multiplier": 5.0}
    target = sampled_users(PlanQuery(strategy="uls", users=6_000_000, **given), Adjacency.ZERO_OUT)
    query = PlanQuery(strategy="uls", epsilon=target["epsilon"], **given)
    assert 5_900_000 < sampled_users(query, Adjacency.ZERO_OUT)["users"] <= 6_000_000
    with pytest.raises(InputError, match="no number of users meets"):
        sampled_users(replace(query, epsilon=target["epsilon"] / 3), Adjacency.ZERO_OUT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "leave out exactly one"),
        ({"epsilon": None, "delta": None}, "leave out exactly one.*--epsilon, --delta"),
        ({"epsilon": 0.0, "rounds": None}, "--epsilon must be positive"),
        ({"rounds": 0, "epsilon": None}, "--rounds must be positive"),
        ({"delta": 1.0, "epsilon": None}, "--delta must be below 1"),
        ({"delta": float("nan"), "epsilon": None}, "--delta must be positive"),
        ({"cohort": 401, "epsilon": None}, "--cohort 401 is more than --users 400"),
        ({"epsilon": 1e-6, "rounds": None}, "no number of rounds meets epsilon"),
        ({"epsilon": 1e-6, "cohort": None}, "no number of cohort meets epsilon"),
    ],
)
def test_what_cannot_be_solved(whole, changes, message):
    with pytest.raises(InputError, match=message):
        sampled_users(PlanQuery(strategy="uls", **{**whole, **changes}), Adjacency.ADD_REMOVE)


def options(**given):
    return [part for name, value in given.items() for part in (f"--{name}", value)]


def test_json_contract(cli, whole):
    code, stdout, lines = cli(
        "plan", "--strategy", "uls", "--json",
        *options(users=400, cohort=40, rounds=30, delta=1e-5, epsilon=whole["epsilon"]),
    )  # fmt: skip
    assert (code, lines) == (0, [])
    found = json.loads(stdout.splitlines()[-1])
    assert found["noise_multiplier"] == pytest.approx(20.0, rel=1e-3)
    assert (found["delta"], found["adjacency"], found["strategy"]) == (1e-5, "add-remove", "uls")
    assert found["epsilon"] == whole["epsilon"]
    assert found["user_isolation"] == "by construction"


def test_table(cli):
    given = options(users=400, cohort=40, rounds=30, epsilon=0.01)
    code, stdout, _ = cli("plan", "--noise-multiplier", 20, *given)
    assert code == 0
    assert "epsilon" in stdout
    assert "Isolation of users from each other: by construction" in stdout
    assert Adjacency.ADD_REMOVE.sentence().split(";")[0][:30] in stdout
    assert "no privacy" in stdout  # delta, solved for


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "leave out exactly one"),
        (["--strategy", "nonprivate"], "promises nothing"),
        (["--noise-multiplier", 0, *options(users=9, cohort=3, rounds=2, delta=1e-5)], "positive"),
    ],
)
def test_bad_input_is_one_line(refusal, arguments, message):
    assert message in refusal("plan", *arguments)


def test_a_hold_out_needs_less_noise(cli):
    sizes = ["--users", 2000, "--cohort", 400, "--rounds", 20, "--delta", 1e-5]
    noise = {}
    for more in ((), ("--heldout", 0.2), ("--heldout", 0.2, "--heldout-epsilon", 1)):
        code, stdout, _ = cli("plan", *sizes, "--epsilon", 1, *more, "--json")
        assert code == 0
        noise[more] = json.loads(stdout)
    alone, held, dear = noise.values()
    assert held["noise_multiplier"] < 0.9 * alone["noise_multiplier"]
    assert held["noise_multiplier"] < dear["noise_multiplier"] < alone["noise_multiplier"]
    assert (held["heldout_users"], held["heldout_epsilon"]) == (500, 0.5)
    assert held["heldout_noise"] == pytest.approx(2**0.5 * 2 * 1.33697 / 500, rel=1e-3)
    given = ["--noise-multiplier", held["noise_multiplier"], "--heldout", 0.2]
    code, stdout, _ = cli("plan", *sizes, *given, "--heldout-epsilon", 0.5, "--json")
    assert json.loads(stdout)["epsilon"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--heldout-epsilon", 0.5, "--epsilon", 1], "give --heldout"),
        (["--heldout", 0.2, "--noise-multiplier", 5], "--heldout needs --epsilon"),
        (["--heldout", 0.2, "--heldout-epsilon", 2, "--epsilon", 1], "at most --epsilon"),
        (["--heldout", 1.5, "--epsilon", 1], "--heldout must be a share"),
    ],
)
def test_hold_outs_that_cannot_be(refusal, options, said):
    sizes = ["--users", 2000, "--cohort", 400, "--rounds", 20, "--delta", 1e-5]
    assert said in refusal("plan", *sizes, *options)


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ("uls", []),
        ("uls", ["--heldout-epsilon", 0.7]),
        ("uls", ["--adjacency", "replace"]),
        ("els", ["--group-size", 4]),
        ("adaptive", []),
    ],
)
def test_a_run_with_this_hold_out_has_the_planned_noise(
    cli, tmp_path, crowd, quick_runs, strategy, more
):
    asked = ["--users", 2000, "--cohort", 100, "--rounds", 2, "--delta", 1e-5, "--epsilon", 1]
    asked += ["--strategy", strategy, "--heldout", 0.2, *more]
    code, stdout, lines = cli("plan", *asked, "--json")
    assert code == 0, lines
    planned = json.loads(stdout)
    out = tmp_path / "run"
    others = ["--data", crowd, "--noise", "gaussian", "--seed", 1]
    code, _, lines = cli("run", *asked, *others, "--out", out)
    assert code == 0, lines
    result = json.loads((out / "result.json").read_text())
    assert result["noise_multiplier"] == planned["noise_multiplier"]
    assert result["heldout_epsilon"] == planned["heldout_epsilon"]
    assert result["epsilon"] == pytest.approx(1.0, abs=2e-3)


def test_a_cohort_left_out_is_chosen_as_in_run_and_says_so(cli):
    asked = ["plan", "--users", 2700, "--rounds", 200, "--delta", 1e-5, "--epsilon", 3]
    chosen = json.loads(cli(*asked, "--json")[1])
    given = json.loads(cli(*asked, "--cohort", 500, "--json")[1])
    assert (chosen.pop("chosen"), given.pop("chosen")) == ("cohort", "")
    assert chosen == given
    shown = cli(*asked)[1]
    (line,) = [line for line in shown.splitlines() if "cohort" in line and "│" in line]
    assert "500" in line and "chosen" in line
    (line,) = [line for line in shown.splitlines() if "noise multiplier" in line]
    assert "solved for" in line
    assert "hashing" in shown and "minilm" not in shown
    few = [*asked[:2], 1_000, *asked[3:]]
    assert "minilm" in cli(*few)[1]


def test_a_cohort_is_still_solved_for_where_all_else_is_given(cli):
    asked = ["plan", "--users", 2700, "--rounds", 200, "--delta", 1e-5, "--epsilon", 3]
    solved = json.loads(cli(*asked, "--noise-multiplier", 3.8, "--json")[1])
    assert solved["chosen"] == "" and 450 < solved["cohort"] < 550


def test_what_is_missing_is_named_with_an_example(refusal):
    message = refusal("plan", "--epsilon", 3)
    assert "--rounds, --cohort, --users, --delta" in message
    assert "as in --epsilon 3 --delta 1e-5 --rounds 200 --users 2700" in message


@pytest.mark.parametrize("strategy", ["survey", "adaptive", "els"])
def test_no_example_has_numbers_that_a_strategy_does_not_take(cli, strategy):
    given = options(epsilon=3, users=2700, delta=1e-5, **{"noise-multiplier": 2})
    more = {"survey": {}, "adaptive": {"cohort": 90}, "els": {"cohort": 90, "group-size": 4}}
    rounds = {} if strategy == "survey" else {"rounds": 20}
    _, _, lines = cli("plan", "--strategy", strategy, *given, *options(**more[strategy], **rounds))
    assert "leave out" in lines[0] and "200" not in lines[0]


def test_public_rows_are_read_by_their_scale(tmp_path, cli):
    rows = [
        {"user_id": f"u{n}", "response_a": "x y", "response_b": "z", "winner": n % 5 - 2}
        for n in range(40)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    call = ("plan", "--optimize", "--users", 300, "--compute", 400, "--epsilon", 1, "--delta", 1e-5,
            "--rounds", 20, "--public", path, "--json")  # fmt: skip
    assert cli(*call)[0] == 2
    code, stdout, _ = cli(*call, "--scale", "-2..2", "--no-prompt")
    assert code == 0
    assert json.loads(stdout)["declared"] == "--scale -2..2 --no-prompt"


def test_an_option_that_no_room_brings_is_no_argument():
    with pytest.raises(InputError, match="unknown setting 'boards'"):
        plan(epsilon=1.0, users=300, delta=1e-5, boards=3)


@pytest.mark.parametrize(
    "correlated",
    [{"sampling": "banded"}, {"sampling": "blt"}, {"sampling": "all"}],
)
def test_what_is_optimized_has_independent_noise_and_cohorts_by_coin(correlated):
    with pytest.raises(InputError, match="leave out --sampling"):
        plan(
            optimize=True, compute=400, users=300, epsilon=1.0, delta=1e-5, rounds=20, **correlated
        )
