"""Loading a language model, from a folder or a hub, and giving it LoRA layers.

Its head gives one number, a reward, or it is the one that it came with, for the next token.

What transformers and peft say when something does not fit becomes one line that names the option.
Whatever is drawn is drawn from a fixed seed: every node begins with the same network.

A folder, or a hub, gives numbers and never code: what an ``auto_map`` names is not imported, by
nobody's choice (transformers would ask whoever sits at a terminal), and pickled weights are read
with ``weights_only``, as transformers and peft do by themselves.
"""

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from murmuration.preference.choices import LORA_LAYERS
from murmuration.preference.data.judgements import InputError
from murmuration.preference.data.sources import (
    first_line,
    hub_is_reachable,
    is_hub_name,
    looks_like_path,
)
from murmuration.preference.gguf import converted, is_gguf
from murmuration.preference.language.adapters import CAUSAL, REWARD, kind_of, merge, with_adapter
from murmuration.preference.language.checkpoint import (
    adapted,
    chain_of,
    check_complete,
    digest_of,
    folder_of,
    not_there,
    reason,
    revision_of,
)
from murmuration.preference.language.confined.tokenizer import load_tokenizer

_SEED = 0  # of everything that is drawn before training; public
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
_OURS = {"trust_remote_code": False}  # None, the default, would ask
_NEEDED = "--base needs transformers: pip install 'murmuration-rlhf[lm]'"


def resolve_base(path: str) -> str:
    """Return an existing folder's absolute path, or a hub name as it is.

    ``smollm2`` and GGUF files are converted into a folder of the cache first, if they were not yet.

    Raises:
        InputError: there is no such folder, or a GGUF file cannot be converted.
    """
    folder = Path(path).expanduser()
    if is_gguf(path) and not folder.is_dir():
        return str(converted(path))
    if folder.is_dir():
        return str(folder.absolute())
    if not path.strip() or looks_like_path(path) or folder.exists() or not is_hub_name(path):
        raise InputError(f"--base: no such folder: {path!r}")
    return path


@dataclass(frozen=True)
class Contents:
    """Which model a path or name leads to: its SHA-256, the commit of a hub's, and, where it is an
    adapter, the ``merged`` base whose weights it is merged into when it is loaded."""

    digest: str
    revision: str
    merged: str


def contents_of(path: str) -> Contents:
    """Return what is there now; of an adapter with what it changes.

    Raises:
        InputError: nothing is there.
    """
    with _in_one_line(path):
        folders = [folder for _, folder in chain_of(path)]
    digests: list[str] = []  # at most one, of what the next is put on
    for folder in reversed(folders):
        digests = [digest_of(folder, *digests)]
    return Contents(digests[0], revision_of(folders[0]), adapted(folders[0]))


def load_with_head(path: str, dtype: torch.dtype = torch.float32, weights: bool = True):
    """Tokenizer and network with a head of one number, the head's layer, and parameters that the
    checkpoint does not have.

    A head that is among these is zero, and what is below it is drawn. An adapter is merged, in
    float32, into the weights that it changes. Without ``weights`` the network is on the meta
    device, which has names and shapes.

    Raises:
        InputError: there is no such model, or it and its tokenizer do not fit each other.
    """
    tokenizer, model, new = _load(path, REWARD, dtype, weights)
    name, head = _head(model, path)
    if any(f"{name}.weight" in key for key in new):
        torch.nn.init.zeros_(head.weight)
        if head.bias is not None:
            torch.nn.init.zeros_(head.bias)
    return tokenizer, model, name, new


def load_causal(path: str, dtype: torch.dtype = torch.float32, weights: bool = True):
    """Tokenizer and network with its own head for the next token; the rest as `load_with_head`.

    Raises:
        InputError: as `load_with_head`, or the model is an encoder, or has no such head.
    """
    tokenizer, model, new = _load(path, CAUSAL, dtype, weights)
    said = f"--base {path}: no causal language model, which --task text and sft need"
    head = model.get_output_embeddings()
    if head is None or any(
        new & {name, f"{name}.weight"} for name, m in model.named_modules() if m is head
    ):
        raise InputError(f"{said}: the checkpoint has no head for the next token")
    if weights and not _is_causal(model):
        raise InputError(f"{said}: its tokens see what follows, as an encoder's do")
    return tokenizer, model


