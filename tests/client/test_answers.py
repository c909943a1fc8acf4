"""What ``client.answers`` adds to what ``test_app`` asks through messages."""

import json

import numpy as np
import pytest
from flwr.app import RecordDict
from named import asked

from murmuration.client import answers
from murmuration.client.answers import Host
from murmuration.client.labels.memory import LabelState
from murmuration.client.store import UserStore
from murmuration.preference.data.files.packed_texts import PackedTexts
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.secure_aggregation.party import ProtocolError
from murmuration.strategies.protocol import label_queries, messages, public_items

FEATURES = json.dumps(HashingFeatures(33).to_config())


def answer(kind, content, host):
    return answers.ANSWERS[kind](content, host)


@pytest.fixture
def host(make_rows):
    store = UserStore(Judgements.from_rows(make_rows([3, 2])), place=4)
    return Host(
        store=lambda: store, labels=lambda: LabelState(None), source=Randomness(1), terms={}
    )


def work(theta_D, strategy="uls", **more):
    parameters = {"strategy": strategy, "round": 1, "features": FEATURES, "clip-norm": 0.1}
    parameters |= {"group-size": 9, **more}
    model = messages.array_record({"theta": np.asarray(theta_D, dtype=np.float32)})
    return messages.work_request(model, parameters, asked([0, 1]))


def test_nobody_knows_this_kind(host):
    with pytest.raises(KeyError):
        answer("query.everything", RecordDict(), host)


@pytest.mark.parametrize("shape", [0, 5, 32, 34, 10_000, (3, 11)])
def test_a_model_of_another_shape_is_refused(host, shape):
    with pytest.raises(ValueError, match="33 numbers"):
        answer("train", work(np.zeros(shape)), host)


@pytest.mark.parametrize("rows", [False, True])
def test_users_are_the_same_here_as_in_the_run(make_rows, rows):
    """Rows or people: a run that promises the one must not learn from a node that means the
    other."""
    declared = Schema(one_user_per_row=rows)
    store = UserStore(Judgements.from_rows(make_rows([3, 2]), schema=declared), place=4)
    host = Host(
        store=lambda: store, labels=lambda: LabelState(None), source=Randomness(1), terms={}
    )

    def hosted(asked):
        request = messages.registry_request(b"s" * 16, False, FEATURES, schema=asked)
        return messages.read_registry(answer("query.registry", request, host)).keys_U

    assert len(hosted(declared)) == (5 if rows else 2)
    with pytest.raises(ValueError, match="one-user-per-row must be the same"):
        hosted(Schema(one_user_per_row=not rows))


def test_numbers_of_judgements_need_no_model(host):
    found = answer("train", work(np.zeros(0), "counts"), host)
    assert found.array_records["sums"]["sum"].numpy().sum() == 2


def test_who_masks_sums_tells_no_bare_accuracies(host):
    answer("evaluate", work(np.zeros(33)), host)
    host.terms["secure-only"] = True
    with pytest.raises(ProtocolError, match="secure-only"):
        answer("evaluate", work(np.zeros(33)), host)


def test_terms_of_the_owner_count(host):
    terms = {"data": "x", "label-epsilon": 1.0}
    told = Host(store=host.store, labels=host.labels, source=host.source, terms=terms)
    for kind in ("train", "evaluate"):
        with pytest.raises(InputError, match="randomized only"):
            answer(kind, work(np.zeros(33)), told)


def test_texts_are_not_told_as_what_was_shown_or_judged(host):
    texts = UserTexts(("a", "b"), np.array([0, 1, 2]), PackedTexts.pack(["mine", "also mine"]))
    writers = Host(
        store=lambda: UserStore(texts, 0), labels=host.labels, source=host.source, terms={}
    )
    promise = LabelPromise(1.0)
    for kind, content in (
        ("query.items", public_items.request(asked([0]))),
        ("query.labels", label_queries.request(promise, asked([0]))),
    ):
        with pytest.raises(ValueError, match="hosts users' texts, not judgements"):
            answer(kind, content, writers)
    with pytest.raises(InputError, match="--task reward is not for users' texts"):
        answer("train", work(np.zeros(33)), writers)
