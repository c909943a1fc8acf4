"""Keyed hashes of the prompts that a simulated run's users were shown, to refuse them elsewhere.

Prompts that a policy is aligned with must be public, and a run's users' own are not. Who simulates
has the data at hand, and notes them as hashes (HMAC-SHA-256, the key random) in the run's
``private/``, to be compared with later. Only letters and digits count, in either case, so that a
full stop or a blank makes no other prompt of one. Key and hashes stand in one file that
only its owner can read: together they let guesses be tested, like the data beside which they lie.
They are not in the model, the report, the result or anything else that is for release.

A deployed run's server never sees a prompt, so there is no such file.
"""

import hmac
import json
import re
import secrets
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from murmuration.privacy.durable_files import replace_file
from murmuration.server.record.run_files import read_json

PLACE = Path("private") / "shown.json"
_BYTES = 16  # of a hash: among a million prompts two share one with probability 1e-27
_MARKS = re.compile(r"[\W_]+")


def keep(run: Path, prompts: Iterable[str]) -> None:
    """Note the prompts of a run in its folder, beside those that are noted there.

    Whoever calls this has the run's lock, or is the only one who knows the folder.

    Raises:
        InputError: what is noted there is damaged.
        OSError: it cannot be written.
    """
    former = read_json(run / PLACE, "key", "hashes")
    key = former.get("key") or secrets.token_hex(32)
    hashes = {*former.get("hashes", ()), *_hashes(key, {*prompts})}
    # Sorted: the order of a file would say who was shown what beside whom.
    text = json.dumps({"key": key, "hashes": sorted(hashes)})
    replace_file(run / PLACE, text.encode(), mode=0o600)


def shown(run: Path, prompts: Sequence[str]) -> list[int] | None:
    """The places of those prompts that a run's users were shown; None if that is not recorded.

    Raises:
        InputError: what is noted there cannot be read.
    """
    kept = read_json(run / PLACE, "key", "hashes")
    if not kept:
        return None
    hashes = frozenset(kept["hashes"])
    return [place for place, of in enumerate(_hashes(kept["key"], prompts)) if of in hashes]


def _compared(prompt: str) -> str:
    """Letters and digits without case, however they are encoded; of marks alone these."""
    text = unicodedata.normalize("NFKC", prompt).casefold()
    return _MARKS.sub("", text) or " ".join(prompt.split()).casefold()


def _hashes(key: str, prompts: Iterable[str]) -> list[str]:
    secret = bytes.fromhex(key)
    return [hmac.digest(secret, _compared(p).encode(), "sha256")[:_BYTES].hex() for p in prompts]
