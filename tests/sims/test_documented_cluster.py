"""The page on clusters: two machines by its commands, and what it runs on them
(``make test-commands``)."""

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from pathlib import Path

import pytest
from deployment import free_ports
from machines import CLUSTERS, end_ray, ray_cluster, start_ray, typed_on
from safetensors.numpy import load_file
from walks import ROOT, environment, walk

pytestmark = pytest.mark.xdist_group("two machines")
_SMALL = "--rounds 3 --cohort 20 --delta 1e-3"


def typed(number, folder, *changes):
    """The command of the page, in a folder for /shared and with a smaller run."""
    body = typed_on("first")[number].body.replace("/shared/", f"{folder}/")
    for old, new in (("RAY_ADDRESS=10.0.0.1:6379 ", ""), *changes):
        assert old in body
        body = body.replace(old, new)
    return body


@pytest.fixture(scope="module")
def two_machines():
    pytest.importorskip("ray")
    with ray_cluster(1, 1) as variables:
        yield variables


@pytest.fixture
def shared(crowd, tmp_path):
    shutil.copy(crowd, tmp_path / "judgements.jsonl")
    (tmp_path / "home").mkdir()
    return tmp_path


def type_in(shared, body, **variables):
    return subprocess.run(
        ["bash", "-ec", body], cwd=shared, env=environment(shared / "home", **variables),
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.commands
@pytest.mark.slow
def test_the_run_of_the_page_has_the_weights_of_one_process(two_machines, shared, crowd_test):
    small = f"{_SMALL} --seed 3 --test {crowd_test} "
    body = typed(2, shared, ("--out", f"{small}--out"))
    done = type_in(shared, body, **two_machines)
    assert done.returncode == 0, done.stderr
    here = body.replace("--runtime ray", "--runtime local").replace("/run\n", "/here\n")
    assert type_in(shared, here).returncode == 0
    models = [shared / name / "model" / "model.safetensors" for name in ("run", "here")]
    assert models[0].read_bytes() == models[1].read_bytes()
    assert load_file(models[0])["theta_D"].any()


@pytest.mark.commands
@pytest.mark.slow
def test_only_its_account_enters_what_a_machine_writes(two_machines):
    """Ray opens its own folders to all."""
    key = Path(two_machines["RAY_AUTH_TOKEN_PATH"])
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for machine in ("0", "1"):
        folder = key.parents[3] / machine / "h" / ".ray"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert list((folder / "cluster").glob("session_*/sockets/raylet*"))
        assert list((folder / "cluster").glob("session_*/logs/raylet*"))


_RAISES = """
from murmuration.sims.runtimes import ray_grid
class Raises(ray_grid._Worker):
    def __init__(self, *arguments):
        raise ModuleNotFoundError("No module named 'torch'")
ray_grid._Worker = Raises
from murmuration.cli.main import main
main()
"""


@pytest.mark.slow
def test_what_a_worker_raises_is_one_line(two_machines, shared):
    arguments = ["run", "--runtime", "ray", "--data", str(shared / "judgements.jsonl")]
    arguments += ["--out", str(shared / "run"), *_SMALL.split()]
    done = subprocess.run(
        [sys.executable, "-c", _RAISES, *arguments], env={**os.environ, **two_machines},
        cwd=shared, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert line.startswith("error: a worker failed (process ")
    assert line.endswith(": ModuleNotFoundError: No module named 'torch'")
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.slow
def test_the_sweep_of_the_page_has_the_results_of_one_process(two_machines, shared, crowd_test):
    small = ("--strategies uls,aup,els --epsilons 1,3,8 --seeds 3", "--strategies uls,els")
    more = f"--epsilons 3 --seeds 1 {_SMALL} --test {crowd_test} --out"
    body = typed(3, shared, small, ("--out", more))
    done = type_in(shared, body, **two_machines)
    assert done.returncode == 0, done.stderr
    here = body.replace("--runtime ray", "").replace("/sweep ", "/here ")
    assert type_in(shared, here).returncode == 0
    for run in ("uls-epsilon3-seed0", "els-epsilon3-seed0"):
        name = f"runs/{run}/model/model.safetensors"
        assert (shared / "sweep" / name).read_bytes() == (shared / "here" / name).read_bytes()


@pytest.mark.slow
def test_without_the_token_a_cluster_is_refused_in_one_line(two_machines, shared):
    body = typed(2, shared, ("RAY_AUTH_MODE=token ", ""))
    done = type_in(shared, body, RAY_ADDRESS=two_machines["RAY_ADDRESS"])
    assert done.returncode == 2
    assert "no cluster there to work on; if it has a token" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_run_on_one_machine_as_it_is_printed(tmp_path):
    page = tmp_path / "page.md"
    alone, _ = CLUSTERS.read_text("utf-8").split("## Start a cluster")
    page.write_text(alone, "utf-8")
    assert len(walk(page, tmp_path)) == 1


def with_the_job_server(folder):
    """Python of an environment that has the extra of the page above ours; none without an index."""
    venv.create(folder, with_pip=True)
    python, ours = folder / "bin" / "python", sysconfig.get_path("purelib")
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extra = project["optional-dependencies"]["cluster"]
    pip = [python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    own_program = ["--ignore-installed", "--no-deps", "ray"]  # which ours would hide
    for what in (extra, own_program):
        done = subprocess.run([*pip, *what], capture_output=True, text=True, check=False)
        assert "ResolutionImpossible" not in done.stderr, done.stderr
        if done.returncode:
            pytest.skip(f"no package index: {done.stderr.splitlines()[-1]}")
    return str(python)


@pytest.fixture
def short_folder():
    """A folder for a machine's sockets, whose paths have at most 107 letters."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as place:
        yield Path(place)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_job_is_submitted_as_it_is_printed(crowd, short_folder):
    pytest.importorskip("ray")
    python = with_the_job_server(short_folder / "installed")
    (home := short_folder / "h").mkdir()
    shutil.copy(crowd, short_folder / "judgements.jsonl")
    variables = environment(home, python)
    del variables["PYTHONPATH"]  # the code comes with the job
    token, start, submit = (s.body for s in (typed_on("first")[0], *typed_on("jobs")))
    port, client_port, job_port = free_ports(3)
    start = start.replace("--port 6379", f"--port {port} --dashboard-port {job_port}")
    more = f"--ray-client-server-port {client_port} --num-cpus 2 --object-store-memory 100000000"
    start = start.replace("--block", f"--block {more}")
    submit = submit.replace(":8265", f":{job_port}").replace("/shared/", f"{short_folder}/")
    submit = submit.replace("--runtime ray", f"--runtime ray --workers 1 {_SMALL}")
    subprocess.run(["bash", "-ec", token], env=variables, check=True)
    machine = start_ray(start, variables, short_folder / "printed")
    try:
        done = subprocess.run(
            ["bash", "-ec", submit], cwd=ROOT, env=variables, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    finally:
        end_ray(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert load_file(short_folder / "run" / "model" / "model.safetensors")["theta_D"].any()