def _load(path: str, kind: str, dtype: torch.dtype, weights: bool):
    """Tokenizer, network of one of transformers' kinds, and those of its parameters that nothing
    gave: a head's."""
    try:
        import transformers
    except ImportError:
        raise InputError(_NEEDED) from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with _in_one_line(path) as local:
        folder = folder_of(path, local=local)
    base = adapted(folder)
    if not weights:
        model, new = _outline(base or path, kind), set()
    elif base:
        model, new = _merged(folder, base, kind).to(dtype), set()
    else:
        model, new = _network(path, kind, dtype)
    written = base if base and not (folder / "tokenizer_config.json").exists() else path
    with _in_one_line(written) as local:
        tokenizer = load_tokenizer(written, local=local)
    if model.config.is_encoder_decoder:
        raise InputError(f"--base {path}: use a causal model or an encoder, not an encoder-decoder")
    embedded = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > embedded:
        raise InputError(
            f"--base {path}: the tokenizer has {len(tokenizer)} tokens and the model embeds "
            f"{embedded}: they do not belong together"
        )
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise InputError(f"--base {path}: the tokenizer has neither padding nor end of text")
        tokenizer.pad_token = tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer, model, new


def _outline(path: str, kind: str) -> Any:
    """A network without its weights; of an adapter that of what it changes."""
    import transformers

    with _in_one_line(path) as local:
        if base := adapted(folder_of(path, local=local)):
            return _outline(base, kind)
        with torch.device("meta"):
            config = transformers.AutoConfig.from_pretrained(
                path, local_files_only=local, **_OURS, **_labels(kind)
            )
            _check_stored(path, config)
            return getattr(transformers, kind).from_config(config, dtype=torch.float32, **_OURS)


def _network(path: str, kind: str, dtype: torch.dtype) -> tuple[Any, set[str]]:
    """The network of a whole checkpoint, and the parameters of a head that it does not have."""
    import transformers

    with _in_one_line(path) as local, torch.random.fork_rng(devices=[]):
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=local, **_OURS)
        _check_stored(path, config)
        torch.manual_seed(_SEED)
        model, loading = getattr(transformers, kind).from_pretrained(
            path,
            dtype=dtype,
            local_files_only=local,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **_OURS,
            **_labels(kind),
        )
    check_complete(path, model, loading, config, new_head=kind == REWARD)
    mismatched = {str(name) for name, *_ in loading["mismatched_keys"]}
    return model, {*map(str, loading["missing_keys"]), *mismatched}


def _check_stored(path: str, config: Any) -> None:
    """InputError for weights that are stored quantised: which layers are, their file decides."""
    if (stored := getattr(config, "quantization_config", None)) is None:
        return
    how = stored.get("quant_method", "") if isinstance(stored, dict) else type(stored).__name__
    raise InputError(f"--base {path}: stored quantised ({how}): take what it was made from")


def _labels(kind: str) -> dict[str, int]:
    return {"num_labels": 1} if kind == REWARD else {}


def _merged(folder: Path, base: str, kind: str) -> Any:
    """The network that an adapter changes, with its change in the weights.

    One that was trained for the other kind of head gives what is below the head; the head is that
    of the base, or begins at zero.
    """
    own = kind_of(folder)
    below = _load(base, own, torch.float32, weights=True)[1]
    merged = merge(with_adapter(below, folder), str(folder))
    if own == kind:
        return merged
    other = load_with_head(base)[1] if kind == REWARD else load_causal(base)[1]
    other.base_model.load_state_dict(merged.base_model.state_dict())
    return other


@contextmanager
def _in_one_line(path: str) -> Iterator[bool]:
    """Gives whether only what is on this machine can be looked at; InputError for what is raised,
    as broken files raise errors of many unrelated types.
    """
    folder = Path(path).is_dir()
    try:
        yield folder or not hub_is_reachable()
    except InputError:
        raise
    except Exception as error:
        why = f"the folder gives no language model: {reason(error)}"
        raise InputError(
            f"--base {path}: {why if folder else not_there('language model', error)}"
        ) from error


