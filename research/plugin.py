"""What research brings where it is there (``murmuration.privacy.plugins``)."""

#: In the order in which they are listed.
_AUDITS = (
    *("gaussian", "els", "labels", "selection.threshold", "selection.median"),
    *("selection.exponential", "moments", "votes", "survey", "hold_out", "aup"),
    "selection.stopping",
)

BRINGS = {
    "murmuration.strategies": {
        "aup-corrected": "murmuration.research.strategies.aup_corrected:AUP_CORRECTED",
    },
    "murmuration.settings": {
        "aup-corrected": "murmuration.strategies.settings.own.shared:Retained",
    },
    "murmuration.events": {
        "tested-gaussian": "murmuration.research.strategies.filtered_mean:TestedGaussian",
    },
    "murmuration.audits": {name: f"murmuration.research.audits.{name}:TARGETS" for name in _AUDITS},
    "murmuration.faults": {"all": "murmuration.research.audits.faults:FAULTS"},
}
