"""Packages as pip would install them: modules, and entry points in their metadata."""

import shutil
import tomllib
from pathlib import Path

EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions"


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


def install_example(site):
    """Put examples/extensions into a folder that is to be on the path."""
    declared = tomllib.loads((EXTENSIONS / "pyproject.toml").read_text())["project"]
    install(site, "murmuration_examples", declared["entry-points"], {})
    (package,) = (path for path in EXTENSIONS.iterdir() if path.is_dir() and path.name[0] != "_")
    shutil.copytree(package, site / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    return site
