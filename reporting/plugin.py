"""The plug-in of reporting (``murmuration.privacy.plugins``)."""

BRINGS = {
    "murmuration.live": {"run": "murmuration.reporting.live.live_view:of_run"},
    "murmuration.plots": {"training": "murmuration.reporting.plots:accuracy_figure"},
    "murmuration.run_end": {"report": "murmuration.reporting.run_end:RunReport"},
}
