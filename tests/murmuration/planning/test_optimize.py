"""``murmuration plan --optimize``: what is weighed, what is recommended, what is refused."""

import json

import numpy as np
import pytest

from murmuration.planning import optimize
from murmuration.planning.gradient_norms import GroupNorms
from murmuration.planning.optimize import Public
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.strategies.els import ElsPlan
from murmuration.strategies.planning import PlanQuery

ADD = Adjacency.ADD_REMOVE


class Known(Public):
    """Public users with orthogonal judgements."""

    def norms(self):
        lengths = {g: 0.5 * g**-0.5 for g in (1, 2, 4, 8, 16)}
        return GroupNorms(lengths, 0.02, 4, np.full(10, 16), 100), "btl"


def asked(**changes):
    given = {
        "strategy": "uls",
        "users": 400,
        "group_size": None,
        "sampling_probability": None,
        "cohort": None,
        "rounds": 10,
        "delta": 1e-4,
        "epsilon": 0.5,
        "noise_multiplier": None,
    }
    return PlanQuery(**{**given, **changes})


@pytest.fixture(scope="module")
def found():
    return optimize.solve(asked(), 512, Known(), ADD)


def by_name(found):
    return {row["name"]: row for row in found["rows"]}


def test_the_noise_is_what_a_run_would_have(found):
    best = found["recommended"]
    sigma = accountant.noise_multiplier_for(
        0.5, delta=1e-4, probability=best["cohort"] / 400, rounds=10, adjacency=ADD
    )
    assert best["noise_multiplier"] == sigma
    assert best["clip_norm"] == pytest.approx(0.5 * best["group_size"] ** -0.5)
    assert best["noise"] == pytest.approx(best["clip_norm"] * sigma / best["cohort"])
    assert best["signal_to_noise"] == pytest.approx(0.02 / (best["noise"] * 10))
    assert best["compute"] <= 512
    assert best["over_recommended"] == 1.0


def test_rivals_stand_beside(found):
    rows = by_name(found)
    assert set(rows) == {
        "estimate-and-double",
        "least noise",
        "max cohort",
        "max group size",
        "default group size",
        "random (on average)",
        "els",
    }
    assert rows["max cohort"]["cohort"] == 256
    assert rows["max group size"]["group_size"] == 16
    least = min(
        row["noise"] for row in rows.values() if row["cohort"] and row["name"][:7] != "default"
    )
    assert rows["least noise"]["noise"] == least
    assert rows["random (on average)"]["noise"] > least
    for row in rows.values():
        assert row["over_recommended"] == row["noise"] / found["recommended"]["noise"]


def test_example_sampling_is_weighed_at_the_same_compute(found):
    els = by_name(found)["els"]
    plan = ElsPlan.for_epsilon(
        0.5,
        users=400,
        group_size=4,
        probability=512 / 1600,
        rounds=10,
        delta=1e-4,
        adjacency=ADD,
        clip=ExampleClip(0.5),
    )
    assert els["compute"] == pytest.approx(512)
    assert els["noise"] == pytest.approx(plan.noise)
    cheaper = "els" if els["noise"] < found["recommended"]["noise"] else "uls"
    assert found["prefer"] == cheaper
    assert any(f"Prefer {cheaper}" in words for words in found["why"])


def test_example_sampling_can_be_what_is_asked_for():
    found = optimize.solve(asked(strategy="els"), 512, Known(), ADD)
    assert found["recommended"]["name"] == "els"
    assert found["recommended"]["group_size"] == 4


def test_without_a_guarantee_there_is_no_choice():
    found = optimize.solve(asked(), 512, Known(), Adjacency.REPLACE)
    assert "els" not in by_name(found)
    assert found["prefer"] == "uls"
    assert any("no guarantee under replace" in words for words in found["why"])


def test_more_compute_than_there_is():
    found = optimize.solve(asked(users=40), 10**6, Known(), ADD)
    best = found["recommended"]
    assert (best["group_size"], best["cohort"]) == (16, 32)
    assert by_name(found)["els"]["sampling_probability"] == 1.0


@pytest.mark.parametrize(
    ("strategy", "changes", "compute", "message"),
    [
        ("aup", {}, 512, "plan for uls"),
        ("uls", {}, None, "needs --compute"),
        ("uls", {}, 0, "needs --compute"),
        ("uls", {"epsilon": None}, 512, "needs --epsilon"),
        ("uls", {"rounds": None}, 512, "needs --rounds"),
        ("uls", {"cohort": 10}, 512, "finds --cohort: leave it out"),
        ("uls", {"noise_multiplier": 2.0}, 512, "finds --noise-multiplier"),
    ],
)
def test_what_is_missing_or_too_much(strategy, changes, compute, message):
    with pytest.raises(InputError, match=message):
        optimize.solve(asked(strategy=strategy, **changes), compute, Known(), ADD)


def row(user, prompt, chosen, rejected):
    return json.dumps({"user_id": user, "prompt": prompt, "chosen": chosen, "rejected": rejected})


@pytest.fixture
def judged(tmp_path):
    path = tmp_path / "public.jsonl"
    words = ("oak", "elm", "ash", "fir", "yew", "box")
    rows = [row(u, "p", f"good {words[u + j]}", words[j]) for u in range(4) for j in range(3)]
    path.write_text("\n".join(rows))
    return path


def command(*more):
    return [
        "plan", "--optimize", "--users", 400, "--rounds", 10, "--delta", 1e-4, "--epsilon", 0.5,
        "--compute", 128, *more,
    ]  # fmt: skip


def test_from_a_file(cli, judged):
    code, stdout, lines = cli(*command("--public", judged, "--json"))
    assert (code, lines) == (0, [])
    found = json.loads(stdout)
    assert found["public"] == str(judged)
    assert set(found["lengths"]) == {"1", "2", "4"}
    assert found["lengths"]["1"] > found["lengths"]["2"]


def test_as_a_table(cli, judged):
    code, stdout, _ = cli(*command("--public", judged))
    assert code == 0
    assert "estimate-and-double" in stdout
    assert "murmuration run --strategy uls --group-size" in stdout
    assert "cost no privacy" in stdout


def test_a_file_that_says_nothing(cli, tmp_path):
    path = tmp_path / "ties.jsonl"
    path.write_text(row("u", "p", "same", "same") + "\n" + row("v", "p", "same", "same"))
    code, _, lines = cli(*command("--public", path))
    assert code == 2
    assert "gradients are zero" in lines[0]


def test_its_options_go_with_it(cli):
    code, _, lines = cli("plan", "--compute", 128, "--users", 9)
    assert code == 2
    assert "need --optimize" in lines[0]


@pytest.mark.parametrize(("model", "named"), [("btl", False), ("plackett-luce", True)])
def test_the_command_that_is_printed_names_the_model(capsys, found, model, named):
    optimize.report({**found, "model": model})
    command = next(line for line in capsys.readouterr().out.splitlines() if "murmuration" in line)
    assert ("--model plackett-luce" in command) is named
