"""``murmuration reproduce``: listing, tables, files, JSON."""

import csv
import json

import pytest
from matplotlib.figure import Figure

from murmuration.research.reproductions import registry
from murmuration.research.reproductions.entry import Entry, Reproduction

ROWS = [{"a": 1, "b": 0.123456}, {"a": 2, "b": None}, {"c": "other kind"}]


@pytest.fixture
def entry(monkeypatch):
    calls = []

    def compute(quick: bool) -> Reproduction:
        calls.append(quick)
        return Reproduction(ROWS, ["a [remark]"], {"answer": 42}, Figure())

    thing = Entry("about it", compute, paper="A: Table 9", quick_minutes=0.4, minutes=75)
    monkeypatch.setattr(registry, "ENTRIES", {"thing": thing})
    return calls


def test_list(cli, entry):
    code, stdout, _ = cli("reproduce", "--list")
    assert code == 0
    assert ["thing", "A:", "Table", "9", "75", "0.4", "about", "it"] in [
        line.split() for line in stdout.splitlines()
    ]
    assert entry == []


def test_json_and_files(cli, entry, tmp_path):
    code, stdout, stderr = cli("reproduce", "thing", "--quick", "--out", tmp_path, "--json")
    assert code == 0
    assert entry == [True]
    found = json.loads(stdout.splitlines()[-1])
    assert found == {"name": "thing", "rows": ROWS, "answer": 42}
    shown = "\n".join(stderr)
    assert "direction only" in shown and "a [remark]" not in shown
    assert "0.1235" in shown
    assert json.loads((tmp_path / "thing.json").read_text())["rows"] == ROWS
    with (tmp_path / "thing.csv").open() as file:
        assert [row["c"] for row in csv.DictReader(file)] == ["", "", "other kind"]
    assert (tmp_path / "thing.png").exists()


def test_the_full_form_has_its_verdicts(cli, entry, tmp_path):
    code, stdout, _ = cli("reproduce", "thing", "--out", tmp_path)
    assert code == 0 and "a [remark]" in stdout and "direction only" not in stdout
    assert json.loads((tmp_path / "thing.json").read_text())["remarks"] == ["a [remark]"]


def test_judgements_of_people_go_to_entries_that_take_them(cli, entry, monkeypatch, tmp_path):
    asked = []

    def of_people(data, out):
        asked.append((data, out))
        return Reproduction(ROWS)

    people = Entry("about people", lambda quick: Reproduction([]), of_people)
    monkeypatch.setitem(registry.ENTRIES, "people", people)
    out = tmp_path / "out"
    assert cli("reproduce", "people", "--data", tmp_path, "--out", out)[0] == 0
    assert asked == [(tmp_path, out)]
    for given in (("people",), ("people", "--out", out, "--quick"), ("thing", "--out", out)):
        code, _, stderr = cli("reproduce", *given, "--data", tmp_path)
        assert code != 0
        assert "--data" in stderr[0]
    assert entry == []
    assert len(asked) == 1


def test_unknown_names_what_there_is(cli, entry):
    code, _, stderr = cli("reproduce", "nothing")
    assert code != 0
    assert "thing" in stderr[0]


def test_all_of_it(cli, entry, monkeypatch, tmp_path):
    def broken(quick):
        raise ValueError("no slope")

    monkeypatch.setitem(registry.ENTRIES, "broken", Entry("about", broken))
    code, stdout, stderr = cli("reproduce", "all", "--quick", "--out", tmp_path, "--json")
    assert code == 1
    outcomes = json.loads(stdout.splitlines()[-1])["outcomes"]
    assert [(one["name"], one["status"]) for one in outcomes] == [
        ("thing", "done"),
        ("broken", "failed"),
    ]
    shown = "\n".join(stderr)
    assert "direction only" in shown and "ValueError: no slope" in shown
    assert stderr[-1] == "failed, and tried again the next time: broken"
    assert (tmp_path / "all.md").exists()
    monkeypatch.delitem(registry.ENTRIES, "broken")
    assert cli("reproduce", "all", "--quick", "--out", tmp_path)[0] == 0
    assert entry == [True]


@pytest.mark.parametrize("given", [(), ("--data", "people")])
def test_all_of_it_wants_a_folder_and_no_data(cli, entry, given):
    code, _, stderr = cli("reproduce", "all", *given)
    assert code != 0
    assert "--data" in stderr[0] if given else "--out" in stderr[0]
    assert entry == []
