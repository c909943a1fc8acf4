"""How programs that work with an owner's data are started: by no code and no variable of others."""

import ast
import os
import subprocess
from pathlib import Path

from rooms import ROOMS

from murmuration.client.isolated import owners_environment, passed_on, python

ROOT = Path(__file__).parents[2]


def test_a_program_does_not_find_what_lies_where_it_is_started(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("json.py", "sitecustomize.py", "psutil.py"):
        (tmp_path / name).write_text("import pathlib; pathlib.Path('imported').touch()\n")
    (tmp_path / "mine" / "ours.py").write_text("print('ours')\n")
    ours = {"PYTHONPATH": os.pathsep.join(["", ".", "..", str(tmp_path / "mine")])}
    before = os.environ.get("PYTHONPATH")
    os.environ |= ours
    try:
        environment = owners_environment()
    finally:
        os.environ["PYTHONPATH"] = before or ""
    done = subprocess.run(
        python("-c", "import json, psutil, ours"),
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "ours\n"
    assert not (tmp_path / "imported").exists()


def test_variables_are_on_a_list(monkeypatch):
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "LD_PRELOAD", "HF_ENDPOINT"):
        monkeypatch.setenv(name, "of the owner")
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", "bin", "/usr/bin", "/bin"]))
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environment = owners_environment()
    assert "of the owner" not in environment.values()
    assert environment["PATH"] == "/usr/bin:/bin"
    assert environment["HOME"] == "/home/alice"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert "PYTHONPATH" not in environment
    assert "HOME" not in passed_on()
    monkeypatch.setenv("PATH", ":.")
    assert "PATH" not in passed_on()  # an empty one would be the folder that one is in


def _lists_without(code: str) -> list[int]:
    """The lines of lists that begin with an interpreter and have not -P, or -I, behind it."""
    lines = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.List) and node.elts:
            first, *rest = map(ast.unparse, node.elts)
            if first in ("sys.executable", "str(python)") and rest[:1] not in (["'-P'"], ["'-I'"]):
                lines.append(node.lineno)
    return lines


def test_every_interpreter_is_started_so():
    assert _lists_without("x = [sys.executable, '-m', 'y']") == [1]
    assert _lists_without("x = [sys.executable, '-P', '-m', 'y']") == []
    bare = {
        str(file.relative_to(ROOT)): lines
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        if (lines := _lists_without(file.read_text(encoding="utf-8")))
    }
    # A script by its path has its own folder first, which is ours.
    assert set(bare) <= {"research/bench/rivals.py"}
