"""Figure 16 of Charles et al. 2024: users who differ, halves, verdicts by rules."""

import numpy as np
import pytest

from murmuration.research.reproductions.uls import personal
from murmuration.research.reproductions.uls.personal import ELS, NONE, ULS, Crowd, Sizes
from murmuration.strategies.settings.own import ElsSettings

SMALL = Sizes(users=60, each=8, dimension=3, rounds=6, cohort=20, test_users=40)


def crowd(deviation: float, users: int = 400) -> tuple[Crowd, np.ndarray]:
    truth_D = np.array([2.0, 0.0, 0.0])
    sizes = Sizes(each=40, dimension=3)
    return Crowd.draw(0, users, sizes, deviation, truth_D), truth_D


def test_own_judgements_help_those_who_differ_and_the_second_half_alone_is_measured():
    differ, truth_D = crowd(3.0)
    before_U, after_U = (differ.losses_U(truth_D, step) for step in (0.0, 0.3))
    assert after_U.mean() < before_U.mean()
    # What is in the second half moves no step.
    changed = Crowd(differ.x_UJD.copy())
    changed.x_UJD[:, :20] *= -1.0
    assert (changed.losses_U(truth_D, 0.0) == before_U).all()
    assert changed.losses_U(truth_D, 0.3).mean() > before_U.mean()


def test_where_all_are_alike_the_crowds_model_is_the_best():
    alike, truth_D = crowd(0.0)
    best = min(personal.STEPS, key=lambda step: alike.losses_U(truth_D, step).mean())
    assert best <= 0.03


def test_a_step_is_the_gradient_of_the_log_loss():
    one, truth_D = crowd(1.0, users=1)
    x_D = one.x_UJD[0, 0]
    only = Crowd(np.stack([np.stack([x_D, x_D])]))
    theta_D = truth_D.copy()
    for _ in range(personal.EPOCHS):
        theta_D = theta_D + 0.2 * x_D / (1.0 + np.exp(x_D @ theta_D))
    expected = np.log1p(np.exp(-x_D @ theta_D))
    assert only.losses_U(truth_D, 0.2) == pytest.approx([expected])


def test_compute_is_equal():
    els, uls = (personal.settings(name, 3.0, Sizes(), 0) for name in (ELS, ULS))
    batch = els.of(ElsSettings).sampling_probability
    of_els = batch * Sizes().users * els.group_size
    assert of_els == uls.cohort * uls.group_size
    assert els.rounds == uls.rounds


def test_rows_and_claims(monkeypatch):
    monkeypatch.setattr(personal, "CLIPS", (1.0,))
    monkeypatch.setattr(personal, "RATES", (1.0, 0.5))
    rows = personal.personal(sizes=SMALL, deviations=(2.0,), epsilons=(8.0,), seeds=2)
    assert [row["strategy"] for row in rows[:3]] == [ELS, ULS, NONE]
    for row in rows[:3]:
        assert row["gain_mean"] == pytest.approx(row["before_mean"] - row["after_mean"])
        assert 0.0 <= row["harmed"] <= 1.0
        assert row["decile_1"] <= row["decile_5"] <= row["decile_9"]
    claims = rows[3:]
    assert [row["claim"] for row in claims] == [
        "ELS gains", "ULS gains", "ULS gains as much as ELS", "who is ahead stays ahead",
    ]  # fmt: skip
    assert claims[2]["difference"] == pytest.approx(
        claims[1]["difference"] - claims[0]["difference"]
    )


def run(before, after):
    return [{"before": b, "after": a} for b, a in zip(before, after, strict=True)]


def test_verdicts_follow_their_rules():
    level = run([0.60, 0.61, 0.60], [0.50, 0.51, 0.50])
    ahead = run([0.55, 0.56, 0.55], [0.45, 0.46, 0.45])
    overtaken = run([0.70, 0.71, 0.70], [0.40, 0.41, 0.40])
    assert [c["verdict"] for c in personal._claims(level, ahead)] == ["agrees"] * 4
    verdicts = [c["verdict"] for c in personal._claims(level, overtaken)]
    assert verdicts == ["agrees", "agrees", "DIFFERS", "DIFFERS"]
    worse = run([0.5, 0.5, 0.5], [0.6, 0.61, 0.6])
    assert personal._claims(worse, level)[0]["verdict"] == "DIFFERS"
