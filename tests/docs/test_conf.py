"""docs/conf.py: the site is built without a warning, and fetches nothing when it is read."""

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import murmuration

pytest.importorskip("furo")
pytest.importorskip("myst_parser")
ROOT = Path(__file__).parents[2]


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What Sphinx says; a warning is an error: links, anchors and names of ours that lead nowhere,
    and pages that no list of contents has."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    return subprocess.run(
        [*command, "-c", "docs", "-d", str(out / "read"), str(source), str(out / "html")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The folder of the site, which one process builds for all of a session."""
    out = tmp_path_factory.getbasetemp() / "site"
    if session := os.environ.get("PYTEST_XDIST_TESTRUNUID"):
        out = tmp_path_factory.getbasetemp().parent / f"site-{session}"
    out.mkdir(exist_ok=True)
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "built").exists():
            done = build(ROOT / "docs", out)
            assert done.returncode == 0, done.stderr
            (out / "built").touch()
    return out / "html"


def test_pages_that_the_code_writes_are_written(site):
    for page, option in (("commands", "--all-runs"), ("settings", "--clip-norm")):
        page_text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        assert option in page_text


def test_options_keep_their_hyphens(site):
    page_text = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "or a language model with --task" in page_text


def test_colons_in_sentences_are_no_types(site):
    page_text = (site / "reference" / "architecture.html").read_text(encoding="utf-8")
    assert 'Type<span class="colon">' not in page_text


def test_every_page_is_there_and_in_the_navigation(site):
    page_text = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        at = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / at).is_file()
        assert at == "index.html" or f'href="{at}"' in page_text, at


def test_every_public_name_is_explained(site):
    page_text = (site / "reference" / "api.html").read_text(encoding="utf-8")
    for name in murmuration.__all__:
        assert f'id="murmuration.{name}"' in page_text, name


def test_nothing_is_fetched_by_whoever_reads_it(site):
    loaded = r"<(?:script|img|iframe|source)\b[^>]*\bsrc|<link\b[^>]*\bhref"
    fetched = re.compile(rf'(?:{loaded})="([^"]*)"')
    pages = [*site.rglob("*.html")]
    assert len(pages) > 20
    for page in pages:
        for address in fetched.findall(page.read_text(encoding="utf-8")):
            assert not re.match(r"(https?:)?//", address), f"{page.name}: {address}"
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"""(@import|url\()\s*["']?(https?:)?//""", text), sheet.name


NOWHERE = {
    "page": ("[a](b.md)", "'b.md'"),
    "heading": ("[a](#there)", "'there'"),
    "term": ("{term}`nothing`", "nothing"),
    "class": ("```{eval-rst}\n:class:`murmuration.Nothing`\n```", "murmuration.Nothing"),
    "function": ("```{eval-rst}\n.. autofunction:: murmuration.api.none\n```", "'none'"),
}


def test_what_leads_nowhere_ends_the_build(tmp_path):
    source = tmp_path / "docs"
    source.mkdir()
    contents = "\n".join(["# Title", "", "```{toctree}", *NOWHERE, "```", ""])
    (source / "index.md").write_text(contents, encoding="utf-8")
    for name, (page, _) in NOWHERE.items():
        (source / f"{name}.md").write_text(f"# {name}\n\n{page}\n", encoding="utf-8")
    done = build(source, tmp_path)
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    for name, (_, lost) in NOWHERE.items():
        # Of a function that is not there no page is named.
        where = "" if name == "function" else f"{name}.md"
        assert any(where in line and lost in line for line in warnings), (name, done.stderr)
