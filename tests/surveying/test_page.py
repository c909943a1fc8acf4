"""The page of a survey and its JSON: what they say, and what they do not."""

import json

import numpy as np
import pytest
from cards import Parsed, result_of_a_run

from murmuration.privacy.accounting.terms import Trust
from murmuration.surveying.page import in_numbers, page, quantile_lines, sections, write_survey
from murmuration.surveying.questionnaire import Questionnaire
from murmuration.surveying.release import SurveyRelease

HOSTILE = "<script>alert(1)</script>"
TOPICS = ("money: save", f"{HOSTILE}: spend")


def released(noise=12.0, users=1000.0, topics=TOPICS):
    form = Questionnaire(topics)
    sum_V = np.zeros(form.dimension)
    sum_V[0] = users
    for place in form.places:
        sum_V[place.start : place.start + 2] = users / 2
    sum_V += np.random.default_rng(1).normal(0.0, noise, form.dimension)
    return SurveyRelease(
        topics=topics, sum_V=sum_V, noise=noise, stated_users=1100, epsilon=0.5, delta=1e-5
    )


@pytest.fixture
def result():
    promise = {
        "statement": "User-level DP: ε = 0.500, δ = 1e-5",
        "caveats": ["seed known"],
        "trust": ["server"],
    }
    return result_of_a_run(epsilon=0.4999, warnings=["SIMULATION, SEED KNOWN: …"], promise=promise)


def test_page_and_numbers_agree(tmp_path, result):
    release = released()
    path = write_survey(tmp_path / "r", release, result)
    assert path == tmp_path / "r" / "survey.html"
    numbers = json.loads((tmp_path / "r" / "survey.json").read_text(encoding="utf-8"))
    assert (
        numbers["promise"].startswith("User-level DP: ε = 0.500") and not numbers["learnt_nothing"]
    )
    assert numbers["users"]["with_judgements"] == release.users
    raw = [answer["users"] for one in numbers["questions"] for answer in one["answers"]]
    assert raw == release.sum_V[1:].tolist() and min(raw) < 0
    text = Parsed(path.read_text(encoding="utf-8")).text
    for said in (
        "SIMULATION, SEED KNOWN",
        "ε = 0.500",
        "± 24 users",
        "1,100",
        "δ = 1e-5; caveats: seed known",
        Trust.SERVER.sentence,
    ):
        assert said in text, said
    shown = [share for shares in release.shares.values() for share in shares]
    for share in shown:
        if not share.within_noise:
            assert f"{100 * share.share:.1f} % ±" in text
    assert "-" not in "".join(line.text for one in sections(release) for line in one.lines)


def test_the_page_is_one_file_without_scripts(result):
    elements = Parsed(page(released(), result))
    assert HOSTILE in elements.text
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(elements.tags)
    assert not [n for n, _ in elements.attributes if n.startswith("on") or n in ("src", "href")]


def test_what_noise_could_have_made_is_shown_as_such():
    per_user = sections(released())[0]
    assert [line.answer for line in per_user.lines] == ["1", "2"]
    assert per_user.others.startswith("within the noise, each at most ")
    assert "3–4" in per_user.others and "257 or more" in per_user.others


def test_quantiles_are_ranges():
    lines = quantile_lines(released(noise=1e-3))
    assert lines["third quartile"] == "2" and set(lines.values()) <= {"1", "2", "1 to 2"}
    assert "or more" in quantile_lines(released(noise=150.0))["90th percentile"]


def test_nothing_learnt_is_what_it_says(tmp_path, result):
    release = released(users=3.0)
    assert release.learnt_nothing and sections(release) == [] and quantile_lines(release) == {}
    numbers = in_numbers(release)
    assert numbers["learnt_nothing"]
    assert {answer["share"] for one in numbers["questions"] for answer in one["answers"]} == {None}
    text = Parsed(write_survey(tmp_path, release, result).read_text(encoding="utf-8")).text
    assert "Nothing was learnt" in text and "charged all the same" in text
