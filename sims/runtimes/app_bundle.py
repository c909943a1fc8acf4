"""The app directory that `flwr run` needs, written from wherever our packages are installed.

A Flower App Bundle is self-contained: the node and server code travel inside it. A clone has a
`pyproject.toml` beside the rooms, an installed wheel does not, so the directory is generated:
copies of the files that the apps need, below one name as in a wheel, and a
`pyproject.toml` whose `[tool.flwr.app.config]` holds the settings of this run (an override on the
command line may only replace a key that exists already). It names no dependencies: Flower would
install them again, in front of this environment's own.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import tomli_w

from murmuration.server.versions import DISTRIBUTION, version

#: Files of the package, as patterns, that a ServerApp and a ClientApp import or read: of rooms
#: beside the core those that bring strategies, and of research, which only a checkout has, these.
#: The population is what both read where no other data is named.
BUNDLED = (
    "*.py",
    "client/**/*.py",
    "preference/**/*.py",
    "privacy/**/*.py",
    "ranking/**/*.py",
    "reporting/**/*.py",
    "reporting/templates/*.md",
    "research/__init__.py",
    "research/plugin.py",
    "research/strategies/**/*.py",
    "server/**/*.py",
    "sims/__init__.py",
    "sims/population/**/*.py",
    "sims/population/*.md",
    "sims/population/*.toml",
    "strategies/**/*.py",
    "surveying/**/*.py",
)

#: The package's folder: in a clone it has a link to each room.
_PACKAGE = Path(__file__).parents[2]

Setting = bool | int | float | str


def write_bundle(
    directory: Path,
    run_config: Mapping[str, Setting],
    *,
    serverapp: str = "murmuration.server.app:app",
    clientapp: str = "murmuration.client.app:app",
    app_dir: Path | None = None,
) -> Path:
    """Write a self-contained Flower app into `directory` (created; must be empty) and return it.

    The code is our own packages or, with `app_dir`, every `.py` and `.md` file below that folder
    (pages' templates are `.md`). Flower leaves out of a bundle what matches `test_*.py`,
    `*_test.py`, `lib/` or `build/`.
    Raises FileExistsError when the directory holds something, and ValueError for a setting that
    Flower cannot carry (its run config knows bool, int, float and str, and 64-bit integers).
    """
    for key, value in run_config.items():
        _check_setting(key, value)
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty: a bundle needs a directory of its own")
    for file, place in _app_files(app_dir) if app_dir else _own_files():
        target = directory / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    pyproject = {
        "project": {
            "name": DISTRIBUTION,
            "version": version(),
            "description": "Generated for one run",
            "license": "Apache-2.0",
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "murmuration",
                    "components": {"serverapp": serverapp, "clientapp": clientapp},
                    "config": dict(run_config),
                }
            }
        },
    }
    (directory / "pyproject.toml").write_bytes(tomli_w.dumps(pyproject).encode())
    return directory


def write_package(directory: Path) -> Path:
    """Write the whole package below `directory` (created; must be empty) and return it.

    Workers of Ray import from it whatever the driver gives them to do, and never from a package
    that is installed where they are: it comes first there, so nothing of it may be left out. Its
    version is in the `pyproject.toml` beside it.
    """
    write_bundle(directory, {})
    unread = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_PACKAGE, directory / "murmuration", ignore=unread, dirs_exist_ok=True)
    return directory


def _own_files() -> Iterator[tuple[Path, Path]]:
    """Our files, and where they lie in a wheel."""
    for pattern in BUNDLED:
        for file in sorted(_PACKAGE.glob(pattern)):
            yield file, Path("murmuration") / file.relative_to(_PACKAGE)


def _app_files(folder: Path) -> Iterator[tuple[Path, Path]]:
    for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.md")]):
        yield file, file.relative_to(folder)


def _check_setting(key: str, value: object) -> None:
    if not isinstance(value, Setting):
        raise ValueError(
            f"run config {key!r} is {type(value).__name__}; Flower carries bool, int, float and str"
        )
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"run config {key!r} = {value} does not fit 64 bits")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"run config {key!r} = {value!r} is not valid Unicode") from None
    if "." in key:
        raise ValueError(f"run config {key!r}: Flower reads a dot in a key as nesting")
