"""LoRA adapters that earlier runs, or others, have saved: put on their base, and merged into it.

A base that is an adapter is merged into the weights that it changes before anything is trained on
top. Two adapters on one base cannot be told apart by what loads them, and a second one on the raw
base would not be what was trained; so what is learnt on a merged base is saved merged, too: a whole
model, which needs no other folder to be where it was.
"""

import json
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from murmuration.preference.data.judgements import InputError
from murmuration.preference.data.sources import first_line
from murmuration.preference.language.checkpoint import ADAPTER, check_adapter

#: What transformers calls a model with a head of its own, and one that says the next token.
REWARD, CAUSAL = "AutoModelForSequenceClassification", "AutoModelForCausalLM"


def kind_of(folder: Path) -> str:
    """For which kind of head an adapter was trained; InputError if it is no LoRA."""
    about = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
    if about.get("peft_type") != "LORA":
        raise InputError(f"--base {folder}: an adapter of kind {about.get('peft_type')}, not LORA")
    return REWARD if about.get("task_type") == "SEQ_CLS" else CAUSAL


def with_adapter(model: torch.nn.Module, folder: Path) -> Any:
    """A base with the LoRA layers that a folder holds.

    Raises:
        InputError: peft is not installed, or they do not fit.
    """
    try:
        import peft
    except ImportError:
        raise InputError(f"{folder} needs peft: pip install 'murmuration-rlhf[lm]'") from None
    if json.loads((folder / ADAPTER).read_text(encoding="utf-8")).get("megatron_config"):
        raise InputError(
            f"{folder}: an adapter that names a library to import, which is never done"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # also of what is missing, which is refused below
            changed = peft.PeftModel.from_pretrained(model, str(folder)).eval()  # type: ignore[arg-type]
            result = peft.utils.load_peft_weights(str(folder), device="cpu")
            expected = peft.get_peft_model_state_dict(changed)
    except (OSError, ValueError, RuntimeError, KeyError, UnpicklingError) as error:
        raise InputError(f"{folder}: does not fit its base: {first_line(error)}") from error
    check_adapter(str(folder), expected, result)
    return changed


def merge(changed: Any, path: str) -> Any:
    """The base of a model with LoRA layers, with what these change in its weights; in place.

    Raises:
        InputError: a changed weight is another layer's, too, which the change was not for.
    """
    check_untied(changed, path)
    return changed.merge_and_unload().requires_grad_(True)  # as it came, before it was changed


def merged_state(changed: Any) -> dict[str, torch.Tensor]:
    """The tensors of that base by name; the model itself stays as it is."""
    network, state = changed.get_base_model(), {}
    for name, tensor in network.state_dict().items():
        if "lora_" in name or ".original_module." in name:
            continue
        layer, base, own = name.rpartition(".base_layer.")
        if base and own == "weight":
            change = network.get_submodule(layer).get_delta_weight("default")
            tensor = tensor + change.to(tensor.dtype)
        plain = f"{layer}.{own}" if base else name.replace(".modules_to_save.default.", ".")
        state[plain] = tensor
    return state


def check_untied(changed: Any, path: str) -> None:
    """InputError if LoRA changes a weight in one of several layers that share it."""
    layers: dict[int, list[str]] = {}
    lora = set()
    for name, module in changed.get_base_model().named_modules():
        if isinstance(weight := getattr(module, "weight", None), torch.nn.Parameter):
            layers.setdefault(id(weight), []).append(name)
        if hasattr(module, "base_layer"):
            lora.add(name)
    for names in layers.values():
        plain = {name.removesuffix(".base_layer") for name in names}
        if len(plain) > 1 and (both := plain & lora):
            raise InputError(
                f"--base {path}: LoRA of {min(both)}, whose weight other layers share "
                f"({', '.join(sorted(plain - both))}), cannot be merged: choose other "
                "--lora-targets"
            )
