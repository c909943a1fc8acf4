"""What a terminal is told of a run while it goes on."""

import json
from types import SimpleNamespace

from murmuration.deploy.run import Watch


class SuperLink:
    """Nodes with these states."""

    def __init__(self, *states):
        self.states = states

    def ListNodes(self, request):
        return SimpleNamespace(nodes_info=[SimpleNamespace(status=state) for state in self.states])


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_rounds_epsilon_and_who_is_there_are_told_once(tmp_path):
    said = []
    link, metrics = SuperLink("online", "offline"), tmp_path / "metrics.jsonl"
    now = 0.0
    watch = Watch(tmp_path, 3, said.append, clock=lambda: now)
    watch.look(link)
    watch.look(link)
    assert said == ["1 of 2 nodes online"]
    write(metrics, {"round": 1, "epsilon": 1.23456})
    watch.look(link)
    link.states = ("online", "online")
    write(metrics, {"round": 2, "epsilon": None, "heldout_accuracy": 0.7})
    now = 40.0
    watch.look(link)
    watch.look(link)
    assert said[1:] == [
        "round 1 of 3, epsilon 1.235, 1 of 2 nodes online",
        "round 2 of 3, held-out 70.0 %, 2 of 2 nodes online, 40 s left",
    ]
    link.states = ()
    watch.look(link)
    assert said[-1] == "0 of 0 nodes online"


def test_what_was_told_of_an_attempt_before_is_not_told_again(tmp_path):
    write(tmp_path / "metrics.jsonl", {"round": 1, "epsilon": 1.0})
    said = []
    watch = Watch(tmp_path, 3, said.append)
    watch.look(SuperLink("online"))
    assert said == ["1 of 1 nodes online"]


def test_owners_who_would_refuse_are_told_by_rule(tmp_path):
    said, log = [], tmp_path / "private" / "log.jsonl"
    watch = Watch(tmp_path, 3, said.append)
    write(log, {"round": 1, "cohort": 9}, {"shown the plan": 2, "would refuse": {}})
    watch.look(SuperLink())
    assert said[0] == "the plan was shown to 2 nodes: no owner's policy refuses it"
    refusing = {"7": "max_clip", "8": "max_clip", "9": "max_epsilon"}
    write(log, {"shown the plan": 8, "would refuse": refusing})
    watch.look(SuperLink())
    assert said[-1] == (
        "the plan was shown to 8 nodes: the policies of 3 refuse it (max_clip: 2, max_epsilon: 1)"
    )


def test_rounds_that_a_resumed_run_keeps_are_not_told_again(tmp_path):
    said, metrics = [], tmp_path / "metrics.jsonl"
    write(metrics, *({"round": t, "epsilon": None} for t in (1, 2, 3)))
    watch = Watch(tmp_path, 3, said.append)
    write(tmp_path / "new", {"round": 1, "epsilon": None})
    (tmp_path / "new").replace(metrics)
    watch.look(SuperLink())
    write(metrics, {"round": 2, "epsilon": None})
    watch.look(SuperLink())
    assert said == ["0 of 0 nodes online", "round 2 of 3, 0 of 0 nodes online"]
