"""Runs that break off."""

import pytest


@pytest.fixture
def broken_off(monkeypatch):
    """A function: run a config and die right after the checkpoint of a round."""
    from murmuration.client.app import app as client_app
    from murmuration.server.run import run_training
    from murmuration.server.run_directory import RunDirectory
    from murmuration.sims.runtimes.local import LocalGrid

    class Killed(BaseException):
        pass

    def run(config, after):
        save = RunDirectory.save_checkpoint

        def save_and_die(self, round_, state):
            save(self, round_, state)
            if round_ == after:
                raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(RunDirectory, "save_checkpoint", save_and_die)
            run_training(config, LocalGrid(client_app, 1, config.to_run_config()))

    return run
