"""Who is there, decided before anything else; when a run ends, and what it says of why."""

import pytest

from murmuration.strategies.protocol import availability
from murmuration.strategies.protocol.availability import (
    Attendance,
    Reason,
    RunAborted,
    failed_node,
    wait_until_online,
)


class Online:
    """A grid with these nodes online, a list for each look; the last one stays."""

    def __init__(self, *looks):
        self.looks, self.seen = list(looks), 0

    def get_node_ids(self):
        self.seen += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


@pytest.mark.parametrize(
    ("least", "registered", "online", "enough"),
    [
        (0, range(10), [], True),
        (3, range(10), [1, 2], False),
        (3, range(10), [1, 2, 3], True),
        (3, range(10), [1, 2, 77], False),  # who is not registered is asked nothing
        (0.5, range(10), range(5), True),
        (0.5, range(10), range(4), False),
        (0.5, range(3), range(1), False),
        (0.3, range(10), range(3), True),  # 0.3·10 is more than 3 by a bit
        (0.99, range(10), range(9), False),
        (0.5, None, [7], True),
        (0.5, None, [], False),
        (2, None, [7], False),
    ],
)
def test_a_number_or_a_share_of_those_registered(least, registered, online, enough):
    registered = None if registered is None else list(registered)
    if enough:
        wait_until_online(Online(list(online)), least, 0.0, registered)
        return
    with pytest.raises(RunAborted) as caught:
        wait_until_online(Online(list(online)), least, -1.0, registered)
    assert caught.value.reason is Reason.FEW_NODES
    assert not any(letter.isdigit() for letter in str(caught.value))
    assert caught.value.private["nodes needed"] > caught.value.private["nodes online"]


def test_the_others_are_waited_for(monkeypatch):
    monkeypatch.setattr(availability, "LOOKS", 0.0)
    grid = Online([], [1], [1, 2])
    wait_until_online(grid, 2, 60.0, [1, 2, 3])
    assert grid.seen == 3


def test_nobody_answered():
    attendance = Attendance()
    attendance.begin(0)
    attendance.end()  # nobody was asked
    attendance.begin(7)
    attendance.failed("no reply in time")
    with pytest.raises(RunAborted) as caught:
        attendance.end()
    assert caught.value.reason is Reason.NO_ANSWERS
    assert caught.value.private == {
        "users asked": 7,
        "users counted": 0,
        "nodes that refused": 0,
        "nodes that failed": 1,
    }
    assert "7" not in str(caught.value)


def test_three_poor_rounds_in_a_row():
    attendance = Attendance()

    def round_(asked, counted):
        attendance.begin(asked)
        if asked:
            attendance.counted(counted)
        attendance.end()

    for _ in range(5):
        round_(10, 4)
        round_(10, 4)
        round_(10, 5)  # half is not fewer than half
    round_(10, 4)
    round_(10, 4)
    round_(0, 0)  # tells nothing
    with pytest.raises(RunAborted) as caught:
        round_(10, 4)
    assert caught.value.reason is Reason.FEW_ANSWERS
    assert [line["users counted"] for line in caught.value.private["rounds"]] == [4, 4, 4]


def test_refusals_have_a_kind_of_their_own_and_no_text():
    why = "InputError: the owner's policy refuses (max_rounds): 3 were answered"
    attendance = Attendance()
    attendance.begin(2)
    attendance.failed(why)
    with pytest.raises(RunAborted) as caught:
        attendance.end()
    assert caught.value.reason is Reason.REFUSED
    attendance.begin(2)
    attendance.failed(why)
    attendance.failed("KeyError: 'x'")
    with pytest.raises(RunAborted) as caught:
        attendance.end()
    assert caught.value.reason is Reason.NO_ANSWERS
    aborted = failed_node(why, simulated=False, node=3)
    assert aborted.reason is Reason.REFUSED
    assert "(by the rule max_rounds)" in str(aborted) and "answered" not in str(aborted)
    assert "max_rounds" not in aborted.sentence
    unknown = failed_node(why.replace("max_rounds", "alice"), simulated=False)
    assert unknown.reason is Reason.REFUSED and "alice" not in str(unknown)
    assert aborted.private == {"node": 3, "why": why}


def test_an_agents_refusal_is_known_as_one():
    from murmuration.client.agent.policy import PolicyRefusal

    refusal = f"ClientAppException occurred. Message: {PolicyRefusal('max_clip', 'too long')}"
    assert failed_node(refusal, simulated=False).reason is Reason.REFUSED
