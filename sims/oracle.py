"""dp-accounting, which ours is compared with and nothing that users run needs."""

from typing import Any

from murmuration.preference.data.judgements import InputError

NEEDED = "dp-accounting>=0.6,<0.7"


def dp_accounting() -> Any:
    """The package, with its accountants ``pld`` and ``rdp``.

    Raises:
        InputError: it is not installed; says what to install.
    """
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError:
        raise InputError(f"this needs dp-accounting: pip install '{NEEDED}'") from None
    return dp_accounting
