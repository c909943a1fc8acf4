"""Whether a checkpoint is whole, and which one it is.

A tensor that is not there is drawn at random by whoever loads the model, and one of another shape
too: what is then trained, and released, is no longer the model that was named. So a checkpoint has
exactly the tensors of the architecture that its own configuration declares, but for a head that the
task does not use, or that it brings anew.

Which one it is, is told by a SHA-256 over everything that decides what is computed: weights,
configuration and tokenizer; of an adapter also those of the base that it changes.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from murmuration.preference.base_names import place_of
from murmuration.preference.data.judgements import InputError
from murmuration.preference.data.sources import first_line, hub_is_reachable
from murmuration.preference.gguf import converted, is_gguf, origin_of
from murmuration.preference.online import MINILM, MINILM_HUB, minilm_folder

ADAPTER = "adapter_config.json"
#: What decides beside weights, by pattern.
_SMALL = (
    "config.json",
    ADAPTER,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.*",
    "*.model",
)
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
    """Return whether `minilm` can be had here without a network, and what reads it is installed."""
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
        return Path(path)
    elif is_gguf(path):
        return converted(path)
    try:
        from transformers.utils.hub import cached_file
    except ImportError:
        raise InputError("--base needs transformers: pip install 'murmuration-rlhf[lm]'") from None

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
        InputError: an adapter cannot be read, or is put on itself.
    """
    seen: set[Path] = set()
    while path:
        folder = folder_of(path, local=Path(path).is_dir() or not hub_is_reachable())
        if (place := folder.resolve()) in seen:
            raise InputError(f"{folder}: an adapter that is put on itself")
        seen.add(place)
        yield path, folder
        path = adapted(folder)


def origin_below(path: str) -> dict[str, str]:
    """Return the ``origin_of`` of a model's folder or, where it is an adapter, of the base that it
    is put on in the end; empty where nothing is there."""
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
    """Return the files of a model's weights."""
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
    """Return in words why a name that is no folder gives no ``what``: no network, or the hub's
    reason."""
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
    """That a checkpoint had what its model has, and nothing else.

    Args:
        path: for the message.
        model: the network, loaded.
        loading: what transformers says of the loading.
        config: the checkpoint's own configuration.
        new_head: whether the task brings a head, where the checkpoint has none or one of another
            width.

    Raises:
        InputError: names what is missing, of another shape, or too much.
    """
    own = _own_names(config)
    body = {_plain(model, name) for name in model.base_model.state_dict()}

    def anew(name: str) -> bool:
        """Return whether the task's architecture has it, and the checkpoint's own has not."""
        plain = _plain(model, name)
        # What makes one vector of an encoder's states belongs to its head.
        return (plain not in body or "pooler" in plain) and plain not in own

    missing = [str(name) for name in loading["missing_keys"]]
    cut = {str(entry[0]): entry for entry in loading["mismatched_keys"]}
    computed = {_plain(model, name) for name, _ in model.named_buffers()}
    tops = {name.split(".")[0] for name in body}
    heads = {*_HEADS, *(name.split(".")[0] for name in own)} - tops

    def dropped(name: str) -> bool:
        """Return whether it is of a head that the task does not use, or no weight: earlier versions
        of transformers saved buffers that are computed."""
        plain = _plain(model, name)
        top = plain.split(".")[0]
        return plain in own or plain in computed or (top in heads if own else top not in tops)

    said = [
        _listed("it lacks", [name for name in missing if not anew(name)]),
        _listed(
            "of another shape than the configuration's are",
            [
                f"{name} {tuple(shape)} for {tuple(expected)}"
                for name, (_, shape, expected) in cut.items()
                if not (new_head and _plain(model, name) not in body)
            ],
        ),
        _listed(
            "nothing is known of",
            [str(name) for name in loading["unexpected_keys"] if not dropped(str(name))],
        ),
    ]
    _refuse(path, said)


def check_adapter(path: str, expected: Mapping[str, torch.Tensor], found: Mapping[str, Any]):
    """The same of an adapter's tensors, which are all its own.

    Raises:
        InputError: as ``check_complete``.
    """
    said = [
        _listed("it lacks", expected.keys() - found.keys()),
        _listed(
            "of another shape than the configuration's are",
            [
                name
                for name in expected.keys() & found.keys()
                if tuple(expected[name].shape) != tuple(found[name].shape)
            ],
        ),
        _listed("nothing is known of", found.keys() - expected.keys()),
    ]
    _refuse(path, said)


def _refuse(path: str, said: Iterable[str]) -> None:
    """InputError for what is said, if anything is."""
    if wrong := "; ".join(text for text in said if text):
        raise InputError(f"--base {path}: the checkpoint is not that of its model: {wrong}")


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


def _listed(what: str, names: Collection[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{what} {', '.join(sorted(names)[:_MOST_NAMED])}{more}"


def adapted(folder: Path) -> str:
    """Return what an adapter in a folder changes: a folder, or a hub name; empty where there is
    none.

    Raises:
        InputError: its configuration cannot be read, or names nothing, or nothing that is here.
    """
    place = folder / ADAPTER
    if not place.exists():
        return ""
    try:
        base = json.loads(place.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{place}: cannot be read: {error}") from None
    if not isinstance(base, str) or not base:
        raise InputError(f"{place}: names no model that the adapter changes")
    return place_of(base, folder)


def name_base(folder: Path, name: str) -> None:
    """Let an adapter in a folder call its base so; nothing where there is no adapter."""
    place = folder / ADAPTER
    if place.exists():
        about = json.loads(place.read_text(encoding="utf-8"))
        about["base_model_name_or_path"] = name
        place.write_text(json.dumps(about, indent=2, sort_keys=True) + "\n", encoding="utf-8")
