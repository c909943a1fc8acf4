"""Pages of the four papers: every item has a row with a verdict that says how it is known."""

import re
from pathlib import Path

import pytest

from murmuration.audits.targets import TARGETS
from murmuration.research.reproductions.registry import ENTRIES

RESEARCH = Path(__file__).parents[2] / "docs" / "research"
PAGES = {"A": "aup", "L": "label-privacy", "S": "square-chipo", "U": "user-level"}
VERDICTS = ("reproduced", "in part", "differs", "corrected", "open")


def numbered(kind: str, last: int) -> list[str]:
    return [f"{kind} {number}" for number in range(1, last + 1)]


#: What the papers have, counted in them; lemmas and corollaries of proofs left out.
ITEMS = {
    "A": {
        *numbered("Algorithm", 4), *numbered("Theorem", 6), "Corollary 1",
        *numbered("Table", 8), *numbered("Figure", 6),
    },
    "L": {
        *numbered("Algorithm", 2), "Figure 1", "Corollary 4.3", "Corollary 5.4",
        *(f"Theorem {number}" for number in (
            "3.1", "3.2", "4.1", "4.2", "4.5", "5.1", "5.2", "5.3", "C.2", "D.3", "D.5", "E.1",
        )),
    },
    "S": {
        *numbered("Algorithm", 3), "Table 1",
        *(f"Theorem {number}" for number in ("3.5", "3.7", "4.4", "C.1", "D.1", "D.3")),
    },
    "U": {
        *numbered("Algorithm", 3), *numbered("Theorem", 3), "Conjecture 1", "Lemma 1",
        *numbered("Table", 2), *numbered("Figure", 16),
    },
}  # fmt: skip
STATUS = re.compile(r"(full|quick|audit)(, 20\d\d-\d\d-\d\d)?|evaluated|not run: .+")


def rows(paper: str) -> list[list[str]]:
    """Return the cells of the table of items on a paper's page."""
    text = (RESEARCH / f"{PAGES[paper]}.md").read_text(encoding="utf-8").partition("\n| item | ")[2]
    table = text.partition("\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


@pytest.mark.parametrize("paper", ITEMS)
def test_every_item_has_one_row(paper):
    items = [row[0].strip("| ") for row in rows(paper)]
    assert len(items) == len(set(items))
    assert set(items) == ITEMS[paper]


@pytest.mark.parametrize("paper", ITEMS)
def test_a_row_has_a_command_that_there_is_a_verdict_and_its_picture_or_says_why_not(paper):
    for item, command, verdict, status in rows(paper):
        assert STATUS.fullmatch(status.strip("| ")), item
        assert status.startswith("not run") == (command == "–") == (verdict == "–"), item
        assert verdict == "–" or verdict.partition(":")[0] in VERDICTS, item
        name = command.strip("`").rpartition(" ")[2]
        assert (f"([picture]({name}.png))" in verdict) == (RESEARCH / f"{name}.png").exists(), item
        if command == "–":
            continue
        kind, *rest = command.strip("`").removeprefix("murmuration ").split()
        there = {"reproduce": ENTRIES, "audit": TARGETS}.get(kind)
        assert there is None or rest[0] in there, item
        known = {"reproduce": ("full", "quick"), "audit": ("audit",), "bounds": ("evaluated",)}
        assert status.startswith(known[kind]), item


def test_the_vocabulary_is_explained_and_leads_to_every_paper():
    text = (RESEARCH.parent / "reference" / "papers.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^- \*\*([a-z ]+)\*\*:", text, re.MULTILINE)) == VERDICTS
    assert all(f"](../research/{page}.md)" in text for page in PAGES.values())


def test_the_list_of_reproductions_names_every_item_of_a_paper():
    items = {name: {} for name in ENTRIES}
    for paper in ITEMS:
        for item, command, *_ in rows(paper):
            kind, _, name = command.strip("`").removeprefix("murmuration ").partition(" ")
            if kind == "reproduce":
                items[name.split()[0]].setdefault(paper, []).append(item)
    for name, of_papers in items.items():
        said = ENTRIES[name].paper
        assert [said[:1]] == [*of_papers] if of_papers else said == ""
        for item in (item for listed in of_papers.values() for item in listed):
            kind, number = item.split()
            assert kind.removesuffix("y") in said and number in re.split(r"[ ,:;]+", said), (
                f"{name}: {item}"
            )
