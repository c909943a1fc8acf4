"""Loading a language model from a folder or a hub.

Its head gives one number, a reward, or it is the one that it came with, for the next token.

What transformers and peft say when something does not fit becomes one line that names the option.
Random weights are drawn with a fixed seed: every node begins with the same network.

A folder, or a hub, gives numbers and never code: the module that an ``auto_map`` names is never
imported (transformers would ask at a terminal), and pickled weights are read with ``weights_only``,
as transformers and peft do by themselves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from murmuration.preference.data.errors import InputError, with_extra
from murmuration.preference.data.sources import hub_is_reachable
from murmuration.preference.language.adapters import (
    CAUSAL,
    REWARD,
    SEED,
    kind_of,
    merge,
    with_adapter,
)
from murmuration.preference.language.base.layers import layers_of
from murmuration.preference.language.checkpoint import (
    NEEDED,
    chain_of,
    check_complete,
    digest_of,
    not_there,
    reason,
    revision_of,
)
from murmuration.preference.language.confined.tokenizer import load_tokenizer

_OURS = {"trust_remote_code": False}  # None, the default, would ask


@dataclass(frozen=True)
class Contents:
    """The model at a path or name: its SHA-256, a hub's commit, and, for an adapter, the ``merged``
    base whose weights it is merged into when it is loaded.
    """

    digest: str
    revision: str
    merged: str


def contents_of(path: str) -> Contents:
    """The base's digest and revision now, and the base of an adapter.

    Raises:
        InputError: nothing is there.
    """
    with _in_one_line(path):
        names, folders = zip(*chain_of(path), strict=True)
    digests: list[str] = []  # at most one, of what the next is put on
    for folder in reversed(folders):
        digests = [digest_of(folder, *digests)]
    return Contents(digests[0], revision_of(folders[0]), names[1] if len(names) > 1 else "")


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
    with with_extra(*NEEDED):
        import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with _in_one_line(path):
        chain = [*chain_of(path)]
    (_, folder), new = chain[0], set[str]()
    if not weights:
        model = _outline(chain[-1][0], kind)
    elif len(chain) > 1:
        model = _merged(folder, chain[1][0], kind).to(dtype)
    else:
        model, new = _network(path, kind, dtype)
    written = path
    if len(chain) > 1 and not (folder / "tokenizer_config.json").exists():
        written = chain[1][0]
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
    """The network of a whole checkpoint, without its weights."""
    with with_extra(*NEEDED):
        import transformers
    with _in_one_line(path) as local, torch.device("meta"):
        config = _config(path, local, **_labels(kind))
        return getattr(transformers, kind).from_config(config, dtype=torch.float32, **_OURS)


def _config(path: str, local: bool, **labels: int) -> Any:
    """A checkpoint's configuration; InputError for weights that are stored quantised: which layers
    are, their file decides."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(
        path, local_files_only=local, **_OURS, **labels
    )
    if (stored := getattr(config, "quantization_config", None)) is None:
        return config
    how = stored.get("quant_method", "") if isinstance(stored, dict) else type(stored).__name__
    raise InputError(f"--base {path}: stored quantised ({how}): take what it was made from")


def _network(path: str, kind: str, dtype: torch.dtype) -> tuple[Any, set[str]]:
    """The network of a whole checkpoint, and the parameters of a head that it does not have."""
    import transformers

    with _in_one_line(path) as local, torch.random.fork_rng(devices=[]):
        config = _config(path, local)
        torch.manual_seed(SEED)
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
    """True if another last token leaves the output for the tokens before it unchanged.

    This is measured: the configurations of encoders and of causal models are alike.
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


@lru_cache(maxsize=8)
def last_or_all(path: str, causal: bool, digest: str, count: int) -> str:
    """A network's last ``count`` layers, as `preference.choices.LORA_LAYERS` spells them; all if
    there are no more, or its layers are not known.

    Args:
        path: of the base.
        causal: whether it is a causal language model.
        digest: of the base, as the key of the cache.
        count: the number of layers.

    Raises:
        InputError: it cannot be read, or transformers is not installed.
    """
    del digest
    with _in_one_line(path):
        *_, (base, _) = chain_of(path)
    outline = _outline(base, CAUSAL if causal else REWARD)
    try:
        _, blocks = layers_of(outline, path, "--lora-layers")
    except InputError:
        return "all"
    return f"last:{count}" if len(blocks) > count else "all"
