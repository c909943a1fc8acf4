"""The table of SECURITY.md: everybody is in it, and each cell names a test that is there."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Who attacks a deployment.
WHO = {"operator", "node", "other owner", "network", "other account", "file's author"}
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> list[list[str]]:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = text.partition("\n## Who tries what\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_everybody_is_in_it() -> None:
    assert {row[0] for row in rows()} == WHO
    assert all(len(row) == 4 and all(row) for row in rows())


def test_each_row_names_tests_that_are_there() -> None:
    for row in rows():
        named = _TEST.findall(row[3])
        assert ", ".join(f"`{file}::{name}`" for file, name in named) == row[3]
        for file, name in named:
            assert name in functions_of(file), f"{file}::{name}"


@cache
def functions_of(file: str) -> set[str]:
    code = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(code) if isinstance(node, ast.FunctionDef)}
