"""Public items: nothing about labels travels, everything else does, and bad answers are refused."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict
from named import asked

import murmuration.client.hosting
from murmuration.client.app import app as client_app
from murmuration.client.store import UserStore, share
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.schema import Schema
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.linear.examples import pair_examples
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol import messages, public_items
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.protocol.public_items import (
    PublicItems,
    read,
    read_request,
    reply,
    request,
)
from murmuration.strategies.protocol.users import Registry, RegistryError

USERS = 6
FEATURES = json.dumps(HashingFeatures(dimension=32).to_config())


def rows(flip=None):
    """Judgements of six users; ``flip(user, row)`` says which are the other way round."""
    found = []
    for user in range(USERS):
        for row in range(user % 3 + 1):
            pair = [f"text {(7 * user + row) % 5}", f"other {row} é"]
            if flip and flip(user, row):
                pair.reverse()
            fields = {"user_id": f"u{user}", "prompt": f"p {row}"}
            found.append({**fields, "chosen": pair[0], "rejected": pair[1]})
    return found


def judged(flip=None):
    return Judgements.from_rows(rows(flip))


def world(monkeypatch, judgements, nodes=2):
    stores = {}
    for place in range(nodes):
        mine = np.array(share(len(judgements.user_ids), place, nodes), dtype=np.int64)
        stores[place] = UserStore(judgements.select(mine), place)
    monkeypatch.setattr(
        murmuration.client.hosting,
        "store_for",
        lambda context: stores[context.node_config["partition-id"]],
    )
    grid = LocalGrid(client_app, nodes, {})
    registry = Registry.ask(grid, Randomness(0), features=FEATURES, counts=True)
    return grid, registry


def wire(content):
    """Everything that a reply holds, as bytes."""
    arrays = content.array_records["items"]
    return {name: arrays[name].numpy().tobytes() for name in arrays} | {
        "about": dict(content.config_records["about"])
    }


def test_labels_do_not_travel():
    """Whatever the labels, the answer is the same, byte for byte."""
    first = wire(reply(judged()))
    for flip in (lambda *_: True, lambda user, row: (user * row) % 2 == 0):
        assert wire(reply(judged(flip))) == first
    ties = judged()
    ties = replace(ties, y_R=np.full(len(ties), 0.5, np.float32))
    assert wire(reply(ties)) == first


def test_the_order_of_rows_does_not_travel():
    turned = Judgements.from_rows(rows()[:1] + rows()[1:][::-1])
    ids = list(turned.user_ids)
    turned = turned.select([ids.index(f"u{user}") for user in range(USERS)])
    assert wire(reply(turned)) == wire(reply(judged()))


@pytest.mark.parametrize("nodes", [1, 2, 6])
def test_the_server_gets_what_was_shown_in_the_users_order(monkeypatch, nodes):
    judgements = judged()
    grid, registry = world(monkeypatch, judgements, nodes)
    asked = np.array([0, 2, 3, 5])
    items = PublicItems.ask(grid, registry, asked)
    assert np.diff(items.start_S).tolist() == judgements.counts_U[asked].tolist()
    assert items.bytes > 0
    if nodes == USERS:  # every user on a node of their own
        assert items.bytes_per_user == pytest.approx(items.bytes / len(asked))
    for place, user in enumerate(asked):
        mine = range(judgements.start_U[user], judgements.start_U[user + 1])
        shown = {(judgements.prompts[r], tuple(sorted(judgements.responses[r]))) for r in mine}
        found = range(items.start_S[place], items.start_S[place + 1])
        assert {(items.prompts[r], items.responses[r]) for r in found} == shown


def test_features_are_those_of_the_judgements_up_to_the_side(monkeypatch):
    judgements, features = judged(), HashingFeatures(dimension=32)
    grid, registry = world(monkeypatch, judgements)
    public = PublicItems.ask(grid, registry, np.arange(USERS)).examples(features)
    own = pair_examples(judgements, features)
    assert torch.equal(public.start_U, own.start_U)
    for first, last in zip(own.start_U[:-1], own.start_U[1:], strict=True):
        mine = {tuple(row.abs().tolist()) for row in own.x_RD[first:last]}
        assert mine == {tuple(row.abs().tolist()) for row in public.x_RD[first:last]}


def test_the_best_of_several():
    judgements = Judgements.from_rows(
        [
            {"user_id": "a", "prompt": "p", "responses": ["c", "a", "b"], "best": 0},
            {"user_id": "a", "prompt": "q", "responses": ["d", "a"], "best": 1},
        ],
        schema=Schema("top-1", 4),
    )
    items = read(reply(judgements), 1, Schema("top-1", 4))
    assert sorted(items.responses) == [("a", "b", "c"), ("a", "d")]
    examples = items.examples(HashingFeatures(dimension=16))
    assert (examples.width, examples.kind) == (3, "top-1")
    for schema in (Schema(), Schema("ranking", 4), Schema("top-1", 2)):
        with pytest.raises(messages.MalformedReply, match="not as declared"):
            read(reply(judgements), 1, schema)


def asks(adjacency="replace-labels", **node_config):
    content = request(asked([0]))
    content["items"] = ConfigRecord({"adjacency": adjacency})
    return read_request(content, node_config)


def test_who_gives_items_out():
    """Only where they are public, and in a deployment only with the owner's word."""
    assert asks(**{"partition-id": 0}).names_S.tolist() == asked([0]).names_S.tolist()
    assert asks(data="f", **{"public-items": True}).salt == b"salt"
    for adjacency in ("add-remove", "zero-out", "replace", ""):
        with pytest.raises(ValueError, match="public under replace-labels only"):
            asks(adjacency, **{"partition-id": 0})
    for consent in ({}, {"public-items": False}, {"public-items": "true"}, {"public-items": 1}):
        with pytest.raises(ValueError, match="public-items=true"):
            asks(data="f", **consent)


