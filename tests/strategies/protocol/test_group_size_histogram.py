"""The histogram of counts: asked of all nodes, checked, and never more than one per user."""

import numpy as np
import pytest
from agents import FEATURES
from failing import Watched
from flwr.app import Message

from murmuration.privacy.mechanisms.median import GRID, histogram
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.base import Participants
from murmuration.strategies.protocol import group_size_histogram, messages, secure_messages
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.protocol.users import Registry

COUNTS = [1, 30, 3, 1, 8, 600, 2]
LAST = ("train", 7)  # what is asked of the last of seven nodes


@pytest.mark.parametrize("nodes", [1, 3, 7])
def test_of_those_who_are_trained_on(make_grid, make_examples, nodes):
    grid = make_grid(make_examples(COUNTS), nodes)
    registry = Registry.ask(grid, Randomness(0), features=FEATURES)
    train = np.array([0, 1, 3, 4, 5])
    participants = Participants(registry, train, np.array([2, 6]))
    log = []
    found = group_size_histogram.ask(
        grid, participants, features=FEATURES, log=log.append, timeout=5.0
    )
    np.testing.assert_array_equal(found, histogram(np.array(COUNTS)[train]))
    assert log == []


def test_who_has_nothing_is_in_no_bucket(make_examples):
    """In the lowest they would have moved, not gone, which costs twice under zero-out."""
    work = messages.TrainRequest({}, {}, np.arange(4))
    keys_S = np.arange(4, dtype=np.uint64)
    found = group_size_histogram.client_update(
        make_examples([1, 0, 3, 0]), work, keys_S, Randomness(0)
    )["sum"]
    np.testing.assert_array_equal(found, histogram(np.array([1, 3])))


def test_fewer_than_were_asked_may_be_counted(make_grid, make_examples):
    grid = make_grid(make_examples(COUNTS), 1)
    everybody, log = Participants.all(Registry.ask(grid, Randomness(0), features=FEATURES)), []
    reply = messages.sums_reply({"sum": histogram(np.array([1, 3]))})
    grid = lying(grid, reply)
    found = group_size_histogram.ask(
        grid, everybody, features=FEATURES, log=log.append, timeout=5.0
    )
    assert (found.sum(), log) == (2.0, [])


def lying(grid, reply):
    """The grid with another first reply."""

    class Lying:
        def __init__(self):
            self.done = False

        def __getattr__(self, name):
            return getattr(grid, name)

        def pull_messages(self, ids):
            for message in grid.pull_messages(ids):
                if not self.done:
                    self.done = True
                    wrong = Message(reply, reply_to=message)
                    wrong.metadata.__dict__.update(message.metadata.__dict__)
                    yield wrong
                else:
                    yield message

    return Lying()


@pytest.mark.parametrize("wrong", [-1.0, 0.5, np.nan, 400.0])
def test_what_cannot_be_a_histogram_counts_as_zero(make_grid, make_examples, wrong):
    grid = make_grid(make_examples(COUNTS), 2)
    registry = Registry.ask(grid, Randomness(0), features=FEATURES)
    reply = messages.sums_reply({"sum": np.full(len(GRID), wrong)})
    log = []
    found = group_size_histogram.ask(
        lying(grid, reply),
        Participants.all(registry),
        features=FEATURES,
        log=log.append,
        timeout=5.0,
    )
    assert found.sum() in (3, 4)
    assert "not a histogram" in log[0]["left out"]


def asked(grid, masked, log=None):
    registry = Registry.ask(grid, Randomness(0), features=FEATURES)
    log = [] if log is None else log
    everybody = Participants.all(registry)
    return group_size_histogram.ask(
        grid, everybody, features=FEATURES, log=log.append, timeout=5.0, masked=masked
    )


@pytest.mark.parametrize("wanted", [True, False])
def test_under_masks_the_server_sees_no_nodes_histogram(make_grid, make_examples, wanted):
    grid = Watched(make_grid(make_examples(COUNTS), 4))
    for context in grid._contexts.values():  # also of nodes that would answer no bare request
        context.node_config["secure-only"] = wanted
    found = asked(grid, masked=True)
    np.testing.assert_array_equal(found, histogram(np.array(COUNTS)))
    answers = [reply for reply in grid.replies if reply.metadata.message_type == "train"]
    assert len(answers) == 4
    for reply in answers:
        assert list(reply.content) == [secure_messages.RECORD]
        masked_J = secure_messages.read_masked(reply.content, len(GRID))
        assert (masked_J > 2**40).any()  # nothing like a count


def test_a_node_that_vanishes_under_masks_is_left_out_and_counted(make_grid, make_examples):
    grid, log = Watched(make_grid(make_examples(COUNTS), 7)), []
    push = grid.grid.push_messages

    def without_the_last(messages_):
        kept = [m for m in messages_ if (m.metadata.message_type, m.metadata.dst_node_id) != LAST]
        return push(kept)

    grid.grid.push_messages = without_the_last
    found = asked(grid, masked=True, log=log)
    np.testing.assert_array_equal(found, histogram(np.array(COUNTS[:-1])))
    assert log[-1] == {"round": 0, "nodes left out": 1, "of so many users": 1}


def test_nodes_that_answer_no_bare_request_are_counted_and_if_nobody_does_the_run_ends(
    make_grid, make_examples
):
    """An empty histogram would make every group size as likely, and look like one that was told."""
    grid, log = make_grid(make_examples(COUNTS), 7), []
    contexts = list(grid._contexts.values())
    for context in contexts[:4]:
        context.node_config["secure-only"] = True
    found = asked(grid, masked=False, log=log)
    np.testing.assert_array_equal(found, histogram(np.array(COUNTS[4:])))
    assert log[-1] == {"round": 0, "nodes left out": 4, "of so many users": 4}
    assert sum("under masks only" in line.get("left out", "") for line in log) == 4
    for context in contexts:
        context.node_config["secure-only"] = True
    with pytest.raises(RunAborted, match="state --group-size instead") as caught:
        asked(grid, masked=False)
    assert caught.value.private["users counted"] == 0


def test_too_few_nodes_for_masks_end_the_run(make_grid, make_examples):
    with pytest.raises(RunAborted, match="state --group-size instead"):
        asked(make_grid(make_examples(COUNTS), 2), masked=True)
