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
from murmuration.preference.bases import examples_of
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.language.likelihood import SavedLikelihood, load_scorer
from murmuration.preference.language.policy_class import policy_class
from murmuration.privacy.accounting.ledger import Ledger, read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.exponential_mechanism import (
    STEPS,
    ExponentialMechanism,
    span_of,
)
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.server.config import RunConfig
from murmuration.server.policies import commit
from murmuration.server.training import train
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.exponential import EXPONENTIAL, client_update
from murmuration.strategies.protocol.messages import Work
from murmuration.strategies.spec import base_config

pytestmark = pytest.mark.usefixtures("quick_runs")
P = 4


@pytest.fixture
def policies(language_model, tmp_path):
    """Folders of a reference and of policies near it, and the file of their class."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, folders = language_model("gpt2"), []
    words = AutoTokenizer.from_pretrained(base)
    for number in range(P):
        model = AutoModelForCausalLM.from_pretrained(base)
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        folders.append(tmp_path / f"p{number}")
        model.save_pretrained(folders[-1])
        words.save_pretrained(folders[-1])
    commit(tmp_path / "class.json", [str(folder) for folder in folders], public=True)
    return folders


@pytest.fixture
def config(policies, language_model, crowd, crowd_test, tmp_path):
    return RunConfig(
        data=crowd, test=crowd_test, task="policy", strategy="exponential",
        base=language_model("gpt2"), policies=str(tmp_path / "class.json"), epsilon=1.0,
        delta=1e-5, seed=3, out=str(tmp_path / "run"),
    )  # fmt: skip


def run(config, nodes=1):
    return train(config, LocalGrid(client_app, nodes, config.to_run_config()))


@pytest.fixture
def examples(config, make_rows):
    """A function: the examples of judgements; by default of three users."""

    def make(rows=None, **changes):
        base = policy_class(base_config(replace(config, **changes)))
        judgements = Judgements.from_rows(rows or make_rows([3, 1, 4]))
        return examples_of(judgements, base)

    return make


def summed(examples, users=None, **parameters):
    users_S = np.arange(len(examples.counts_U)) if users is None else np.array(users)
    work = Work({"theta": np.zeros(P, dtype=np.float32)}, parameters, users_S)
    return client_update(examples, work, users_S.astype(np.uint64), Randomness(0))["sum"]


def by_transformers(folder, ids, first):
    """The log-likelihood of a text's tokens from ``first`` on, in float64."""
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([ids])).logits[0]
    log_LV = logits.double().log_softmax(dim=1)
    return sum(float(log_LV[place - 1, ids[place]]) for place in range(first, len(ids)))


@pytest.mark.parametrize("loss", ["square-chipo", "square-dpo"])
def test_losses_are_those_of_the_paper(examples, policies, language_model, loss):
    found = examples(loss=loss, beta=0.3, r_max=1.5)
    tokens, texts_JK = found.judged.tokens, found.judged.text_JK
    expected_JP = np.empty((len(texts_JK), P))
    for place, folder in enumerate(policies):
        for j, pair in enumerate(texts_JK):
            reward = []
            for text in pair:
                ids = tokens.ids[tokens.start_T[text] : tokens.start_T[text + 1]].tolist()
                first = max(1, int(tokens.second_T[text]))
                u = by_transformers(folder, ids, first)
                u -= by_transformers(language_model("gpt2"), ids, first)
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


def test_what_is_sent_is_bounded_whatever_the_policies_say(examples, policies, config):
    """Of policies far off, of NaN, and of a judgement given a thousand times."""
    model = load_file(policies[0] / "model.safetensors")
    for folder, change in ((policies[0], torch.nan), (policies[1], 50.0)):
        from safetensors.torch import save_file

        state = {name: value.clone() for name, value in model.items()}
        state["transformer.ln_f.weight"] *= change
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    file = Path(config.policies).with_name("broken.json")
    commit(file, [str(folder) for folder in policies], public=True)
    broken = examples(policies=str(file))
    assert np.isfinite(broken.losses()).all()
    worst = (1 + np.tanh(2.0)) ** 2
    np.testing.assert_allclose(broken.losses()[:, 0], worst, rtol=1e-12)
    sum_P = summed(broken)
    assert (sum_P <= 3 * STEPS).all() and sum_P[0] == sum_P.max() > sum_P.min()
    result = run(replace(config, policies=str(file), epsilon=500.0))
    assert result["choice"]["name"] != "p0"


def test_a_reference_of_nan_moves_nothing(examples):
    found = examples()
    found.judged.reference_T[:] = np.inf
    assert np.array_equal(summed(found), np.zeros(P))


def test_at_item_level_judgements_count_by_themselves_up_to_the_cap(examples):
    found = examples()
    mechanism = ExponentialMechanism(1.0, span_of(2.0), P, Adjacency.REPLACE, 2)
    for user in range(3):
        losses_JP = found.select(np.array([user])).losses()
        np.testing.assert_array_equal(
            summed(found, [user], **{"group-size": 2}), mechanism.contribution(losses_JP)
        )
    assert summed(found, **{"group-size": 2}).max() > STEPS


@pytest.mark.parametrize("nodes", [7, 50])
def test_nodes_do_not_change_the_choice(config, nodes):
    expected = run(config)
    other = replace(config, out=config.out + "2")
    assert run(other, nodes)["choice"] == expected["choice"]
    replays = [
        [c.replay for c in read_charges(Path(c.out) / "ledger.jsonl")] for c in (config, other)
    ]
    assert replays[0] == replays[1]  # the sums themselves, too


