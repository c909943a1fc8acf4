"""The house: which room may name which, that no import goes round in a circle, and what ships.

``make words`` lowers ``WORST_WORDS`` to what there is.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from rooms import BESIDE, ROOMS, ROOT, TOP, UNSHIPPED
from setuptools import find_packages

from murmuration.sims.runtimes.app_bundle import BUNDLED

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MOST_ENTRIES = 20  # of a folder: what one sees at a glance
MOST_LINES = 150  # of a command: it parses, calls and prints
MOST_BY_POSITION = 5  # arguments: beyond, a reader of a call counts commas
TESTS = ROOT / "tests"

#: Tests that mirror no file, because what they show is of many: rooms, and files of others.
SUITES = (
    "attacks/",  # what hostile nodes, servers and pages can do
    "docs/",  # what the pages say
    "mutation/",  # faults that tests must catch
    "ranking/test_voter_sensitivity.py",
    "server/whole_runs/",  # whole runs, by what is learnt and what goes wrong
    "sims/",  # one run on every runtime, and what it lets out
    "strategies/rounds/",  # rounds, of every strategy
    "cli/models/test_kills.py",
    "cli/models/test_smollm2.py",  # a base of every command that takes one
    "cli/test_every_command.py",
    "client/agent/test_brought_packages.py",
    "client/agent/test_failing_is_an_answer.py",
    "client/agent/test_hold_outs.py",
    "client/test_isolation.py",
    "deploy/test_namespaces.py",
    "deploy/test_two_flowers.py",
    "examples/test_notebooks.py",
    "examples/test_scripts.py",
    "murmuration/api/test_docstrings.py",
    "murmuration/api/test_from_python.py",  # what all functions say
    "murmuration/test_satellites.py",
    "murmuration/test_version.py",
    "murmuration/test_wheel.py",
    "preference/data/test_data_sets.py",
    "preference/data/test_misreadings.py",
    "test_house.py",
)

#: Names that tell a reader nothing, of variables, parameters, fields and functions.
VAGUE = {
    "admits", "asked", "climb", "covers", "found", "heads",
    "invited", "kept", "of", "said", "settled", "told",
}  # fmt: skip
#: Beginnings of docstrings that say what something is, where they should say what it does.
NO_VERB = re.compile(r"(What|Whether|Of|How)\b")
#: How many there are in each room: these numbers may only fall.
WORST_WORDS = {
    "alignment": 35,
    "audits": 0,
    "cli": 6,
    "client": 15,
    "deploy": 1,
    "murmuration": 7,
    "preference": 43,
    "privacy": 20,
    "ranking": 1,
    "reporting": 30,
    "research": 54,
    "server": 11,
    "sims": 7,
    "strategies": 47,
    "surveying": 1,
    "tests": 1375,
    "tuning": 0,
}

#: Whom each room may name. A longer name is one module of a room: no other of it may be named.
ARROWS = {
    "privacy": (),
    # How to compile, and what hands work to threads: all that both kinds of arithmetic share.
    "preference": (
        "privacy.disclosure",  # who may see a value
        "privacy.extensions",  # what other packages bring, of which events are one kind
        "privacy.plugins",  # what other rooms bring
        "privacy.mechanisms.numba_jit",
        "privacy.mechanisms.parallel",
        "privacy.regular_files",  # what is read of others' files
        "privacy.strict_json",  # what is written for every reader
    ),
    "strategies": ("preference", "privacy"),
    # The two sides of a run meet in messages alone.
    "client": ("strategies", "preference", "privacy"),
    "server": ("strategies", "preference", "privacy"),
}
_RUN = ("server", "client", "strategies", "preference", "privacy")
ARROWS["sims"] = _RUN
ARROWS[TOP] = ("sims", *_RUN)
ARROWS["reporting"] = (TOP, "sims", "server", "strategies", "preference", "privacy")
ARROWS["audits"] = ("reporting", "sims", *_RUN)
ARROWS["deploy"] = ("reporting", "sims", *_RUN)
ARROWS["cli"] = ("audits", "deploy", "reporting", TOP, "sims", *_RUN)
# Whose commands take some options as others do.
ARROWS["alignment"] = ("cli.options", "reporting", TOP, "sims", "server", "preference", "privacy")
ARROWS["tuning"] = (
    *("cli.about_data", "cli.options", "cli.setting_options", "reporting", TOP, "sims", "server"),
    *("client", "strategies", "preference", "privacy"),
)
_WHOLE_CROWD = ("cli.about_data", "cli.whole_crowd", "reporting", TOP, "sims")
ARROWS["surveying"] = (*_WHOLE_CROWD, "strategies", "preference", "privacy")
ARROWS["ranking"] = ("cli.options", *ARROWS["surveying"])
# Whose stress is that of commands, as they are called, and which has commands itself.
ARROWS["research"] = (
    *("alignment", "ranking", "surveying", "cli.main", "cli.options", "audits", "deploy", TOP),
    *("sims", *_RUN),
)


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


@cache
def all_named() -> list[Named]:
    """Read where any module names another."""
    named = (names_in(module, file.read_text(encoding="utf-8")) for module, file in FILES.items())
    return sorted({*chain.from_iterable(named)}, key=str)


def room_of(module: str) -> str:
    """The room, or the package's own folder."""
    parts = module.split(".")
    if module == f"{TOP}.__main__":  # ``python -m murmuration``, another door to the commands
        return "cli"
    return parts[1] if len(parts) > 1 and parts[1] in BESIDE else TOP


