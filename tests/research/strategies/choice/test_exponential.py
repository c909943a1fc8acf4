"""A private choice among policies: the same everywhere, nobody moves it by more than was said."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

from murmuration.client.app import app as client_app
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.language.likelihood import SavedLikelihood, load_scorer
from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.accounting.ledger import Ledger, read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.strategies.choice.class_examples import PolicyClass
from murmuration.research.strategies.choice.exponential import EXPONENTIAL, client_update
from murmuration.research.strategies.choice.exponential_mechanism import (
    STEPS,
    ExponentialMechanism,
    span_of,
)
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.registry import base_config

pytestmark = pytest.mark.usefixtures("quick_runs")
P = 4


def run(choice_config, nodes=1):
    return run_training(choice_config, LocalGrid(client_app, nodes, choice_config.to_run_config()))


@pytest.fixture
def examples(choice_config, make_rows):
    """A function: the examples of judgements; by default of three users."""

    def make(rows=None, **changes):
        base = PolicyClass.load(base_config(choice_config.changed(**changes)))
        judgements = Judgements.from_rows(rows or make_rows([3, 1, 4]))
        return base.examples(judgements)

    return make


def summed(examples, users=None):
    users_S = np.arange(len(examples.counts_U)) if users is None else np.array(users)
    work = TrainRequest({"theta": np.zeros(P, dtype=np.float32)}, {}, users_S)
    return client_update(examples, work, users_S.astype(np.uint64), Randomness(0))["sum"] * STEPS


def by_transformers(model, ids, first):
    """The log-likelihood of a text's tokens from ``first`` on, in float64."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    log_LV = logits.double().log_softmax(dim=1)
    return sum(float(log_LV[place - 1, ids[place]]) for place in range(first, len(ids)))


@pytest.mark.parametrize("loss", ["square-chipo", "square-dpo"])
def test_losses_are_those_of_the_paper(examples, four_policies, language_model, loss):
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(language_model("gpt2"))
    found = examples(loss=loss, beta=0.3, r_max=1.5)
    tokens, texts_JK = found.judged.tokens, found.judged.text_JK
    expected_JP = np.empty((len(texts_JK), P))
    for place, folder in enumerate(four_policies):
        policy = AutoModelForCausalLM.from_pretrained(folder)
        for j, pair in enumerate(texts_JK):
            reward = []
            for text in pair:
                ids = tokens.ids[tokens.start_T[text] : tokens.start_T[text + 1]].tolist()
                first = max(1, int(tokens.second_T[text]))
                u = by_transformers(policy, ids, first) - by_transformers(reference, ids, first)
                reward.append(0.3 * (u + (np.exp(u) if "chipo" in loss else 0.0)))
            z = np.clip(reward[0] - reward[1], -3.0, 3.0)
            expected_JP[j, place] = (np.tanh(z / 2) - (2 * float(found.y_R[j]) - 1)) ** 2
    np.testing.assert_allclose(found.losses(), expected_JP, atol=2e-5)
    assert expected_JP.std(axis=1).min() > 1e-3  # policies differ, or nothing was compared


def test_a_users_part_is_the_same_whoever_else_is_there(examples, make_rows):
    rows = make_rows([3, 1, 4, 2])
    together = examples(rows)
    alone = [
        summed(examples([row for row in rows if row["user_id"] == user]))
        for user in dict.fromkeys(row["user_id"] for row in rows)
    ]
    for user, expected_P in enumerate(alone):
        assert np.array_equal(summed(together, [user]), expected_P)
        # And before it is rounded: losses themselves.
    assert np.array_equal(summed(together), sum(alone))
    first = together.select(np.array([1])).losses()
    user = together.judged.start_U[1:3].tolist()
    assert np.array_equal(first[0], examples([rows[user[0]]]).losses()[0])
    assert all((part >= 0).all() and (part <= STEPS).all() and part.max() > 0 for part in alone)


def test_what_is_sent_is_bounded_whatever_the_policies_say(examples):
    """Also of policies that are far off, or say what is no number."""
    broken = examples()
    broken.measure(np.arange(3))
    broken.log_PT[0, :-1], broken.log_PT[1, :-1:2] = np.nan, -1e300
    worst = (1 + np.tanh(2.0)) ** 2
    losses_JP = broken.losses()
    assert np.isfinite(losses_JP).all()
    np.testing.assert_allclose(losses_JP[:, 0], worst, rtol=1e-12)
    sum_P = summed(broken)
    assert (sum_P <= 3 * STEPS).all() and sum_P[0] == sum_P.max() > sum_P[2:].min()
    assert sum_P[2:].max() > 0  # nobody's other losses were lost with these


def test_a_reference_of_nan_moves_nothing(examples):
    found = examples()
    found.judged.reference_T[:] = np.inf
    assert np.array_equal(summed(found), np.zeros(P))


def test_neither_nodes_nor_masks_change_the_choice(choice_config):
    choice_config = replace(choice_config, adjacency="zero-out")
    expected = run(choice_config)
    masked = replace(choice_config, out=choice_config.out + "2", secure_aggregation=True)
    assert run(masked, 7)["choice"] == expected["choice"]


