"""README.md: its first screen, its figures, and who is to be cited."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_is_there_for_light_and_dark_and_in_words():
    picture = (ROOT / "docs" / "_static" / "overview.svg").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in picture and "<desc" in picture
    assert min(map(int, re.findall(r"font-size: (\d+)px", picture))) >= 24  # 11 px of 460
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page, name in ((index, "_static/overview.svg"), (TEXT, "docs/research/rivals-ukp.png")):
        (words,) = re.findall(rf"!\[([^\]]+)\]\({re.escape(name)}\)", page)
        assert len(words) > 80


def test_the_table_has_the_figures_that_were_measured():
    """Those of `uls` for whole users on UKP, by user, of the page on real people."""
    page = (ROOT / "docs" / "research" / "real-people.md").read_text(encoding="utf-8")
    rivals = page.partition("\n## Rivals\n")[2]
    linear = _shares(re.findall(r"^\| uls \|(.*)\|$", rivals, re.MULTILINE)[0])
    shown = dict(re.findall(r"^\| `(\w+)`[^|]*\|(.*)\| [\d.]+ ± [\d.]+ % \|$", TEXT, re.MULTILINE))
    figures = {"minilm": linear[:3], "hashing": linear[3:6], "smollm2": linear[6:9]}
    assert {name: _shares(cells) for name, cells in shown.items()} == figures


def _shares(cells: str) -> list[str]:
    """The figures of a table's row, in per cent."""
    figures = re.findall(r"[\d.]+", re.sub(r"± [\d.]+", "", cells))
    return [f"{100 * float(each):.1f}" if each.startswith("0.") else each for each in figures]


def test_who_is_cited_is_the_file_s():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    for name in ("title", "version", "license"):
        assert re.search(rf"{name} += \{{{re.escape(cited[name])}\}}", TEXT), name
    assert f"{{{{{cited['authors'][0]['name']}}}}}" in TEXT


def test_what_is_run_before_a_merge_is_the_test_command():
    (command,) = re.findall(r"^(make test[\w -]*?) +#", TEXT, re.MULTILINE)
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_demo_is_private():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (demo,) = re.findall(r"^demo:.*\n\t(.*)$", makefile, re.MULTILINE)
    assert "--epsilon 3" in demo and "--seed" not in demo
