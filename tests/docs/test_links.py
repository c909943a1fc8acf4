"""Links between pages lead somewhere: files that are there, and headings that are in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"),
]  # fmt: skip
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """What headings of a page are linked by: lower case, blanks as hyphens, no punctuation."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", _FENCED.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    lost = []
    for link in _LINK.findall(re.sub(r"`[^`\n]*`", "", _FENCED.sub("", text))):
        name, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", name):
            continue
        target = (page.parent / name) if name else page
        if not target.exists():
            lost.append(link)
        elif anchor and target.suffix == ".md":
            there = text if target == page else target.read_text(encoding="utf-8")
            if anchor not in anchors(there):
                lost.append(link)
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_what_is_broken_is_found(tmp_path):
    (tmp_path / "b.md").write_text("# A `--flag`, and (more)\n```\n# no heading\n```\n")
    text = (
        "[x](b.md#a---flag-and-more) [y](b.md#no-heading) [z](c.md) [w](#own)\n## Own\n`[v](d.md)`"
    )
    (tmp_path / "a.md").write_text(text)
    assert broken(tmp_path / "a.md", text) == ["b.md#no-heading", "c.md"]
