"""The memory of a round of a language model, in each mode of users' passes."""

from dataclasses import asdict
from typing import Any

from murmuration.preference.bases import base_of
from murmuration.preference.choices import USER_PASSES
from murmuration.preference.language.machine import usual_device
from murmuration.preference.language.memory import round_bytes
from murmuration.strategies.config import RunConfig
from murmuration.strategies.registry import base_config
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE

_GIB = 2.0**30


def memory_figures(run: RunConfig, users: int) -> dict[str, Any]:
    """GiB at most for each mode, and a sentence of their parts; none if no layers are trained.

    Raises:
        InputError: the base cannot be read.
    """
    if not run.trains_layers:
        return {}
    model: Any = base_of(base_config(run), weights=False)
    texts = (run.group_size or DEFAULT_GROUP_SIZE) * model.texts_of_each(run.schema)
    result: dict[str, Any] = {}
    for mode in USER_PASSES:
        bound = round_bytes(model.network, texts, users=users, shared_passes=mode == "shared")
        parts = {name: f"{name} {part / _GIB:.2f}" for name, part in asdict(bound).items()}
        server = parts.pop("server")
        result[f"memory_{mode}_gib"] = bound.total / _GIB
        result["memory_server_gib"] = bound.server / _GIB
        result[f"memory_{mode}"] = (
            f"Memory of a round of {mode} passes, GiB at most on this machine's "
            f"{usual_device().type}: {', '.join(parts.values())}; beside it {server}"
        )
    return result
