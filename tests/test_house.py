"""The house: which room may name which, that no import goes round in a circle, and what ships."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rooms import BESIDE, ROOMS, ROOT, TOP, UNSHIPPED
from setuptools import find_packages

from murmuration.sims.runtimes.app_bundle import BUNDLED

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MOST_ENTRIES = 20  # of a folder: what one sees at a glance
MOST_LINES = 150  # of a command: it parses, calls and prints

#: Whom each room may name. A longer name is one module of a room: no other of it may be named.
ARROWS = {
    "privacy": (),
    # How to compile, and what hands work to threads: all that both kinds of arithmetic share.
    "preference": (
        "privacy.disclosure",  # who may see a value
        "privacy.extensions",  # what other packages bring, of which events are one kind
        "privacy.mechanisms.numba_jit",
        "privacy.mechanisms.parallel",
    ),
    "strategies": ("preference", "privacy"),
    "reporting": ("strategies", "preference", "privacy"),
    # The two sides of a run meet in messages alone.
    "client": ("strategies", "preference", "privacy"),
    "server": ("reporting", "strategies", "preference", "privacy"),
}
_RUN = ("server", "client", "reporting", "strategies", "preference", "privacy")
ARROWS["sims"] = _RUN
ARROWS["audits"] = ("sims", *_RUN)
ARROWS["deploy"] = ("sims", *_RUN)
ARROWS["alignment"] = ("sims", "server", "reporting", "preference", "privacy")
ARROWS[TOP] = ("alignment", "sims", *_RUN)
ARROWS["cli"] = (TOP, "alignment", "audits", "deploy", "sims", *_RUN)
# Whose stress is that of commands, as they are called.
ARROWS["research"] = ("cli.main", TOP, "alignment", "audits", "deploy", "sims", *_RUN)


@dataclass(frozen=True)
class Named:
    """That a module names another, and where: "import", "call" (in a function), "types"."""

    by: str
    what: str
    line: int
    when: str

    def __str__(self) -> str:
        return f"{self.by}:{self.line} {self.what}"


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == TOP else (TOP, *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(file): file for room in ROOMS for file in (ROOT / room).rglob("*.py")}


def names_in(module: str, code: str) -> Iterator[Named]:
    """The modules, ours or of tests, that a module's code imports, wherever it does."""

    def visit(node: ast.AST, when: str) -> Iterator[Named]:
        for child in ast.iter_child_nodes(node):
            inside = when
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                inside = "call"
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                inside = "types"
            elif isinstance(child, ast.Import):
                yield from (Named(module, a.name, child.lineno, when) for a in child.names)
            elif isinstance(child, ast.ImportFrom):
                # The one style that this house has; with it, names are whole below.
                assert child.level == 0, f"{module}:{child.lineno}: a relative import"
                source = child.module or ""
                for alias in child.names:
                    whole = f"{source}.{alias.name}"
                    what = whole if whole in FILES or source == TOP else source
                    yield Named(module, what, child.lineno, when)
            yield from visit(child, inside)

    for found in visit(ast.parse(code), "import"):
        if found.what.split(".")[0] in (*ROOMS, "tests"):
            yield found


NAMED = sorted(
    {
        named
        for module, file in FILES.items()
        for named in names_in(module, file.read_text(encoding="utf-8"))
    },
    key=str,
)


def room_of(module: str) -> str:
    """The room, or the package's own folder."""
    parts = module.split(".")
    if module == f"{TOP}.__main__":  # ``python -m murmuration``, another door to the commands
        return "cli"
    return parts[1] if len(parts) > 1 and parts[1] in BESIDE else TOP


def allowed(named: Named) -> bool:
    here, there = room_of(named.by), room_of(named.what)
    below = named.what.removeprefix(f"{TOP}.")
    return here == there or any(
        there == arrow or below == arrow or below.startswith(f"{arrow}.") for arrow in ARROWS[here]
    )


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules from each of which one comes to each, itself too."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        todo, seen = list(edges[start]), set()
        while todo:
            if (at := todo.pop()) not in seen:
                seen.add(at)
                todo.extend(edges.get(at, ()))
        reached[start] = seen
    found = {
        frozenset(b for b in reached[a] if a in reached.get(b, ()))
        for a in edges
        if a in reached[a]
    }
    return sorted(sorted(circle) for circle in found)


