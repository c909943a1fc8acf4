"""A run from the registry to the result: what it reports, survives, and keeps to itself."""

import json
import math
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from closed_forms import found_at_most
from flwr.app import Error, Message
from safetensors.numpy import load_file

from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting import accountant, recompute
from murmuration.privacy.accounting.events import HoldOut
from murmuration.privacy.accounting.ledger import Ledger, read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid as grids
from murmuration.server import training
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.stated_plan import StatedPlan
from murmuration.strategies.steps import optimizers, step_size
from murmuration.strategies.steps.optimizers import OptimizerSettings

pytestmark = [
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.settings(epsilon=0.5, rounds=5, cohort=10),
]


class WatchedGrid:
    """Notes what is asked of whom; ``spoil`` may replace a training reply, as of a deployment."""

    def __init__(self, config, nodes=1, spoil=None):
        self.grid = LocalGrid(client_app, nodes, config.to_run_config())
        kinds = ("train", "evaluate", "query.registry", "query.plan")
        self.spoil, self.asked = spoil, {kind: [] for kind in kinds}

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, outgoing):
        outgoing = list(outgoing)
        for message in outgoing:
            self.asked[message.metadata.message_type].append(message)
        return self.grid.push_messages(outgoing)

    def pull_messages(self, message_ids):
        for reply in self.grid.pull_messages(message_ids):
            training_reply = reply.metadata.message_type == "train"
            if self.spoil and reply.metadata.message_type == "query.registry":
                reply.content.config_records["registry"]["places"] = 0
            yield self.spoil(reply) if self.spoil and training_reply else reply

    def users(self, kind):
        found = [messages.UserSelection.of(m.content).names_S.tolist() for m in self.asked[kind]]
        return {user for users in found for user in users}


def run(config, nodes=1, **more):
    return run_training(config, WatchedGrid(config, nodes, **more))


def weights(config):
    return load_file(f"{config.out}/model/model.safetensors")["theta_D"]


def ledger_lines(config):
    with Path(config.out, "ledger.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file][1:]


class Killed(BaseException):
    """The process ends here."""


def killed_after(monkeypatch, round_):
    """A run that ends after ``round_``'s metrics, before its checkpoint."""
    real = RunDirectory.add_metrics

    def add_metrics(self, line):
        real(self, line)
        if line["round"] == round_:
            raise Killed

    monkeypatch.setattr(RunDirectory, "add_metrics", add_metrics)


def test_result(config, crowd_test):
    config = replace(config, test=crowd_test)
    result = run(config, nodes=3)
    assert result == json.loads(
        (RunDirectory(replace(config, resume=True)).path / "result.json").read_text()
    )
    assert (result["rounds"], result["users"], result["cohort"]) == (5, 50, 10)
    assert (result["strategy"], result["adjacency"], result["delta"]) == ("uls", "add-remove", 1e-3)
    assert 0.499 < result["epsilon"] <= result["epsilon_target"] == 0.5
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-3, "budget": 0.5}
    with Ledger(RunDirectory(replace(config, resume=True)).ledger_path, **terms) as ledger:
        assert result["epsilon"] == ledger.epsilon()
        assert [charge.round for charge in ledger.charges] == [1, 2, 3, 4, 5]
        assert {c.event.noise_multiplier for c in ledger.charges} == {result["noise_multiplier"]}
        assert {c.event.probability for c in ledger.charges} == {0.2}
    model = RewardModel.load(f"{config.out}/model")
    accuracy = model.accuracy(load_judgements(crowd_test))
    assert result["heldout_accuracy"] == accuracy.pooled
    assert result["heldout_accuracy_by_user"] == accuracy.by_user
    assert result["heldout_users"] == accuracy.users
    assert result["test_is_public"] is True
    speed = result["users_per_second"]
    assert speed > 0
    assert float(f"{speed:.2g}") == speed, "no more digits than say nothing of the cohorts"
    assert round(result["seconds_training"], 1) == result["seconds_training"]
    assert result["stopped"] is None
    lines = RunDirectory(replace(config, resume=True)).metrics()
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5]
    assert all(0.0 <= line["heldout_accuracy"] <= 1.0 for line in lines)
    assert all(line["signal_norm"] <= line["update_norm"] for line in lines)


