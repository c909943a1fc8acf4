"""What nodes say of a plan: rules and nothing else, and how many of them are too many."""

from dataclasses import fields

import numpy as np
import pytest
from failing import Prepared
from flwr.app import ConfigRecord, RecordDict

from murmuration.client.agent.policy import HOLD_OUT, Policy
from murmuration.strategies.protocol import messages, plan_query
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.protocol.flower_internals import set_task_identity
from murmuration.strategies.protocol.messages import MalformedReply, RegistryEntry
from murmuration.strategies.protocol.plan_query import OPENDP, RULES, Answers, read_reply, reply
from murmuration.strategies.protocol.users import Registry

PARAMETERS = {"strategy": "uls", "round": 1, "clip-norm": 0.1, "plan": "{}"}


def test_every_rule_of_a_policy_has_its_name_here():
    assert set(RULES) == {HOLD_OUT, OPENDP, *(field.name for field in fields(Policy))}


def test_a_request_holds_what_will_be_asked_and_nobody():
    for parties in (0, 7):
        work, found = plan_query.read_request(plan_query.request(PARAMETERS, parties))
        assert (dict(work.parameters), found) == (PARAMETERS, parties)
        assert not work.arrays
        assert not len(work.users_S)
    for parties in (-1, True, 0.5):
        with pytest.raises(ValueError, match="no number of parties"):
            plan_query.read_request(plan_query.request(PARAMETERS, parties))


@pytest.mark.parametrize("rule", ["", *RULES])
def test_a_rule_comes_back(rule):
    assert read_reply(reply(rule)) == rule


@pytest.mark.parametrize(
    "said", ["\x1b[2J", "max_epsilon\n", "x" * 10**6, 7, True, ["max_clip"], b"max_clip"]
)
def test_what_is_no_rule_is_repeated_to_nobody(said):
    with pytest.raises(MalformedReply) as caught:
        read_reply(RecordDict({"answer": ConfigRecord({"refuses": said})}))
    assert str(caught.value) == "not an answer to the plan: a rule that no policy has"
    with pytest.raises(MalformedReply):
        read_reply(RecordDict())


def registry(*users):
    starts = np.cumsum([0, *users])
    return Registry.of(
        {
            node: RegistryEntry(
                -1, np.arange(starts[node], starts[node + 1], dtype=np.uint64), None
            )
            for node in range(len(users))
        }
    )


@pytest.mark.parametrize(
    ("users", "refusing", "least", "masked", "enough"),
    [
        ((1, 1, 1, 1), 0, 4, False, True),
        ((1, 1, 1, 1), 1, 4, False, False),
        ((1, 1, 1, 1), 2, 0.5, False, True),
        ((1, 1, 1, 1), 2, 0.6, False, False),
        ((1, 1, 1, 1), 3, 0.25, False, False),  # fewer than half of the users
        ((1, 1, 1, 9), 3, 0.25, False, True),
        ((9, 1, 1, 1), 1, 0.25, False, False),
        ((1, 1, 1, 9), 3, 0.25, True, False),  # three must be under masks
        ((1, 1, 1, 1, 1, 1), 1, 0, True, True),
        ((1, 1, 1, 1, 1, 1), 2, 0, True, False),  # more than two thirds must stay
        ((1,), 1, 0, False, False),
    ],
)
def test_how_many_may_refuse(users, refusing, least, masked, enough):
    found = registry(*users)
    answers = Answers(dict.fromkeys(sorted(found.nodes)[:refusing], "max_clip"))
    if enough:
        answers.check(found, least, masked=masked)
        return
    with pytest.raises(RunAborted, match="by the rules max_clip: nothing was drawn") as caught:
        answers.check(found, least, masked=masked)
    assert not any(letter.isdigit() for letter in str(caught.value))
    assert caught.value.private["nodes that would refuse"] == refusing


def test_who_says_nothing_does_not_refuse():
    Answers({}, dict.fromkeys(range(4), "no reply in time")).check(
        registry(1, 1, 1, 1), 4, masked=False
    )


def test_every_node_is_asked_once_and_what_it_says_is_its_own():
    set_task_identity()
    grid = Prepared(
        {
            1: reply(""),
            2: reply("max_epsilon"),
            3: "no such kind",
            4: RecordDict({"answer": ConfigRecord({"refuses": "rm -rf"})}),
        }
    )
    found = plan_query.ask(grid, [1, 2, 3, 4, 5], PARAMETERS, parties=0, timeout=0.05)
    assert found.refusing == {2: "max_epsilon"}
    assert found.rules == ("max_epsilon",)
    assert found.silent == {
        3: "no such kind",
        4: "not an answer to the plan: a rule that no policy has",
        5: "no reply in time",
    }
    assert {m.metadata.message_type for m in grid.sent} == {plan_query.QUERY}
    for message in grid.sent:
        assert messages.COHORT not in message.content
