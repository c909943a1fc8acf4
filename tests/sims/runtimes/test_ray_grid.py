"""The ``ray`` runtime: the same weights as in one process, also when a worker dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict
from local_runs import LORA
from local_runs import theta as last_theta
from safetensors.numpy import load_file

from murmuration.client.app import app as client_app
from murmuration.client.store import load
from murmuration.preference.language.machine import usual_device
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server.app import app as server_app
from murmuration.server.run import run_training
from murmuration.sims.runtimes import ray_grid
from murmuration.sims.runtimes.local import run_local
from murmuration.sims.runtimes.ray_cluster import Workers
from murmuration.sims.runtimes.ray_grid import RayGrid, run_ray
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.exchange import exchange

pytestmark = pytest.mark.settings(test="crowd_test", rounds=6, cohort=20)


def named(config, name, **changes):
    """Return these settings for a run in a folder of this name."""
    return replace(config, out=f"{config.out}s/{name}", **changes)


def theta(config):
    return load_file(f"{config.out}/model/model.safetensors")["theta_D"]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["uls", "els", "aup"])
def test_the_same_weights_as_in_one_process(ray, config, quick_runs, strategy):
    here, there = named(config, "local", strategy=strategy), named(config, "ray", strategy=strategy)
    apps = {"server_app": server_app, "client_app": client_app}
    run_local(here.to_run_config(), nodes=1, **apps)
    for nodes in (0, 7):  # one a worker, and several
        settings = {**there.to_run_config(), "out": f"{there.out}{nodes}"}
        judgements = load(there.data, "", "refuse")
        run_ray(settings, judgements, nodes=nodes, workers=Workers(2), **apps)
        found = load_file(f"{settings['out']}/model/model.safetensors")["theta_D"]
        np.testing.assert_allclose(found, theta(here), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.settings(**LORA | {"train": "full", "lora_rank": 0})
def test_a_language_model_has_the_same_bits_with_one_worker_and_with_two(ray, config, quick_runs):
    """Each has its share of the users; sums of their sums are exact."""
    found, grids = [], []
    judgements = load(config.data, "", "refuse")
    for number in (1, 2):
        of_number = named(config, f"{number}-workers")
        run_ray(
            of_number.to_run_config(),
            judgements,
            nodes=0,
            workers=Workers(number),
            server_app=lambda grid, context: (grids.append(grid), server_app(grid, context)),
            client_app=client_app,
        )
        assert len(list(grids[-1].get_node_ids())) == number
        assert len(set(grids[-1]._workers.values())) == number
        found.append(last_theta(of_number))
    np.testing.assert_array_equal(*found)
    assert np.abs(found[0]).max() > 0


@pytest.mark.slow
def test_losing_a_worker_mid_round_loses_no_user_and_no_round(ray, config, quick_runs):
    quiet, rough = named(config, "quiet"), named(config, "rough")
    judgements = load(quiet.data, "", "refuse")
    killed = []

    class Rough(RayGrid):
        """Kills the first worker's process after the messages of the third round are out."""

        def __init__(self, *arguments, **workers):
            super().__init__(*arguments, **workers)
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
        run_training(
            chosen, grid(ray, client_app, judgements, 4, chosen.to_run_config(), workers=Workers(2))
        )
    assert len(killed) == 1
    np.testing.assert_array_equal(theta(rough), theta(quiet))
    logs = list((Path(rough.out) / "private").glob("*.jsonl"))
    assert logs
    assert not any("left out" in log.read_text() for log in logs)


@pytest.mark.slow
def test_what_a_node_raises_is_an_error_reply(ray, config):
    chosen = named(config, "r")
    judgements = load(chosen.data, "", "refuse")
    grid = RayGrid(ray, client_app, judgements, 2, chosen.to_run_config(), workers=Workers(2))
    content = RecordDict({"parameters": ConfigRecord({"strategy": "no such"})})
    outgoing = [messages.outgoing(content, "train", node) for node in grid.get_node_ids()]
    replies = list(exchange(grid, outgoing, 60.0))
    assert [reply.has_error() for reply in replies] == [True, True]
    assert "KeyError" in replies[0].error.reason
    assert {reply.metadata.src_node_id for reply in replies} == {1, 2}


