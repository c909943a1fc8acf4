"""The reference of reruns that write: a small model of public text, made once where it may be kept.

To make one takes up to 24 minutes of a core. Where ``MURMURATION_CACHE`` names a folder, it is kept
there under a hash of all that it is made of (shape, training, texts, versions of libraries), and
the next rerun begins at once. It is written beside and renamed, so that it is there whole or not at
all; one whose files are not those that were written is made again. Who comes while another process
makes it waits. Nothing in it is of any user: its texts are public.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from rich.progress import Progress

from murmuration.preference.escaping import get_logger
from murmuration.preference.language.checkpoint import digest_of
from murmuration.preference.language.row_cache import FOLDER, key_of
from murmuration.preference.model_folder import replace_folder
from murmuration.sims.population.tiny_language_model import TinyBase, build
from murmuration.terminal.terminal import Terminal

#: It makes one pass over its texts.
SHAPE = TinyBase(kind="llama", epochs=1, batch=8, rate=4e-3)
_FORMAT, _ABOUT = "murmuration reference 1", "reference.json"
_log = get_logger("murmuration")


@contextmanager
def reference(texts: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """The folder of a reference, made of public exchanges or kept from before, while it is needed.

    What is made without a folder to keep it in is deleted at the end.
    """
    exchanges, named = list(texts), os.environ.get(FOLDER)
    if named:
        try:
            folder = _kept(Path(named).expanduser(), exchanges)
        except OSError as error:
            _log.warning("%s=%s: no reference can be kept there (%s)", FOLDER, named, error)
        else:
            yield str(folder)
            return
    with tempfile.TemporaryDirectory(prefix="murmuration-reference-") as temporary:
        folder = Path(temporary) / "model"
        _make(folder, exchanges)
        yield str(folder)


def _kept(cache: Path, exchanges: list[tuple[str, str, str]]) -> Path:
    """The folder in a cache, made there unless it is whole."""
    versions = [version(name) for name in ("torch", "transformers", "tokenizers")]
    said = [json.dumps(asdict(SHAPE), sort_keys=True), *versions]
    key = key_of(_FORMAT, [*said, *(text for exchange in exchanges for text in exchange)])
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = cache / f"reference-{key}"
    with (cache / f"reference-{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in cache.glob(f".{place.name}.*"):  # by a process that is no more
            shutil.rmtree(left, ignore_errors=True)
        if not _whole(place):
            if place.exists():
                _log.warning("%s is damaged: it is made again", place)

            def write(new: Path) -> None:
                _make(new, exchanges)
                about = json.dumps({"format": _FORMAT, "digest": digest_of(new)})
                (new / _ABOUT).write_text(about + "\n", encoding="utf-8")

            replace_folder(place, write, lambda former: None, overwrite=True)
    return place


def _whole(folder: Path) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError):
        about = json.loads((folder / _ABOUT).read_bytes())
        return about["format"] == _FORMAT and about["digest"] == digest_of(folder)
    return False


def _make(folder: Path, exchanges: list[tuple[str, str, str]]) -> None:
    """Train a reference, with a progress bar on stderr if it is a terminal."""
    console = Terminal(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("reference", total=None)
        build(
            folder,
            SHAPE,
            exchanges,
            lambda step, steps, loss: bar.update(
                task, completed=step, total=steps, description=f"reference, loss {loss:.2f}"
            ),
        )
