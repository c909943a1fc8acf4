"""The histogram of counts: asked of all nodes, checked, and never more than one per user."""

import numpy as np
import pytest
from flwr.app import Message

from privacy.median import GRID, histogram
from privacy.randomness import Randomness
from strategies import counts, messages
from strategies.cohort import Registry
from strategies.rounds import Participants

COUNTS = [1, 30, 3, 1, 8, 600, 2]


@pytest.mark.parametrize("nodes", [1, 3, 7])
def test_of_those_who_are_trained_on(make_grid, make_examples, nodes):
    grid = make_grid(make_examples(COUNTS), nodes)
    registry = Registry.ask(grid, Randomness(0), features="{}")
    train = np.array([0, 1, 3, 4, 5])
    participants = Participants(registry, train, np.array([2, 6]))
    log = []
    found = counts.ask(grid, participants, features="{}", log=log.append, timeout=5.0)
    np.testing.assert_array_equal(found, histogram(np.array(COUNTS)[train]))
    assert log == []


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
    registry = Registry.ask(grid, Randomness(0), features="{}")
    reply = messages.sums_reply({"sum": np.full(len(GRID), wrong)})
    log = []
    found = counts.ask(
        lying(grid, reply),
        Participants.all(registry),
        features="{}",
        log=log.append,
        timeout=5.0,
    )
    assert found.sum() in (3, 4)
    assert "not a histogram" in log[0]["left out"]
