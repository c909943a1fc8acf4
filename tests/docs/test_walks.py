"""Every page with blocks is typed as it is printed, from an empty folder and an empty home; and
what keeps such walks honest.

Most pages take more than a few seconds, and are slow tests. Tutorials have ``test_tutorials.py``.
"""

import re

import pytest
from walks import ROOT, STARTS, Step, missing, starts, steps, walk

SLOW = (pytest.mark.slow, pytest.mark.timeout(3600))
#: Pages that are typed in every test run; all others in `make test-slow`.
QUICK: set[str] = set()
#: Pages that are typed elsewhere, by what.
ELSEWHERE = {
    "docs/how-to/cluster.md": "tests/sims/test_documented_cluster.py",
    "docs/how-to/deploying.md": "tests/sims/test_documented_deployment.py",
    "docs/how-to/exports.md": "tests/docs/test_exports.py",
    **{f"docs/tutorials/{page.name}": "tests/docs/test_tutorials.py"
       for page in (ROOT / "docs" / "tutorials").glob("*.md")},
}  # fmt: skip


def pages() -> dict[str, str]:
    """Every page that has blocks to be typed."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in found}
    typed = {name: text for name, text in texts.items() if steps(text)}
    return {name: text for name, text in typed.items()
            if any(step.language in ("sh", "python") for step in steps(text))}  # fmt: skip


def walked() -> list:
    names = [name for name in pages() if name not in ELSEWHERE]
    return [pytest.param(n, marks=() if n in QUICK else SLOW, id=n) for n in names]


@pytest.mark.parametrize("page", walked())
def test_a_page_as_it_is_printed(page, tmp_path):
    walk(ROOT / page, tmp_path)


@pytest.mark.parametrize("page", sorted(pages()))
def test_what_is_not_typed_is_said(page):
    text = pages()[page]
    starts(text)
    for step in steps(text):
        step.typed()
        if step.said.startswith("not run"):
            assert re.match(r"not run: \w", step.said)


def test_what_is_typed_elsewhere_is_there():
    assert set(ELSEWHERE) <= set(pages())
    assert set(pages()) >= QUICK
    for file in ELSEWHERE.values():
        assert (ROOT / file).is_file()


# What keeps the walks honest.


def test_what_is_shown_must_be_printed():
    printed = "│ privacy   ε 2.97 of 3 │\n│ model   runs/a │\n"
    assert missing("privacy ε 3.00 of 3\n…\nmodel runs/a\n", printed) == ""
    assert missing("privacy … of 3", printed) == ""
    assert missing("[0.63…, -0.96…]", "[0.6300, -0.9628]") == ""
    assert "runs/b" in missing("model runs/b", printed)
    assert "privacy" in missing("model runs/a\nprivacy ε 3 of 3", printed)  # in another order


def test_blocks_are_read_as_they_are_meant():
    page = (
        "<!-- not run: no network -->\n```sh\npip install .\n```\n```sh\na --steps 20\n```\n"
        "```text\nb\n```\n<!-- here: --steps 2 -->\n```sh\na --steps 20\n```\n"
    )
    first, second, third = steps(page)
    assert (first.run, second.run, second.shown) == (False, True, ["b\n"])
    assert (second.typed(), third.typed()) == ("a --steps 20\n", "a --steps 2\n")
    with pytest.raises(AssertionError, match="not in the block"):
        Step("sh", "a\n", "here: --steps 2").typed()


@pytest.fixture
def walked_page(tmp_path):
    """A function: walk a page with that text."""

    def call(text):
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        return walk(page, tmp_path)

    return call


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("```sh\nfalse\n```\n```sh\necho 1\n```\n```text\n2\n```\n", None),
        ("```python\nprint('one 1')\n```\n```text\ntwo 1\n```\n", "two 1"),
        ("<!-- exits with 2 -->\n```sh\ntrue\n```\n", "ended with 97"),
    ],
)
def test_a_walk_fails_where_not_happens_what_the_page_says(walked_page, page, why):
    with pytest.raises(AssertionError, match=why):
        walked_page(page)


def test_nothing_is_made_that_no_page_starts_with():
    assert {name for text in pages().values() for name in starts(text)} == set(STARTS)


def test_a_refusal_does_not_end_a_page(walked_page):
    steps_walked = walked_page(
        "<!-- exits with 3 -->\n```sh\n(exit 3)\n```\n```python\n# said.py\nprint(1)\n```\n"
        "```sh\npython -c 'import said'\n```\n```text\n1\n```\n"
    )
    assert len(steps_walked) == 3  # the refused block, the file, what runs it