def test_a_second_accountant_and_what_attacks_reach_stand_in_the_result(config, monkeypatch):
    result = run(config)
    opinion, epsilon = result["second_opinion"], result["epsilon"]
    assert opinion["ours"] > epsilon  # a secret hold-out saves what training alone costs
    assert opinion["difference"] < 1e-6
    assert [rule.partition(":")[0] for rule in opinion["by_our_rules"]] == ["hold-out"]
    attack = result["attack"]
    assert 0.01 < attack["tpr_at_1_percent_fpr"] < found_at_most(epsilon, 1e-3, 0.01)
    assert 0.0 < attack["gdp_mu"] < 1.0
    assert not any("ACCOUNTANTS" in text for text in result["warnings"])

    monkeypatch.setattr(recompute, "epsilon", lambda *_, **__: opinion["ours"] + 1.1e-4)
    disputed = run(replace(config, out=f"{config.out}-disputed"))
    assert any("TWO ACCOUNTANTS DISAGREE" in text for text in disputed["warnings"])
    assert disputed["epsilon"] == epsilon  # a warning, and no more


def test_judgements_over_several_responses(config, crowd_of_four, of_four):
    """Any users per node; the preference model is on record."""
    found = {}
    for nodes in (1, 7, 50):
        changed = replace(
            config, data=crowd_of_four, **of_four, epsilon=200.0, out=f"{config.out}{nodes}"
        )
        result = run(changed, nodes=nodes)
        found[nodes] = weights(changed), result["heldout_accuracy"]
    for nodes in (7, 50):
        np.testing.assert_allclose(found[nodes][0], found[1][0], atol=1e-6)
        assert found[nodes][1] == pytest.approx(found[1][1])
    assert result["heldout_chance"] is None  # how many responses there were is not public
    assert result["heldout_accuracy"] > 0.25
    assert result["heldout_noise"] > 0.0
    assert result["model"] == RewardModel.load(f"{changed.out}/model").model == "plackett-luce"


def test_judgements_that_are_not_as_declared_are_refused(config, crowd_of_four, of_four):
    with pytest.raises(InputError, match=r"are declared: pass --kind .* --responses 2"):
        run(replace(config, data=crowd_of_four), nodes=3)
    with pytest.raises(InputError, match="2 are declared as the most: raise --responses"):
        run(replace(config, data=crowd_of_four, **{**of_four, "responses": 2}), nodes=3)
    assert not Path(config.out).exists(), "nothing was begun"


def spent_by_round(config):
    """Of each metrics line: epsilon shown, and what the ledger held then composes to."""
    folder = RunDirectory(replace(config, resume=True))
    charges = read_charges(folder.ledger_path)
    terms = {"adjacency": Adjacency(config.adjacency), "delta": config.delta}
    found = []
    for line in folder.metrics():
        until = Counter(charge.event for charge in charges if charge.round <= line["round"])
        found.append((line["epsilon"], accountant.epsilon(until.items(), **terms)))
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "uls"},
        {"strategy": "uls", "adjacency": "replace"},
        {"strategy": "els"},
        {"strategy": "group", "group_size": 2, "epsilon": 4.0},
        {"strategy": "adaptive"},
        {"strategy": "aup"},
        {"strategy": "aup", "variant": "above-threshold", "epsilon": 3.0},
        {"strategy": "aup-corrected", "epsilon": 60.0, "cohort": 30, "rounds": 12},
        {"strategy": "aup", "variant": "published-theorem-4", "epsilon": 8.0},
        {"strategy": "label-moment", "adjacency": "replace-labels", "rounds": 2},
        {"strategy": "objective-perturbation", "adjacency": "replace-labels", "rounds": 1},
        {"strategy": "local-label", "adjacency": "replace-labels", "rounds": 1},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())),
)
def test_metrics_show_what_the_ledger_composes_to(config, crowd_test, changes):
    changed = config.changed(**{"rounds": 24, "test": crowd_test, **changes})
    result = run_training(changed, LocalGrid(client_app, 1, changed.to_run_config()))
    found = spent_by_round(changed)
    assert len(found) == result["rounds"]
    assert all(shown >= spent for shown, spent in found)
    assert found == sorted(found)
    assert found[-1][0] == result["epsilon"]
    if "variant" not in changes:  # whose tests are reserved
        assert all(shown == spent for shown, spent in found[:8])


