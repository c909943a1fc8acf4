"""docs/reference/papers.md has every paper that pages, comments and docstrings name."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from rooms import ROOMS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "papers.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FILES = [
    *ROOT.glob("*.md"), *PAGES, *(ROOT / "examples").rglob("*.py"),
    *(file for room in (*ROOMS, "tests") for file in sorted((ROOT / room).rglob("*.py"))),
]  # fmt: skip
_NAME = r"[A-Z][a-zà-ÿ’]+(?:-[A-Z][a-z]+)?"
_CITED = re.compile(
    rf"\b({_NAME}(?:(?:, {_NAME})*,? (?:and|&) {_NAME})?)( et al\.)?,? \(?((?:19|20)\d\d)\b"
)
#: A theorem, an equation, … of a paper that goes by one letter.
_LETTER = re.compile(
    r"\b([A-Z])(?:’s|'s)? (?:eqs?\.|equations?|Thms?|Theorems?|Algs?\.|Algorithms?|App\.|"
    r"appendix|Figs?\.|Figures?|Tables?|Lemmas?|Remarks?|Prop\.|Cor\.|Def\.|§)(?=\W)"
)
MONTHS = "January February March April May June July August September October November December"


def flowing(text: str) -> str:
    """A text without line ends and without the marks with which comments begin."""
    return " ".join(re.sub(r"\n[ \t]*#?:?", " ", text).split())


def cited(text: str) -> Iterator[tuple[frozenset[str], str]]:
    """First authors (all that are named) and year of what a text cites."""
    for names, others, year in _CITED.findall(flowing(text)):
        found = re.findall(_NAME, names)
        if found[0] not in MONTHS.split() and (others or len(found) > 1 or known_alone(found[0])):
            yield frozenset(found), year


def letters(text: str) -> set[str]:
    return set(_LETTER.findall(flowing(text)))


@cache
def papers() -> dict[str, tuple[set[str], str]]:
    """By heading: the authors' names, and the year."""
    found = {}
    text = PAGE.read_text(encoding="utf-8").split("## All papers")[1]
    for part in text.split("\n### ")[1:]:
        heading, _, body = part.partition("\n")
        authors = body.strip().split(": [")[0]
        year = re.search(r"\b(19|20)\d\d$", heading)
        found[heading] = ({*re.split(r", ", authors)}, year[0] if year else "")
    return found


def known_alone(name: str) -> bool:
    """Whether somebody with a paper of their own goes by that name: a name before a year is often
    no citation ("In 2026")."""
    return any(authors == {name} for authors, _ in papers().values())


def unknown(text: str) -> set[str]:
    """What a text cites that the page does not have."""
    known = papers().values()
    return {
        f"{' & '.join(sorted(names))} {year}"
        for names, year in cited(text)
        if not any(names <= authors and year == when for authors, when in known)
    }


@pytest.fixture(scope="module")
def table() -> dict[str, str]:
    """The letters, and the headings to which they lead."""
    text = PAGE.read_text(encoding="utf-8").split("## All papers")[0]
    return dict(re.findall(r"^\| \*\*([A-Z])\*\* \| \[([^\]]+)\]\(#", text, re.MULTILINE))


def test_every_paper_that_is_cited_is_on_the_page():
    lost = {
        str(file.relative_to(ROOT)): sorted(names)
        for file in FILES
        if file not in (PAGE, Path(__file__))
        and (names := unknown(file.read_text(encoding="utf-8", errors="replace")))
    }
    assert not lost


def test_every_letter_leads_to_a_paper(table):
    assert {"U", "A", "L", "S"} <= set(table)
    assert set(table.values()) <= set(papers())
    lost = {
        str(file.relative_to(ROOT)): sorted(used)
        for file in FILES
        if file != Path(__file__)
        and (used := letters(file.read_text(encoding="utf-8", errors="replace")) - set(table))
    }
    assert not lost


def test_pages_that_use_letters_link_to_them():
    """To the page itself, or to the words, which lead there."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page != PAGE and letters(text):
            assert re.search(
                r"\]\(((\.\./)?reference/papers|(\.\./explanation/)?glossary)\.md", text
            ), page


def test_every_paper_has_one_link_and_its_place():
    found = papers()
    assert len(found) > 40
    assert list(found) == sorted(found, key=str.casefold)
    text = PAGE.read_text(encoding="utf-8")
    for heading in found:
        body = text.split(f"\n### {heading}\n")[1].split("\n### ")[0]
        assert len(re.findall(r"\]\(https://", body)) == 1, heading
        assert "Here: " in body


def test_what_a_citation_is():
    def found(text: str) -> list:
        return [(" ".join(sorted(names)), year) for names, year in cited(text)]

    assert found("(Kairouz, Liu and Steinke 2021)") == [("Kairouz Liu Steinke", "2021")]
    assert found("# Charles et\n# al. 2024, Thm 1") == [("Charles", "2024")]
    assert found("(Balle & Wang, 2018)") == [("Balle Wang", "2018")]
    assert found("by Shamir 1979") == [("Shamir", "1979")]
    assert found("In 2026 and November 2026, of 2,000 users") == []
    assert unknown("Nobody et al. 2024; Charles et al. 2023") == {"Nobody 2024", "Charles 2023"}
    assert letters("U eq. 7, L Thm D.5, S's appendix E, A (eq. 1), Table 2") == {"U", "L", "S"}
