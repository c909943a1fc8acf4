"""What can be audited."""

from murmuration.audits.targets import TARGETS
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


def test_no_audit_claims_what_a_strategy_does_not():
    for name in ("els", "group", "adaptive", "aup", "aup-corrected"):
        assert TARGETS[name].adjacencies == registry.named(name).adjacencies
