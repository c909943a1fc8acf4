"""The ClientApp's answers, through messages."""

import json

import numpy as np
import pytest
from flwr.app import RecordDict
from named import asked

from murmuration.client.answers import ANSWERS
from murmuration.client.app import QUERIES, app
from murmuration.client.store import store_for
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.tally import STEPS, Tally
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import uls
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest

FEATURES = json.dumps(HashingFeatures(dimension=33).to_config())
PARAMETERS = {
    "strategy": "uls",
    "round": 3,
    "features": FEATURES,
    "clip-norm": 0.2,
    "group-size": 4,
}


@pytest.fixture
def ask(crowd):
    """A function: a node's answer to a message."""
    grid = LocalGrid(app, 2, {"data": crowd, "seed": 3})

    def answer(content, kind):
        message = grid.create_message(content, kind, 2, "0")
        grid.push_messages([message])
        return app(message, grid._contexts[2])

    return answer


@pytest.fixture
def store(crowd):
    context = type("C", (), {})()
    context.run_config = {"data": crowd, "seed": 3}
    context.node_config = {"partition-id": 1, "num-partitions": 2}
    return store_for(context)


def summed(reply):
    steps = {"sum": UserClip(PARAMETERS["clip-norm"]).step}
    return messages.read_sums(reply.content, {"sum": (33,)}, steps)["sum"]


def work(users_S, theta_D=None, **changes):
    theta_D = np.zeros(33) if theta_D is None else theta_D
    model = messages.model_record(theta_D)
    about = asked(25 + user for user in users_S)  # of the second half
    return messages.work_request(model, {**PARAMETERS, **changes}, about)


def test_the_app_takes_every_kind_of_message_that_there_is_an_answer_to():
    assert {*(f"query.{name}" for name in QUERIES), "train", "evaluate"} == set(ANSWERS)


@pytest.mark.parametrize("counts", [False, True])
def test_registry(ask, store, counts):
    reply = ask(messages.registry_request(b"salt", counts, FEATURES), "query.registry")
    entry = messages.read_registry(reply.content)
    assert entry.place == 1
    assert entry.keys_U.tolist() == store.salted_keys(b"salt").tolist()
    if counts:
        assert entry.counts_U.tolist() == store.judgements.counts_U.tolist()
    else:
        assert entry.counts_U is None


def test_registry_notices_features_that_cannot_be_computed(ask):
    with pytest.raises(ValueError, match="known kinds are"):
        ask(messages.registry_request(b"salt", False, '{"kind": "magic"}'), "query.registry")


def test_registry_notices_a_model_that_does_not_suit(ask):
    with pytest.raises(ValueError, match="--model must be one of"):
        ask(messages.registry_request(b"salt", False, FEATURES, model="elo"), "query.registry")
    ask(messages.registry_request(b"salt", False, FEATURES, model="thurstone"), "query.registry")


def test_train_answers_with_the_node_halfs_sum_and_nothing_else(ask, store):
    users_S, theta_D = np.array([0, 5, 24]), np.linspace(-1, 1, 33, dtype=np.float32)
    reply = ask(work(users_S, theta_D), "train")
    assert list(reply.content) == ["sums"]
    assert reply.content.array_records["sums"]["sum"].dtype == "int32"  # of so few users
    sum_D = summed(reply)
    expected = uls.client_update(
        store.examples(FEATURES),
        TrainRequest({"theta": theta_D}, PARAMETERS, users_S),
        store.keys_U[users_S],
        Randomness(3),
    )["sum"]
    np.testing.assert_array_equal(sum_D, expected)
    assert np.linalg.norm(sum_D) > 0.1


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (lambda: work([0, 0]), ValueError),
        (lambda: work([0], strategy="steal"), KeyError),
        (lambda: work([0], **{"clip-norm": -1.0}), ValueError),
        (lambda: work([0], np.zeros(5)), ValueError),
        (RecordDict, KeyError),
    ],
)
def test_requests_that_make_no_sense_are_refused(ask, content, error):
    with pytest.raises(error):
        ask(content(), "train")


def test_a_model_that_is_not_finite_gives_zero(ask):
    reply = ask(work([0, 1], np.full(33, np.nan)), "train")
    assert summed(reply).tolist() == [0.0] * 33


def test_evaluate(ask, store):
    users_S, theta_D = np.array([1, 2, 20]), np.linspace(-1, 1, 33, dtype=np.float32)
    reply = ask(work(users_S, theta_D), "evaluate")
    sum_F = messages.read_tally(reply.content, Tally(), users=3)
    expected = store.examples(FEATURES).select(users_S).accuracy(theta_D)
    assert sum_F.sum() == expected.users * STEPS
    assert Tally().read(sum_F).accuracy == pytest.approx(expected.by_user, abs=1e-5)
    alone_F = sum(
        messages.read_tally(ask(work([user], theta_D), "evaluate").content, Tally(), 1)
        for user in users_S
    )
    assert (alone_F == sum_F).all()  # no user's part depends on who is beside


def test_evaluate_users_who_only_have_ties(ask, store):
    tied = store.examples(FEATURES)
    kept = tied.y_R.clone()
    tied.y_R.fill_(0.5)
    try:
        reply = ask(work([1, 2]), "evaluate")
    finally:
        tied.y_R.copy_(kept)
    assert not messages.read_tally(reply.content, Tally(), users=2).any()
