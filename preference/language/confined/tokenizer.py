"""Tokenizers of owners' nodes: untrusted ones run in a process with limits.

A tokenizer's patterns and rules of normalization and its chat template are programs of the folder's
author: one can take hours for a text, or all memory. On a deployed node it is therefore loaded and
used in a child (`preference.language.confined.tokenizer_child`) and never in the process that
answers for an owner, which gets numbers and texts of bounded length. The child's limits follow from
its input: seconds of a processor to begin with and for each character since then, a fixed amount of
memory, and bytes of an answer for each character. A tokenizer that takes more is refused once and
for all by its process, in one line that names the folder.

In a simulation a model is the person's own, and its tokenizer is loaded as usual.
"""

import json
import math
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.files.child import started
from murmuration.preference.language.checkpoint import folder_of
from murmuration.preference.language.confined import tokenizer_child
from murmuration.preference.within import within

#: Seconds of a processor for loading and all that comes, and for each character and text besides.
#: A large vocabulary takes 2 to load; templates take 0.1 ms a text, and a tokenizer written in
#: Python 10 µs a character.
SECONDS, SECONDS_PER_CHARACTER = 60, 2e-5
#: What a text counts for, in characters, besides its own.
TEXT = 100
#: Seconds in all for each of a processor: on a busy machine nobody's tokenizer is too slow.
PATIENCE = 10
#: Bytes of the child's memory, with the libraries that it needs.
MEMORY = 4 << 30
#: Bytes that texts may become, for each character: 16 tokens, four of them in a character of odd
#: bytes. Bytes that a template may write: for each character, and besides. Of a tokenizer as such.
TOKEN_BYTES, EXCHANGE_BYTES, EXCHANGE, MOST_BYTES = 64, 8, 1 << 13, 1 << 28
_PART = 1_000_000  # characters that are tokenized at a time, a text as ``TEXT`` more
_CHILD = Path(__file__).with_name("tokenizer_child.py")
_PACKAGES = ("transformers", "tokenizers", "jinja2", "numpy")
#: Nobody is asked for anything, and no threads of libraries that are not used.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_confined: ContextVar[bool] = ContextVar("confined", default=False)
#: Why tokenizers were refused while they were loaded, by folder.
_refused: dict[Path, str] = {}


def confined(active: bool = True) -> AbstractContextManager[None]:
    """Within the block tokenizers are loaded into processes with limits, if it is ``active``."""
    return within(_confined, active)


def is_confined() -> bool:
    """True if tokenizers are loaded into processes with limits."""
    return _confined.get()


def load_tokenizer(path: str, *, local: bool) -> Any:
    """Load the tokenizer of a folder or hub name: transformers' own, or a `ConfinedTokenizer`.

    Args:
        path: a folder, or a name on a hub.
        local: whether only what is on this machine is looked at; a confined one always is.

    Raises:
        InputError: it is confined, and took more than it may.
        Exception: what transformers raises for files that give none, of many types.
    """
    if _confined.get():
        return ConfinedTokenizer(folder_of(path).absolute())
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, local_files_only=local, trust_remote_code=False)


def serialized(tokenizer: Any) -> str:
    """The whole definition of a tokenizer, as its library writes it; empty for one in Python."""
    if isinstance(tokenizer, ConfinedTokenizer):
        return tokenizer.serialized
    fast = getattr(tokenizer, "backend_tokenizer", None)
    return fast.to_str() if fast is not None else ""


def control_tokens(tokenizer: Any) -> Sequence[str]:
    """A tokenizer's special tokens, which mark structure and are not text."""
    if isinstance(tokenizer, ConfinedTokenizer):
        return tokenizer.control_tokens
    return tokenizer_child.control_tokens(tokenizer)


def written(tokenizer: Any, messages: Sequence[Mapping[str, str]], *, invites: bool) -> str:
    """Messages as the chat template writes them; the template reads nothing else.

    ``invites``: with an invitation to answer at the end.

    Raises:
        InputError: a confined one took more than it may, or takes no such messages.
        Exception: what a template raises by itself, of many types.
    """
    if isinstance(tokenizer, ConfinedTokenizer):
        return tokenizer.exchange(messages, add_generation_prompt=invites)
    return tokenizer_child.written(tokenizer, messages, add_generation_prompt=invites)