def _is_causal(model: torch.nn.Module) -> bool:
    """Return whether another last token leaves what is said of the tokens before it as it is.

    Tried, not asked: configurations of encoders and of causal models say the same.
    """
    ids_RL = torch.tensor([[0, 1, 0, 0], [0, 1, 0, 1]])
    with torch.no_grad():
        logits_RLV = model.eval()(input_ids=ids_RL).logits
    before_RLV = logits_RLV[:, :-1].float()
    return bool(torch.allclose(before_RLV[0], before_RLV[1], atol=1e-4, rtol=1e-4))


def _head(model: torch.nn.Module, path: str) -> tuple[str, torch.nn.Linear]:
    """The last linear layer with one output."""
    result = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module.out_features == 1
    ]
    if not result:
        raise InputError(f"--base {path}: no linear head of one number was found")
    return result[-1]


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
    """Leave of a network its first ``count`` blocks, and what follows them: a norm, a head.

    Raises:
        InputError: it has fewer, or nothing in it is known as its blocks.
    """
    (_, layers), config = layers_of(model, path, "--head-layer"), model.config
    if count > len(layers):
        raise InputError(f"--head-layer {count}: {path} has {len(layers)} layers")
    for name, value in vars(config).items():
        if name.endswith("layer_types") and isinstance(value, list):
            setattr(config, name, value[:count])
    del layers[count:]
    config.num_hidden_layers = count


def layers_of(model: Any, path: str, option: str) -> tuple[str, torch.nn.ModuleList]:
    """Return a network's layers, its blocks in order, and what they are called in it.

    Raises:
        InputError: nothing in it is known as its layers; ``option`` needs them.
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


@lru_cache(maxsize=8)
def last_or_all(path: str, causal: bool, digest: str, count: int) -> str:
    """Return what `preference.choices.LORA_LAYERS` calls a network's last ``count`` layers, or all
    where there are no more, or nothing in it is known as its layers.

    Args:
        path: of the base.
        causal: whether it says the next token.
        digest: of what is there, by which the answer is known again.
        count: how many layers.

    Raises:
        InputError: it cannot be read, or transformers is not installed.
    """
    del digest
    if find_spec("transformers") is None:
        raise InputError(_NEEDED)
    outline = _outline(path, CAUSAL if causal else REWARD)
    try:
        _, blocks = layers_of(outline, path, "--lora-layers")
    except InputError:
        return "all"
    return f"last:{count}" if len(blocks) > count else "all"


def trained_layers(model: Any, chosen: str, path: str) -> range | None:
    """Return which of a network's layers LoRA changes, counted from 0; None for all.

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

    Modules with ``new`` parameters, which were drawn, are not trained but saved with the adapter:
    whoever loads it would draw others.

    Raises:
        InputError: peft is not installed, or there are no such layers (names those there are).
    """
    try:
        import peft
    except ImportError:
        raise InputError("--train lora needs peft: pip install 'murmuration-rlhf[lm]'") from None
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
            torch.manual_seed(_SEED)
            changed = peft.get_peft_model(
                model,  # type: ignore[arg-type]
                peft.LoraConfig(
                    task_type=peft.TaskType.CAUSAL_LM if causal else peft.TaskType.SEQ_CLS,
                    r=rank,
                    lora_alpha=alpha,
                    lora_dropout=0.0,
                    target_modules=targets or None,
                    fan_in_fan_out=_has_transposed(model, targets),
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
    """Queries and values: as peft has it for the architecture, else by what they are called; empty
    where nothing is called so, or peft has a pattern of names."""
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    if (known := KNOWN.get(model.config.model_type)) is not None:
        return [] if isinstance(known, str) else list(known)
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


def _has_transposed(model: torch.nn.Module, targets: list[str]) -> bool:
    """Return whether what LoRA changes are GPT-2's transposed layers, which peft wants to be
    told."""
    kinds = {
        type(module).__name__
        for name, module in model.named_modules()
        if not targets or name.rpartition(".")[2] in targets
    }
    return "Conv1D" in kinds
