"""The node that means harm: it registers like anybody, and never answers what was asked."""

import json
import sys

import numpy as np
from named import asked

from murmuration.client.agent.unix_socket import answers, ask_agent
from murmuration.deploy.processes import Program, wait_for
from murmuration.research.stress.rogue_node import HARMS
from murmuration.strategies.protocol import messages


def test_it_registers_and_does_harm_in_turn(tmp_path):
    path, log = tmp_path / "x.sock", tmp_path / "harms.jsonl"
    command = [
        sys.executable,
        "-m",
        "murmuration.research.stress.rogue_node",
        str(path),
        str(log),
        "0",
    ]
    rogue = Program(command, tmp_path / "log")
    try:
        wait_for(lambda: answers(path), 120, "the rogue", rogue)
        request = messages.registry_request(b"salt", False, "{}")
        entry = messages.read_registry(ask_agent(str(path), "query.registry", request))
        assert len(entry.keys_U) == 8
        for round_ in (1, 2):
            model = messages.model_record(np.zeros(5))
            work = messages.work_request(model, {"round": round_}, asked([0]))
            ask_agent(str(path), "train", work)
    finally:
        rogue.end()
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    assert noted == [{"round": r, "harm": name} for r, name in enumerate(list(HARMS)[:2], 1)]