def allowed(named: Named) -> bool:
    if named.by == TOP and named.when == "types":  # names that rooms bring, for editors alone
        return True
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
    wrong = [n for n in all_named() if room_of(n.by) == room and n.when == when and not allowed(n)]
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
        makes_one = "Console" in code and "Console" in calls_in(code)
        assert not makes_one, f"{module}: use terminal.terminal.Terminal"
        # Of an agent the command that starts it makes the log.
        ours = 'logging.getLogger("murmuration' in code and module != f"{TOP}.client.agent.agent"
        assert not ours, f"{module}: use preference.escaping.get_logger"


def test_every_arrow_is_used():
    for room, arrows in ARROWS.items():
        named = [n.what for n in all_named() if room_of(n.by) == room]
        names = {f"{what.removeprefix(f'{TOP}.')}." for what in named} | {
            f"{room_of(what)}." for what in named
        }
        unused = [a for a in arrows if not any(name.startswith(f"{a}.") for name in names)]
        assert not unused, f"{room} names nothing of {unused}"


def test_no_circle_among_modules():
    """Imports in functions and for types alone included: who names whom is one way everywhere."""
    edges: dict[str, set[str]] = {module: set() for module in FILES}
    for named in all_named():
        edges[named.by] |= executed(named) if named.when == "import" else {named.what}
    assert circles(edges) == []


def test_no_run_looks_for_a_declaration():
    """Runs read rows by what is declared; only `murmuration data` looks at all rows for that."""
    rooms = ("strategies", "server", "client", "sims", "preference", "privacy")
    todo = [module for module in FILES if room_of(module) in rooms]
    todo.append(f"{TOP}.api.training")
    named: dict[str, set[str]] = {}
    for each in all_named():
        named.setdefault(each.by, set()).add(each.what)
    reached: set[str] = set()
    while todo:
        if (module := todo.pop()) not in reached:
            reached.add(module)
            todo.extend(named.get(module, ()))
    hidden = f"{TOP}.planning.declaration"
    assert hidden in named[f"{TOP}.planning.look"] and hidden not in reached


def test_rooms_are_named_as_they_are_where_they_are_installed():
    """``import server`` finds the room in a checkout, and anything at all elsewhere."""
    wrong = [n for n in all_named() if n.what.split(".")[0] not in (TOP, "tests")]
    assert not wrong, "\n".join(map(str, wrong))


def test_what_ships_does_not_need_the_tests():
    wrong = [n for n in all_named() if n.what.split(".")[0] == "tests"]
    assert not wrong, "\n".join(map(str, wrong))


def test_every_name_of_ours_leads_to_a_file():
    wrong = [n for n in all_named() if n.what.split(".")[0] == TOP and n.what not in FILES]
    assert not wrong, "\n".join(map(str, wrong))


def test_no_folder_is_crowded():
    folders = {file.parent for file in FILES.values()}
    folders |= {TESTS, *(folder for folder in TESTS.rglob("*") if folder.is_dir())}
    uncounted = {"__pycache__", *BESIDE}  # rooms have a list of their own
    crowded = {
        str(folder.relative_to(ROOT)): count
        for folder in sorted(folders)
        if folder.name != "__pycache__"
        and (count := sum(p.name not in uncounted for p in folder.iterdir())) > MOST_ENTRIES
    }
    assert crowded == {}


def test_commands_are_short():
    """Code that computes is in the library, where programs find it, too."""
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


def mirrored(test: Path) -> Path:
    """The file or folder that ``tests/X/test_Y.py`` is about: ``X/Y.py``, or ``X/Y``."""
    name = test.stem.removeprefix("test_")
    place = ROOT / test.relative_to(TESTS).parent / ("__init__" if name == "init" else name)
    return place if place.is_dir() else place.with_suffix(".py")


def is_suite(test: Path) -> bool:
    name = test.relative_to(TESTS).as_posix()
    return name in SUITES or f"{Path(name).parent.as_posix()}/" in SUITES


