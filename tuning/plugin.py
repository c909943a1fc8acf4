"""The plug-in of tuning (``murmuration.privacy.plugins``)."""

BRINGS = {
    "murmuration.api": {"tune": "murmuration.tuning.tune:tune"},
    "murmuration.commands": {"tune": "murmuration.tuning.command:tune"},
}
