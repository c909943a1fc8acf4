"""What ``murmuration audit`` can audit, by name."""

from murmuration.privacy.auditing import Target
from murmuration.sims.audits import (
    aup,
    els,
    exponential,
    gaussian,
    hold_out,
    labels,
    median,
    moments,
    pipeline,
    threshold,
)

TARGETS: dict[str, Target] = {
    **gaussian.TARGETS,
    **els.TARGETS,
    **labels.TARGETS,
    **threshold.TARGETS,
    **median.TARGETS,
    **exponential.TARGETS,
    **moments.TARGETS,
    **hold_out.TARGETS,
    **aup.TARGETS,
    **pipeline.TARGETS,
}
