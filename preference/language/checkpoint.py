"""Completeness and identity of a checkpoint.

A missing tensor, or one of another shape, is drawn at random when the model is loaded: the model
trained and released is then no longer the one that was named. So a checkpoint has exactly the
tensors of the architecture that its own configuration declares, except a head that the task does
not use, or that it brings anew.

Its identity is a SHA-256 of everything that decides what is computed: weights, configuration and
tokenizer; of an adapter also those of the base that it changes.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from murmuration.preference.data.errors import InputError, first_line, with_extra
from murmuration.preference.data.sources import hub_is_reachable
from murmuration.preference.gguf import converted, is_gguf, origin_of
from murmuration.preference.language.adapter_config import ADAPTER, adapted
from murmuration.preference.online import MINILM, MINILM_HUB, minilm_folder
from murmuration.privacy.regular_files import check_folder

#: The extra of language models, and what it is for.
NEEDED = ("lm", "--base needs transformers")
#: Adapters that may be put on each other.
MOST_ADAPTERS = 16
#: Files of tokenizers as transformers writes them, beside those of models that count pieces.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)
#: What decides beside weights, by pattern.
_SMALL = ("config.json", ADAPTER, *TOKENIZER_FILES, "chat_template.*", "*.model")
#: Weights, by pattern; the second where there are none of the first, as transformers reads them.
_WEIGHTS = (
    ("model*.safetensors", "adapter_model.safetensors"),
    ("pytorch_model*.bin", "adapter_model.bin"),
)
_MOST_NAMED = 8
#: Of heads for pretraining that checkpoints have beside the one that they declare.
_HEADS = ("cls", "predictions", "sop_classifier", "lm_head", "embed_out", "qa_outputs")
#: SHA-256 of files, by path, size and time of the last change.
_hashed: dict[tuple[str, int, int], str] = {}


def has_minilm() -> bool:
    """True if `minilm` is available here without a network, and transformers is installed."""
    if find_spec("transformers") is None:
        return False
    try:
        return folder_of(MINILM).is_dir()
    except OSError:
        return False


def folder_of(path: str, *, local: bool = True) -> Path:
    """The folder that holds a model: itself, or the snapshot of a hub name; that of `minilm`; that
    into which a GGUF file is converted.

    Raises:
        OSError: nothing of that name is there.
    """
    if path == MINILM:
        if (packaged := minilm_folder()) is not None:
            return packaged
        path = MINILM_HUB
    elif Path(path).is_dir():
        check_folder(Path(path))
        return Path(path)
    elif is_gguf(path):
        return converted(path)
    with with_extra(*NEEDED):
        from transformers.utils.hub import cached_file

    # Of what a hub does not have, or has not been asked for yet, nothing is said.
    quiet = {"_raise_exceptions_for_missing_entries": False, "local_files_only": local}
    for name in (ADAPTER, "config.json"):
        quiet["_raise_exceptions_for_connection_errors"] = name == "config.json"
        if (result := cached_file(path, name, **quiet)) is not None:
            return Path(result).parent
    raise OSError(f"{path} has no config.json")


def chain_of(path: str) -> Iterator[tuple[str, Path]]:
    """A model's name and folder and, where it is an adapter, those of all that it is put on.

    Raises:
        OSError: nothing of a name is there.
        InputError: an adapter cannot be read, is put on itself, or on too many others.
    """
    seen: set[Path] = set()
    while path:
        folder = folder_of(path, local=Path(path).is_dir() or not hub_is_reachable())
        if (place := folder.resolve()) in seen:
            raise InputError(f"{folder}: an adapter that is put on itself")
        if len(seen) > MOST_ADAPTERS:
            raise InputError(f"{folder}: more than {MOST_ADAPTERS} adapters are put on each other")
        seen.add(place)
        yield path, folder
        path = adapted(folder)


def origin_below(path: str) -> dict[str, str]:
    """The ``origin_of`` of a model's folder or, for an adapter, of the base at the end of its
    chain; empty if there is none.
    """
    if not path or not Path(path).is_dir():
        return {}
    try:
        folders = [folder for _, folder in chain_of(path)]
    except (OSError, InputError):
        return {}
    return origin_of(folders[-1])


def fetch(path: str, folder: Path, *names: str) -> None:
    """Let the snapshot of a hub name hold these files, too, of those that its commit has.

    Without a network nothing is fetched.
    """
    if Path(path).is_dir():
        return
    from transformers.utils.hub import cached_file

    for name in names:
        cached_file(
            path,
            name,
            revision=revision_of(folder),
            local_files_only=not hub_is_reachable(),
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )


def revision_of(folder: Path) -> str:
    """The commit of a hub's snapshot; empty for any other folder."""
    return folder.name if folder.parent.name == "snapshots" else ""


def digest_of(folder: Path, *bases: str) -> str:
    """SHA-256 in hex of what decides what a model computes, and of the digests of its ``bases``.

    Files are read as streams, and once in a process while path, size and time stay.
    """
    return _digest({*_weights(folder), *_matching(folder, _SMALL)}, *bases)


def weights_digest(folder: Path) -> str:
    """SHA-256 in hex of a model's weights alone; of an adapter those that are its own."""
    return _digest(_weights(folder))


