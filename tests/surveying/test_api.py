"""``survey`` as programs call it: what comes back, and what is refused."""

import json

import pytest

from murmuration import Survey, survey
from murmuration.api.run import Run
from murmuration.preference.data.errors import InputError
from murmuration.surveying.api import write_page

pytestmark = pytest.mark.usefixtures("quick_runs")
BUDGET = {"epsilon": 4.0, "delta": 1e-3, "seed": 1}


def rows(users=120):
    return [
        {"user_id": f"u{n}", "prompt": "What now?", "chosen": "Save it all.", "rejected": "<b>No"}
        for n in range(users)
    ]


def test_a_survey(tmp_path):
    answers = survey(rows(), topics=["money: save", "<i>"], users=120, out=tmp_path, **BUDGET)
    assert answers.release.users == pytest.approx(120, abs=4 * answers.release.noise)
    assert answers.page == tmp_path / "survey.html" and answers.page.exists()
    assert repr(answers).startswith(f"Survey({str(tmp_path)!r}, 1") and "±" in repr(answers)
    text = str(answers).replace("\n", " ")
    for words in ("Users stated", "120", "the longest", "ε = 4", "simulation, seed known", "money"):
        assert words in text, words
    assert "<i>" not in answers._repr_html_() and "&lt;i&gt;" in answers._repr_html_()
    printed = json.loads(json.dumps(answers.to_json()))
    assert printed["strategy"] == "survey"
    assert printed["answers"]["users"]["with_judgements"] == answers.release.users
    assert Survey.load(tmp_path).release.to_json() == answers.release.to_json()
    assert answers.run.promise.epsilon == pytest.approx(4.0, rel=1e-2)


def test_topics_in_a_file(tmp_path):
    path = tmp_path / "topics.txt"
    path.write_text("money: save\nhealth\n", encoding="utf-8")
    answers = survey(rows(), topics=path, out=tmp_path / "r", **BUDGET)
    assert answers.release.topics == ("money: save", "health")


def test_nothing_learnt_is_an_error_that_was_charged(tmp_path):
    """A crowd whose stated number is far above what is there."""
    with pytest.raises(InputError, match=r"nothing was learnt: Survey\(.* charged all the same"):
        survey(rows(2), users=10_000, epsilon=0.1, delta=1e-5, seed=2, out=tmp_path)
    assert len(Run.load(tmp_path).ledger) == 1
    text = (tmp_path / "survey.html").read_text(encoding="utf-8")
    assert "Nothing was learnt" in text and "NOTHING WAS LEARNT" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "uls"}, "leave out strategy"),
        ({"topics": ["a", "A"]}, "looks like 'a'"),
        ({"topics": "nowhere.txt"}, "topics .*nowhere.txt cannot be used"),
    ],
)
def test_what_is_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        survey(rows(), out=tmp_path / "r", **{**BUDGET, **changes})
    assert not (tmp_path / "r" / "result.json").exists()


def test_a_run_of_another_kind_is_no_survey(tmp_path):
    with pytest.raises(InputError, match="no survey"):
        write_page(Run(tmp_path, {"strategy": "uls", "outcome": {}}))
