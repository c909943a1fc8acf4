"""Randomized labels over messages: what is asked, what is answered, and what is refused."""

import json

import numpy as np
import pytest
from flwr.app import ConfigRecord
from named import asked

from murmuration.client.app import app
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.public_items import canonical
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.mechanisms.randomized_response import (
    LabelPromise,
    RandomizedResponse,
    ToldLabels,
)
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol import label_queries, messages
from murmuration.strategies.protocol.label_queries import places
from murmuration.strategies.protocol.public_items import PublicItems
from murmuration.strategies.protocol.users import Registry, RegistryError

FEATURES = json.dumps(HashingFeatures(dimension=9).to_config())
PROMISE = LabelPromise(2.0, cap=6)


def run_of(data, nodes, **config):
    """A grid and its registry."""
    grid = LocalGrid(app, nodes, {"data": data, "seed": 3, **config})
    return grid, Registry.ask(grid, Randomness(3), features=FEATURES, counts=True)


def told_by(grid, registry, users_S, promise):
    """What the nodes of these users tell, in the order of users."""
    parts = []
    for node, about in registry.by_node(users_S):
        request = messages.outgoing(
            label_queries.request(promise, about), label_queries.QUERY, node
        )
        (answer,) = grid.send_and_receive([request])
        if answer.has_error():
            raise RegistryError(answer.error.reason)
        parts.append(label_queries.read_reply(answer.content, len(about)))
        label_queries.check_promise(parts[-1], promise)
    joined = [
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("items_N", "answers_N", "choices_N", "per_label_U")
    ]
    counts_S = np.concatenate([np.diff(part.start_U) for part in parts])
    return ToldLabels(np.concatenate([[0], np.cumsum(counts_S)]), *joined)


def label_of(**fields):
    known = {
        "start_U": np.array([0, 2]),
        "items_N": np.array([4, 9], dtype=np.uint64),
        "answers_N": np.array([0, 1]),
        "choices_N": np.array([2, 2]),
        "per_label_U": np.array([0.5]),
    }
    return ToldLabels(**(known | fields))


def test_requests_travel():
    content = label_queries.request(PROMISE, asked([2, 0]))
    promise, about = label_queries.read_request(content)
    assert promise == PROMISE
    assert (about.salt, about.names_S.tolist()) == (b"salt", asked([2, 0]).names_S.tolist())


@pytest.mark.parametrize("adjacency", ["replace", "add-remove", "zero-out", None])
def test_requests_that_do_not_name_replace_labels_are_refused(crowd, adjacency):
    grid, _ = run_of(crowd, 1)
    content = label_queries.request(PROMISE, asked([0]))
    terms = PROMISE.to_config() | ({"adjacency": adjacency} if adjacency else {})
    content["labels"] = ConfigRecord(terms)
    message = messages.outgoing(content, label_queries.QUERY, 1)
    (reply,) = grid.send_and_receive([message])
    assert "protect under replace-labels only" in reply.error.reason
    with pytest.raises(ValueError, match="replace-labels only"):
        label_queries.read_request(content)


def test_replies_travel_in_a_few_bytes():
    count = 1000
    labels = ToldLabels(
        np.array([0, 0, count]),
        np.arange(count, dtype=np.uint64),
        np.arange(count) % 3,
        np.full(count, 3),
        np.array([0.5, 0.1]),
    )
    content = label_queries.reply(labels)
    found = label_queries.read_reply(content, 2)
    for name in ("start_U", "items_N", "answers_N", "choices_N", "per_label_U"):
        assert getattr(found, name).tolist() == getattr(labels, name).tolist()
    sent = sum(len(array.data) for array in content.array_records["labels"].values())
    assert sent < 10 * count + 1000


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r.pop("items"),
        lambda r: r.update(messages.array_record({"counts": np.array([1])})),
        lambda r: r.update(messages.array_record({"counts": np.array([3, -1])})),
        lambda r: r.update(messages.array_record({"answers": np.array([2, 0], np.uint8)})),
        lambda r: r.update(messages.array_record({"answers": np.array([0.0, 1.0])})),
        lambda r: r.update(messages.array_record({"per-label": np.array([np.inf])})),
        lambda r: r.update(messages.array_record({"per-label": np.array([1], np.int64)})),
        lambda r: r.update(messages.array_record({"items": np.array([9, 4], np.uint64)})),
    ],
)
def test_replies_that_are_something_else(spoil):
    content = label_queries.reply(label_of())
    assert label_queries.read_reply(content, 1)
    spoil(content.array_records["labels"])
    with pytest.raises(messages.MalformedReply, match="not an answer to the labels query"):
        label_queries.read_reply(content, 1)


def test_a_reply_about_other_users():
    with pytest.raises(messages.MalformedReply):
        label_queries.read_reply(label_queries.reply(label_of()), 2)


@pytest.mark.parametrize("nodes", [1, 7, 50])
def test_labels_are_the_same_on_any_number_of_nodes(crowd, nodes):
    grid, registry = run_of(crowd, nodes)
    users_S = np.array([0, 3, 24, 25, 49])
    found = told_by(grid, registry, users_S, PROMISE)
    assert registry.counts_N is not None
    assert np.diff(found.start_U).tolist() == np.minimum(registry.counts_N[users_S], 6).tolist()
    expected = RandomizedResponse(2.0 / 6).flip_probability
    np.testing.assert_allclose(found.flips_N, expected, rtol=1e-12)
    again = told_by(grid, registry, users_S, PROMISE)
    assert again.answers_N.tolist() == found.answers_N.tolist()
    one = told_by(*run_of(crowd, 1), users_S, PROMISE)
    assert one.answers_N.tolist() == found.answers_N.tolist()
    assert one.items_N.tolist() == found.items_N.tolist()


