"""What the command line imports: of many libraries that take seconds, those that are needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    *("torch", "transformers", "sklearn", "numba", "scipy", "dp_accounting", "pyarrow"),
    *("matplotlib", "ray", "flwr"),
}


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


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_nothing_that_takes_long(option):
    found = imported_by(
        f"sys.argv = ['murmuration', '{option}']\nimport murmuration.__main__ as m\nm.main()"
    )
    assert "murmuration.sims.main" in found
    assert not HEAVY & found
    assert not {name for name in found if name.startswith("murmuration.sims.cli.")}
