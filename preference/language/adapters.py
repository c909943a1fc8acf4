"""LoRA layers: new ones, and adapters that earlier runs, or others, have saved, which are put on
their base and merged into it.

A base that is an adapter is merged into the weights that it changes before anything is trained on
top. Two adapters on one base cannot be distinguished when they are loaded, and a second one on the
raw base would not be what was trained; so what is learnt on a merged base is saved merged, too: a
whole model, which needs no other folder to be where it was.
"""

import warnings
from collections.abc import Collection
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from murmuration.preference.data.errors import InputError, first_line, with_extra
from murmuration.preference.language.adapter_config import adapter_config
from murmuration.preference.language.base.layers import layers_of
from murmuration.preference.language.checkpoint import check_adapter

SEED = 0  # of everything that is drawn before training; public
#: What transformers calls a model with a head of its own, and one that says the next token.
REWARD, CAUSAL = "AutoModelForSequenceClassification", "AutoModelForCausalLM"
#: What layers of queries and values are called, alone or fused with keys.
_QUERIES_AND_VALUES = (
    ("q_proj", "v_proj"),
    ("qkv_proj",),
    ("query_key_value",),
    ("query", "value"),
    ("q_lin", "v_lin"),
    ("q", "v"),
    ("c_attn",),
    ("Wqkv",),
)
_HEADS = ("classifier", "score")  # what peft trains and saves of a model with a head


def with_lora(
    model: torch.nn.Module,
    path: str,
    targets_text: str,
    *,
    rank: int,
    alpha: int,
    layers: range | None = None,
    causal: bool = False,
    new: Collection[str] = (),
) -> torch.nn.Module:
    """The network with LoRA layers, and only these and a reward's head requiring gradients.

    With ``layers``, as of `trained_layers`, LoRA changes what lies in these alone.

    Modules with ``new`` parameters, which were drawn, are not trained but saved with the adapter: a
    loader would draw others.

    Raises:
        InputError: peft is not installed, or there are no such layers (names those there are).
    """
    with with_extra("lm", "--train lora needs peft"):
        import peft
    targets = [name.strip() for name in targets_text.split(",") if name.strip()]
    if targets == ["all-linear"]:
        targets = _all_linear(model)
    targets = targets or _usual_targets(model)
    drawn = _modules_of(model, new)
    among: dict[str, Any] = {}
    if layers is not None:
        name, _ = layers_of(model, path, "--lora-layers")
        pattern = name.rpartition(".")[2]
        among = {"layers_to_transform": [*layers], "layers_pattern": pattern}
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what peft asks transformers, or makes of targets
            torch.manual_seed(SEED)
            changed = peft.get_peft_model(
                model,  # type: ignore[arg-type]
                peft.LoraConfig(
                    task_type=peft.TaskType.CAUSAL_LM if causal else peft.TaskType.SEQ_CLS,
                    r=rank,
                    lora_alpha=alpha,
                    lora_dropout=0.0,
                    target_modules=targets or None,
                    modules_to_save=[*drawn] or None,  # which peft adds the head to
                    **among,
                ),
            )
    except (ValueError, AttributeError) as error:
        names = sorted(
            {
                name.rpartition(".")[2]
                for name, module in model.named_modules()
                if hasattr(module, "weight") and getattr(module.weight, "ndim", 0) == 2
            }
        )
        raise InputError(
            f"--lora-targets {targets_text or '(the default)'}: {first_line(error)} "
            f"Layers of {path}: {', '.join(names)}"
        ) from error
    _check_layers(changed, targets)
    for name, module in changed.get_base_model().named_modules():
        # Also what peft takes for a head by the end of its name: it looks no further.
        if hasattr(module, "modules_to_save") and name.rpartition(".")[2] not in _HEADS:
            module.requires_grad_(False)
    return changed


def _modules_of(model: Any, new: Collection[str]) -> list[str]:
    """Modules on top of a network that have new parameters, without the head's, which peft knows;
    none of a network whose head is all that is new."""
    tops = {name.split(".")[0] for name in new}
    below = {name.split(".")[1] for name in new if name.startswith(f"{model.base_model_prefix}.")}
    result = {f"{model.base_model_prefix}.{name}" for name in below} | tops
    return sorted(result - {model.base_model_prefix, *_HEADS})


def _usual_targets(model: Any) -> list[str]:
    """Queries and values: as peft has it for the architecture, else, or where it has a pattern, by
    what they are called; empty where nothing is called so."""
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    if isinstance(known := KNOWN.get(model.config.model_type), list):
        return [*known]
    there = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    return next((list(names) for names in _QUERIES_AND_VALUES if there.issuperset(names)), [])


def _all_linear(model: Any) -> list[str]:
    """Names of all linear layers below the head."""
    network = model.base_model
    return sorted(
        {name.rpartition(".")[2] for name, layer in network.named_modules() if _is_linear(layer)}
    )


def _is_linear(layer: torch.nn.Module) -> bool:
    return isinstance(layer, torch.nn.Linear) or type(layer).__name__ == "Conv1D"


def _check_layers(changed: Any, targets: list[str]) -> None:
    """InputError if LoRA changes anything but linear layers and embeddings.

    Experts, whose weights peft changes as a whole, see the tokens of all sequences in one row.
    """
    for name, layer in changed.get_base_model().named_modules():
        if (base := getattr(layer, "base_layer", None)) is None:
            continue
        if not (_is_linear(base) or isinstance(base, torch.nn.Embedding)):
            raise InputError(
                f"--lora-targets {','.join(targets)}: {name!r} is no linear layer but a "
                f"{type(base).__name__}, in which users cannot be told apart: leave it out"
            )


def kind_of(folder: Path) -> str:
    """The kind of head that an adapter was trained for; InputError if it is no plain LoRA."""
    return REWARD if adapter_config(folder).get("task_type") == "SEQ_CLS" else CAUSAL


def with_adapter(model: torch.nn.Module, folder: Path) -> Any:
    """A base with the LoRA layers that a folder holds.

    Raises:
        InputError: peft is not installed, they do not fit, or are no plain LoRA.
    """
    with with_extra("lm", f"{folder} needs peft"):
        import peft
    adapter_config(folder)  # within its bounds, or refused before peft reads it
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
