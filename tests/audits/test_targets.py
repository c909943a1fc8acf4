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


def test_an_audit_claims_what_its_theorems_prove_and_nothing_else():
    brought = {row for strategy in registry.OURS for row in strategy.theorems}
    for row in {*TABLE, *brought}:
        if row.status is not Status.NONE:
            alike = (other for other in {*TABLE, *brought} if other.audit == row.audit)
            held = frozenset().union(*(other.adjacencies for other in alike))
            assert TARGETS[row.audit].adjacencies == held, row
