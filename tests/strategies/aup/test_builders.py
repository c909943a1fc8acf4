"""Settings reach the plans of both filters; the published one is never called proven."""

import pytest
from cards import RESULT, model_card

from murmuration.research.strategies.aup_corrected import AupCorrected
from murmuration.strategies.aup.published import AupPublished
from murmuration.strategies.config import RunConfig

CONFIG = RunConfig(
    test="others.jsonl", strategy="aup", epsilon=1.0, delta=1e-4, rounds=6, cohort=300
)


@pytest.fixture
def made(build_from, quick_runs):
    """A function: what is built from settings, for 800 users."""
    return lambda **changes: build_from(CONFIG.changed(**changes), 800, budget=1.0)


def test_corrected(made):
    own = {"clip_norm": 0.7, "group_size": 3, "adjacency": "zero-out"}
    built = made(strategy="aup-corrected", **own)
    assert isinstance(built.strategy, AupCorrected)
    plan = built.strategy.plan
    assert (plan.users, plan.cohort, plan.rounds, plan.delta) == (800, 300, 6, 1e-4)
    assert (plan.radius, plan.group_size) == (0.7, 3)
    assert plan.adjacency == "zero-out"
    assert built.charges == plan.charges and built.noise == plan.noise
    assert built.clip_norm is None
    assert 0.999 < plan.epsilon() <= 1.0
    assert built.gradients == 6 * 300


def test_published(made):
    built = made(variant="published", clip_norm=0.7, group_size=3)
    assert isinstance(built.strategy, AupPublished)
    phases = built.strategy.plan.phases
    assert [(p.users, p.cohort, p.rounds) for p in phases] == [(400, 300, 6)]
    assert {p.radius for p in phases} == {0.7}
    assert built.charges == built.strategy.plan.charges
    assert built.gradients == 6 * 300


def test_published_by_theorem_4(made):
    phases = made(variant="published-theorem-4", rounds=9).strategy.plan.phases
    assert len(phases) == 4
    assert sum(p.rounds for p in phases) == 9
    assert all(p.cohort == p.users for p in phases)


def test_step_sizes(made):
    given = made(variant="published", learning_rate=0.125).strategy
    assert [p.rate for p in given.plan.phases] == [0.125]
    assert given.optimizer.settings.rate == 0.125
    chosen = made(variant="published").strategy.plan.phases[0].rate
    assert 0 < chosen < 100
    corrected = made(strategy="aup-corrected", learning_rate=0.5).strategy
    assert corrected.optimizer.settings.rate == 0.5


def test_published_takes_plain_steps_only(made):
    with pytest.raises(ValueError, match="plain gradient steps, not adam"):
        made(variant="published", optimizer="adam")


def test_a_run_that_is_not_proven_says_so_everywhere():
    from murmuration.reporting.report import page

    claimed = {"private": True, "proven": False, "epsilon": 3.0, "epsilon_target": 3.0}
    result = RESULT | claimed | {"strategy": "aup", "adjacency": "replace", "test_is_public": True}
    images = dict.fromkeys(("accuracy", "noise"), (b"", b""))
    report = page(result, images)
    assert "<h1>Claimed, not proven: ε = 3.00, δ = 1e-5</h1>" in " ".join(report.split())
    assert "Read it so" not in report and "times as likely" not in " ".join(report.split())
    card = model_card(result)
    assert "**Claimed, not proven: ε = 3.00, δ = 1e-5.** The paper claims it" in card
    assert "differential-privacy\n" not in card.split("---")[1]
    assert "<h1>User-level DP: ε = 3.00, δ = 1e-5</h1>" in " ".join(
        page({**result, "proven": True}, images).split()
    )


def test_published_as_its_authors_can_have_run_it(made):
    letter, run = (made(variant=name) for name in ("published", "published-as-run"))
    assert [built.strategy.plan.phases[0].users for built in (letter, run)] == [400, 800]
    assert run.strategy.plan.phases[0].cohort == 300 and run.strategy.plan.as_run
    # Twice the users at the same cohort: less noise for the same claim.
    assert run.noise_multiplier < 0.75 * letter.noise_multiplier
