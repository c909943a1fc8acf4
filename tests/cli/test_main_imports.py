"""What the command line imports: of many libraries that take seconds, those that are needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: What learns, draws or serves: of no use to whoever only plans, or reads help.
OF_RUNS = {"torch", "transformers", "sklearn", "numba", "pyarrow", "matplotlib", "ray", "fastapi"}
OF_RUNS |= {"pandas", "datasets", "safetensors", "jinja2", "joblib", "randomgen"}
#: Each takes as long as solving for the noise.
OF_OTHER_PLANS = {"dp_accounting", "scipy.stats", "scipy.signal", "scipy.optimize", "scipy.fft"}
HEAVY = {*OF_RUNS, "scipy", "dp_accounting", "flwr"}


def imported_by(code: str) -> set[str]:
    """What is imported in a process of its own when it has run."""
    code = f"""
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
{code}
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def imported_for(line: str) -> set[str]:
    """What is imported by a command line."""
    words = ["murmuration", *line.split()]
    return imported_by(f"sys.argv = {words}\nimport murmuration.__main__ as m\nm.main()")


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_nothing_that_takes_long(option):
    found = imported_for(option)
    assert "murmuration.cli.main" in found
    assert not HEAVY & found
    assert {name for name in found if name.startswith("murmuration.cli.")} == {
        "murmuration.cli.main"
    }


@pytest.mark.parametrize(
    "more",
    [
        "--rounds 200 --cohort 500",
        "--rounds 200 --cohort 500 --json",
        "--rounds 200 --cohort 500 --heldout 0.2",
        "--rounds 200 --cohort 500 --strategy aup",
        "--rounds 200 --sampling-probability 0.1 --group-size 8 --strategy els",
        "--rounds 1 --adjacency replace-labels --strategy label-moment",
    ],
)
def test_a_plan_imports_nothing_that_runs_need(more):
    found = imported_for(f"plan --epsilon 3 --delta 1e-5 --users 4800 {more}")
    assert "murmuration.cli.plan" in found
    assert not OF_RUNS & found
    if "--strategy" not in more:
        assert not OF_OTHER_PLANS & found


def test_help_of_a_run_imports_nothing_that_runs_need():
    found = imported_for("run --help")
    assert "murmuration.cli.run" in found
    assert not {*HEAVY, "numpy"} & found
    of_strategies = {name for name in found if name.startswith("murmuration.strategies.")}
    declarations = {name for name in of_strategies if ".strategies.settings" in name}
    assert "murmuration.strategies.settings.catalogue" in declarations
    assert of_strategies == declarations
