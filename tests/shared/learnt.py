"""Models on features or networks that a test has loaded itself."""

from typing import Any

from murmuration.preference.bases import KINDS


def model_on(base: Any) -> Any:
    """Return the model whose kind the base's own description names."""
    described = base.to_config()
    return KINDS[described["kind"], described.get("task", "reward")](base)
