"""Packages from outside: the examples as pip installs them, and made-up ones."""

import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
EXTENSIONS = EXAMPLES / "extensions"


def install(site, name, points, modules):
    """Put a package with these entry points, by their groups, and sources of modules into a
    folder that is to be on the path."""
    info = site / f"{name}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = []
    for group, named in points.items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in named.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, source in modules.items():
        (site / f"{module}.py").write_text(source)
    return site


def pip_install(example, folder):
    """Return a folder that is to be on the path, into which pip has installed the example.

    Nothing is fetched, and nothing is built in the checkout.
    """
    source, site = folder / "source", folder / "site"
    leftovers = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(example, source, ignore=leftovers)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-index", "--no-deps", "--no-build-isolation", "--target", site, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return site
