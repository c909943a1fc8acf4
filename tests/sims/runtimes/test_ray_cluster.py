"""What there is room for, and whose cluster is used."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.sims.runtimes.ray_cluster import (
    Workers,
    cluster,
    machines,
    with_gpus,
    worker_failed,
    workers_of,
)


class Ray:
    """A cluster of machines with so many CPUs and GPUs; the last one is gone."""

    def __init__(self, *machines):
        self.machines = [*machines, (64, 8)]

    def nodes(self):
        return [
            {
                "Alive": place < len(self.machines) - 1,
                "Resources": {k: float(v) for k, v in (("CPU", cpus), ("GPU", gpus)) if v},
            }
            for place, (cpus, gpus) in enumerate(self.machines)
        ]


@pytest.mark.parametrize(
    ("there", "wanted", "room"),
    [
        ([(2, 0)], Workers(), 2),
        ([(2, 0)], Workers(cpus=2), 1),
        ([(2, 0), (3, 0)], Workers(cpus=2), 2),  # not 5 // 2 by luck
        ([(3, 0), (3, 0)], Workers(cpus=2), 2),  # and not 6 // 2
        ([(8, 2), (8, 0)], Workers(gpus=0.25), 8),
        ([(8, 1), (8, 1)], Workers(gpus=0.3), 6),
        ([(8, 2)], Workers(gpus=0.4), 4),  # two on each: a share is of one GPU
        ([(8, 2)], Workers(gpus=0.1), 8),
        ([(8, 3)], Workers(gpus=2.0), 1),
        ([(8, 3)], Workers(gpus=1.0), 3),
        ([(8, 3)], Workers(2, gpus=1.0), 2),
        ([(0, 0), (2, 0)], Workers(), 2),
    ],
)
def test_room(there, wanted, room):
    assert workers_of(Ray(*there), wanted) == room


@pytest.mark.parametrize(
    ("there", "asked", "language_model", "gpus"),
    [
        ([(8, 0)], None, True, 0.0),
        ([(8, 0), (8, 2)], None, True, 1.0),
        ([(8, 2)], None, False, 0.0),  # of linear heads nothing is gained
        ([(8, 2)], 0.0, True, 0.0),  # as asked for
        ([(8, 2)], 0.25, False, 0.25),
    ],
)
def test_a_gpu_for_each_worker_where_nobody_said(there, asked, language_model, gpus):
    found = with_gpus(Ray(*there), Workers(gpus=asked), language_model)
    assert found == Workers(gpus=gpus)
    if gpus == 1.0:
        assert workers_of(Ray(*there), found) == 2


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ([(2, 0)], Workers(3)),
        ([(2, 0)], Workers(cpus=3)),
        ([(2, 0), (2, 0)], Workers(cpus=4)),  # four processors, but on no machine
        ([(2, 0)], Workers(gpus=0.5)),
        ([(8, 1), (8, 1)], Workers(gpus=2.0)),
        ([(8, 2)], Workers(5, gpus=0.4)),
    ],
)
def test_more_than_there_is_room_for_is_refused(there, wanted):
    with pytest.raises(InputError, match=r"machines have .* ask for less") as refusal:
        workers_of(Ray(*there), wanted)
    assert f"{there[0][0]}" in str(refusal.value)
    assert "--cpus-per-worker" in str(refusal.value)


def test_machines_are_those_that_live():
    assert machines(Ray((2, 0), (3, 1))) == [{"CPU": 2.0}, {"CPU": 3.0, "GPU": 1.0}]


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"number": -1}, "--workers"),
        ({"cpus": 0}, "--cpus-per-worker"),
        ({"cpus": -2}, "--cpus-per-worker"),
        ({"gpus": -0.5}, "--gpus-per-worker"),
        ({"gpus": 0.00001}, "--gpus-per-worker"),
        ({"gpus": 1.5}, "--gpus-per-worker"),
        ({"gpus": float("inf")}, "--gpus-per-worker"),
        ({"gpus": float("nan")}, "--gpus-per-worker"),
    ],
)
def test_wrong_numbers_are_refused_by_name(wrong, option):
    with pytest.raises(InputError, match=option):
        Workers(**wrong)


@pytest.mark.parametrize("gpus", [0.0, 0.0001, 0.25, 1.0, 2.0])
def test_what_ray_can_give(gpus):
    assert Workers(gpus=gpus).gpus == gpus


_TASK = """
import os, pathlib, stat, sys
from murmuration.sims.runtimes.ray_cluster import cluster
with cluster() as ray:
    def secret_of_the_search():
        return 7
    assert ray.get([ray.remote(secret_of_the_search).remote() for _ in range(3)]) == [7] * 3
    from ray._private.worker import _global_node as node
    folder = pathlib.Path(node.get_session_dir_path()).parents[1]
    logs = [path.read_bytes() for path in folder.rglob("logs/*") if path.is_file()]
    print(folder, oct(stat.S_IMODE(folder.stat().st_mode)), len(logs), flush=True)
    if "raise" in sys.argv:
        raise SystemExit(3)
