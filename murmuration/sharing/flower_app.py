"""A Flower app of one's own, as Flower's quickstarts look: data, a ServerApp to be changed, our
ClientApp, settings. It is what Flower Hub takes (`fab-format-version` 1)."""

import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.server.versions import DISTRIBUTION, version

_TEMPLATES = Path(__file__).parent / "templates"
#: As Flower Hub names apps.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
#: File of the project, and the template that it is made from; ``@PACKAGE@`` is the name in Python.
FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "LICENSE": "LICENSE.txt",
    ".gitignore": "gitignore.txt",
    "@PACKAGE@/__init__.py": "",
    "@PACKAGE@/server_app.py": "server_app.py.txt",
    "@PACKAGE@/client_app.py": "client_app.py.txt",
    "@PACKAGE@/task.py": "task.py.txt",
}


def write_app(folder: Path, publisher: str = "your-account") -> list[str]:
    """Write a Flower app into a folder, whose name becomes the app's.

    Args:
        folder: where; it must be empty, or not there.
        publisher: account at Flower Hub.

    Returns:
        The names of its files.

    Raises:
        InputError: the folder holds something, its name or ``publisher`` is none that Flower Hub
            takes, or an installed package has its name.
    """
    folder = folder.expanduser().absolute()
    if not _NAME.fullmatch(folder.name):
        raise InputError(
            f"{folder.name}: the name of an app begins with a small letter, and has small letters, "
            "digits and hyphens, at most 32 of them"
        )
    if not _NAME.fullmatch(publisher):
        raise InputError(f"--publisher {publisher}: small letters, digits and hyphens, at most 32")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: holds something already; choose another folder")
    package = folder.name.replace("-", "_")
    if find_spec(package) is not None:
        raise InputError(
            f"{folder.name}: a package {package} is there already; choose another name"
        )
    major, minor, *_ = metadata.version("flwr").split(".")
    values = {
        "NAME": folder.name,
        "PACKAGE": package,
        "PUBLISHER": publisher,
        "DISTRIBUTION": DISTRIBUTION,
        "VERSION": version(),
        "FLOWER": metadata.version("flwr"),
        "NEXT": f"{major}.{int(minor) + 1}",
    }

    def filled(text: str) -> str:
        return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], text)

    for name, template in FILES.items():
        text = (_TEMPLATES / template).read_text(encoding="utf-8") if template else ""
        file = folder / filled(name)
        with disk_errors_as(f"{file}: cannot be written"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(filled(text), encoding="utf-8")
    return [filled(name) for name in FILES]