def spoiled(**changes):
    content = reply(judged())
    arrays = {name: content.array_records["items"][name].numpy() for name in
              ("counts", "prompt", "shown", "texts")}  # fmt: skip
    arrays |= {name: value for name, value in changes.items() if value is not None}
    for name, value in changes.items():
        if value is None:
            del arrays[name]
    content["items"] = messages.array_record(arrays)
    return content


@pytest.mark.parametrize(
    "changes",
    [
        {"texts": None},
        {"texts": np.frombuffer(b"{nonsense", dtype=np.uint8)},
        {"texts": np.frombuffer(b'[["p"], [1, 2]]', dtype=np.uint8)},
        {"counts": np.array([13, -1, 0, 0, 0, 0])},
        {"counts": np.array([1, 2])},
        {"prompt": np.full(12, 99)},
        {"prompt": np.full(12, -1)},
        {"shown": np.full((12, 2), -1)},
        {"shown": np.zeros((3, 2), dtype=np.int64)},
        {"counts": np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])},
        {"shown": np.zeros((12, 1), dtype=np.int64)},
        {"shown": np.zeros((12, 3), dtype=np.int64)},
        {
            "texts": np.frombuffer(
                b'[["p \\ud800", "p", "p"], ["a","b","c","d","e","f","g","h"]]', "u1"
            )
        },
    ],
)
def test_malformed_answers(changes):
    with pytest.raises(messages.MalformedReply, match="not an answer to the items query"):
        read(spoiled(**changes), USERS)


def test_a_run_cannot_go_on_without_everybodys_items(monkeypatch):
    grid, registry = world(monkeypatch, judged())
    nobody = SimpleNamespace(
        push_messages=grid.push_messages, pull_messages=lambda ids: [], get_node_ids=None
    )
    with pytest.raises(RegistryError, match="2 of 2 nodes did not answer"):
        PublicItems.ask(nobody, registry, np.arange(USERS), timeout=0.0)
    wrong = replace(registry, counts_N=np.ones(USERS, dtype=np.int64))
    with pytest.raises(RegistryError, match="not as many as it registered"):
        PublicItems.ask(grid, wrong, np.arange(USERS))
    monkeypatch.setattr(public_items, "request", lambda about: RecordDict())
    with pytest.raises(RunAborted, match="a node failed: a node could not answer") as caught:
        PublicItems.ask(grid, registry, np.arange(USERS))
    assert "items" in str(caught.value.private["why"])
    entries = {node: replace(entry, places=2) for node, entry in registry.entries.items()}
    with pytest.raises(RegistryError, match="a node gave no public items: KeyError"):
        PublicItems.ask(grid, replace(registry, entries=entries), np.arange(USERS))
