"""What a plan takes from a survey."""

import json

import numpy as np
import pytest
from cards import RESULT

from murmuration.planning.plan import plan
from murmuration.preference.data.errors import InputError
from murmuration.surveying.planned import surveyed
from murmuration.surveying.questionnaire import Questionnaire
from murmuration.surveying.release import SurveyRelease

GIVEN = {"epsilon": 3.0, "delta": 1e-5, "rounds": 20}


@pytest.fixture
def folder(tmp_path):
    """A function: a run's folder in which a survey of so many users was released."""

    def make(users=2500.0, noise=1.0):
        form = Questionnaire()
        sum_V = np.zeros(form.dimension)
        sum_V[0] = users
        sum_V[form.places[0]] = users * np.array([0, 0.2, 0.2, 0.2, 0.2, 0.2, 0, 0, 0, 0])
        sum_V[1] = 0.5  # so that it is not all round
        release = SurveyRelease(
            topics=(), sum_V=sum_V, noise=noise, stated_users=None, epsilon=0.5, delta=1e-5
        )
        written = RESULT | {"outcome": {"survey": release.to_json()}}
        (tmp_path / "result.json").write_text(json.dumps(written), encoding="utf-8")
        return tmp_path

    return make


def test_users_are_those_who_judged_less_who_is_held_out(folder):
    assert surveyed(folder(), None).users == 2000
    assert surveyed(folder(), 0.5).users == 1200  # rounded to two digits
    assert plan(survey=folder(), **GIVEN)["users"] == 2000
    assert plan(survey=folder(), users=900, **GIVEN)["users"] == 900


def test_the_median_is_what_els_takes(folder):
    taken = surveyed(folder(), None)
    assert taken.judgements == 6  # of 5 to 8
    els = {"strategy": "els", "sampling_probability": 0.05, "adjacency": "zero-out", **GIVEN}
    assert plan(survey=folder(), **els)["group_size"] == 6
    assert plan(survey=folder(), **{**els, "group_size": 3})["group_size"] == 3


def test_what_was_taken_is_said_with_its_errors(folder):
    sentence = plan(survey=folder(noise=15.0), **GIVEN)["survey"]
    assert "2,500 ± 30 users with judgements; less 20.0 % held out" in sentence
    assert "can read all of 80.0 % ± " in sentence and "ε = 0.5 comes on top" in sentence
    assert "survey" not in plan(users=2000, **GIVEN)


def test_nothing_learnt_is_nothing_to_plan_from(folder):
    with pytest.raises(InputError, match="nothing was learnt"):
        plan(survey=folder(users=3.0, noise=10.0), **GIVEN)