def test_what_a_run_says(choice_config):
    result = run(choice_config)
    choice, folder = result["choice"], Path(choice_config.out)
    assert result["epsilon"] == pytest.approx(1.0, abs=1e-3) and result["epsilon"] <= 1.0
    (charge,) = read_charges(folder / "ledger.jsonl")
    assert charge.event.epsilon == 1.0 and choice["class"] in charge.covers
    assert choice["expected_gap_at_most"] == pytest.approx(span_of(2.0) * np.log(P))
    assert set(choice["test_losses"]) == {"p0", "p1", "p2", "p3"}
    chosen = Path(choice["path"])
    saved, there = (load_file(place / "model.safetensors") for place in (folder / "model", chosen))
    assert saved.keys() >= there.keys()
    assert all(torch.equal(saved[name], there[name]) for name in there)
    scorer = load_scorer(folder / "model")
    assert isinstance(scorer, SavedLikelihood)
    assert np.isfinite(scorer.score(["what now ?"], ["save it"])).all()
    card = (folder / "model" / "README.md").read_text()
    assert choice["name"] in card and choice["digest"] in card and "LoRA" not in card
    assert "load_scorer" in card
    told = json.loads((folder / "model" / "privacy.json").read_text())
    assert [run["ledger_head"] for run in told["promise"]["runs"]] == [result["ledger_head"]]


def test_without_a_test_the_choice_and_the_accuracy_are_paid_for(choice_config):
    result = run(replace(choice_config, test="", delta=1e-5))
    assert result["heldout_epsilon"] == 0.5
    assert result["epsilon"] <= 1.0
    assert "test_losses" not in result["choice"]


def test_seeds_draw_with_the_probabilities_that_were_claimed(examples, tmp_path):
    sum_P = summed(examples())
    mechanism = ExponentialMechanism(6.0, span_of(2.0), P, Adjacency.ADD_REMOVE)
    expected_P = mechanism.probabilities(sum_P)
    assert expected_P.max() > 1.5 / P
    draws, found = 600, Counter()
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, adjacency=Adjacency.ADD_REMOVE, delta=1e-5, budget=None) as ledger:
        for seed in range(draws):
            covers, source = f"a choice by {seed}", Randomness(seed)
            place = mechanism.choose(
                sum_P, round_=seed + 1, covers=covers, ledger=ledger, source=source
            )
            found[place] += 1
    observed_P = [found[place] for place in range(P)]
    assert stats.chisquare(observed_P, draws * expected_P).pvalue > 1e-3


@pytest.mark.parametrize("adjacency", Adjacency)
def test_every_adjacency_chooses(choice_config, adjacency):
    result = run(replace(choice_config, adjacency=str(adjacency)))
    gap = result["choice"]["expected_gap_at_most"]
    assert gap == pytest.approx(adjacency.vectors_changed * span_of(2.0) * np.log(P))
    said = "The exact number of users is published" in " ".join(result["warnings"])
    assert said == (adjacency is Adjacency.ADD_REMOVE)
    assert result["epsilon"] <= 1.0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policies": ""}, "name --task policy, the reference with --base, and with --policies"),
        ({"task": "reward", "train": "head"}, "name --task policy"),
        ({"strategy": "uls"}, "--policies is for --strategy exponential"),
        ({"loss": "dpo"}, "--loss dpo has no bound"),
        ({"loss": "chipo"}, "--loss chipo has no bound"),
        ({"kind": "top-1", "responses": 3, "model": "plackett-luce"}, "judgements of pairs"),
        ({"labels": "randomized"}, "takes true labels"),
        ({"train": "lora"}, "--train is about training"),
        ({"lora_rank": 4}, "--lora-rank is about training"),
        ({"noise": "gaussian"}, "adds no noise"),
        ({"noise": "discrete", "seed": -1}, "leave out --noise"),
        ({"rounds": 2}, "leave out --rounds"),
        ({"learning_rate": 0.1}, "--learning-rate is about training"),
    ],
)
def test_what_has_no_meaning_is_refused(choice_config, changes, why):
    with pytest.raises(InputError) as caught:
        choice_config.changed(**changes)
    assert why in str(caught.value)


def test_labels_that_were_randomized_are_refused(choice_config, make_rows, write_rows, examples):
    rows = [{**row, "flip_probability": 0.2} for row in make_rows([3, 2, 2])]
    with pytest.raises(InputError, match="randomized"):
        run(replace(choice_config, data=write_rows(rows)))
    found = examples()
    randomized = replace(found, judged=replace(found.judged, flip_J=torch.full((8,), 0.2)))
    with pytest.raises(InputError, match="randomized already"):
        summed(randomized)


def test_no_class_no_choice():
    assert not EXPONENTIAL.trains
    pairs = PairExamples(torch.ones(1, 2), torch.ones(1), torch.tensor([0, 1]))
    with pytest.raises(InputError, match="no class of policies"):
        client_update(pairs, TrainRequest({}, {}, np.arange(1)), np.arange(1), Randomness(0))
