"""The plug-in of alignment (``murmuration.privacy.plugins``)."""

_API, _COMMANDS = "murmuration.alignment.api", "murmuration.alignment.commands"

BRINGS = {
    "murmuration.api": {
        "Guards": "murmuration.alignment.rewards:Guards",
        "Responses": f"{_API}.responding:Responses",
        "Sampling": "murmuration.preference.language.generation:Sampling",
        "Steps": "murmuration.alignment.reinforce:Steps",
        "Supervised": "murmuration.alignment.supervised:Supervised",
        "align": f"{_API}.aligning:align",
        "respond": f"{_API}.responding:respond",
        "reward_function": f"{_API}.trl:reward_function",
        "winrate": f"{_API}.judging:winrate",
    },
    "murmuration.commands": {
        name: f"{_COMMANDS}.{name}:{name}" for name in ("align", "respond", "winrate")
    },
    "murmuration.plots": {"alignment": "murmuration.alignment.report:figure"},
    "murmuration.reports": {"alignment": "murmuration.alignment.report:write_again"},
}
