"""The ``ray`` runtime: the same weights as in one process, also when a worker dies."""

import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict
from safetensors.numpy import load_file

from client.app import app as client_app
from client.store import load
from preference.judgements import InputError
from server.app import app as server_app
from server.config import RunConfig
from server.training import train
from sims.local import run_local
from sims.ray_grid import RayGrid, Workers, run_ray, workers_of
from strategies import messages
from strategies.exchange import exchange


@pytest.fixture(scope="module")
def ray():
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    module = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
    yield module
    module.shutdown()


@pytest.fixture
def config(crowd, crowd_test, tmp_path):
    def of(name: str, **changes) -> RunConfig:
        settings = {"rounds": 6, "cohort": 20, "delta": 1e-3, "seed": 3, **changes}
        return RunConfig(data=crowd, test=crowd_test, out=str(tmp_path / name), **settings)

    return of


def theta(config):
    return load_file(f"{config.out}/model/model.safetensors")["theta_D"]


@pytest.mark.parametrize(
    "strategy", ["uls", *[pytest.param(name, marks=pytest.mark.slow) for name in ("els", "aup")]]
)
def test_the_same_weights_as_in_one_process(ray, config, quick_runs, strategy):
    here, there = config("local", strategy=strategy), config("ray", strategy=strategy)
    apps = {"server_app": server_app, "client_app": client_app}
    run_local(here.to_run_config(), nodes=1, **apps)
    for nodes in (0, 7):  # one a worker, and several
        settings = {**there.to_run_config(), "out": f"{there.out}{nodes}"}
        judgements = load(there.data, "", "refuse")
        run_ray(settings, judgements, nodes=nodes, workers=Workers(2), **apps)
        found = load_file(f"{settings['out']}/model/model.safetensors")["theta_D"]
        np.testing.assert_allclose(found, theta(here), rtol=0, atol=1e-6)


def test_losing_a_worker_mid_round_loses_no_user_and_no_round(ray, config, quick_runs):
    quiet, rough = config("quiet"), config("rough")
    judgements = load(quiet.data, "", "refuse")
    killed = []

    class Rough(RayGrid):
        """Kills the first worker's process after the messages of the third round are out."""

        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.first = ray.get(self._workers[1].process.remote())

        def push_messages(self, messages):
            outgoing = list(messages)
            group = outgoing[0].metadata.group_id
            ids = super().push_messages(outgoing)
            if group == "3" and outgoing[0].metadata.message_type == "train":
                os.kill(self.first, signal.SIGKILL)
                killed.append(self.first)
            return ids

    for grid, chosen in ((RayGrid, quiet), (Rough, rough)):
        train(chosen, grid(ray, client_app, judgements, 4, chosen.to_run_config(), Workers(2)))
    assert len(killed) == 1
    np.testing.assert_array_equal(theta(rough), theta(quiet))
    logs = list((Path(rough.out) / "private").glob("*.jsonl"))
    assert logs
    assert not any("left out" in log.read_text() for log in logs)


def test_what_a_node_raises_is_an_error_reply(ray, config):
    chosen = config("r")
    judgements = load(chosen.data, "", "refuse")
    grid = RayGrid(ray, client_app, judgements, 2, chosen.to_run_config(), Workers(2))
    content = RecordDict({"parameters": ConfigRecord({"strategy": "no such"})})
    outgoing = [messages.outgoing(content, "train", node) for node in grid.get_node_ids()]
    replies = list(exchange(grid, outgoing, 60.0))
    assert [reply.has_error() for reply in replies] == [True, True]
    assert "KeyError" in replies[0].error.reason
    assert {reply.metadata.src_node_id for reply in replies} == {1, 2}


def test_more_workers_than_there_is_room_for_are_refused(ray):
    assert workers_of(ray, Workers()) == 2
    assert workers_of(ray, Workers(cpus=2)) == 1
    for wanted in (Workers(3), Workers(cpus=3), Workers(gpus=0.5)):
        with pytest.raises(InputError, match="ask for less"):
            workers_of(ray, wanted)


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"number": -1}, "--workers"),
        ({"cpus": 0}, "--cpus-per-worker"),
        ({"gpus": -0.5}, "--gpus-per-worker"),
        ({"gpus": float("nan")}, "--gpus-per-worker"),
    ],
)
def test_wrong_numbers_are_refused_by_name(wrong, option):
    with pytest.raises(InputError, match=option):
        Workers(**wrong)
