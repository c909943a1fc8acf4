"""Reproductions one after the other: what is done is not done again, what fails stops nothing."""

import json
import os

import pytest
from matplotlib.figure import Figure

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.row_cache import FOLDER
from murmuration.research.reproductions import rerun
from murmuration.research.reproductions.entry import DIRECTION_ONLY, Entry, Reproduction
from murmuration.research.reproductions.registry import ENTRIES
from murmuration.research.reproductions.rerun import DONE, FAILED, LEFT_OUT

#: Those whose remarks say it all.
UNDRAWN = {"uls-conjecture", "uls-sampling", "aup-accuracy", "strengths"}


@pytest.fixture
def world(monkeypatch):
    """Entries, and what was computed of them, in this order."""
    monkeypatch.delenv(FOLDER, raising=False)
    computed = []

    def entry(name, plot=None, error=None, of_people=None):
        def compute(quick):
            computed.append((name, quick, os.environ[FOLDER]))
            if error is not None and name not in forgiven:
                raise error
            return Reproduction([{"a": 1}], [f"{name}\n<b> agrees"], plot=plot)

        return Entry("about", compute, of_people)

    forgiven = set()
    entries = {
        "drawn": entry("drawn", plot=Figure()),
        "broken": entry("broken", error=ValueError("no slope")),
        "refused": entry("refused", error=InputError("too few users")),
        "people": entry("people", error=InputError("takes --data"), of_people=lambda *_: None),
        "last": entry("last"),
    }
    return entries, computed, forgiven


def run(entries, folder, quick=True):
    heard = []
    outcomes = rerun.rerun(entries, folder, quick, heard.append)
    assert heard == outcomes
    return {one.name: one for one in outcomes}


def test_each_is_computed_in_turn_and_written(world, tmp_path):
    entries, computed, _ = world
    outcomes = run(entries, tmp_path)
    assert list(outcomes) == list(entries)
    references = str(tmp_path / "references")
    assert computed == [(name, True, references) for name in entries]
    assert FOLDER not in os.environ
    # What has no quick form fails, and is not left out as if it wanted to be.
    assert [one.status for one in outcomes.values()] == [DONE, FAILED, FAILED, FAILED, DONE]
    assert outcomes["broken"].remarks == ["ValueError: no slope"]
    assert outcomes["people"].remarks == ["InputError: takes --data"]
    whole = run(entries, tmp_path / "whole", quick=False)
    assert whole["people"].status == LEFT_OUT and whole["people"].remarks == ["takes --data"]
    assert (tmp_path / "drawn.png").exists() and outcomes["drawn"].picture
    assert not outcomes["last"].picture
    assert json.loads((tmp_path / "last.json").read_text())["rows"] == [{"a": 1}]


def test_what_is_done_is_not_done_again(world, tmp_path):
    entries, computed, forgiven = world
    first = run(entries, tmp_path)
    computed.clear()
    forgiven.add("broken")
    second = run(entries, tmp_path)
    assert [name for name, *_ in computed] == ["broken", "refused", "people"]
    assert second["broken"].status == DONE
    assert second["drawn"] == first["drawn"]
    (tmp_path / "drawn.json").unlink()
    computed.clear()
    run(entries, tmp_path)
    assert [name for name, *_ in computed] == ["drawn", "refused", "people"]


def test_an_interrupted_run_goes_on(world, tmp_path):
    entries, computed, _ = world

    def interrupted(quick):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(entries | {"last": Entry("about", interrupted)}, tmp_path)
    assert FOLDER not in os.environ
    recorded = json.loads((tmp_path / "all.json").read_text())["outcomes"]
    assert [one["name"] for one in recorded] == [*entries][:-1]
    computed.clear()
    assert run(entries, tmp_path)["last"].status == DONE
    assert "drawn" not in [name for name, *_ in computed]


@pytest.mark.parametrize("change", [{"quick": False}, {"version": "0.0"}])
def test_another_size_or_version_has_another_folder(world, tmp_path, change):
    entries, computed, _ = world
    run(entries, tmp_path)
    computed.clear()
    record = tmp_path / "all.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    with pytest.raises(InputError, match="choose another --out"):
        run(entries, tmp_path)
    record.write_text("[]")
    with pytest.raises(InputError, match="no record"):
        run(entries, tmp_path)
    assert computed == []


def test_references_stay_where_they_are_wanted(world, tmp_path, monkeypatch):
    entries, computed, _ = world
    monkeypatch.setenv(FOLDER, "elsewhere")
    run({"last": entries["last"]}, tmp_path)
    assert computed == [("last", True, "elsewhere")]
    assert os.environ[FOLDER] == "elsewhere"


def test_the_page_has_verdicts_and_pictures(world, tmp_path):
    run(world[0], tmp_path, quick=False)
    page = (tmp_path / "all.md").read_text()
    assert "| `broken` | failed |" in page
    assert "\n## drawn\n\n- drawn &lt;b> agrees\n\n![drawn](drawn.png)\n" in page
    assert "![last]" not in page


def test_the_quick_page_has_no_verdicts(world, tmp_path):
    outcomes = run(world[0], tmp_path)
    page = (tmp_path / "all.md").read_text()
    assert "agrees" not in page and "![drawn](drawn.png)" in page
    assert outcomes["last"].remarks == [DIRECTION_ONLY]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_there_is_computed_told_and_drawn(tmp_path, monkeypatch):
    """Some thirteen minutes of a core."""
    monkeypatch.delenv(FOLDER, raising=False)
    outcomes = run(ENTRIES, tmp_path)
    assert {name: one.remarks for name, one in outcomes.items() if one.status != DONE} == {}
    assert all(one.remarks for one in outcomes.values())
    assert {name for name, one in outcomes.items() if not one.picture} == UNDRAWN
