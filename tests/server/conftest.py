"""Runs that break off, and models as runs on users save them."""

import pytest

from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.terms import RunTerms
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.server.record.lineage import files_of
from murmuration.strategies.config import RunConfig


@pytest.fixture
def broken_off(monkeypatch):
    """A function: run a config and die right after the checkpoint of a round."""
    from murmuration.client.app import app as client_app
    from murmuration.server.record.run_directory import RunDirectory
    from murmuration.server.run import run_training
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


@pytest.fixture
def spent(tmp_path):
    """A function: a file with a ledger that rounds were charged to, and its run."""

    def make(name, rounds, terms=RunTerms):
        path = tmp_path / name / "ledger.jsonl"
        path.parent.mkdir(exist_ok=True)
        promise = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-3, "budget": None}
        with Ledger(path, **promise, terms=terms()) as ledger:
            for round_ in range(1, rounds + 1):
                ledger.charge(PoissonGaussian(0.5, 1.0), round_=round_, covers="a sum")
        return path, ReleasedRun.read(path)

    return make


@pytest.fixture
def saved(tmp_path):
    """A function: the settings of a run on a folder that looks as if these runs had saved it."""

    def make(name, *runs_and_ledgers, public=False):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_text(f"weights of {name}")
        promise = Promise(tuple(run for _, run in runs_and_ledgers))
        promise = promise.declared_public() if public else promise
        for file, content in files_of(promise, folder).items():
            (folder / file).write_bytes(content)
        return RunConfig(base=str(folder))

    return make
