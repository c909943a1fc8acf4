"""Scores by a user's own reward: randomized weights, told once, whoever asks and however often."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from agents import POLICY

from murmuration.client.agent.agent import Agent
from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.own_scores import CLIP, OwnScores
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import Schema
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel
from murmuration.privacy.mechanisms.discrete_laplace import LocalLaplace
from murmuration.privacy.mechanisms.randomness import Randomness, user_key
from murmuration.strategies.protocol import score_query
from murmuration.strategies.protocol.score_query import QUERY, ScoreRequest

TEXTS = ["Put it aside.", "Spend it tonight.", "Wait a year."]


def save(folder, seed=0, scale=1.0, tastes=2):
    draws = np.random.default_rng(seed)
    theta_D, tastes_VD = draws.normal(size=33), scale * draws.normal(size=(tastes, 33))
    features = HashingFeatures(dimension=33)
    RewardModel(theta_D, features, tastes_VD=tastes_VD).save(folder, overwrite=True)
    return str(folder)


@pytest.fixture
def model(tmp_path):
    return save(tmp_path / "model")


@pytest.fixture
def allowing(model):
    return replace(POLICY, score_models=(model,), score_epsilon=3.0)


def request(model, user="user-000", texts=TEXTS):
    return ScoreRequest(model, user, ["What now?"] * len(texts), texts).to_record()


def scores(agent, model, user="user-000", texts=TEXTS):
    return score_query.read_reply(agent.handle(QUERY, request(model, user, texts)), len(texts))


@pytest.fixture
def ids(store):
    return store.judgements.user_ids


def test_answers_come_of_what_the_ledger_says_was_told(make, allowing, model, ids):
    agent = make(allowing)
    result = scores(agent, model, ids[0])
    ((_, key), drawn), *others = agent.ledger.weights.items()
    assert (key, drawn.epsilon, others) == (user_key(ids[0]), 3.0, [])
    own_V = LocalLaplace(CLIP, 3.0).shrunk(np.array(drawn.weights))
    expected = RewardModel.load(model).with_own(own_V).score(["What now?"] * 3, TEXTS)
    assert result.tolist() == expected.tolist()
    exact_V = RewardModel.load(model).own_weights(agent.store.judgements.select([0]))
    assert np.abs(own_V - exact_V).min() > 1e-6
    assert agent.ledger.weights_epsilon() == 3.0


def test_nothing_more_is_told_however_often_and_after_any_end(make, allowing, model, ids):
    agent = make(allowing)
    first = scores(agent, model, ids[0])
    before = dict(agent.ledger.weights)
    assert scores(agent, model, ids[0]).tolist() == first.tolist()
    again = make(replace(allowing, score_epsilon=8.0))  # the owner's change of mind costs nothing
    assert scores(again, model, ids[0]).tolist() == first.tolist()
    assert again.ledger.weights == before


def test_later_judgements_change_nothing(make, allowing, model, make_rows, ids, tmp_path):
    agent = make(allowing)
    first = scores(agent, model, ids[0])
    agent.ledger.close()
    more = UserStore(Judgements.from_rows(make_rows([9, 5, 2], seed=4)), place=-1)
    later = Agent(more, allowing, tmp_path / "state")
    assert scores(later, model, ids[0]).tolist() == first.tolist()


def drawn(store, policy, path, user):
    """Weights of a user when the coins are known."""
    own = OwnScores(store, policy, OwnLedger(path), Randomness(7))
    own.answer(request(policy.score_models[0], user))
    return own._ledger.weights


def test_one_users_judgements_move_what_is_told_of_that_user_alone(
    allowing, make_rows, tmp_path, ids
):
    stores = [
        UserStore(Judgements.from_rows(make_rows(counts)), place=-1)
        for counts in ([3, 5, 2], [3, 5, 4])
    ]
    for number, (user, same) in enumerate(((ids[0], True), (ids[2], False))):
        both = [
            drawn(store, allowing, tmp_path / f"{number}-{place}.jsonl", user)
            for place, store in enumerate(stores)
        ]
        assert (both[0] == both[1]) is same


def test_what_was_told_is_on_disk_before_an_answer(make, allowing, model, monkeypatch, ids):
    agent = make(allowing)

    def full(line):
        raise InputError("no space")

    monkeypatch.setattr(agent.ledger, "_append", full)
    with pytest.raises(InputError, match="no space"):
        scores(agent, model, ids[0])
    assert not agent.ledger.weights


def test_a_model_written_anew_is_another_and_needs_the_owners_leave(make, allowing, model, ids):
    agent = make(allowing)
    scores(agent, model, ids[0])
    save(model, seed=1)
    with pytest.raises(PolicyRefusal, match=r"\(score_models\).* 1 models? before"):
        scores(make(allowing), model, ids[0])
    assert len(make(allowing).ledger.weights) == 1


def test_each_model_that_is_listed_costs_its_own(make, allowing, model, tmp_path, ids):
    other = save(tmp_path / "other", seed=1)
    agent = make(replace(allowing, score_models=(model, other)))
    for name in (model, other):
        scores(agent, name, ids[0])
    scores(agent, model, ids[1])
    assert len(agent.ledger.weights) == 3
    assert agent.ledger.weights_epsilon() == 6.0  # of one user


@pytest.mark.parametrize("user", ["", "nobody", "user"])
def test_of_several_users_one_is_named(make, allowing, model, user):
    with pytest.raises(PolicyRefusal, match="name one of the users"):
        scores(make(allowing), model, user)


def test_of_one_user_none_need_be(allowing, model, make_rows, tmp_path):
    store = UserStore(Judgements.from_rows(make_rows([4])), place=-1)
    assert len(scores(Agent(store, allowing, tmp_path / "one"), model, "")) == 3


def test_nothing_is_told_without_the_owners_leave(make, model, ids):
    agent = make()
    with pytest.raises(PolicyRefusal, match=r"\(score_models\)"):
        scores(agent, model, ids[0])
    assert not agent.ledger.weights
    assert "score_models" in agent.ledger.path.read_text().splitlines()[-1]


def test_who_has_nothing_that_says_anything_is_answered_like_anybody(
    allowing, model, make_rows, tmp_path
):
    """Else an error would tell that somebody judged nothing but ties."""
    rows = [{**row, "tie": True} for row in make_rows([3], ties=False)]
    store = UserStore(Judgements.from_rows(rows), place=-1)
    agent = Agent(store, allowing, tmp_path / "ties")
    assert np.isfinite(scores(agent, model, "")).all()
    assert any(agent.ledger.weights[key].weights != (0.0, 0.0) for key in agent.ledger.weights)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e15])
def test_a_basis_made_to_ask_more_gets_no_more(allowing, make_rows, tmp_path, scale):
    """However long its rows are, what is told is as short, and as noisy."""
    policy = replace(allowing, score_models=(save(tmp_path / "made", scale=scale),))
    mechanism = LocalLaplace(CLIP, policy.score_epsilon)
    store = UserStore(Judgements.from_rows(make_rows([40])), place=-1)
    (weights,) = (
        each.weights for each in drawn(store, policy, tmp_path / "own.jsonl", "").values()
    )
    reward = RewardModel.load(policy.score_models[0])
    own_V = torch.from_numpy(reward.own_weights(store.judgements))
    exact_V = CLIP.clip_sum(own_V[None]).numpy()
    assert np.abs(exact_V).sum() <= CLIP.norm
    noise = mechanism.randomized(
        np.zeros(2), Randomness(7).stream("own weights", int(store.keys_U[0]))
    )
    assert np.allclose(np.array(weights) - exact_V, noise, atol=1e-12)


def test_a_basis_that_makes_the_weights_degenerate_is_answered_all_the_same(
    allowing, make_rows, tmp_path
):
    """Else an error would tell who judged a text with a certain word."""
    features = HashingFeatures(dimension=33)
    theta_D, row_D = np.zeros(33, np.float32), np.full(33, 1e10, np.float32)
    RewardModel(theta_D, features, tastes_VD=np.stack([row_D, row_D])).save(tmp_path / "twice")
    policy = replace(allowing, score_models=(str(tmp_path / "twice"),), score_epsilon=0.1)
    store = UserStore(Judgements.from_rows(make_rows([5])), place=-1)
    agent = Agent(store, policy, tmp_path / "state")
    assert len(scores(agent, policy.score_models[0], "")) == 3
    assert len(agent.ledger.weights) == 1


def test_weights_that_cannot_be_computed_are_zeros_and_nobody_hears_of_it(
    make, allowing, model, ids, monkeypatch
):
    def broken(self, judgements, left_out=None):
        raise MemoryError("depression")

    monkeypatch.setattr(RewardModel, "own_weights", broken)
    agent = make(allowing)
    assert len(scores(agent, model, ids[0])) == 3
    assert len(agent.ledger.weights) == 1


def test_nothing_about_judgements_is_computed_when_somebody_asks(
    make, allowing, model, ids, monkeypatch
):
    agent = make(allowing)
    monkeypatch.setattr(RewardModel, "own_weights", None)
    assert len(scores(agent, model, ids[0])) == 3


def test_users_who_are_rows_are_refused(allowing, make_rows, tmp_path):
    """Their names tell the texts."""
    judged = Judgements.from_rows(make_rows([3]), schema=Schema(one_user_per_row=True))
    with pytest.raises(InputError, match="users who are named in the rows"):
        Agent(UserStore(judged, place=-1), allowing, tmp_path / "rows")


def test_a_model_with_too_many_features_is_refused(store, allowing, tmp_path):
    with pytest.raises(InputError, match=r"33 features times 3 tastes; 98 are the most"):
        Agent(store, replace(allowing, max_dimension=98), tmp_path / "state")


def test_rewards_for_all_have_nothing_of_ones_own(store, allowing, tmp_path):
    features = HashingFeatures(dimension=33)
    RewardModel(np.zeros(33), features).save(tmp_path / "crowd")
    policy = replace(allowing, score_models=(str(tmp_path / "crowd"),))
    with pytest.raises(InputError, match=r"score_models: .*crowd: .*one reward for all"):
        Agent(store, policy, tmp_path / "state")


def test_a_model_that_is_not_there(store, allowing, tmp_path):
    policy = replace(allowing, score_models=(str(tmp_path / "none"),))
    with pytest.raises(InputError, match=r"score_models: .*none"):
        Agent(store, policy, tmp_path / "state")


@pytest.mark.parametrize(
    ("rule", "rules"),
    [
        ("score_models", {"score_models": ("model",), "score_epsilon": 1.0}),
        ("score_epsilon", {"score_models": ("/model",)}),
        ("score_epsilon", {"score_epsilon": 1.0}),
        ("score_epsilon", {"score_models": ("/model",), "score_epsilon": 1e-9}),
        ("score_models", {"score_models": ("/m",), "score_epsilon": 1.0, "label_epsilon": 1.0}),
    ],
)
def test_rules_that_make_no_sense(rule, rules):
    with pytest.raises(InputError, match=f"policy {rule} must be"):
        Policy(**rules)


def test_a_request_that_is_none_charges_nothing(make, allowing, model, ids):
    agent = make(allowing)
    content = request(model, ids[0])
    content.config_records["score"]["responses"] = ["one"]
    with pytest.raises(ValueError, match="equally many"):
        agent.handle(QUERY, content)
    assert not agent.ledger.weights


def test_told_weights_that_were_edited_are_noticed(make, allowing, model, ids):
    agent = make(allowing)
    scores(agent, model, ids[0])
    agent.ledger.close()
    lines = agent.ledger.path.read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if '"weights"' in line)
    line = json.loads(lines[place])
    lines[place] = json.dumps({**line, "randomized": [0.0, 0.0]})
    agent.ledger.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="Nothing is answered without it"):
        OwnLedger(agent.ledger.path)
