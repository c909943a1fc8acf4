"""The plug-in of research (``murmuration.privacy.plugins``)."""

_CHOICE = "murmuration.research.strategies.choice"
#: In the order in which they are listed.
_AUDITS = (
    *("gaussian", "els", "labels", "selection.threshold", "selection.median"),
    *("selection.exponential", "moments", "votes", "survey", "hold_out", "aup"),
    "selection.stopping",
)

BRINGS = {
    "murmuration.strategies": {
        "exponential": f"{_CHOICE}.exponential:EXPONENTIAL",
        "aup-corrected": "murmuration.research.strategies.aup_corrected:AUP_CORRECTED",
    },
    "murmuration.settings": {
        "exponential": f"{_CHOICE}.settings:ExponentialSettings",
        "aup-corrected": "murmuration.strategies.settings.own:NoSettings",
    },
    "murmuration.models": {"policy-class policy": f"{_CHOICE}.class_examples:PolicyClass"},
    "murmuration.events": {
        "tested-gaussian": "murmuration.research.strategies.filtered_mean:TestedGaussian",
    },
    "murmuration.audits": {name: f"murmuration.research.audits.{name}:TARGETS" for name in _AUDITS},
    "murmuration.commands": {
        name: f"murmuration.research.commands.{name}:{name}"
        for name in ("bench", "bounds", "policies", "reproduce")
    },
    "murmuration.faults": {"all": "murmuration.research.audits.faults:FAULTS"},
}
