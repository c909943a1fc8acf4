"""Who decides about labels: a deployed node's owner, and in a simulation the run."""

import pytest
from flwr.app import Context, RecordDict

from murmuration.client.labels.memory import LabelState
from murmuration.client.labels.terms import check_terms, check_true_labels, state_for
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.privacy.mechanisms.randomness import Randomness

OWNER = {"data": "mine.jsonl", "state": "s", "label-epsilon": 3.0}
SIMULATED = {"partition-id": 1, "num-partitions": 4}


def context(node_config, **run_config):
    return Context(
        run_id=1, node_id=1, node_config=node_config, state=RecordDict(), run_config=run_config
    )


@pytest.mark.parametrize(
    ("more", "promise"),
    [
        ({}, LabelPromise(3.0)),
        ({"label-min-epsilon": 0.5}, LabelPromise(0.5)),
        ({"label-min-epsilon": 0.5}, LabelPromise(2.0)),
        ({"label-cap": 10}, LabelPromise(3.0, cap=10)),
        ({"label-epsilon": "3"}, LabelPromise(3.0)),
        ({"label-delta": 1e-5}, LabelPromise(3.0, delta=1e-5)),
    ],
)
def test_terms_an_owner_allows(more, promise):
    check_terms(promise, OWNER | more)


@pytest.mark.parametrize(
    ("more", "promise"),
    [
        ({}, LabelPromise(3.1)),
        ({}, LabelPromise(3.0, delta=1e-6)),
        ({}, LabelPromise(0.001)),
        ({"label-min-epsilon": 0.5}, LabelPromise(0.4)),
        ({"label-min-epsilon": "nan"}, LabelPromise(3.0)),
        ({}, LabelPromise(3.0, cap=1)),
        ({"label-cap": 10}, LabelPromise(3.0, cap=1)),
        ({"label-cap": 10}, LabelPromise(3.0)),
        ({"label-delta": 1e-5}, LabelPromise(3.0)),
        ({"label-epsilon": "nan"}, LabelPromise(3.0)),
        ({"label-delta": "nan"}, LabelPromise(3.0, delta=1e-6)),
    ],
)
def test_terms_an_owner_does_not_allow(more, promise):
    with pytest.raises(InputError, match="this node allows"):
        check_terms(promise, OWNER | more)


@pytest.mark.parametrize(
    ("more", "promise", "allowed"),
    [
        ({}, LabelPromise(0.1, cap=4), True),
        ({"label-delta": 1e-5}, LabelPromise(3.0, delta=1e-6), True),
        ({}, LabelPromise(3.1), False),
        ({}, LabelPromise(3.0, delta=1e-6), False),
    ],
)
def test_labels_that_were_settled_before_are_only_limited(more, promise, allowed):
    if allowed:
        check_terms(promise, OWNER | more, settled=True)
        return
    with pytest.raises(InputError, match="this node allows"):
        check_terms(promise, OWNER | more, settled=True)


@pytest.mark.parametrize("missing", ["state", "label-epsilon"])
def test_an_owner_who_says_nothing_tells_nothing(missing):
    config = {key: value for key, value in OWNER.items() if key != missing}
    with pytest.raises(InputError, match="tells no labels: its owner must allow it"):
        check_terms(LabelPromise(0.1), config)
    with pytest.raises(InputError, match="must be numbers"):
        check_terms(LabelPromise(0.1), OWNER | {"label-epsilon": "much"})
    with pytest.raises(InputError, match="label-cap a whole one"):
        check_terms(LabelPromise(0.1), OWNER | {"label-cap": "2.5"})


def test_true_labels_stay_where_randomized_ones_are_told():
    check_true_labels(SIMULATED)
    check_true_labels({"data": "mine.jsonl"})
    with pytest.raises(InputError, match="neither trains nor evaluates"):
        check_true_labels(OWNER)


def test_simulated_nodes_tell_on_any_terms():
    check_terms(LabelPromise(100.0), SIMULATED)


def test_a_deployed_node_remembers_in_its_owners_file(tmp_path):
    mine = OWNER | {"state": str(tmp_path / "s")}
    state = state_for(context(mine, seed=3, out=str(tmp_path / "run")))
    state.answer(judgements(), LabelPromise(1.0), Randomness(None))
    assert (tmp_path / "s").exists()
    assert not (tmp_path / "run").exists()


def judgements():
    row = {"user_id": "u", "prompt": "p", "chosen": "a", "rejected": "b"}
    return Judgements.from_rows([row] * 60)


def test_a_simulated_node_remembers_in_the_runs_private_folder(tmp_path):
    here = context(SIMULATED, seed=-1, out=str(tmp_path))
    first = state_for(here).answer(judgements(), LabelPromise(1.0), Randomness(None))
    assert [path.name for path in (tmp_path / "private" / "labels").glob("*.state")] == [
        "1-of-4.state"
    ]
    second = state_for(here).answer(judgements(), LabelPromise(1.0), Randomness(None))
    assert second.labels.answers_N.tolist() == first.labels.answers_N.tolist()


def test_a_simulation_without_a_folder_remembers_in_its_process():
    here = context({"partition-id": 2, "num-partitions": 77}, seed=-1)
    first = state_for(here).answer(judgements(), LabelPromise(1.0), Randomness(None))
    second = state_for(here).answer(judgements(), LabelPromise(1.0), Randomness(None))
    assert second.fresh == 0
    assert second.labels.answers_N.tolist() == first.labels.answers_N.tolist()


def test_the_same_name_in_other_data_is_somebody_else():
    node = {"partition-id": 3, "num-partitions": 77}
    state_for(context(node, data="a")).answer(judgements(), LabelPromise(1.0), Randomness(None))
    for other in ({"data": "b"}, {"data": "a", "columns": "user_id=annotator"}):
        # Other terms than the first user's, who would be refused.
        found = state_for(context(node, **other))
        assert found.answer(judgements(), LabelPromise(2.0), Randomness(None)).fresh == 60
    with pytest.raises(InputError):
        state_for(context(node, data="a")).answer(judgements(), LabelPromise(2.0), Randomness(None))


def test_a_seeded_simulation_remembers_nothing(tmp_path):
    here = context(SIMULATED, seed=3, out=str(tmp_path))
    assert isinstance(state_for(here), LabelState)
    state_for(here).answer(judgements(), LabelPromise(1.0), Randomness(3))
    assert list(tmp_path.iterdir()) == []
    assert state_for(here).spends() == []
