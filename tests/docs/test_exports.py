"""The page on exports: every example is written to its file, every command is given, and what the
page shows is printed, figures too."""

import re
import shlex

import pytest
from walks import ROOT, steps

from murmuration.preference.data.formats.format import WholeSource
from murmuration.preference.data.formats.registry import FORMATS

PAGE = (ROOT / "docs" / "how-to" / "exports.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([a-z-]+)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE))
_FILE = re.compile(r"^<!-- file: ([^\n]+) -->\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(
    r"^(?:<!-- exits with (\d) -->\n)?```sh\n([^\n]+)\n```\n\n```text\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)


def write(section, folder):
    for name, content in _FILE.findall(SECTIONS[section]):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")


def test_there_is_a_section_for_each_format():
    assert list(SECTIONS) == [*re.findall(r"^\| \[`([a-z-]+)`\]", PAGE, re.MULTILINE)]
    assert {*SECTIONS} == {*FORMATS}


@pytest.mark.parametrize("section", SECTIONS)
def test_what_is_shown_is_printed(cli, section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(section, tmp_path)
    examples = _EXAMPLE.findall(SECTIONS[section])
    shells = [step for step in steps(SECTIONS[section]) if step.language == "sh"]
    assert len(examples) == len(shells) > 0
    for code, command, shown in examples:
        ended, out, err = cli(*shlex.split(command)[1:])
        assert ended == int(code or 0), err
        printed = " ".join(f"{out} {' '.join(err)}".split())
        for line in shown.splitlines():
            assert line in printed, printed
        if not code and not isinstance(FORMATS[section].reads, WholeSource):
            assert f"--format {section}" in printed  # the command that is printed
