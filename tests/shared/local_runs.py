"""Whole runs, the weights that they end with, what their bases cost, and what refused ones say."""

import json
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import load_file

from murmuration.client.app import app as client_app
from murmuration.research.bench import flower_runs
from murmuration.server.record import lineage
from murmuration.server.run import run_training
from murmuration.sims.runtimes.execute import execute
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig
from murmuration.strategies.registry import base_config

#: Of a small LoRA run, for ``@pytest.mark.settings``.
LORA = {
    "test": "crowd_test", "base": "gpt2", "lora_rank": 2, "epsilon": 2.0, "rounds": 2,
    "cohort": 10, "group_size": 2, "learning_rate": 0.05,
}  # fmt: skip

#: Beside it, of a policy from labels that leave their users randomized.
AT_HOME = {
    "strategy": "local-label", "adjacency": "replace-labels", "rounds": 1, "group_size": 0,
    "epochs": 12,
}  # fmt: skip


def run(config, nodes=1):
    """The result of a run with these settings."""
    return run_training(config, LocalGrid(client_app, nodes, config.to_run_config()))


def resumed(out, **changes):
    """The result of going on with a run in its folder, with these changes."""
    config = json.loads((Path(out) / "config.json").read_text(encoding="utf-8"))
    config.pop("check", None)
    again = RunConfig.from_run_config(config)
    return run(replace(again, resume=True, out=str(out), **changes))


#: Beside the runtimes of ``execute``.
FLOWER = "flower"


def run_in(runtime, config, users_per_node):
    """The result of a run with these settings in a runtime, or by ``flwr run``."""
    if runtime == FLOWER:
        return flower_runs.execute(config, users_per_node=users_per_node)
    return execute(config, runtime=runtime, users_per_node=users_per_node)


def theta(config):
    """θ as its last checkpoint has it."""
    return load_file(Path(config.out) / "checkpoint" / "state.safetensors")["theta"]


def private_log(config):
    """The lines that a run keeps for its operator alone."""
    text = (Path(config.out) / "private" / "log.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def lineage_of(config):
    """That of the base, or the encoder, which these settings name."""
    option, path = "--base" if config.base else "--features", base_config(config).get("path", "")
    return lineage.lineage_of(option, path, config.base_privacy)


def refusal(ended):
    """The one line that a command said, of its exit code, stdout and lines of stderr."""
    code, _, lines = ended
    assert (code, len(lines)) == (2, 1), lines
    return lines[0]
