"""What ``murmuration audit`` can audit, by name."""

from privacy import audit_discrete, audit_gaussian, audit_labels, audit_median, audit_threshold
from privacy.audit import Target
from sims import audit_aup, audit_els, audit_hold_out, audit_moments, audit_pipeline

TARGETS: dict[str, Target] = {
    **audit_gaussian.TARGETS,
    **audit_discrete.TARGETS,
    **audit_els.TARGETS,
    **audit_labels.TARGETS,
    **audit_threshold.TARGETS,
    **audit_median.TARGETS,
    **audit_moments.TARGETS,
    **audit_hold_out.TARGETS,
    **audit_aup.TARGETS,
    **audit_pipeline.TARGETS,
}