"""


@pytest.mark.parametrize(
    ("ending", "tmpdir"),
    [("well", "a-folder-whose-path-is-far-too-long-for-sockets"), ("raise", "")],
)
def test_nothing_is_left_of_a_cluster_of_our_own(tmp_path, tmpdir, ending):
    """Logs say how many tasks there were, which is a secret of a search."""
    pytest.importorskip("ray")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    if tmpdir:
        (tmp_path / tmpdir).mkdir()
        environment["TMPDIR"] = str(tmp_path / tmpdir)
    before = {*Path("/tmp/ray").glob("session_2*")}
    command = [sys.executable, "-c", _TASK, ending]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    shown, _ = process.communicate()
    assert process.returncode == (3 if ending == "raise" else 0)
    folder, mode, logs = shown.split()
    assert mode == "0o700" and int(logs) > 0
    assert not Path(folder).exists()
    ours = {*Path("/tmp/ray").glob(f"session_*_{process.pid}")} - before
    assert not ours
    if tmpdir:
        assert not any((tmp_path / tmpdir).iterdir())


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("http://127.0.0.1:8265", "that is the job server's address; the cluster's is 127.0.0.1:6"),
        ("https://a.example:8265", "that is the job server's address; the cluster's is a.example:"),
        ("http://[::1]:8265", "that is the job server's address; the cluster's is [::1]:6379"),
        ("127.0.0.1", "must be HOST:PORT, such as 127.0.0.1:6379"),
        ("10.0.0.1:", "must be HOST:PORT, such as 10.0.0.1:6379"),
        ("grpc://10.0.0.1:6379", "must be HOST:PORT, such as 10.0.0.1:6379"),
        ("127.0.0.1:99999", "no cluster there"),
    ],
)
def test_an_address_that_is_none_of_a_cluster(monkeypatch, address, line):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(InputError) as refusal, cluster():
        pass
    assert str(refusal.value).startswith(f"RAY_ADDRESS={address}: {line}")
    assert "\n" not in str(refusal.value)


def test_a_web_server_is_no_cluster(monkeypatch):
    """What listens at the job server's port, without its http://."""
    pytest.importorskip("ray")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server.server_port}")
        with (
            pytest.raises(InputError, match=r"a web server answers.* give 127\.0\.0\.1:6379"),
            cluster(),
        ):
            pass


def test_what_a_worker_raised_or_died_of_is_one_line():
    raised = (
        "The actor died because of an error raised in its creation task, ray::A.__init__() "
        "(pid=12, ip=10.0.0.2, actor_id=1)\nTraceback:\n  File\nKeyError: 'x'\n"
    )
    died = "The actor died.\n\tclass_name: A\n\tpid: 13\n\tip: 10.0.0.3\nIts process has died."
    for text, line in (
        (raised, "a worker failed (process 12 on 10.0.0.2): KeyError: 'x'"),
        (died, "a worker failed (process 13 on 10.0.0.3): Its process has died."),
        ("", "a worker failed (process ? on ?): RuntimeError"),
    ):
        assert str(worker_failed(RuntimeError(text))) == line
