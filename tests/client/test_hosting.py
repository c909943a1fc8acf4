"""A node that reads its data itself: what it answers from."""

import json

import pytest
from flwr.app import Context, RecordDict

from murmuration.client.hosting import host_for
from murmuration.preference.data.errors import InputError


def test_a_deployed_node_draws_for_itself(crowd):
    context = Context(1, 1, {"data": crowd, "public-items": True}, RecordDict(), {"seed": 3})
    host = host_for(context)
    assert not host.source.seeded
    assert host.terms["public-items"] is True
    assert host.store().place == -1
    assert len(host.store().keys_U) == 50


def test_a_simulated_node_draws_from_the_runs_seed(crowd):
    context = Context(
        1, 1, {"partition-id": 1, "num-partitions": 2}, RecordDict(), {"seed": 3, "data": crowd}
    )
    host = host_for(context)
    assert host.source.seeded
    assert host.store().place == 1
    assert len(host.store().keys_U) == 25


SECRET = {"user_id": "u", "prompt": "p", "responses": ["a", "b"], "best": 7654}


@pytest.mark.parametrize("columns", ["", "prompt=best"])
def test_a_row_that_cannot_be_read_is_that_users_zero(tmp_path, caplog, columns):
    """The node's own log says where, and quotes nothing; who simulates is told why, at once."""
    data = tmp_path / "mine.jsonl"
    data.write_text(json.dumps(SECRET) + "\n", encoding="utf-8")
    declared = {"kind": "top-1", "responses": 2}
    settings = {"data": str(data), "columns": columns, **declared}
    store = host_for(Context(1, 1, settings, RecordDict(), {})).store()
    assert store.judgements.user_ids == ("u",)
    assert store.judgements.counts_U.tolist() == [0]
    assert "operator only: 1 rows are left out, the first: " in caplog.text
    assert "mine.jsonl:1" in caplog.text
    assert "7654" not in caplog.text
    simulated = {"partition-id": 0, "num-partitions": 1}
    here = Context(1, 1, simulated, RecordDict(), settings)
    with pytest.raises(InputError, match="7654"):
        host_for(here).store()


def test_a_server_is_not_told_what_is_wrong_with_a_file(tmp_path, caplog):
    data = tmp_path / "secret.csv"
    data.write_text("user_id,prompt,chosen,rejected\nu,p,a,b\n", encoding="utf-8")
    with pytest.raises(InputError) as refused:
        host_for(Context(1, 1, {"data": str(data)}, RecordDict(), {})).store()
    assert str(refused.value) == "the data of this node cannot be read; see its own log"
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    assert "secret.csv: in CSV one open quote swallows the rows of others" in caplog.text
