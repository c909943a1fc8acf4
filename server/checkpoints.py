"""A run after a round, on disk: the strategy's arrays, the ledger's head, and a checksum of it all.

A safetensors file. The checksum is over names, types, shapes and values, so that a bit that was
flipped is noticed and never trained on.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting.chained_record import Head
from murmuration.privacy.durable_files import replace_file

#: Where it lies in a run's folder.
PLACE = Path("checkpoint") / "state.safetensors"
_ROUND, _LINES, _HASH, _CHECK = "round", "ledger_lines", "ledger_hash", "sha256"


@dataclass(frozen=True)
class Checkpoint:
    """The strategy's state after ``round``, and the ledger's head at that time."""

    round: int
    state: dict[str, np.ndarray] = field(repr=False)
    head: Head


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint of a run's folder; it is on disk when this returns."""
    arrays = {
        **checkpoint.state,
        _ROUND: np.array([checkpoint.round]),
        _LINES: np.array([checkpoint.head.index]),
        _HASH: np.frombuffer(bytes.fromhex(checkpoint.head.hash), dtype=np.uint8),
    }
    replace_file(folder / PLACE, safetensors.save({**arrays, _CHECK: _checksum(arrays)}))


def load(folder: Path) -> Checkpoint | None:
    """What was saved in a run's folder; None if there is none.

    Raises:
        InputError: it is damaged, or cannot be read.
    """
    path = folder / PLACE
    advice = (
        "bring back an undamaged copy, or remove it: rounds are then run from the first again, and "
        "charged again"
    )
    try:
        arrays = safetensors.load(path.read_bytes())
        if not np.array_equal(arrays.pop(_CHECK), _checksum(arrays)):
            raise ValueError("its checksum is another")
        head = Head(int(arrays.pop(_LINES)[0]), arrays.pop(_HASH).tobytes().hex())
        return Checkpoint(int(arrays.pop(_ROUND)[0]), arrays, head)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (SafetensorError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path} is damaged ({error}): {advice}") from None


def _checksum(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """SHA-256 of all of them, uint8 (32,)."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}\x1f{array.dtype.str}\x1f{array.shape}\x1f".encode())
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)
