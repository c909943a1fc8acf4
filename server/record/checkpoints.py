"""A run after a round, on disk: the strategy's arrays, the ledger's head, and a checksum of it all.

A safetensors file. The checksum is over names, types, shapes and values, so that a bit that was
flipped is noticed and never trained on.

It is written after each round, while the next is computed, from the arrays that training goes on
with: they are long, and nothing changes them before the next release, which waits for it
(``CohortStrategy.start``). So who kills a run loses one charged round at most. A seeded simulation
does not wait for the disk, which would take as long as its rounds: a loss of power may cost it
more, or the checkpoint.

Everything outside ``private/`` may be released, so arrays of the state that are named as private
lie there, in a file for each round: the one of the round before goes when the next checkpoint is on
disk.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.chained_record import Head
from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.regular_files import read_regular
from murmuration.strategies.base import PRIVATE

#: Where it lies in a run's folder.
PLACE = Path("checkpoint") / "state.safetensors"
_ROUND, _LINES, _HASH, _CHECK = "round", "ledger_lines", "ledger_hash", "sha256"
_PRIVATE_ARRAYS = "private_arrays"  # how many there are, where there are any


@dataclass(frozen=True)
class Checkpoint:
    """The strategy's state after ``round``, and the ledger's head at that time."""

    round: int
    state: dict[str, np.ndarray] = field(repr=False)
    head: Head


def save(folder: Path, checkpoint: Checkpoint, *, flush: bool = True) -> None:
    """Replace the checkpoint of a run's folder; with ``flush`` it is on disk when this returns."""
    state = checkpoint.state
    private = {name: array for name, array in state.items() if name.startswith(PRIVATE)}
    path = _private_place(folder, checkpoint.round)
    if private:
        replace_file(path, _pieces({**private, _CHECK: _checksum(private)}), flush=flush)
    arrays = {
        **{name: array for name, array in state.items() if name not in private},
        **({_PRIVATE_ARRAYS: np.array([len(private)])} if private else {}),
        _ROUND: np.array([checkpoint.round]),
        _LINES: np.array([checkpoint.head.index]),
        _HASH: np.frombuffer(bytes.fromhex(checkpoint.head.hash), dtype=np.uint8),
    }
    replace_file(folder / PLACE, _pieces({**arrays, _CHECK: _checksum(arrays)}), flush=flush)
    for earlier in path.parent.glob("state-*.safetensors"):
        if earlier != path or not private:
            earlier.unlink()


def load(folder: Path) -> Checkpoint | None:
    """Load the checkpoint of a run's folder; None if there is none.

    Raises:
        InputError: it is damaged, or cannot be read.
    """
    path = folder / PLACE
    advice = (
        "bring back an undamaged copy, or remove it: rounds are then run from the first again, and "
        "charged again"
    )
    try:
        arrays = _verified(path)
        head = Head(int(arrays.pop(_LINES)[0]), arrays.pop(_HASH).tobytes().hex())
        round_ = int(arrays.pop(_ROUND)[0])
        if arrays.pop(_PRIVATE_ARRAYS, None) is not None:
            path = _private_place(folder, round_)
            arrays |= _verified(path)
        return Checkpoint(round_, arrays, head)
    except FileNotFoundError:
        if path == folder / PLACE:
            return None
        raise InputError(f"{path} is gone: {advice}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (SafetensorError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path} is damaged ({error}): {advice}") from None


#: Types of numbers by numpy's names, as safetensors has them.
_TYPES = {"<f8": "F64", "<f4": "F32", "<i8": "I64", "<u8": "U64", "|u1": "U8", "|b1": "BOOL"}


def _verified(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, without their checksum; ValueError if that does not match."""
    arrays = safetensors.load(read_regular(path))
    if not np.array_equal(arrays.pop(_CHECK), _checksum(arrays)):
        raise ValueError("its checksum is another")
    return arrays


def _private_place(folder: Path, round_: int) -> Path:
    return folder / "private" / f"state-{round_:06d}.safetensors"


def _pieces(arrays: Mapping[str, np.ndarray]) -> Iterator[memoryview]:
    """A file of these arrays, piece by piece: none of them is copied."""
    about: dict[str, object] = {}
    end = 0
    # Longer numbers first, so that each array begins at a multiple of their length.
    placed = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    for name, array in placed:
        begin, end = end, end + array.nbytes
        kind = {"dtype": _TYPES[array.dtype.str], "shape": array.shape}
        about[name] = {**kind, "data_offsets": (begin, end)}
    header = json.dumps(about).encode()
    header += b" " * (-len(header) % 8)
    yield memoryview(len(header).to_bytes(8, "little") + header)
    yield from (_values(array) for _, array in placed)


def _checksum(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """SHA-256 of all of them, uint8 (32,)."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}\x1f{array.dtype.str}\x1f{array.shape}\x1f".encode())
        digest.update(_values(array))
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def _values(array: np.ndarray) -> memoryview:
    """The bytes of an array, row by row; copied only if they do not lie so."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class InBackground:
    """Writes one checkpoint at a time while something else is done.

    A process that ends, for whatever reason but being killed, waits for it.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def __enter__(self) -> "InBackground":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self.wait()

    def begin(self, write: Callable[[], None]) -> None:
        """Do this; the one before must be done, and is waited for."""
        self.wait()
        self._writing = self._pool.submit(write)

    def wait(self) -> None:
        """Wait until it is done; raise its exception, each time."""
        if self._writing is not None:
            self._writing.result()
