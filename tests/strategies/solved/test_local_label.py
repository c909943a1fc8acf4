"""Fits to told labels: defaults, notes, what is charged, and nodes that fail."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from local_runs import run

from murmuration.client.app import app
from murmuration.client.store import load
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.preference.features.hashing import HashingFeatures, feature_map
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.events import RandomizedLabels as LabelEvent
from murmuration.privacy.accounting.ledger import Ledger, read_charges
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.server.record.run_directory import RunDirectory
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.base import Participants
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.protocol.public_items import PublicItems
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.solved.local_label import (
    Estimate,
    LocalLabel,
    LocalLabelPlan,
    Told,
    on_features,
)
from murmuration.strategies.steps.optimizers import SolvedModel

pytestmark = pytest.mark.settings(
    test="crowd", strategy="local-label", adjacency="replace-labels", epsilon=4.0
)

FEATURES = HashingFeatures(dimension=9)
PROMISE = LabelPromise(4.0)


def labels(rows=3000, epsilon=2.0, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    truth_D = torch.randn(3, generator=generator).double()
    x_JD = torch.randn(rows, 3, generator=generator).double()
    first_J = torch.rand(rows, generator=generator) < torch.sigmoid(x_JD @ truth_D)
    flip = RandomizedResponse(epsilon).flip_probability
    told_J = first_J ^ (torch.rand(rows, generator=generator) < flip)
    return truth_D, RandomizedLabels.of_pairs(x_JD * scale, told_J, flip)


@pytest.mark.parametrize("estimator", ["debiased", "mle", "sgd", "square"])
def test_every_estimator_finds_the_truth(estimator):
    truth_D, told = labels()
    theta_D, notes = Estimate(estimator).of(told)
    assert torch.cosine_similarity(theta_D, truth_D, dim=0) > 0.97
    assert notes == []


def test_defaults_do_not_depend_on_the_units_of_features():
    _, told = labels()
    _, larger = labels(scale=10.0)
    for estimator in ("debiased", "sgd"):
        theta_D, _ = Estimate(estimator).of(told)
        theta_tenth_D, _ = Estimate(estimator).of(larger)
        assert torch.allclose(theta_D, 10 * theta_tenth_D, rtol=1e-6)


def test_labels_that_say_little_move_the_model_little():
    _, told = labels(epsilon=0.02)
    theta_D, notes = Estimate().of(told)
    assert theta_D.norm() < 3 and notes == []


def test_a_bound_that_decides_is_told():
    x_JD = torch.eye(3, dtype=torch.float64).repeat(100, 1)
    told = RandomizedLabels.of_pairs(x_JD, torch.ones(300, dtype=torch.bool), 0.4)
    theta_D, notes = Estimate(ridge=1e-9).of(told)
    assert theta_D.norm() == pytest.approx(30.0)
    assert "lies on the ball" in notes[0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ridge": math.inf}, "--ridge"),
        ({"estimator": "sgd", "model": "thurstone"}, "use debiased"),
    ],
)
def test_impossible_estimates_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Estimate(**fields)


def test_a_user_costs_the_promise():
    assert LocalLabelPlan(LabelPromise(3.0), users=9).charges == {LabelEvent(3.0): 1}


class Faulty(LocalGrid):
    """A grid in which some nodes answer nonsense to the question for labels."""

    broken = ()

    def _answer(self, message):
        reply = super()._answer(message)
        node = message.metadata.dst_node_id
        if node in self.broken and message.metadata.message_type.endswith("labels"):
            reply.content.array_records["labels"]["answers"] = reply.content.array_records[
                "labels"
            ]["choices"]
        return reply


def strategy_on(grid, tmp_path, log=None, promise=PROMISE, estimate=None, schema=PAIRS):
    features = feature_map(FEATURES.to_config())
    source = Randomness(3)
    config = json.dumps(FEATURES.to_config())
    model = "btl" if schema.kind == "pairs" else "plackett-luce"
    registry = Registry.ask(grid, source, features=config, model=model, schema=schema, counts=True)
    participants = Participants.all(registry)
    items = PublicItems.ask(grid, registry, participants.train, schema=schema)
    plan = LocalLabelPlan(promise, len(registry))
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, adjacency=plan.adjacency, delta=1e-3, budget=promise.epsilon)
    return LocalLabel(
        plan,
        ledger,
        items,
        on_features(estimate or Estimate(), items.examples(features)),
        participants=participants,
        optimizer=SolvedModel(features.dimension),
        source=source,
        features=config,
        log=(lambda line: None) if log is None else log.append,
    )


@pytest.fixture
def grid(crowd):
    return Faulty(app, 5, {"data": crowd, "seed": 3})


def deployed(strategy):
    """The strategy, with nodes that know of no others, as in a deployment."""
    registry = strategy.participants.registry
    entries = {node: replace(entry, places=0) for node, entry in registry.entries.items()}
    strategy.participants = replace(
        strategy.participants, registry=replace(registry, entries=entries)
    )
    return strategy


def test_one_round_is_charged_once_however_often_it_is_asked(grid, tmp_path):
    strategy = strategy_on(grid, tmp_path)
    strategy.start(grid, num_rounds=1)
    first_D = strategy.optimizer.result_D
    assert first_D.any() and strategy.rounds_done == 1
    strategy.rounds_done = 0
    strategy.start(grid, num_rounds=1)
    assert (strategy.optimizer.result_D == first_D).all()
    assert strategy.ledger.spent() == {LabelEvent(4.0): 1}


def test_a_node_that_answers_nonsense_is_left_out(grid, tmp_path):
    grid.broken, log = (2,), []
    strategy = deployed(strategy_on(grid, tmp_path, log))
    strategy.start(grid, num_rounds=1)
    assert strategy.optimizer.result_D.any()
    assert [line["node"] for line in log if "left out" in line] == [2]


def test_nobody_who_tells_is_an_error(grid, tmp_path):
    grid.broken = range(9)
    strategy = deployed(strategy_on(grid, tmp_path))
    with pytest.raises(RunAborted, match="no answers"):
        strategy.start(grid, num_rounds=1)
    assert strategy.rounds_done == 0


def test_a_node_of_a_simulation_that_answers_nonsense_ends_the_run(grid, tmp_path):
    grid.broken = (2,)
    with pytest.raises(RunAborted, match="not an answer to the labels query"):
        strategy_on(grid, tmp_path).start(grid, num_rounds=1)


class Spy:
    """An estimate that keeps what it was given."""

    def of(self, labels):
        self.labels = labels
        return torch.zeros(labels.dimension), []


def test_labels_meet_the_features_of_their_own_items(grid, crowd, tmp_path, monkeypatch):
    """With coins that flip nothing they are the true labels."""
    monkeypatch.setattr(RandomizedResponse, "answer", lambda self, truth, words: truth)
    seen = Spy()
    strategy_on(grid, tmp_path, None, LabelPromise(400.0), seen).start(grid, num_rounds=1)
    data = load(crowd, "", "refuse")
    assert (data.y_R == 1).all(), "who is preferred in a tie is a coin"
    phi = feature_map(FEATURES.to_config())
    true_RD = np.stack(
        [
            (phi([prompt], [chosen]) - phi([prompt], [rejected]))[0]
            for prompt, (chosen, rejected) in zip(data.prompts, data.responses, strict=True)
        ]
    )
    sign_J = 2 * seen.labels.stated_JK[:, 0] - 1
    told_RD = (sign_J[:, None] * seen.labels.x_JWD[:, 0]).numpy()
    assert np.allclose(sorted(told_RD.tolist()), sorted(true_RD.tolist()), atol=1e-5)


def test_the_best_of_several(crowd_of_four, of_four, tmp_path):
    schema = Schema(of_four["kind"], 4)
    declared = {"kind": schema.kind, "responses": 4}
    grid = Faulty(app, 2, {"data": crowd_of_four, "seed": 3, **declared})
    seen = Spy()
    promise = LabelPromise(200.0, cap=100)
    strategy = strategy_on(grid, tmp_path, None, promise, seen, schema)
    if schema.kind == "ranking":
        with pytest.raises(RunAborted, match="whole ranking is no single label"):
            strategy.start(grid, num_rounds=1)
        return
    strategy.start(grid, num_rounds=1)
    options_J = seen.labels.options_J
    assert options_J.max() == 4
    flips = [RandomizedResponse(2.0, int(options)).flip_probability for options in options_J]
    assert seen.labels.flip_J.tolist() == flips


@pytest.mark.parametrize(("choices", "c"), [(2, 40.0083), (4, 79.0167)])
def test_what_labels_tell_is_said(choices, c):
    """ε = 0.5 of a user over ten labels is 0.05 each."""
    flip = (choices - 1) / (np.exp(0.05) + choices - 1)
    places_N = np.zeros(500, dtype=np.int64)
    told = Told(places_N, places_N, np.full(500, flip), np.full(500, choices))
    assert 1.0 / told.contrast_N[0] == pytest.approx(c, rel=1e-4)
    assert told.in_words.startswith("500 labels were released.")
    assert f"multiplied by c = {c:.3g}" in told.in_words
    assert f"about {500 / c**2:,.0f} true labels" in told.in_words


# Randomized labels from settings to a finished run: ledger, nodes, resuming.


def charges(result):
    return [charge.event for charge in read_charges(Path(result["out"]) / "ledger.jsonl")]


def weights(result):
    return RewardModel.load(Path(result["out"]) / "model").theta_D


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("label_delta", [0.0, 1e-3])
def test_an_epsilon_between_the_accountants_steps_is_kept(config, label_delta):
    result = run(config.changed(epsilon=1 / 3, label_delta=label_delta))
    assert result["rounds"] == 1
    assert 0.33 < result["epsilon"] <= 1 / 3


@pytest.mark.usefixtures("quick_runs")
def test_another_seed_is_other_labels(config, tmp_path):
    one = weights(run(config))
    other = weights(run(config.changed(seed=4, out=str(tmp_path / "other"))))
    assert not np.allclose(one, other, atol=1e-3)


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("seed", [3, -1])
def test_a_run_that_died_after_the_labels_were_told_gets_the_same(config, monkeypatch, seed):
    config = config.changed(seed=seed)
    asked = []

    def dies(_, round_, state):
        asked.append(state["theta"])
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(RunDirectory, "save_checkpoint", dies)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    result = run(config.changed(resume=True))
    assert np.array_equal(weights(result), asked[0].astype(np.float32))
    assert len(charges(result)) == 1


@pytest.mark.usefixtures("quick_runs")
def test_a_cap_is_told_to_everybody(config):
    result = run(config.changed(label_cap=2))
    assert result["group_size"] == 2


@pytest.mark.usefixtures("quick_runs")
def test_labels_told_with_a_delta(config):
    result = run(config.changed(label_delta=1e-4))
    assert charges(result) == [LabelEvent(4.0, 1e-4)]
    assert 3.9 < result["epsilon"] <= 4.0


@pytest.fixture
def told(crowd, write_rows):
    """The crowd's judgements with labels randomized with ε = 2 each."""
    lines = [json.loads(line) for line in Path(crowd).read_text(encoding="utf-8").splitlines()]
    flip = RandomizedResponse(2.0).flip_probability
    return write_rows([row | {"flip_probability": flip} for row in lines])