def test_rounds_that_are_charged_again_show(config, monkeypatch):
    unseeded = replace(config, seed=-1, rounds=12, epsilon=0.5)
    with monkeypatch.context() as patched:
        killed_after(patched, 3)
        with pytest.raises(Killed):
            run(unseeded)
    run(replace(unseeded, resume=True))
    for shown, spent in spent_by_round(unseeded):
        assert shown >= spent
    lines = RunDirectory(replace(unseeded, resume=True)).metrics()
    again = next(line["epsilon"] for line in lines if line["round"] == 3)
    event = read_charges(RunDirectory(replace(unseeded, resume=True)).ledger_path)[1].event
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": config.delta}
    held_out = HoldOut(0.2, 0.25).charges.items()  # its figures count from the start
    assert again == accountant.epsilon([*held_out, (event, 4)], **terms)


def test_nothing_about_held_out_users_is_published_by_round(config):
    config = replace(config, epsilon=8.0)
    result = run(config)
    lines = RunDirectory(replace(config, resume=True)).metrics()
    assert not any("heldout_accuracy" in line for line in lines)
    assert 0.0 <= result["heldout_accuracy"] <= 1.0
    assert result["test_is_public"] is False
    # The shares of who registered, however the coins fell.
    assert (result["users"], result["heldout_users"]) == (40, 10)
    nominal = run(replace(config, users=400, cohort=10, out=config.out + "-nominal"))
    assert (nominal["users"], nominal["heldout_users"]) == (400, 100)


def test_nonprivate(config):
    result = run(replace(config, strategy="nonprivate"))
    assert (result["epsilon"], result["epsilon_target"], result["private"]) == (None, None, False)
    assert (result["attack"], result["second_opinion"]) == (None, None)
    assert result["warnings"] == ["No privacy: this is the non-private twin, for comparison only."]
    assert [line["event"]["kind"] for line in ledger_lines(config)] == ["unprotected"] * 5


def test_warnings(config, crowd_test):
    def warned(**changes):
        changed = replace(config, out=config.out + str(len(changes)) + str(changes), **changes)
        return " ".join(run(changed)["warnings"])

    first = warned()
    for words in ("The exact number of users", "SIMULATION, SEED KNOWN"):
        assert words in first
    assert "not below 1 / users" not in first
    second = warned(delta=0.025, users=40, test=crowd_test, seed=-1)
    assert "delta is not below 1 / users" in second
    for words in ("The exact number of users", "SEED KNOWN"):
        assert words not in second
    assert "The exact number of users" not in warned(adjacency="zero-out")


def test_noise_in_floating_point_names_its_cure(config, monkeypatch):
    monkeypatch.setattr("murmuration.strategies.noise.choice.installed", lambda: False)
    warnings = run(replace(config, seed=-1))["warnings"]
    assert any("murmuration-rlhf[secure]" in text for text in warnings)
    assert sum("floating point" in text for text in warnings) == 1


def test_held_out_users_never_train(config):
    everybody = replace(config, rounds=5, cohort=40, users=40)
    grid = WatchedGrid(everybody)
    run_training(everybody, grid)
    assert len(grid.users("train") | grid.users("evaluate")) == 50
    assert grid.users("evaluate")
    assert not grid.users("train") & grid.users("evaluate")
    assert len(grid.asked["evaluate"]) == 1, "held-out users are asked once"


def test_a_public_test_leaves_everybody_in_training(config, crowd_test):
    config = replace(config, test=crowd_test, cohort=50)
    grid = WatchedGrid(config)
    run_training(config, grid)
    assert len(grid.users("train")) == 50
    assert not grid.asked["evaluate"]


