"""The wheel: it holds one name, and works where others have put files of our rooms' names."""

import os
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from rooms import ROOT, SHIPPED

pytestmark = pytest.mark.slow  # a wheel is built and installed

HOSTILE = "raise SystemExit('not ours: ' + __name__)\n"


DIST_SOURCE = runpy.run_path(str(ROOT / ".ci" / "dist_source.py"))
REPOSITORY = "https://example.org/some/body"


def built(kind, source, folder):
    """What setuptools makes of a folder's source: a "wheel" or an "sdist"."""
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
    subprocess.run(
        [sys.executable, "-c", code], cwd=source, check=True, capture_output=True, timeout=120
    )
    (result,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return result


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """What is built, as `make dist` writes it."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("source") / "dist"
    DIST_SOURCE["write"](folder, REPOSITORY)
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    return built("wheel", source, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_of_the_sdist_is_that_of_the_checkout(source, wheel, tmp_path):
    (tmp_path / "sdist").mkdir()
    with tarfile.open(built("sdist", source, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    (tmp_path / "wheel").mkdir()
    contents = []
    for path in (wheel, built("wheel", unpacked, tmp_path / "wheel")):
        with zipfile.ZipFile(path) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    assert contents[0] == contents[1]


def test_what_an_index_shows_leads_somewhere(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        shown = archive.read(name).decode()
    assert not DIST_SOURCE["LINK"].search(shown)
    assert f"]({REPOSITORY}/blob/v" in shown
    assert f"Project-URL: Repository, {REPOSITORY}" in shown


@pytest.mark.parametrize(
    ("markdown", "there", "nowhere"),
    [
        ("see [a page](docs/a.md#part).", "see [a page](R/blob/v1/docs/a.md#part).", "see a page."),
        ("![a plot](docs/a.png)", "![a plot](R/raw/v1/docs/a.png)", "a plot"),
        ("[![x](a.svg)](b.md)", "[![x](R/raw/v1/a.svg)](R/blob/v1/b.md)", "x"),
        ('<img src="a.png">', '<img src="R/raw/v1/a.png">', "<img >"),
        *[(same, same, same) for same in ("[x](https://a.b/c)", "[x](#y)", "```\n[x](y.md)\n```")],
    ],
)
def test_links_of_a_page(markdown, there, nowhere):
    assert DIST_SOURCE["absolute"](markdown, "R/", "v1") == there
    assert DIST_SOURCE["absolute"](markdown, "", "v1") == nowhere


@pytest.fixture(scope="module")
def elsewhere(wheel, tmp_path_factory):
    """A function: what Python says where the wheel, and nothing of this checkout, is installed,
    in a folder where every room's name is taken."""
    place = tmp_path_factory.mktemp("elsewhere")
    # An environment that has what this one has, but not the finders that its .pth files start.
    venv.create(place / "venv", symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(place / "venv")})
    others = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (Path(packages) / "others.pth").write_text("\n".join(others) + "\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "installed")
    work = place / "work"
    work.mkdir()
    for number, room in enumerate(SHIPPED):
        if number % 2:
            (work / room).mkdir()
            (work / room / "__init__.py").write_text(HOSTILE)
        else:
            (work / f"{room}.py").write_text(HOSTILE)

    def run(*arguments):
        return subprocess.run(
            [place / "venv" / "bin" / "python", *arguments],
            cwd=work, env={**os.environ, "PYTHONPATH": str(place / "installed")},
            capture_output=True, text=True, timeout=250, check=False,
        )  # fmt: skip

    return run


def test_it_holds_all_of_our_code_below_one_name_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    code = {name for name in names if ".dist-info/" not in name}
    tracked = subprocess.run(
        ["git", "ls-files", "murmuration", *SHIPPED],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    files = {name for name in tracked if not (ROOT / name).is_symlink()}
    expected = {
        name if name.startswith("murmuration/") else f"murmuration/{name}" for name in files
    }
    assert code == expected
    (top_level,) = (name for name in names if name.endswith("/top_level.txt"))
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(top_level).decode().split() == ["murmuration"]


def test_every_room_is_imported_from_where_it_was_installed(elsewhere):
    code = (
        "import importlib, sys, murmuration\n"
        f"rooms = {SHIPPED!r}\n"
        "for room in rooms: importlib.import_module('murmuration.' + room)\n"
        "import murmuration.server.app, murmuration.client.app\n"
        "assert not {*rooms} & {*sys.modules}\n"
        "files = [m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'murmuration']\n"
        "print(len(murmuration.__path__), {f.split('/murmuration/')[0] for f in files})\n"
    )
    done = elsewhere("-c", code)
    assert done.returncode == 0, done.stderr
    count, *folders = done.stdout.split()
    assert count == "1"
    assert len(folders) == 1
    assert "elsewhere" in folders[0]


def test_the_command_line_works_there(elsewhere):
    settings = "--rounds 2 --cohort 20 --users 200 --epsilon 8 --delta 1e-3"
    done = elsewhere("-m", "murmuration", "plan", *settings.split())
    assert done.returncode == 0, done.stderr
    assert "noise multiplier" in done.stdout


def test_who_is_in_the_way_is_in_the_way(elsewhere):
    for room in SHIPPED:
        assert f"not ours: {room}" in elsewhere("-c", f"import {room}").stderr