@pytest.mark.usefixtures("quick_runs")
def test_labels_that_come_randomized_are_trained_on(config, told):
    result = run(config.changed(data=told, labels="randomized", epsilon=400.0), nodes=3)
    assert np.abs(weights(result)).max() > 0
    assert "BIASED" not in " ".join(result["warnings"])
    assert "NOT THE TRUE ONE" not in " ".join(result["warnings"])  # with a test of true labels


@pytest.mark.usefixtures("quick_runs")
def test_accuracy_on_randomized_labels_is_not_sold_as_the_true_one(config, told):
    warning = "THE HELD-OUT ACCURACY IS NOT THE TRUE ONE"
    asked = config.changed(data=told, labels="randomized", test="", epsilon=400.0)
    result = run(asked)
    assert result["heldout_accuracy"] is not None
    assert any(warning in text for text in result["warnings"])
    clean = run(config.changed(out=config.out + "-clean", test=""))
    assert warning not in " ".join(clean["warnings"])


@pytest.mark.usefixtures("quick_runs")
def test_labels_that_come_randomized_are_not_sold_for_more(config, told):
    with pytest.raises(RunAborted, match="less protection than is asked for"):
        run(config.changed(data=told, labels="randomized", epsilon=2.0))


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("strategy", ["nonprivate", "uls"])
def test_strategies_that_know_nothing_of_coins_warn(config, told, strategy):
    changes = {"rounds": 2, "cohort": 5, "strategy": strategy}
    result = run(config.changed(data=told, labels="randomized", **changes))
    assert any("THE MODEL IS BIASED" in text for text in result["warnings"])
    clean = run(config.changed(out=config.out + "-clean", **changes))
    assert "BIASED" not in " ".join(clean["warnings"])


@pytest.mark.usefixtures("quick_runs")
def test_other_models(config, tmp_path):
    result = run(config.changed(model="thurstone", estimator="mle"))
    assert result["heldout_accuracy"] is not None