def executed(named: Named) -> set[str]:
    """The modules that an import executes: those it names and the packages on the way to them.

    Not the packages in which the importing module lies: they are under way already.
    """
    parts = named.what.split(".")
    prefixes = {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return {p for p in prefixes if p in FILES and not f"{named.by}.".startswith(f"{p}.")}


@pytest.mark.parametrize("when", ["import", "call", "types"])
@pytest.mark.parametrize("room", ROOMS)
def test_arrows_between_rooms_point_one_way(room, when):
    wrong = [n for n in NAMED if room_of(n.by) == room and n.when == when and not allowed(n)]
    assert not wrong, "\n".join(map(str, wrong))


def test_arrows_make_no_circle():
    edges = {room: {arrow.split(".")[0] for arrow in arrows} for room, arrows in ARROWS.items()}
    assert circles(edges) == []


def calls_in(code: str) -> set[str]:
    """The names of what a module's code calls, with their dots."""
    tree = ast.walk(ast.parse(code))
    return {ast.unparse(node.func) for node in tree if isinstance(node, ast.Call)}


def test_one_way_to_the_terminal_and_to_the_log():
    """What files and other machines wrote is escaped where all of it passes."""
    for module, file in FILES.items():
        code = file.read_text(encoding="utf-8")
        assert "Console" not in calls_in(code), f"{module}: use reporting.live.terminal.Terminal"
        # Of an agent the command that starts it makes the log.
        ours = 'logging.getLogger("murmuration' in code and module != f"{TOP}.client.agent.agent"
        assert not ours, f"{module}: use preference.escaping.get_logger"


def test_every_arrow_is_used():
    for room, arrows in ARROWS.items():
        named = [n.what for n in NAMED if room_of(n.by) == room]
        names = {f"{what.removeprefix(f'{TOP}.')}." for what in named} | {
            f"{room_of(what)}." for what in named
        }
        unused = [a for a in arrows if not any(name.startswith(f"{a}.") for name in names)]
        assert not unused, f"{room} names nothing of {unused}"


def test_no_circle_among_modules():
    """Imports in functions and for types alone included: who names whom is one way everywhere."""
    edges: dict[str, set[str]] = {module: set() for module in FILES}
    for named in NAMED:
        edges[named.by] |= executed(named) if named.when == "import" else {named.what}
    assert circles(edges) == []


def test_rooms_are_named_as_they_are_where_they_are_installed():
    """``import server`` finds the room in a checkout, and anything at all elsewhere."""
    wrong = [n for n in NAMED if n.what.split(".")[0] not in (TOP, "tests")]
    assert not wrong, "\n".join(map(str, wrong))


def test_what_ships_does_not_need_the_tests():
    wrong = [n for n in NAMED if n.what.split(".")[0] == "tests"]
    assert not wrong, "\n".join(map(str, wrong))


def test_every_name_of_ours_leads_to_a_file():
    wrong = [n for n in NAMED if n.what.split(".")[0] == TOP and n.what not in FILES]
    assert not wrong, "\n".join(map(str, wrong))


def test_no_folder_is_crowded():
    folders = {file.parent for file in FILES.values()}
    crowded = {
        str(folder.relative_to(ROOT)): count
        for folder in sorted(folders)
        if (count := sum(p.name != "__pycache__" for p in folder.iterdir())) > MOST_ENTRIES
    }
    assert crowded == {}


def test_commands_are_short():
    """What computes is in the library, where programs find it, too."""
    long = {
        str(file.relative_to(ROOT)): lines
        for file in sorted((ROOT / "cli").rglob("*.py"))
        if (lines := len(file.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert not long, long


def test_every_folder_of_code_is_a_package_that_ships_or_is_research():
    ours = {module_of(file.parent / "__init__.py") for file in FILES.values()}
    assert [p for p in sorted(ours) if FILES.get(p, Path()).name != "__init__.py"] == []
    found = PYPROJECT["tool"]["setuptools"]["packages"]["find"]
    shipped = find_packages(str(ROOT), include=found["include"], exclude=found["exclude"])
    unshipped = {p for p in ours if p.split(".")[1:2] in [[room] for room in UNSHIPPED]}
    assert set(shipped) == ours - unshipped
    assert unshipped


def test_whatever_lists_the_rooms_lists_all():
    tools = PYPROJECT["tool"]
    assert set(tools["flwr"]["app"]["fab-include"]) == {
        f"{TOP}/{pattern}" if pattern == "*.py" else pattern for pattern in BUNDLED
    }
    own = {f"{TOP}/{folder.name}" for folder in (ROOT / TOP).iterdir() if is_own_folder(folder)}
    assert set(tools["pyright"]["include"]) == {*BESIDE, f"{TOP}/*.py", *own}
    holds_code = {f.parent.name for f in ROOT.glob("*/__init__.py")}
    assert holds_code - {"tests"} == set(ROOMS)
    assert set(ARROWS) == set(ROOMS)


def is_own_folder(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and (folder / "__init__.py").exists()


def test_every_test_that_a_page_names_is_there():
    wrong = []
    for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]:
        for name in re.findall(r"[\w./-]*\btest_\w+\.py\b", page.read_text(encoding="utf-8")):
            if not any((folder / name).exists() for folder in (ROOT, page.parent)):
                wrong.append(f"{page.relative_to(ROOT)}: {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("code", "what", "when"),
    [
        ("import murmuration.strategies.config", "murmuration.strategies.config", "import"),
        ("from murmuration.strategies import config", "murmuration.strategies.config", "import"),
        (
            "from murmuration.strategies.config import RunConfig",
            "murmuration.strategies.config",
            "import",
        ),
        ("from murmuration import server", "murmuration.server", "import"),
        ("try:\n import server\nexcept ImportError: pass", "server", "import"),
        ("class A:\n import server.app", "server.app", "import"),
        ("def f():\n  if 1:\n    import murmuration.sims", "murmuration.sims", "call"),
        ("if TYPE_CHECKING:\n  import murmuration.sims", "murmuration.sims", "types"),
        ("if typing.TYPE_CHECKING:\n  import murmuration.sims", "murmuration.sims", "types"),
    ],
)
def test_what_is_read_of_code(code, what, when):
    (found,) = names_in("murmuration.privacy.adjacency", code)
    assert (found.what, found.when) == (what, when)
    assert not allowed(found)


def test_what_is_a_circle():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}, "e": {"e"}}) == [
        ["b", "c", "d"],
        ["e"],
    ]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
