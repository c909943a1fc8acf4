"""Who and what is tested on, what is chosen where, and whose means and intervals are printed."""

import numpy as np
import pytest

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.research.reproductions.rivals import strengths
from murmuration.research.reproductions.rivals.strengths import (
    DEBATES,
    LISTED,
    PAIRS,
    PEOPLE,
    RUNS,
    Plan,
    compared,
    items_of,
    left_out,
    likeliest,
    miniature,
    of_people,
)
from murmuration.sims.population.population import Population

SMALL = Plan(
    ("strengths", "hashing"), (8.0, 3.0, None), (8.0, None), (1.0, 3.0), (1.0,), seeds=2, rounds=3
)


@pytest.fixture(scope="module")
def crowd():
    everybody = Judgements.from_rows(Population(users=80, median_judgements=4).rows("train"))
    return everybody.select(range(60)), everybody.select(range(60, 80))


@pytest.fixture
def cheap(monkeypatch):
    """Heads that cost nothing: right about length where the step is the larger one."""
    trained = []

    def head(learners, epsilon, step, seed):
        trained.append((epsilon, step, seed, len(learners.examples.y_R)))
        theta_D = np.zeros(learners.examples.dimension, dtype=np.float32)
        theta_D[-1] = 1.0 if step == 3.0 else -1.0
        return theta_D

    monkeypatch.setattr(strengths, "_head", head)
    return trained


@pytest.mark.parametrize("split", [PAIRS, DEBATES])
def test_what_is_left_out_is_left_out_for_everybody_and_either_way_round(crowd, split):
    train, _ = crowd
    out_J = left_out(train, split)
    assert 0.1 < out_J.mean() < 0.6
    about = {
        PAIRS: lambda j: frozenset(train.responses[j]),
        DEBATES: lambda j: train.prompts[j],
    }[split]
    tested = {about(j) for j in np.flatnonzero(out_J)}
    assert not tested & {about(j) for j in np.flatnonzero(~out_J)}


def test_nobody_and_nothing_tested_is_trained_on(crowd, cheap, tmp_path):
    train, test = crowd
    result = compared(train, test, tmp_path / RUNS, SMALL)
    sizes = {name: of["trained"] for name, of in result.extra["splits"].items()}
    assert sizes[PEOPLE] == len(train) and sizes[LISTED] == sizes[DEBATES]
    listed = {name: of["items"] for name, of in result.extra["splits"].items()}
    assert listed[DEBATES] < listed[LISTED] == listed[PEOPLE]
    assert sizes[PAIRS] == len(train) - left_out(train, PAIRS).sum()
    assert {rows for *_, seed, rows in cheap if seed < strengths._TUNING_SEED} == {*sizes.values()}
    tuning = {rows for *_, seed, rows in cheap if seed == strengths._TUNING_SEED}
    assert max(tuning) < len(train)
    with pytest.raises(AssertionError):
        compared(train, train, tmp_path / "others", SMALL)


def test_rows_have_every_case_and_the_step_that_validation_chose(crowd, cheap, tmp_path):
    train, test = crowd
    result = compared(train, test, tmp_path / RUNS, SMALL)
    assert len(result.rows) == 2 * (3 + 3 * 2) and len(result.extra["differences"]) == 3 + 3 * 2
    for row in result.rows:
        assert row["step"] in ((1.0, 3.0) if row["epsilon"] else (1.0,))
        assert row["by_user_low"] <= row["by_user"] <= row["by_user_high"]
        about = result.extra["splits"][row["split"]]
        if row["step"] == 3.0:  # the head that the longer response is right by
            assert row["pooled"] == pytest.approx(about["longer_pooled"], abs=0.02)
            assert row["by_user"] == pytest.approx(about["longer_by_user"], abs=0.02)
    before = len(cheap)
    assert compared(train, test, tmp_path / RUNS, SMALL).rows == result.rows
    assert len(cheap) == before  # each run was written down


def test_means_over_users_weigh_users_alike():
    right_SU, judged_U = np.array([[9.0, 0.0, 0.0]]), np.array([9.0, 1.0, 0.0])
    found = strengths._accuracies(right_SU, judged_U)
    assert found["by_user"] == pytest.approx(0.5) and found["pooled"] == pytest.approx(0.9)


def test_the_list_is_of_all_responses_whoever_judged_them(crowd):
    train, test = crowd
    texts = {text for each in crowd for shown in each.responses for text in shown}
    assert len(items_of(train, test)) == len(texts)
    assert items_of(train, test) == items_of(test, train)


def test_the_likeliest_head_is_where_the_penalised_gradient_is_zero(crowd):
    examples = strengths.pair_examples(crowd[0], strengths._map("hashing:17", ()))
    theta_D = likeliest(examples, 2.0).astype(float)
    x_JD = examples.x_RD[examples.y_R != 0.5].double().numpy()
    slope_D = theta_D / 2.0 - x_JD.T @ (1.0 / (1.0 + np.exp(x_JD @ theta_D)))
    assert np.abs(slope_D).max() < 0.01 * len(x_JD) ** 0.5


def test_people_are_read_from_a_folder(tmp_path):
    with pytest.raises(InputError, match=r"train\.jsonl"):
        of_people(tmp_path, tmp_path / "out")


@pytest.mark.slow
def test_quick_has_every_split():
    assert {row["split"] for row in miniature().rows} == {PEOPLE, PAIRS, LISTED, DEBATES}