@pytest.mark.slow
def test_a_cluster_that_others_use_is_waited_for_with_a_word(ray, config, monkeypatch, caplog):
    monkeypatch.setattr(ray_grid, "SILENCE", 0.5)
    chosen = named(config, "r")
    judgements = load(chosen.data, "", "refuse")

    @ray.remote(num_cpus=2)
    class Other:
        def there(self):
            return True

    other = Other.remote()
    assert ray.get(other.there.remote())
    arguments = (ray, client_app, judgements, 2, chosen.to_run_config())
    waiting = threading.Thread(target=RayGrid, args=arguments, kwargs={"workers": Workers(2)})
    waiting.start()
    deadline = time.monotonic() + 60
    while not caplog.messages and time.monotonic() < deadline:
        time.sleep(0.05)
    assert waiting.is_alive()
    ray.kill(other)
    waiting.join(60)
    assert not waiting.is_alive()
    assert caplog.messages == [
        "waiting for the cluster: 0 of 2 workers have begun; others may be using it"
    ]


@pytest.mark.slow
def test_the_driver_keeps_no_judgements(ray, config, monkeypatch, quick_runs):
    chosen, seen = named(config, "r"), []
    load.cache_clear()
    judgements = load(chosen.data, "", "refuse")
    there = weakref.ref(judgements)

    def server(grid, context):
        seen.append(there())
        server_app(grid, context)

    real = RayGrid.__init__

    def begin(self, *arguments, **workers):
        assert there() is not None
        real(self, *arguments, **workers)

    monkeypatch.setattr(RayGrid, "__init__", begin)
    settings, given = chosen.to_run_config(), [judgements]
    del judgements
    run_ray(
        settings,
        given.pop(),
        nodes=0,
        workers=Workers(2),
        server_app=server,
        client_app=client_app,
    )
    assert seen == [None]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_goes_on_and_pays_for_one_round_more(crowd, crowd_test, tmp_path, how):
    pytest.importorskip("ray")
    import psutil

    def command(out, *more):
        return [
            *(
                sys.executable,
                "-m",
                "murmuration.cli.main",
                "run",
                "--runtime",
                "ray",
                "--workers",
                "2",
            ),
            *("--out", str(tmp_path / out), *more),
        ]

    settings = ["--data", crowd, "--test", crowd_test, "--rounds", "400", "--cohort", "20"]
    settings += ["--delta", "1e-3", "--seed", "3"]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    quiet = {"stdout": subprocess.DEVNULL, "env": environment}
    driver = subprocess.Popen(command("rough", *settings), **quiet, start_new_session=True)
    metrics = tmp_path / "rough" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not metrics.exists() or metrics.read_text().count("\n") < 40:
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    children = psutil.Process(driver.pid).children(recursive=True)
    driver.send_signal(how)
    driver.wait(60)
    done = metrics.read_text().count("\n")
    assert done < 400
    assert not (tmp_path / "rough" / "result.json").exists()
    subprocess.run(command("rough", "--resume"), **quiet, check=True)
    rounds = [charge.round for charge in read_charges(tmp_path / "rough" / "ledger.jsonl")]
    assert len(rounds) == 400
    again = len(rounds) - len(set(rounds))
    assert again <= 1
    assert json.loads((tmp_path / "rough" / "result.json").read_text())["rounds"] == 400 - again
    assert children
    _, alive = psutil.wait_procs(children, timeout=120)  # Ray's own agents take their time
    assert not alive, "processes outlived their driver"


@pytest.mark.parametrize(
    ("gpus", "base", "device", "share"),
    [
        (2, "a model", "cpu", 1.0),
        (2, "", "cuda", 0.0),  # a linear head: nobody else has it
        (0, "a model", "cuda", 0.0),
    ],
)
def test_the_server_leaves_gpus_to_its_workers(monkeypatch, gpus, base, device, share):
    """On a cluster that is made up, and with a GPU that torch is told of."""

    class Cluster:
        def nodes(self):
            return [{"Alive": True, "Resources": {"CPU": 4.0, "GPU": float(gpus)}}]

    class Users:
        user_ids = ("a", "b", "c")

    seen = []

    def grid(ray, client_app, judgements, nodes, run_config, workers):
        seen.extend([workers.gpus, nodes])

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(ray_grid, "cluster", lambda: nullcontext(Cluster()))
    monkeypatch.setattr(ray_grid, "RayGrid", grid)
    monkeypatch.setattr(ray_grid, "serve", lambda *_: seen.append(usual_device().type))
    apps = {"server_app": server_app, "client_app": client_app}
    run_ray({"base": base}, Users(), nodes=0, workers=Workers(), **apps)
    assert seen == [share, 2 if share else 3, device]