def test_masks_do_not_change_the_choice(config):
    config = replace(config, adjacency="zero-out")
    expected = run(config)
    masked = replace(config, out=config.out + "2", secure_aggregation=True)
    assert run(masked, 5)["choice"] == expected["choice"]


def test_what_a_run_says(config, policies):
    result = run(config)
    choice, folder = result["choice"], Path(config.out)
    assert result["epsilon"] == pytest.approx(1.0, abs=1e-3) and result["epsilon"] <= 1.0
    assert "(1, 0)-differential privacy" in result["guarantee"]
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
    assert [run["ledger_head"] for run in told["runs"]] == [result["ledger_head"]]


def test_without_a_test_the_choice_and_the_accuracy_are_paid_for(config):
    result = run(replace(config, test="", delta=1e-5))
    assert result["heldout_epsilon"] == 0.5
    assert result["epsilon"] <= 1.0
    assert "test_losses" not in result["choice"]


def test_resuming_gives_the_same_choice(config, broken_off):
    expected = run(config)
    broken = replace(config, out=config.out + "2")
    broken_off(broken, after=1)
    found = run(replace(broken, resume=True))
    assert found["choice"] == expected["choice"]
    assert len(read_charges(Path(broken.out) / "ledger.jsonl")) == 1


def test_an_unseeded_run_chooses_once(config, broken_off):
    broken = replace(config, seed=-1)
    broken_off(broken, after=1)
    found = run(replace(broken, resume=True))
    charges = read_charges(Path(broken.out) / "ledger.jsonl")
    assert len(charges) == 1 and found["epsilon"] <= 1.0


class Dies(LocalGrid):
    """The server dies when the answers are there, before anything is charged."""

    def pull_messages(self, ids):
        found = list(super().pull_messages(ids))
        if any(message.metadata.message_type == "train" for message in found):
            raise ZeroDivisionError
        return found


def test_a_run_that_dies_before_it_chooses_can_ask_again(config):
    with pytest.raises(ZeroDivisionError):
        train(config, Dies(client_app, 1, config.to_run_config()))
    again = run(replace(config, resume=True))
    assert again["choice"] == run(replace(config, out=config.out + "2"))["choice"]


def test_seeds_draw_with_the_probabilities_that_were_claimed(examples, tmp_path):
    sum_P = summed(examples())
    mechanism = ExponentialMechanism(6.0, span_of(2.0), P, Adjacency.ADD_REMOVE)
    expected_P = mechanism.probabilities(sum_P)
    assert expected_P.max() > 1.5 / P
    draws, found = 600, Counter()
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, adjacency=Adjacency.ADD_REMOVE, delta=1e-5, budget=None) as ledger:
        for seed in range(draws):
            found[
                mechanism.choose(
                    sum_P, round_=1, covers="a choice", ledger=ledger, source=Randomness(seed)
                )
            ] += 1
    observed_P = [found[place] for place in range(P)]
    assert stats.chisquare(observed_P, draws * expected_P).pvalue > 1e-3


def test_item_level_says_what_a_user_pays(config):
    item = replace(config, level="item", judgement_cap=3, adjacency="replace")
    result = run(item)
    assert (result["privacy_level"], result["epsilon"]) == ("item", 1.0)
    assert "3 of one user count at most" in " ".join(result["warnings"])
    (charge,) = read_charges(Path(item.out) / "ledger.jsonl")
    assert charge.event.epsilon == 3.0


@pytest.mark.parametrize("adjacency", Adjacency)
def test_every_adjacency_chooses(config, adjacency):
    result = run(replace(config, adjacency=str(adjacency)))
    gap = result["choice"]["expected_gap_at_most"]
    assert gap == pytest.approx(adjacency.vectors_changed * span_of(2.0) * np.log(P))
    assert result["epsilon"] <= 1.0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policies": ""}, "name --task policy, the reference with --base, and with --policies"),
        ({"task": "reward"}, "name --task policy"),
        ({"strategy": "uls"}, "--policies is for --strategy exponential, not uls"),
        ({"loss": "dpo"}, "--loss dpo has no bound"),
        ({"loss": "chipo"}, "--loss chipo has no bound"),
        ({"kind": "top-1", "responses": 3, "model": "plackett-luce"}, "judgements of pairs"),
        ({"labels": "randomized"}, "takes true labels"),
        ({"train": "lora"}, "--train is about training"),
        ({"lora_rank": 4}, "--lora-rank is about training"),
        ({"judgement_cap": 4}, "--judgement-cap is about --level item"),
        ({"level": "item"}, "use --adjacency zero-out, replace"),
        ({"noise": "gaussian"}, "adds no noise"),
        ({"noise": "discrete", "seed": -1}, "--noise discrete is not for"),
        ({"rounds": 2}, "leave out --rounds"),
        ({"learning_rate": 0.1}, "--learning-rate has no meaning"),
    ],
)
def test_what_has_no_meaning_is_refused(config, changes, why):
    with pytest.raises(InputError) as caught:
        replace(config, **changes)
    assert why in str(caught.value)


def test_labels_that_were_randomized_are_refused(config, make_rows, write_rows, examples):
    rows = [{**row, "flip_probability": 0.2} for row in make_rows([3, 2, 2])]
    with pytest.raises(InputError, match="randomized"):
        run(replace(config, data=write_rows(rows)))
    found = examples()
    randomized = replace(found, judged=replace(found.judged, flip_J=torch.full((8,), 0.2)))
    with pytest.raises(InputError, match="randomized already"):
        summed(randomized)


def test_no_class_no_choice():
    assert EXPONENTIAL.chooses
    with pytest.raises(InputError, match="no class of policies"):
        client_update(object(), Work({}, {}, np.arange(1)), np.arange(1), Randomness(0))
