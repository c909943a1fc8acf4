"""The layers of a network: its blocks in order, and which of them are computed, kept or trained."""

from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from murmuration.preference.choices import LORA_LAYERS
from murmuration.preference.data.errors import InputError


def checkpointed(model: torch.nn.Module, path: str) -> None:
    """Let a network's blocks keep only what comes in, and compute the rest once more going back.

    transformers' own way is open to training mode alone, in which there is dropout.

    Raises:
        InputError: the architecture has no such blocks.
    """
    blocks = blocks_of(model)
    if not blocks:
        kind = type(model).__name__
        raise InputError(f"--checkpointing: {path}: nothing in a {kind} is known as a block")
    for block in blocks:
        # Nothing is drawn in evaluation mode, so there is no generator to put back.
        again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
        block.forward = partial(again, block.forward)  # type: ignore[method-assign]


def keep_layers(model: Any, count: int, path: str) -> None:
    """Leave of a network its first ``count`` blocks, and the norm that follows them.

    Raises:
        InputError: it has fewer, or nothing in it is known as its blocks.
    """
    _, layers = layers_of(model, path, "--features")
    if count > len(layers):
        raise InputError(f"--features: {path} has {len(layers)} layers, not {count}")
    del layers[count:]
    model.config.num_hidden_layers = count


def layers_of(model: Any, path: str, option: str) -> tuple[str, torch.nn.ModuleList]:
    """A network's layers, its blocks in order, and their name in it.

    Raises:
        InputError: its layers are not known; ``option`` needs them.
    """
    blocks = set(blocks_of(model))
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) and blocks.issuperset(module)
    ]
    if len(lists) != 1 or len(lists[0][1]) != getattr(model.config, "num_hidden_layers", None):
        kind = type(model).__name__
        raise InputError(f"{option}: {path}: nothing in a {kind} is known as its layers")
    return lists[0]


def trained_layers(model: Any, chosen: str, path: str) -> range | None:
    """The layers of a network that LoRA changes, counted from 0; None for all.

    ``chosen`` is as `preference.choices.LORA_LAYERS` has it, where they are counted from 1, and not
    ``auto``.

    Raises:
        InputError: there are no such layers.
    """
    match = LORA_LAYERS.fullmatch(chosen)
    assert match and chosen != "auto"  # `BaseSettings` and `resolved` see to that
    if chosen == "all":
        return None
    number = len(layers_of(model, path, "--lora-layers")[1])
    last, low, high = match.groups()
    first, end = (number - int(last), number) if last else (int(low) - 1, int(high))
    if not 0 <= first < end <= number:
        raise InputError(f"--lora-layers {chosen}: {path} has layers 1 to {number}")
    return range(first, end)


def blocks_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The blocks of a network that `checkpointed` knows."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
