"""What ``murmuration audit`` can audit, by name."""

from murmuration.audits import (
    aup,
    els,
    gaussian,
    hold_out,
    labels,
    moments,
    pipeline,
    policy_pipeline,
    reader,
    survey,
    votes,
)
from murmuration.audits.selection import exponential, median, stopping, threshold
from murmuration.privacy.auditing import Target

TARGETS: dict[str, Target] = {
    **gaussian.TARGETS,
    **els.TARGETS,
    **labels.TARGETS,
    **threshold.TARGETS,
    **median.TARGETS,
    **exponential.TARGETS,
    **moments.TARGETS,
    **votes.TARGETS,
    **survey.TARGETS,
    **hold_out.TARGETS,
    **aup.TARGETS,
    **stopping.TARGETS,
    **pipeline.TARGETS,
    **policy_pipeline.TARGETS,
    **reader.TARGETS,
}

#: Those that an optional library is needed for.
NEED = {
    "distributed-gaussian": "opendp",
    "discrete-gaussian": "opendp",
    **dict.fromkeys(policy_pipeline.TARGETS, "transformers"),
    "pipeline:texts": "peft",
}
