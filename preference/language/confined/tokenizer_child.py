"""The program that runs a tokenizer: ``python -I tokenizer_child.py SOCKET PATH…``.

Patterns, rules of normalization and chat templates are programs, which may take any time and
memory. So they run in this process, which may not; its parent is
`preference.language.confined.tokenizer`. Nothing but the standard library and transformers is
imported, which does without torch: the paths where that lies are named.

A request is a line of JSON, and so is the answer to it; that to texts is followed by their tokens,
as numbers of four bytes.
"""

import json
import math
import random
import resource
import socket
import sys
from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import chain
from threading import Lock
from typing import Any

Answer = tuple[dict[str, Any], bytes]
_SPECIAL = ("pad", "eos", "cls", "sep")
_one_at_a_time = Lock()


class _StandingClock(datetime):
    """A clock that stands at 26 July 2024, the date that such templates write if told no time."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "_StandingClock":
        return cls(2024, 7, 26, tzinfo=tz)


def written(tokenizer: Any, messages: Sequence[Mapping[str, str]], **options: Any) -> str:
    """The chat template's rendering of messages; the template reads nothing else.

    Its clock stands still and its random generator is seeded anew each time; otherwise the same
    texts would be other tokens tomorrow. No argument of transformers sets either.
    """
    from transformers.utils import chat_template_utils as templates

    with _one_at_a_time:
        dice, clock = random.getstate(), templates.datetime  # pyright: ignore
        random.seed(0)
        templates.datetime = _StandingClock  # pyright: ignore
        try:
            return tokenizer.apply_chat_template(messages, tokenize=False, **options)
        finally:
            random.setstate(dice)
            templates.datetime = clock  # pyright: ignore


def control_tokens(tokenizer: Any) -> list[str]:
    """The special tokens, which mark structure and are not text."""
    return [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]


class Served:
    """A tokenizer, once it is loaded, and the answers to requests by their kind."""

    tokenizer: Any = None

    def load(self, folder: str) -> Answer:
        """Load the tokenizer of a folder; its properties that do not depend on texts."""
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        if loaded.pad_token_id is None and loaded.eos_token_id is not None:
            loaded.pad_token = loaded.eos_token
        self.tokenizer, special = loaded, loaded.special_tokens_map
        about = {
            "length": len(loaded),
            "is_fast": loaded.is_fast,
            "serialized": loaded.backend_tokenizer.to_str() if loaded.is_fast else "",
            "special_tokens_map": {name: str(token) for name, token in special.items()},
            "all_special_ids": loaded.all_special_ids,
            "chat_template": loaded.chat_template,
            "control_tokens": control_tokens(loaded),
            "model_max_length": int(loaded.model_max_length),
        }
        ids = {f"{name}_token_id": getattr(loaded, f"{name}_token_id") for name in _SPECIAL}
        return {**about, **ids}, b""

    def vocabulary(self) -> Answer:
        """The number of each token."""
        return {"vocabulary": self.tokenizer.get_vocab()}, b""

    def tokens(self, texts: list[str], pairs: list[str] | None, options: dict[str, Any]) -> Answer:
        """The tokens of texts, or of pairs of texts, and the tokenizer's other outputs."""
        fields = dict(self.tokenizer(texts, pairs, **options))
        lengths = [len(row) for row in fields["input_ids"]]
        numbers = (array("i", chain.from_iterable(rows)).tobytes() for rows in fields.values())
        return {"fields": [*fields], "lengths": lengths}, b"".join(numbers)

    def exchange(self, messages: list[dict[str, str]], options: dict[str, Any]) -> Answer:
        """The chat template's rendering of messages."""
        return {"text": written(self.tokenizer, messages, **options)}, b""


def answer(served: Served, request: dict[str, Any]) -> Answer:
    """The answer to a request: a line, and the bytes after it."""
    try:
        return getattr(served, request["kind"])(**request["arguments"])
    except MemoryError:
        return {"end": "memory"}, b""
    except BaseException as error:  # a library in Rust raises what is no ``Exception``
        # What is said of texts may quote them.
        why = str(error)[:500] if request["kind"] == "load" else ""
        return {"end": "failed", "why": why}, b""


def _limit(kind: int, most: int) -> None:
    """Let this process take no more of something than ``most``, or than it may already."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main(descriptor: str, *paths: str) -> None:
    """Answer requests until the parent closes the socket."""
    sys.path.extend(paths)
    sys.modules["torch"] = None  # type: ignore[assignment]  # takes seconds, and is not used
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained  # it is imported, before anything is limited
    used = resource.getrusage(resource.RUSAGE_SELF)
    begun, served = math.ceil(used.ru_utime + used.ru_stime), Served()
    _limit(resource.RLIMIT_CORE, 0)  # it would hold texts
    with socket.socket(fileno=int(descriptor)) as parent, parent.makefile("rwb") as stream:
        for message in stream:
            request = json.loads(message)
            _limit(resource.RLIMIT_DATA, request["memory"])
            _limit(resource.RLIMIT_CPU, begun + request["seconds"])
            reply, numbers = answer(served, request)
            line = json.dumps(reply, ensure_ascii=False).encode(errors="surrogatepass")
            stream.write(line + b"\n" + numbers)
            stream.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