@pytest.mark.parametrize("seed", [-1, 3])
def test_a_killed_run_charges_a_round_again_and_stops_in_time(config, monkeypatch, seed):
    config = replace(config, seed=seed)
    with monkeypatch.context() as patched:
        killed_after(patched, 3)
        with pytest.raises(Killed):
            run(config)
    paces, real = [], training.result_of
    monkeypatch.setattr(
        training, "result_of", lambda *a, **k: paces.append(k["pace"]) or real(*a, **k)
    )
    grid = WatchedGrid(again := replace(config, resume=True))
    result = run_training(again, grid)
    # Round 3 was charged, but its checkpoint was not written: it is run again, with fresh coins.
    assert [line["round"] for line in ledger_lines(config)] == [0, 1, 2, 3, 3, 4, 6]
    assert [line["attempt"] for line in ledger_lines(config)] == [0, 0, 0, 0, 1, 0, 0]
    asked = [message.content.config_records["parameters"] for message in grid.asked["train"]]
    assert [(p["round"], p.get("draw")) for p in asked] == [(3, 1), (4, None), (5, None)]
    assert (result["rounds"], result["rounds_planned"]) == (4, 5)
    assert "stopped before round 5" in result["stopped"]
    assert result["epsilon"] <= 0.5
    assert np.isfinite(weights(config)).all()
    lines = RunDirectory(again).metrics()
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    # Speed is that of the rounds run here, not of all.
    assert [pace.rounds for pace in paces] == [2]


@pytest.mark.parametrize("strategy", ["uls", "adaptive", "els"])
def test_sums_of_few_users_travel_in_32_bits_and_change_nothing(config, monkeypatch, strategy):
    """Whoever looks at sizes alone learns only how many users a node was asked for."""
    changes = (
        {"adjacency": "zero-out", "epsilon": 8.0, "group_size": 4} if strategy == "els" else {}
    )
    config = replace(config, strategy=strategy, cohort=8, **changes)
    seen = []

    def spoil(reply):
        record = reply.content.array_records["sums"]
        seen.append({name: record[name].dtype for name in record})
        return reply

    class Grid(WatchedGrid):
        def pull_messages(self, message_ids):
            for reply in self.grid.pull_messages(message_ids):
                yield spoil(reply) if reply.metadata.message_type == "train" else reply

    sizes = []
    for out, nodes, short in (
        ("", 20, grids.short),
        ("-long", 20, lambda _: False),
        ("-1", 1, grids.short),
    ):
        seen.clear()
        with monkeypatch.context() as patched:
            patched.setattr(grids, "short", short)
            one = replace(config, out=config.out + out)
            run_training(one, Grid(one, nodes))
        sizes.append({dtype for types in seen for dtype in types.values()})
    assert sizes[0] == ({"float64"} if strategy == "els" else {"int32"})
    assert sizes[1] == {"float64"}
    assert "float64" in sizes[2]  # a cohort of more than three is in one sum
    np.testing.assert_array_equal(
        weights(config), weights(replace(config, out=config.out + "-long"))
    )
    np.testing.assert_array_equal(weights(config), weights(replace(config, out=config.out + "-1")))


def test_who_is_held_out_survives_a_crash_without_a_seed(config, monkeypatch):
    unseeded = replace(config, seed=-1, cohort=40, users=40)
    first = WatchedGrid(unseeded)
    with monkeypatch.context() as patched:
        killed_after(patched, 2)
        with pytest.raises(Killed):
            run_training(unseeded, first)
    second = WatchedGrid(unseeded)
    run_training(replace(unseeded, resume=True), second)
    trained = first.users("train") | second.users("train")
    assert len(trained | second.users("evaluate")) == 50
    assert not trained & second.users("evaluate"), "held out, and trained on before the crash"


def test_a_seeded_run_goes_on_on_other_nodes(config, monkeypatch):
    with monkeypatch.context() as patched:
        killed_after(patched, 2)
        with pytest.raises(Killed):
            run(config, nodes=4)
    assert run(replace(config, resume=True), nodes=1)["rounds"] == 4


def test_a_finished_run_is_left_alone(config):
    first = run(config)
    before = {
        p: p.read_bytes()
        for p in RunDirectory(replace(config, resume=True)).path.rglob("*")
        if p.is_file()
    }
    grid = WatchedGrid(config)
    assert run_training(replace(config, resume=True), grid) == first
    assert not any(grid.asked.values())
    assert before == {p: p.read_bytes() for p in before}


