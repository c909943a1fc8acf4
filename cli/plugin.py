"""The plug-in of the command line (``murmuration.privacy.plugins``)."""

_FOLDERS = {
    "": ("agent", "audit", "data", "deploy", "ledger", "privatize", "report", "run"),
    "models.": ("export", "score"),
    "planning.": ("compare", "plan"),
    "starting.": ("init",),
}

BRINGS = {
    "murmuration.commands": {
        name: f"murmuration.cli.{folder}{name}:{name}"
        for folder, names in _FOLDERS.items()
        for name in names
    },
}
