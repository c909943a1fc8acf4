"""README.md: its first screen, its figures, and who is to be cited."""

import re
from pathlib import Path

import yaml

from murmuration.planning import advice

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_comes_first():
    order = ["docs/_static/overview.svg", "pip install", "import murmuration", "User-level DP: ε"]
    order += ["## What it costs in accuracy", "## Beside other libraries", "## Not for you if"]
    order += ["@software", "## Pages"]
    places = [TEXT.index(part) for part in order]
    assert places == sorted(places)


def test_the_picture_is_there_for_light_and_dark_and_in_words():
    picture = (ROOT / "docs" / "_static" / "overview.svg").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in picture and "<desc" in picture
    assert min(map(int, re.findall(r"font-size: (\d+)px", picture))) >= 24  # 11 px of 460
    (words,) = re.findall(r"!\[([^\]]+)\]\(docs/_static/overview\.svg\)", TEXT)
    assert len(words) > 80


def test_the_table_has_the_figures_that_were_measured():
    crowd = advice.crowds()[0]
    rows = re.findall(r"^\| ([\d,]+) \|((?: [\d.]+\u00a0% \|){5})$", TEXT, re.MULTILINE)
    assert [int(users.replace(",", "")) for users, _ in rows] == [100, 500, 1000, 2500]
    for users, cells in rows:
        measured = [
            row["accuracy_mean"] for row in crowd["rows"]
            if row["users"] == int(users.replace(",", ""))
        ]  # fmt: skip
        shown = [f"{100 * share:.1f}\u00a0%" for share in (*measured, crowd["length_baseline"])]
        assert [cell.strip() for cell in cells.strip("|").split("|")] == shown


def test_who_is_cited_is_the_file_s():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    for name in ("title", "version", "license"):
        assert re.search(rf"{name} += \{{{re.escape(cited[name])}\}}", TEXT), name
    assert f"{{{{{cited['authors'][0]['name']}}}}}" in TEXT


def test_that_the_default_model_ignores_the_prompt_is_said():
    assert "**ignores the prompt**" in TEXT.split("## What it costs")[0]


def test_what_is_run_before_a_merge_is_the_test_command():
    (command,) = re.findall(r"^(make test[\w -]*?) +#", TEXT, re.MULTILINE)
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_demo_is_private():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (demo,) = re.findall(r"^demo:.*\n\t(.*)$", makefile, re.MULTILINE)
    assert "--epsilon 3" in demo and "--seed" not in demo