def test_tests_lie_as_the_source_does():
    """Where somebody looks for the tests of a file, they are; ``SUITES`` names the others."""
    tests = sorted(TESTS.rglob("test_*.py"))
    lost = [test for test in tests if not mirrored(test).exists() and not is_suite(test)]
    assert not lost, "\n".join(str(test.relative_to(ROOT)) for test in lost)
    assert not [name for name in SUITES if not (TESTS / name).exists()]


def worst_words(code: str) -> Iterator[tuple[int, str]]:
    """Where code gives something a vague name, or says in no verb what it does: line and words."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
            if NO_VERB.match(ast.get_docstring(node) or ""):
                yield node.lineno, f"{node.name}: {(ast.get_docstring(node) or '').split()[0]} …"
        elif isinstance(node, ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name in VAGUE)


def worst_words_of(room: str) -> list[str]:
    return [
        f"{file.relative_to(ROOT)}:{line} {words}"
        for file in sorted((ROOT / room).rglob("*.py"))
        for line, words in worst_words(file.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("room", [*ROOMS, "tests"])
def test_the_worst_words_do_not_come_back(room):
    found = worst_words_of(room)
    assert len(found) <= WORST_WORDS[room], "\n".join(found)


def test_what_counts_as_a_worst_word():
    code = """
def told(of, /, *kept: int, said=None, **asked) -> None:
    \'\'\'What is told.\'\'\'
    found, (heads, right) = first, second
    for climb in covers: admits.settled = fine(invited=climb)
class Fine:
    \'\'\'Whatever is fine.\'\'\'
    invited: int
"""
    words = [words for _, words in worst_words(code)]
    assert sorted(words) == [
        "asked", "climb", "found", "heads", "invited", "kept", "of", "said", "told", "told: What …",
    ]  # fmt: skip


def by_position(code: str) -> Iterator[tuple[int, str, int]]:
    """Where code defines a function or a dataclass, and how many arguments it takes by position.

    Not of compiled kernels, which take no others.
    """
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            taken = len(names) - (names[:1] in (["self"], ["cls"]))
        elif isinstance(node, ast.ClassDef):
            taken = 0
            for each in node.body:
                text = ast.unparse(each) if isinstance(each, ast.AnnAssign) else "ClassVar"
                if text == "_: KW_ONLY":
                    break
                taken += not any(x in text for x in ("ClassVar", "init=False", "kw_only=True"))
        else:
            continue
        made_by = " ".join(map(ast.unparse, node.decorator_list))
        is_class = isinstance(node, ast.ClassDef)
        if "kernel(" not in made_by and not (is_class and "dataclass" not in made_by):
            yield node.lineno, node.name, 0 if "kw_only=True" in made_by else taken


def test_calls_name_what_they_pass():
    """All the more where others of a type stand side by side."""
    shipped = [room for room in ROOMS if room not in UNSHIPPED]
    over = [
        f"{file.relative_to(ROOT)}:{line} {name} takes {taken}"
        for room in shipped
        for file in sorted((ROOT / room).rglob("*.py"))
        for line, name, taken in by_position(file.read_text(encoding="utf-8"))
        if taken > MOST_BY_POSITION
    ]
    assert not over, "\n".join(over)


def test_what_is_taken_by_position():
    code = """
def plain(a, b, /, c, *rest, d): def_ = lambda e: e
class Any:
    def method(self, a, *, b): ...
    @staticmethod
    def static(a, b): ...
@dataclass(frozen=True)
class Values:
    kind: ClassVar[str] = ""
    a: int
    hidden: int = field(init=False)
    named: int = field(default=0, kw_only=True)
    _: KW_ONLY
    b: int
@dataclass(kw_only=True)
class Named:
    a: int
@kernel(fastmath=True)
def compiled(a, b, c, d, e, f): ...
"""
    assert sorted((name, taken) for _, name, taken in by_position(code)) == [
        ("Named", 0), ("Values", 1), ("method", 1), ("plain", 3), ("static", 2),
    ]  # fmt: skip


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


def update() -> None:
    """Lower the recorded counts of worst words to what there is."""
    counts = {room: len(worst_words_of(room)) for room in (*ROOMS, "tests")}
    lines = [
        f"    {room!r}: {min(count, WORST_WORDS.get(room, count))},\n".replace("'", '"')
        for room, count in sorted(counts.items())
    ]
    file = Path(__file__)
    before, rest = file.read_text(encoding="utf-8").split("WORST_WORDS = {\n", 1)
    after = rest[rest.index("}\n") :]
    file.write_text(f"{before}WORST_WORDS = {{\n{''.join(lines)}{after}", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("usage: PYTHONPATH=tests/shared python tests/test_house.py --update")
    update()
