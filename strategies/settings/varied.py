"""Settings that may vary among runs that are compared, as they are written in an option."""

from typing import Any

from murmuration.preference.data.errors import InputError
from murmuration.strategies.config import SETTINGS
from murmuration.strategies.settings.declaration import MODEL, OF_STRATEGY, TRAINING, about, option

#: Settings of these panels leave alone who is protected, by how much, and what is measured.
_PANELS = (TRAINING, MODEL, OF_STRATEGY)
#: Of those, what names another model, or another kind of run; and whatever is pinned.
_FIXED = ("task", "base")


def check_name(field: str, where: str) -> None:
    """InputError, naming ``where`` it was written, for what is no setting, or decides the
    promise."""
    if field not in SETTINGS or about(SETTINGS[field]).deployed:
        raise InputError(f"{where}: there is no such setting")
    known = about(SETTINGS[field])
    if known.panel not in _PANELS or field in _FIXED or known.pinned:
        raise InputError(
            f"{where}: {option(field)} is the same for all, because it decides what is promised to "
            "whom, on what, or what is measured; leave it out there"
        )


def value_of(field: str, text: str, where: str) -> Any:
    """Parse a setting's value; InputError, naming ``where``, if it is none."""
    kind = type(SETTINGS[field].default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        known = "neither true nor false" if kind is bool else f"no {kind.__name__}"
        raise InputError(f"{where}: {text!r} is {known}") from None
