"""The targets of ``murmuration audit``, by name: pipelines, and those of plug-ins."""

from collections.abc import Mapping

from murmuration.audits import pipeline, policy_pipeline, reader
from murmuration.audits.faults import Fault
from murmuration.privacy.auditing import Target
from murmuration.privacy.plugins import brought

TARGETS: dict[str, Target] = {
    **{
        name: target
        for point in brought("murmuration.audits").values()
        for name, target in point.load().items()
    },
    **pipeline.TARGETS,
    **policy_pipeline.TARGETS,
    **reader.TARGETS,
}


def seeded_faults() -> Mapping[str, Fault]:
    """Mechanisms with deliberate faults, which audits must catch."""
    return {
        name: fault
        for point in brought("murmuration.faults").values()
        for name, fault in point.load().items()
    }
