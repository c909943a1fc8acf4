"""The configuration of a LoRA adapter, and its bounds.

An adapter may come from another person, and its configuration is read by peft, which takes names
for patterns, and copies layers and imports libraries that it names. So only what plain LoRA needs
is read: names of layers that are nothing but names, and ranks and layers of such numbers as
networks have. Anything else that a configuration sets is refused before peft sees it.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from murmuration.preference.base_names import place_of
from murmuration.preference.data.errors import InputError
from murmuration.privacy.regular_files import open_regular

ADAPTER = "adapter_config.json"
MOST_BYTES = 2**20
#: Names in one list, characters of a name, layers of a network, and a rank.
MOST_NAMES, MOST_CHARACTERS, MOST_LAYERS, MOST_RANK = 1_000, 200, 1_000, 4_096
_BASE = "base_model_name_or_path"
_NAME = re.compile(r"\w+(\.\w+)*|all-linear", re.ASCII)
_NAMES = (
    "target_modules", "exclude_modules", "target_parameters", "modules_to_save", "layers_pattern",
    "rank_pattern", "alpha_pattern",
)  # fmt: skip
#: What changes neither which layers there are nor what is run.
_FREE = {
    _BASE, "r", "layers_to_transform", "task_type", "peft_type", "auto_mapping", "peft_version",
    "revision", "inference_mode", "lora_alpha", "lora_dropout", "fan_in_fan_out", "bias",
    "use_rslora", "use_dora", "lora_bias", "init_lora_weights", "megatron_core",
    "qalora_group_size", "ensure_weight_tying",
}  # fmt: skip


def adapter_config(folder: Path) -> dict[str, Any]:
    """The config of the adapter in a folder.

    Raises:
        InputError: it cannot be read, names no base, is no LoRA, or is out of bounds.
    """
    place = folder / ADAPTER
    try:
        with open_regular(place) as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        config = json.loads(text)
        base = config[_BASE]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{place}: cannot be read: {error}") from None
    if not isinstance(base, str) or not base:
        raise InputError(f"{place}: names no model that the adapter changes")
    if (kind := config.get("peft_type", "LORA")) != "LORA":
        raise InputError(f"--base {folder}: an adapter of kind {kind!r:.40}, not LORA")
    for field in _NAMES:
        names = config.get(field) or []
        if not _are_names([names] if isinstance(names, str) else names):
            raise InputError(
                f"{place}: {field} must be at most {MOST_NAMES:,} plain names of layers, and no "
                "patterns"
            )
    ranks = config.get("rank_pattern") or {}
    ranks = [config.get("r", 1), *(ranks.values() if isinstance(ranks, dict) else ())]
    if not _are_numbers(ranks, MOST_RANK):
        raise InputError(f"{place}: ranks must be whole numbers up to {MOST_RANK:,}")
    layers = config.get("layers_to_transform") or []
    if not _are_numbers(layers if isinstance(layers, list) else [layers], MOST_LAYERS):
        raise InputError(f"{place}: layers_to_transform must be at most {MOST_LAYERS:,} layers")
    if more := [field for field in config.keys() - {*_NAMES, *_FREE} if config[field]]:
        raise InputError(
            f"{place}: sets {min(more)!r:.60}, which is never read: an adapter must be plain LoRA"
        )
    return config


def _are_names(names: Any) -> bool:
    return (
        isinstance(names, list | dict)
        and len(names) <= MOST_NAMES
        and all(isinstance(name, str) and len(name) <= MOST_CHARACTERS for name in names)
        and all(_NAME.fullmatch(name) for name in names)
    )


def _are_numbers(numbers: Iterable[Any], most: int) -> bool:
    numbers = [*numbers]
    return len(numbers) <= most and all(type(n) is int and 0 <= n <= most for n in numbers)


def adapted(folder: Path) -> str:
    """The base of the adapter in a folder: a folder, or a hub name; empty if there is no adapter.

    Raises:
        InputError: as of `adapter_config`, or nothing of that name is here.
    """
    return place_of(adapter_config(folder)[_BASE], folder) if (folder / ADAPTER).exists() else ""


def name_base(folder: Path, name: str) -> None:
    """Let an adapter in a folder call its base so; nothing where there is no adapter."""
    place = folder / ADAPTER
    if place.exists():
        config = {**json.loads(place.read_text(encoding="utf-8")), _BASE: name}
        place.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