class ConfinedTokenizer:
    """The tokenizer of a folder, in a process that lives as long as this object.

    It has those attributes and methods of transformers' own that turning texts into tokens needs,
    with the same values. A padding token is the end of text, where the tokenizer has none.

    Args:
        folder: where it lies.

    Raises:
        InputError: loading it took more than it may.
        ValueError: the folder gives no tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._weight, self._lock = folder, 0, threading.Lock()
        self._refusal = _refused.get(folder, "")
        self._check()
        self._process, self._socket = started(_CHILD, _PACKAGES, _ENVIRONMENT)
        self._answers = self._socket.makefile("rb")
        self._end = weakref.finalize(self, _end, self._process, self._socket, self._answers)
        try:
            about, _ = self._ask("load", folder=str(folder))
        except InputError:
            _refused[folder] = self._refusal
            raise
        if "end" in about:
            self._end()
            raise ValueError(about["why"])
        self.is_fast: bool = about["is_fast"]
        self.serialized: str = about["serialized"]
        self.special_tokens_map: Mapping[str, str] = about["special_tokens_map"]
        self.all_special_ids: Sequence[int] = about["all_special_ids"]
        self.chat_template: str | Mapping[str, str] | None = about["chat_template"]
        self.control_tokens: Sequence[str] = about["control_tokens"]
        self.model_max_length: int = about["model_max_length"]
        self.pad_token_id: int | None = about["pad_token_id"]
        self.eos_token_id: int | None = about["eos_token_id"]
        self.cls_token_id: int | None = about["cls_token_id"]
        self.sep_token_id: int | None = about["sep_token_id"]
        self._length: int = about["length"]

    def __len__(self) -> int:
        return self._length

    def __call__(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, **options: Any
    ) -> dict[str, list[list[int]]]:
        """The tokens of each text (``input_ids``), and the tokenizer's other outputs for each.

        Args:
            texts: what is tokenized.
            pairs: the second of each pair; None: texts by themselves.
            options: as of transformers' own.

        Raises:
            InputError: it took more than it may, or breaks off at a text.
        """
        lengths_T = [len(text) for text in texts]
        if pairs is not None:
            lengths_T = [one + len(two) for one, two in zip(lengths_T, pairs, strict=True)]
        result: dict[str, list[list[int]]] = {"input_ids": []}
        for first, end in parts(lengths_T):
            weight = sum(lengths_T[first:end]) + TEXT * (end - first)
            reply, numbers = self._ask(
                "tokens",
                weight,
                TOKEN_BYTES * weight,
                texts=list(texts[first:end]),
                pairs=None if pairs is None else list(pairs[first:end]),
                options=options,
            )
            if "end" in reply:
                raise InputError(f"{self._folder}: the model's tokenizer breaks off at a text")
            ends_T = list(accumulate(reply["lengths"]))
            for name, row in zip(
                reply["fields"], np.split(numbers, len(reply["fields"])), strict=True
            ):
                rows = [part.tolist() for part in np.split(row, ends_T[:-1])]
                result.setdefault(name, []).extend(rows)
        return result

    def exchange(self, messages: Sequence[Mapping[str, str]], **options: Any) -> str:
        """Messages as the chat template writes them, as in `written`.

        Raises:
            InputError: it took more than it may, or takes no such messages.
        """
        weight = TEXT + sum(len(message["content"]) for message in messages)
        most = EXCHANGE + EXCHANGE_BYTES * weight
        reply, _ = self._ask("exchange", weight, most, messages=list(messages), options=options)
        if "end" in reply:
            raise InputError(f"{self._folder}: the model's chat template breaks off at a text")
        return reply["text"]

    def get_vocab(self) -> dict[str, int]:
        """The number of each token."""
        return self._ask("vocabulary")[0]["vocabulary"]

    def _ask(
        self, kind: str, weight: int = 0, most: int = MOST_BYTES, **arguments: Any
    ) -> tuple[dict[str, Any], np.ndarray]:
        """The child's answer, of at most ``most`` bytes, to a request about ``weight`` characters.
        InputError if the child exceeded its limits, for this request and all later ones.
        """
        with self._lock:
            self._check()
            self._weight += weight
            seconds = SECONDS + math.ceil(self._weight * SECONDS_PER_CHARACTER)
            request = {"kind": kind, "arguments": arguments, "seconds": seconds, "memory": MEMORY}
            reply, numbers = {"end": "died"}, b""
            try:
                self._socket.settimeout(float(PATIENCE * seconds))
                self._socket.sendall(json.dumps(request).encode() + b"\n")
                if (line := self._answers.readline(most)).endswith(b"\n"):
                    reply = json.loads(line)
                    size = 4 * len(reply.get("fields", ())) * sum(reply.get("lengths", ()))
                    numbers = self._answers.read(size) if size <= most else b""
                    if len(numbers) < size:
                        reply = {"end": "died" if size <= most else "long"}
                elif line:
                    reply = {"end": "long"}
            except TimeoutError:
                reply = {"end": "time"}
            except (OSError, ValueError):
                reply = {"end": "died"}
            if reply.get("end", "failed") != "failed":
                self._refusal = f"{self._folder}: {self._why(reply['end'], seconds)}"
            self._check()
            return reply, np.frombuffer(numbers, np.int32)

    def _why(self, end: str, seconds: int) -> str:
        """End the child; why, in words."""
        self._end()
        status = self._process.wait()
        if end == "time" or (end == "died" and status == -signal.SIGXCPU):
            return f"tokenizing takes longer than {seconds:,} seconds"
        if end == "memory" or status == -signal.SIGABRT:  # of a library in Rust
            return f"tokenizing takes more than {MEMORY:,} bytes of memory"
        if end == "long":
            return "tokenizing makes too much of a text"
        return "what tokenizes broke off"

    def _check(self) -> None:
        if self._refusal:
            raise InputError(self._refusal)


def parts(lengths_T: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and end index of parts of texts, each of bounded total length: the output of
    one part is in memory at a time.
    """
    first, weight = 0, 0
    for place, length in enumerate(lengths_T):
        weight += length + TEXT
        if weight >= _PART or place + 1 == len(lengths_T):
            yield first, place + 1
            first, weight = place + 1, 0


def _end(process: subprocess.Popen[bytes], ours: socket.socket, answers: IO[bytes]) -> None:
    """End a child and what it was asked by."""
    process.kill()
    for each in (answers, ours):
        each.close()
    process.wait()