def test_labels_find_their_public_items(crowd, write_rows, make_rows):
    grid, registry = run_of(crowd, 3)
    users_S = np.array([1, 17, 25, 40])
    # So large an ε that no label is false: what is told is then the truth.
    labels = told_by(grid, registry, users_S, LabelPromise(1200.0, cap=20))
    items = PublicItems.ask(grid, registry, users_S)
    rows = places(labels, items)
    assert len(set(rows.tolist())) == len(rows) > 20
    assert max(np.diff(labels.start_U)) == 20
    from murmuration.client.store import load

    known = load(crowd, "", "refuse").select(users_S)
    for user in range(4):
        chosen = [known.responses[r][0] for r in range(*known.start_U[user : user + 2])]
        mine = range(*labels.start_U[user : user + 2])
        told = [items.responses[rows[n]][labels.answers_N[n]] for n in mine]
        assert all(items.start_S[user] <= rows[n] < items.start_S[user + 1] for n in mine)
        if len(told) == len(chosen):
            assert sorted(told) == sorted(chosen)
        else:
            assert all(told.count(text) <= chosen.count(text) for text in told)


def test_labels_of_other_items():
    row = {"user_id": "u", "prompt": "p", "chosen": "b", "rejected": "a"}
    known = Judgements.from_rows([row] * 2)
    shown = [canonical(pair) for pair in known.responses]
    items = PublicItems(known.start_U, known.prompts, shown)
    told = np.repeat(label_queries.item_id("p", ("a", "b")), 2).astype(np.uint64)
    assert sorted(places(label_of(items_N=told), items)) == [0, 1]
    for labels in (
        label_of(),
        label_of(items_N=told, choices_N=np.array([2, 3])),
        label_of(
            start_U=np.array([0, 3]),
            items_N=told[[0, 0, 0]],
            answers_N=np.zeros(3, int),
            choices_N=np.full(3, 2),
        ),
    ):
        with pytest.raises(RegistryError, match="not shown"):
            places(labels, items)
    with pytest.raises(RegistryError, match="different users"):
        places(label_of(start_U=np.array([0, 2, 2]), per_label_U=np.ones(2)), items)


def test_a_node_that_refuses_is_named_with_its_reason(crowd):
    grid, registry = run_of(crowd, 2)
    for one in grid._contexts.values():
        one.node_config["data"] = crowd
    with pytest.raises(RegistryError, match="tells no labels: its owner must allow it"):
        told_by(grid, registry, np.array([0]), PROMISE)


@pytest.mark.parametrize(
    ("promise", "per_label", "words"),
    [
        (LabelPromise(2.0), 1.01, "at epsilon 2.02 of a user"),
        (LabelPromise(2.0, cap=1), 2.0, "more labels of a user than the cap of 1"),
        (LabelPromise(2.0, delta=1e-5), 1.1, "of a user"),
    ],
)
def test_labels_that_cost_more_than_was_asked_for_are_not_taken(promise, per_label, words):
    label_queries.check_promise(label_of(per_label_U=np.array([0.9])), LabelPromise(2.0))
    with pytest.raises(RegistryError, match=words):
        label_queries.check_promise(label_of(per_label_U=np.array([per_label])), promise)


def test_a_node_with_terms_of_its_own_is_found_out(crowd, monkeypatch):
    grid, registry = run_of(crowd, 1)
    told = LabelPromise(4.0, cap=6)
    honest = label_queries.read_request
    monkeypatch.setattr(label_queries, "read_request", lambda content: (told, honest(content)[1]))
    with pytest.raises(RegistryError, match=r"at epsilon 2\.666"):
        told_by(grid, registry, np.arange(50), PROMISE)


def test_a_deployed_node_tells_labels_and_nothing_else_of_them(crowd, tmp_path):
    grid, registry = run_of(crowd, 1)
    state = tmp_path / "s"
    owner = {"data": crowd, "state": str(state), "label-epsilon": 2.0}
    owner |= {"label-min-epsilon": 1.0, "label-cap": 6}
    grid._contexts[1].node_config.update(owner)
    users_S = np.arange(50)
    first = told_by(grid, registry, users_S, PROMISE)
    assert state.exists()
    assert told_by(grid, registry, users_S, PROMISE).answers_N.tolist() == (
        first.answers_N.tolist()
    )
    with pytest.raises(RegistryError, match="told once with"):
        told_by(grid, registry, users_S, LabelPromise(1.0, cap=6))
    with pytest.raises(RegistryError, match="allows epsilon 1 to 2"):
        told_by(grid, registry, users_S, LabelPromise(3.0))
    model = messages.model_record(np.zeros(9))
    for kind in ("train", "evaluate"):
        work = messages.work_request(model, {"strategy": "nonprivate"}, asked([0]))
        (reply,) = grid.send_and_receive([messages.outgoing(work, kind, 1)])
        assert "neither trains nor evaluates" in reply.error.reason