def test_what_goes_wrong_at_a_node_stays_private(config):
    def fail(reply):
        if reply.metadata.src_node_id != 2:
            return reply
        error = Message(Error(2, "KeyError: 'alice-4711'"), reply_to=reply)
        error.metadata.__dict__.update(reply.metadata.__dict__)
        return error

    config = replace(config, cohort=40, users=40)
    result = run(config, nodes=3, spoil=fail)
    assert (result["rounds"], result["stopped"]) == (5, None)
    assert len(ledger_lines(config)) == 5 + 2  # coins and figures of who is held out
    folder = RunDirectory(replace(config, resume=True))
    log = (folder.private / "log.jsonl").read_text()
    assert log.count("alice-4711") == 5
    for path in folder.path.rglob("*"):
        if path.is_file() and path.parent != folder.private:
            assert b"alice-4711" not in path.read_bytes(), path
            assert b'"left out"' not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"cohort": 41, "users": 40},
            "--cohort 41 is more than the 40 users there are to train on",
        ),
        ({"features": "/no/such/encoder"}, "no such folder"),
        ({"test": "missing.jsonl"}, "missing.jsonl: no such file"),
    ],
)
def test_a_run_that_is_refused_leaves_nothing_behind(config, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        run(replace(config, **changes))
    assert "\n" not in str(caught.value)
    assert not RunDirectory(config).metrics()  # the folder is free
    assert not (RunDirectory(replace(config, resume=True)).path / "ledger.jsonl").exists()


def test_one_user(config, write_rows, make_rows, crowd_test):
    alone = replace(config, data=write_rows(make_rows([5])), cohort=1)
    with pytest.raises(InputError, match=r"too few users \(1\) .*pass --test"):
        run(alone)
    assert run(replace(alone, test=crowd_test))["users"] == 1


def test_a_ledger_in_use_is_left_alone(config, monkeypatch):
    with monkeypatch.context() as patched:
        killed_after(patched, 2)
        with pytest.raises(Killed):
            run(config)
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-3, "budget": 0.5}
    path = RunDirectory(replace(config, resume=True)).ledger_path
    with Ledger(path, **terms), pytest.raises(InputError, match="in use by another run"):
        run(replace(config, resume=True))
    assert run(replace(config, resume=True))["rounds"] == 4


def test_golden_trajectory(config, monkeypatch):
    """Pinned: data, cohorts, windows, gradients, clipping, noise, optimizer and averaging.

    Calibration is left out and all that has a default that might be tuned is given, so a change of
    these numbers is a change of what a seed means.
    """
    monkeypatch.setattr(optimizers, "WARMUP", 0.4)
    steps = partial(OptimizerSettings, averaging=0.5)
    monkeypatch.setattr(step_size, "OptimizerSettings", steps)
    monkeypatch.setattr(accountant, "noise_multiplier_for", lambda *_, **__: 2.5)
    golden = replace(
        config, users=64, epsilon=8.0, clip_norm=0.05, group_size=3, optimizer="sgd",
        learning_rate=2.0, momentum=0.5, rounds=8, cohort=16,
    )  # fmt: skip
    run(golden, nodes=2)
    theta_D = weights(golden).astype(np.float64)
    assert theta_D.shape == (1025,)
    found = [
        math.sqrt(theta_D @ theta_D),
        theta_D @ np.cos(np.arange(1025)),
        *theta_D[[0, 77, 500, 1023, 1024]],
    ]
    assert found == pytest.approx(GOLDEN, abs=1e-6)


GOLDEN = [0.60003347, 0.66899696, 0.00274386, 0.00705621, -0.01678879, 0.01315556, -0.00763134]


def test_nodes_are_told_what_the_run_will_charge(config):
    grid = WatchedGrid(config)
    result = run_training(config, grid)
    texts = {str(m.content.config_records["parameters"]["plan"]) for m in grid.asked["train"]}
    texts |= {str(m.content.config_records["parameters"]["plan"]) for m in grid.asked["evaluate"]}
    assert grid.asked["evaluate"]
    (text,) = texts
    plan = StatedPlan.from_json(text)
    assert (plan.adjacency, plan.delta, plan.rounds) == ("add-remove", 1e-3, 5)
    with Ledger(
        Path(config.out) / "ledger.jsonl", adjacency=plan.adjacency, delta=1e-3, budget=0.5
    ) as ledger:
        assert dict(plan.charges) == dict(ledger.spent())
    assert plan.epsilon() == pytest.approx(result["epsilon"])
    assert plan.run == RunDirectory(replace(config, resume=True)).run_name
