"""What users were shown, as keyed hashes: found again, private, and no text of it anywhere."""

import json
import stat

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.sims.runtimes.shown_prompts import PLACE, keep, shown


@pytest.fixture
def run(tmp_path):
    (tmp_path / "private").mkdir()
    return tmp_path


def test_prompts_are_found_whatever_their_case_and_blanks(run):
    keep(run, ["Spend or save?", "Straße \n frei?", "Spend or save?"])
    asked = ["new", " spend  OR\tsave? ", "STRASSE frei?", "Spend or saved"]
    assert shown(run, asked) == [1, 2]
    assert shown(run, []) == []


def test_none_where_nothing_is_noted(run):
    assert shown(run, ["a"]) is None
    keep(run, [])
    assert shown(run, ["a"]) == []


def test_only_the_owner_reads_it_and_no_text_is_in_it(run):
    keep(run, ["Spend or save?"])
    file = run / PLACE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "pend" not in file.read_text()
    assert len(json.loads(file.read_text())["hashes"]) == 1


def test_keys_differ_between_runs_and_stay_in_one(run, tmp_path):
    other = tmp_path / "other"
    (other / "private").mkdir(parents=True)
    keep(run, ["a", "b"])
    keep(other, ["a", "b"])
    first, second = (json.loads((folder / PLACE).read_text()) for folder in (run, other))
    assert first["key"] != second["key"]
    assert not {*first["hashes"]} & {*second["hashes"]}
    keep(run, ["c"])  # a run that was resumed with more data
    assert json.loads((run / PLACE).read_text())["key"] == first["key"]
    assert shown(run, ["a", "b", "c", "d"]) == [0, 1, 2]


def test_the_order_tells_nothing(run):
    keep(run, [str(number) for number in range(50)])
    hashes = json.loads((run / PLACE).read_text())["hashes"]
    assert hashes == sorted(hashes)


def test_a_damaged_file_is_refused(run):
    (run / PLACE).write_text('{"key": "00"}')
    with pytest.raises(InputError, match="damaged"):
        shown(run, ["a"])


@pytest.mark.parametrize(
    "written",
    [
        "Spend or save",
        "Spend or save?.",
        "spend, or save!",
        "“Spend or\u00a0save”",
        "ＳＰＥＮＤ or sa\u00adve",
    ],
)
def test_a_mark_more_or_less_makes_no_other_prompt(run, written):
    keep(run, ["Spend or save?"])
    assert shown(run, [written]) == [0]
    assert shown(run, [f"{written} 2"]) == []


def test_prompts_of_marks_alone_are_told_apart(run):
    keep(run, ["?!", "🙂"])
    assert shown(run, ["?!", "?", "🙂", ""]) == [0, 2]
