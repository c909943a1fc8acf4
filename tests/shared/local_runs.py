"""Whole runs in this process, and the weights that they end with."""

from pathlib import Path

from safetensors.numpy import load_file

from murmuration.client.app import app as client_app
from murmuration.server.training import train
from murmuration.sims.runtimes.local import LocalGrid


def run(config, nodes=1):
    """The result of a run with these settings."""
    return train(config, LocalGrid(client_app, nodes, config.to_run_config()))


def theta(config):
    """θ as its last checkpoint has it."""
    return load_file(Path(config.out) / "checkpoint" / "state.safetensors")["theta"]
