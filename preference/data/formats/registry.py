"""All formats, by name and by columns."""

from collections.abc import Collection

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.formats.arena import ARENA, ARENA_MODELS
from murmuration.preference.data.formats.argilla import ARGILLA
from murmuration.preference.data.formats.community_alignment import COMMUNITY_ALIGNMENT
from murmuration.preference.data.formats.format import Format
from murmuration.preference.data.formats.helpsteer import HELPSTEER
from murmuration.preference.data.formats.label_studio import LABEL_STUDIO
from murmuration.preference.data.formats.likert import LIKERT
from murmuration.preference.data.formats.multipref import MULTIPREF
from murmuration.preference.data.formats.oasst import OASST
from murmuration.preference.data.formats.openwebui import OPENWEBUI
from murmuration.preference.data.formats.polis import POLIS
from murmuration.preference.data.formats.prism import PRISM
from murmuration.preference.data.formats.tldr import TLDR
from murmuration.preference.data.sources import READERS
from murmuration.privacy.extensions import ExtensionError

#: By name.
FORMATS = {
    form.name: form
    for form in (
        ARENA,
        ARENA_MODELS,
        ARGILLA,
        COMMUNITY_ALIGNMENT,
        HELPSTEER,
        LABEL_STUDIO,
        LIKERT,
        MULTIPREF,
        OASST,
        OPENWEBUI,
        POLIS,
        PRISM,
        TLDR,
    )
}


def format_named(name: str) -> Format:
    """The format of this name, of this package or of another that is installed.

    Raises:
        InputError: there is none of that name, or it cannot be used.
    """
    if name in FORMATS:
        return FORMATS[name]
    if name not in READERS.names():
        raise InputError(f"--format must be one of {', '.join(FORMATS)}; got {name!r}")
    try:
        form = READERS.load(name)
    except ExtensionError as error:
        raise InputError(f"--format {name}: {error}") from None
    if not isinstance(form, Format):
        raise InputError(f"--format {name}: this is a kind of file, .{name}, and no format")
    return form


def recognised_format(columns: Collection[str]) -> str:
    """The name of the only format of this package that has these columns; empty if there is none or
    several.
    """
    fitting = [
        form.name
        for form in FORMATS.values()
        if form.unmistakable and any({*columns}.issuperset(each) for each in form.all_forms)
    ]
    return fitting[0] if len(fitting) == 1 else ""
