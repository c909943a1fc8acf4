"""What can be audited."""

from murmuration.audits.targets import TARGETS
from murmuration.privacy.theorems import TABLE, Status
from murmuration.strategies import registry


def test_what_was_asked_for_is_there():
    names = {"gaussian", "poisson-gaussian", "els", "randomized-response", "above-threshold"}
    assert names | {"aup", "aup:published", "pipeline"} <= set(TARGETS)


def test_targets_are_complete():
    for name, target in TARGETS.items():
        assert target.about, name
        assert target.adjacencies, name
        assert not target.about.endswith("."), name
    assert {name for name, target in TARGETS.items() if not target.sound} == {
        name for name in TARGETS if name.startswith("aup:published")
    }


def test_each_theorem_is_attacked_under_all_that_it_holds_under():
    brought = {row for strategy in registry.OURS for row in strategy.theorems}
    for row in {*TABLE, *brought}:
        if row.status is not Status.NONE:
            assert row.adjacencies <= TARGETS[row.audit].adjacencies, row