def _digest(files: Iterable[Path], *bases: str) -> str:
    whole = hashlib.sha256()
    named = sorted(files, key=lambda file: file.name)
    for line in (*bases, *(f"{file.name} {_hash(file)}" for file in named)):
        whole.update(f"{line}\n".encode())
    return whole.hexdigest()


def _weights(folder: Path) -> list[Path]:
    return next((some for patterns in _WEIGHTS if (some := [*_matching(folder, patterns)])), [])


def _matching(folder: Path, patterns: Iterable[str]) -> Iterable[Path]:
    return (file for pattern in patterns for file in folder.glob(pattern) if file.is_file())


def _hash(file: Path) -> str:
    about = file.stat()
    key = (str(file.resolve()), about.st_size, about.st_mtime_ns)
    if key not in _hashed:
        with file.open("rb") as stream:
            _hashed[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _hashed[key]


def reason(error: Exception) -> str:
    """Why transformers loads nothing, in a line."""
    if "trust_remote_code" in str(error):
        return "it needs code of its own (auto_map), and none but that of transformers is ever run"
    return first_line(error)


def not_there(what: str, error: Exception) -> str:
    """The reason why a name that is not a folder gives no ``what``: no network, or the hub's own
    reason.
    """
    if hub_is_reachable():
        return f"there is no such folder here, and the hub gives no {what}: {reason(error)}"
    return (
        f"there is no such folder here, and the hub gives no {what} without a network: its cache "
        "on this machine has none of that name (HF_HUB_OFFLINE=1 also forbids to ask)"
    )


def check_same(path: str, found: str, stated: str, revision: str = "") -> None:
    """InputError if the digest that was found is not the one stated; empty: nothing was stated."""
    if stated and found != stated:
        of = f" (revision {revision})" if revision else ""
        raise InputError(
            f"--base {path}: another model is here than the one that was stated: its weights, "
            f"configuration or tokenizer differ{of}; SHA-256 {found[:16]}…, stated {stated[:16]}…"
        )


def check_complete(
    path: str, model: Any, loading: Mapping[str, Any], config: Any, *, new_head: bool
) -> None:
    """Check that a checkpoint had exactly the tensors of its model.

    Args:
        path: for the message.
        model: the network, loaded.
        loading: transformers' information about the loading.
        config: the checkpoint's own configuration.
        new_head: whether the task brings a head, where the checkpoint has none or one of another
            width.

    Raises:
        InputError: names what is missing, of another shape, or too much.
    """
    own = _own_names(config)
    body = {_plain(model, name) for name in model.base_model.state_dict()}
    # What makes one vector of an encoder's states belongs to its head.
    expected = own | {name for name in body if "pooler" not in name}
    tops = {name.split(".")[0] for name in body}
    heads = {*_HEADS, *(name.split(".")[0] for name in own)} - tops
    # Buffers are computed, and earlier versions of transformers saved them.
    known = own | {_plain(model, name) for name, _ in model.named_buffers()}

    def is_dropped(name: str) -> bool:
        """True if a tensor belongs to a head that the task does not use, or is no weight."""
        top = name.split(".")[0]
        return name in known or (top in heads if own else top not in tops)

    missing, unexpected = (
        [str(name) for name in loading[f"{which}_keys"]] for which in ("missing", "unexpected")
    )
    cut = [
        f"{name} {tuple(shape)} for {tuple(wanted)}"
        for name, shape, wanted in loading["mismatched_keys"]
        if _plain(model, str(name)) in body or not new_head
    ]
    _refuse(
        path,
        lacking=[name for name in missing if _plain(model, name) in expected],
        cut=cut,
        unknown=[name for name in unexpected if not is_dropped(_plain(model, name))],
    )


def check_adapter(path: str, expected: Mapping[str, torch.Tensor], found: Mapping[str, Any]):
    """Check the tensors of an adapter in the same way; all of them are its own.

    Raises:
        InputError: as ``check_complete``.
    """
    shared = expected.keys() & found.keys()
    _refuse(
        path,
        lacking=expected.keys() - found.keys(),
        cut=[name for name in shared if expected[name].shape != found[name].shape],
        unknown=found.keys() - expected.keys(),
    )


def _refuse(
    path: str, *, lacking: Collection[str], cut: Collection[str], unknown: Collection[str]
) -> None:
    """InputError for a checkpoint with tensors that are missing, of another shape, or too many."""
    wrong = {
        "it lacks": lacking,
        "of another shape than the configuration's are": cut,
        "nothing is known of": unknown,
    }
    if told := "; ".join(f"{what} {_listed(names)}" for what, names in wrong.items() if names):
        raise InputError(f"--base {path}: the checkpoint is not that of its model: {told}")


def _own_names(config: Any) -> set[str]:
    """Names of the tensors of the architecture that a configuration declares; empty: none."""
    import transformers

    declared = (getattr(config, "architectures", None) or [""])[0]
    kind = getattr(transformers, str(declared), None)
    # A file's word: nothing else of that library is to be called.
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        return set()
    with torch.device("meta"):
        own = kind(config)
    return {_plain(own, name) for name in own.state_dict()}


def _plain(model: Any, name: str) -> str:
    """A tensor's name without what its class calls the network under the head."""
    return name.removeprefix(f"{model.base_model_prefix}.")


def _listed(names: Collection[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(sorted(names)[:_MOST_NAMED]) + more
