"""The users a node hosts: shares of a source in simulation, a file of its own when deployed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from named import asked

from murmuration.client import store
from murmuration.client.store import UserStore, share, source_for, store_for
from murmuration.preference.bases import base_of
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.mechanisms.randomness import Randomness, user_key
from murmuration.strategies.protocol.messages import UserSelection

HASHING = json.dumps(HashingFeatures(dimension=9).to_config())


def context(node_config, **run_config):
    return Context(
        run_id=1, node_id=1, node_config=node_config, state=RecordDict(), run_config=run_config
    )


def partition(place, places):
    return {"partition-id": place, "num-partitions": places}


@given(st.integers(0, 60), st.integers(1, 20))
def test_shares_are_contiguous_and_cover_everybody_once(users, places):
    shares = [share(users, place, places) for place in range(places)]
    assert [user for part in shares for user in part] == list(range(users))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("places", [1, 3, 50])
def test_simulated_nodes_host_their_share(crowd, places):
    stores = [store_for(context(partition(p, places), data=crowd, seed=4)) for p in range(places)]
    ids = [user for found in stores for user in found.judgements.user_ids]
    assert ids == [f"u{user:03}" for user in range(50)]
    assert [found.place for found in stores] == list(range(places))
    # Another seed is no reason to read the file and compute the features again.
    assert store_for(context(partition(0, places), data=crowd, seed=5)) is stores[0]


def test_more_nodes_than_users(write_rows, make_rows):
    data = write_rows(make_rows([2, 2]))
    sizes = [
        len(store_for(context(partition(p, 5), data=data)).judgements.user_ids) for p in range(5)
    ]
    assert sum(sizes) == 2
    empty = store_for(context(partition(sizes.index(0), 5), data=data))
    assert empty.keys_U.shape == (0,)
    assert empty.salted_keys(b"x").shape == (0,)
    assert empty.examples(HASHING).dimension == 9


def test_a_deployed_nodes_users_come_in_the_order_of_their_ids(write_rows, make_rows):
    """A file sorted by what was preferred says nothing by whom it names first."""
    rows = make_rows([2, 1, 3])
    orders = []
    for name, lines in (("up.jsonl", rows), ("down.jsonl", rows[::-1])):
        found = store_for(context({"data": write_rows(lines, name)}))
        orders.append(found.judgements.user_ids)
        assert found.keys_U.tolist() == [user_key(user) for user in found.judgements.user_ids]
        counts = dict(zip(found.judgements.user_ids, found.judgements.counts_U, strict=True))
        assert sorted(counts.values()) == [1, 2, 3]
        assert counts == {
            user: sum(row["user_id"] == user for row in rows) for user in found.judgements.user_ids
        }
    assert orders[0] == orders[1] == tuple(sorted(orders[0]))
    # In a simulation the source's own order stays: nobody is told anything by it.
    simulated = store_for(context(partition(0, 1), data=write_rows(rows[::-1], "sim.jsonl")))
    assert simulated.judgements.user_ids == orders[0][::-1]


def test_a_deployed_node_reads_its_own_file_and_the_systems_coins(write_rows, make_rows, crowd):
    mine = write_rows(make_rows([3]), "mine.jsonl")
    deployed = context({"data": mine}, data=crowd, seed=4)
    found = store_for(deployed)
    assert found.judgements.user_ids == ("u000",)
    assert found.place == -1
    assert not source_for(deployed).seeded
    assert source_for(context(partition(0, 1), data=crowd, seed=4)) == Randomness(4)
    assert not source_for(context(partition(0, 1), data=crowd)).seeded


def test_no_data():
    with pytest.raises(InputError, match="no data"):
        store_for(context(partition(0, 1), data=""))


def test_columns_and_bad_rows_come_from_the_run_config(write_rows, make_rows):
    rows = [
        {("annotator" if k == "user_id" else k): v for k, v in r.items()} for r in make_rows([2])
    ]
    data = write_rows([*rows, {"annotator": "x"}])
    settings = {"data": data, "columns": "user_id=annotator"}
    with pytest.raises(InputError, match=r"judgements.jsonl:3"):
        store_for(context(partition(0, 1), **settings))
    found = store_for(context(partition(0, 1), **settings, **{"on-bad-rows": "skip"}))
    assert found.judgements.user_ids == ("u000", "x")
    assert found.judgements.counts_U.tolist() == [2, 0]


def test_a_server_does_not_choose_the_columns_of_a_deployed_node(write_rows, make_rows):
    """It would call a column of labels the prompt, or a user, and be told."""
    data = write_rows(make_rows([2, 2]))
    asked = {"columns": "prompt=chosen,chosen=prompt", "on-bad-rows": "skip"}
    plain = store_for(context({"data": data}))
    found = store_for(context({"data": data}, **asked))
    assert found.judgements.prompts == plain.judgements.prompts
    own = store_for(context({"data": data, **asked}))
    assert own.judgements.prompts != plain.judgements.prompts


def test_a_source_is_read_once_for_all_nodes(crowd, monkeypatch):
    read = []
    real = store.load_data

    def counted(*arguments, **more):
        read.append(arguments)
        return real(*arguments, **more)

    monkeypatch.setattr(store, "load_data", counted)
    store.load.cache_clear()
    for place in range(11):  # as many as in no other test: whatever was read is kept
        store_for(context(partition(place, 11), data=crowd, seed=99))
    assert len(read) == 1


@pytest.fixture
def small(make_rows):
    return UserStore(Judgements.from_rows(make_rows([2, 1, 3])), 0)


def test_keys(small):
    assert small.keys_U.tolist() == [user_key(f"u{user:03}") for user in range(3)]
    assert small.salted_keys(b"salt").tolist() == [
        user_key(f"u{user:03}", b"salt") for user in range(3)
    ]
    assert small.keys_U.dtype == np.uint64


def test_features_are_computed_once(small):
    first = small.examples(HASHING)
    assert small.examples(HASHING) is first
    assert first.counts_U.tolist() == [2, 1, 3]
    assert small.examples(json.dumps(HashingFeatures(dimension=5).to_config())).dimension == 5


@pytest.mark.parametrize("users_S", [[0], [2, 0, 1], []])
@pytest.mark.parametrize("salt", [b"salt", b"", b"x" * 64])
def test_users_stand_where_their_names_do(small, users_S, salt):
    assert small.where(asked(users_S, salt)).tolist() == users_S


def test_who_is_not_here_stands_nowhere(small):
    assert small.where(asked([7, 1, 9])).tolist() == [-1, 1, -1]
    other_salt = UserSelection(b"other", asked([0, 1, 2]).names_S)
    assert small.where(other_salt).tolist() == [-1, -1, -1]
    nobody = UserStore(small.judgements.select([]), place=-1)
    assert nobody.where(asked([0, 1])).tolist() == [-1, -1]


def test_what_is_learnt_decides_what_is_read(crowd_texts, crowd):
    found = store_for(context(partition(0, 2), data=crowd_texts, task="text")).judgements
    assert isinstance(found, UserTexts)
    assert len(found.user_ids) == 25
    deployed = store_for(context({"data": crowd_texts, "task": "text"}, task="reward"))
    assert isinstance(deployed.judgements, UserTexts)
    # A server's word does not make texts of a deployed node's judgements.
    assert isinstance(store_for(context({"data": crowd}, task="text")).judgements, Judgements)


def test_tokens_serve_whatever_is_computed_of_them_at_a_time(make_rows, language_model):
    users = UserStore(Judgements.from_rows(make_rows([2, 1])), 0)
    described = base_of({"kind": "language-model", "path": language_model("gpt2"), "rank": 2})
    described = described.to_config()
    once = users.examples(json.dumps(described))
    again = users.examples(json.dumps({**described, "batch_tokens": 9}))
    assert again.tokens is once.tokens
    assert (once.base.batch_tokens, again.base.batch_tokens) == (2048, 9)
    other = users.examples(json.dumps({**described, "rank": 3}))
    assert other.tokens is not once.tokens


def test_a_file_that_was_written_anew_is_read_anew_by_the_next_run(write_rows, make_rows):
    """Else a second call of `train` in one process learns from what the first one read."""
    data = write_rows(make_rows([2, 2]))
    here = context(partition(0, 1), data=data)
    store.forget_changed(data)
    first = store_for(here)
    store.forget_changed(data)
    assert store_for(here) is first  # nothing changed, nothing is computed again
    write_rows(make_rows([1, 3, 2]))
    assert store_for(here) is first  # within a run everybody stays
    store.forget_changed(data)
    assert store_for(here).judgements.user_ids != first.judgements.user_ids
    assert len(store_for(here).judgements) == 6


def test_a_file_of_the_same_size_is_read_anew_too(write_rows, make_rows):
    rows = make_rows([2, 2])
    data = write_rows(rows)
    here = context(partition(0, 1), data=data)
    store.forget_changed(data)
    before = store_for(here).judgements.user_ids
    size = Path(data).stat().st_size
    write_rows([{**row, "user_id": row["user_id"][::-1]} for row in rows])
    os.utime(data, ns=(0, 0))
    assert Path(data).stat().st_size == size
    store.forget_changed(data)
    assert store_for(here).judgements.user_ids == tuple(user[::-1] for user in before)


def test_a_source_that_is_no_file_is_kept(few_people):
    source = "murmuration.population:train"
    store.forget_changed(source)
    first = store.load(source, "", "refuse")
    store.forget_changed(source)
    assert store.load(source, "", "refuse") is first
