"""What users gain by rewards of their own: charged, with noise, and nobody counts twice."""

import json
import math

import numpy as np
import pytest

from murmuration import InputError, RewardModel, personalize
from murmuration.api import personalizing
from murmuration.api.ledgers import all_runs
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.mechanisms.tally import STEPS, Tally

FEATURES = HashingFeatures(dimension=65)


def rows_of(user, likes, many=8):
    """Pairs of texts that no other pair has, of which one camp likes the red one."""
    for one in range(many):
        shown = (f"red {user} {one}", f"blue {user} {one}")
        chosen, rejected = shown if likes == "red" else shown[::-1]
        yield {"user_id": user, "prompt": "Which?", "chosen": chosen, "rejected": rejected}


@pytest.fixture
def camps():
    return [
        row
        for number in range(40)
        for row in rows_of(f"u{number}", "red" if number % 2 else "blue")
    ]


@pytest.fixture
def model(tmp_path):
    RewardModel(np.zeros(65), FEATURES).save(tmp_path / "model")
    return tmp_path / "model"


def test_camps_gain_what_a_crowd_cannot_give_them(model, camps, tmp_path):
    result = personalize(model, camps, 400.0, out=tmp_path / "p")
    measured = result.measured
    assert measured.accuracy == pytest.approx(0.5, abs=0.02)  # the crowd's reward is zero
    assert measured.personal > 0.8
    assert measured.gains.deciles[0] > 0.0
    assert "gains" in str(result) and "no gain shows" not in str(result)
    saved = json.loads((tmp_path / "p" / "personal.json").read_text())
    assert saved == result.to_json()
    assert (tmp_path / "p" / "users.png").stat().st_size > 1000


def test_a_basis_takes_the_place_of_steps_unless_these_are_asked_for(tmp_path, camps):
    toward_D = np.asarray(FEATURES(["?"], ["red"])) - np.asarray(FEATURES(["?"], ["blue"]))
    tastes = RewardModel(np.zeros(65), FEATURES, tastes_VD=toward_D.reshape(1, -1))
    tastes.save(tmp_path / "tastes")
    by_basis = personalize(tmp_path / "tastes", camps, 400.0, out=tmp_path / "a")
    assert by_basis.own == "basis" and by_basis.measured.personal > 0.9
    by_steps = personalize(tmp_path / "tastes", camps, 400.0, out=tmp_path / "b", step=0.3)
    assert by_steps.own == "local steps of 0.3"


def test_it_is_in_the_sum_of_all_runs(model, camps, tmp_path):
    personalize(model, camps, 400.0, out=tmp_path / "runs" / "one")
    personalize(model, camps[:160], 200.0, out=tmp_path / "runs" / "two")
    total = all_runs(tmp_path / "runs")
    assert total.promise.epsilon == pytest.approx(600.0, abs=1e-3)
    with pytest.raises(InputError, match="is spent"):
        personalize(model, camps, 400.0, out=tmp_path / "runs" / "one")
    assert all_runs(tmp_path / "runs") == total


def test_an_out_that_is_a_file_is_refused_before_anything_is_spent(model, camps, tmp_path):
    (tmp_path / "p").write_text("mine")
    with pytest.raises(InputError, match=r"out .*p cannot be written"):
        personalize(model, camps, 8.0, out=tmp_path / "p")
    assert (tmp_path / "p").read_text() == "mine"


def test_it_is_charged_once_and_no_second_time(model, camps, tmp_path):
    personalize(model, camps, 8.0, out=tmp_path / "p")
    (charge,) = read_charges(tmp_path / "p" / "ledger.jsonl")
    assert (charge.event.kind, charge.event.epsilon) == ("pure-dp", 8.0)
    assert charge.covers == "what users gain by rewards of their own"
    with pytest.raises(InputError, match="is spent; choose another out"):
        personalize(model, camps, 8.0, out=tmp_path / "p")
    assert len(read_charges(tmp_path / "p" / "ledger.jsonl")) == 1


def test_the_noise_is_that_of_the_epsilon(model, camps, tmp_path, monkeypatch):
    exact, noisy = [], []
    released = personalizing._released

    def watch(release, sum_F, folder):
        exact.append(sum_F)
        noisy.append(released(release, sum_F, folder))
        return noisy[-1]

    monkeypatch.setattr(personalizing, "_released", watch)
    for number in range(12):
        personalize(model, camps, 6.0, out=tmp_path / f"p{number}", adjacency="replace")
    assert all((sum_F == exact[0]).all() for sum_F in exact)
    off = (np.array(noisy) - np.array(exact)).ravel() / STEPS
    # Of 264 draws: scale 2/6 of a user on each count, neither more nor less.
    assert np.abs(off).mean() == pytest.approx(2.0 / 6.0, rel=4.0 / math.sqrt(264))


@pytest.mark.parametrize("likes", ["red", "blue"])
@pytest.mark.parametrize("many", [0, 1, 3, 500])
def test_one_user_is_one_count_whatever_they_judged(model, camps, likes, many):
    reward = RewardModel.load(model)
    own, _ = personalizing._own_of(reward, 0.3)

    def sums(rows):
        judgements = Judgements.from_rows(rows)
        return personalizing._sums(judgements, reward, own, Tally(personal=True))

    without_F = sums(camps)
    with_F = sums([*camps, *rows_of("more", likes, many)])
    assert np.abs(with_F - without_F).sum() in (0.0, STEPS)
    assert np.abs(with_F - without_F).sum() == (STEPS if many > 1 else 0.0)


def test_too_few_users_for_the_noise_is_said_after_it_was_charged(model, camps, tmp_path):
    with pytest.raises(InputError, match=r"too few users for the noise of epsilon=0\.01"):
        personalize(model, camps, 0.01, out=tmp_path / "p")
    assert len(read_charges(tmp_path / "p" / "ledger.jsonl")) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0: a pure epsilon"),
        ({"step": -1.0}, "step must be positive"),
        ({"adjacency": "replace-labels"}, "whether a user has two halves"),
        ({"adjacency": "near"}, "adjacency must be one of"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(
    model, camps, tmp_path, changes, message
):
    given = {"epsilon": 1.0, "out": tmp_path / "p", **changes}
    with pytest.raises(InputError, match=message):
        personalize(model, camps, given.pop("epsilon"), **given)
    assert not (tmp_path / "p").exists()
