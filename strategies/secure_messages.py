"""What server and nodes say to each other in secure aggregation; see ``privacy.secure_sum``.

Three exchanges stand around the one that asks for work, which carries one record more and is
answered with one masked vector instead of sums. Places (1 to P) name the nodes of one session.

Legend: P nodes of a session, L numbers of a masked vector.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from privacy import grid, masks, shamir
from privacy.secure_sum import SEALED_BYTES, Opened, ProtocolError, PublicKeys, Shared
from strategies import messages

#: Message types of the exchanges before and after the work.
KEYS, SHARES, UNMASK = "query.secure_keys", "query.secure_shares", "query.secure_unmask"
#: The record by which a request belongs to a session.
RECORD = "secure"


def session_of(content: RecordDict) -> bytes:
    """The session that a request names; ProtocolError if it names none."""
    record = content.config_records.get(RECORD)
    session = record.get("session") if record is not None else None
    if not isinstance(session, bytes):
        raise ProtocolError("the request names no session")
    return session


def keys_request(session: bytes) -> RecordDict:
    """Ask for fresh public keys."""
    return RecordDict({RECORD: ConfigRecord({"session": session})})


def keys_reply(keys: PublicKeys) -> RecordDict:
    """A node's public keys."""
    return RecordDict({RECORD: ConfigRecord({"sealing": keys.sealing, "masking": keys.masking})})


def read_keys(content: RecordDict) -> PublicKeys:
    """Public keys; MalformedReply for anything else.

    Also for a key that the other nodes could not agree on anything with: they would refuse the
    whole session.
    """
    with _malformed():
        record = content.config_records[RECORD]
        keys = PublicKeys(bytes(record["sealing"]), bytes(record["masking"]))  # type: ignore[arg-type]
        for key in (keys.sealing, keys.masking):
            masks.check_public(key)
        return keys


def shares_request(session: bytes, place: int, roster: Sequence[PublicKeys]) -> RecordDict:
    """Tell a node its place and everybody's keys, and ask for shares."""
    keys = b"".join(entry.sealing + entry.masking for entry in roster)
    return RecordDict({RECORD: ConfigRecord({"session": session, "place": place, "roster": keys})})


def read_roster(content: RecordDict) -> tuple[int, list[PublicKeys]]:
    """The node's place and everybody's keys; ProtocolError for anything else."""
    try:
        record, size = content.config_records[RECORD], masks.KEY_BYTES
        parts = _cut(bytes(record["roster"]), size)  # type: ignore[arg-type]
        roster = [PublicKeys(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        return int(record["place"]), roster  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"not a roster: {error}") from None


def shares_reply(shared: Shared) -> RecordDict:
    """A node's sealed shares, in the order of the others' places."""
    sealed = b"".join(shared.sealed[place] for place in sorted(shared.sealed))
    return RecordDict({RECORD: ConfigRecord({"sealed": sealed, "commitment": shared.commitment})})


def read_shares(content: RecordDict, place: int, parties: int) -> Shared:
    """Sealed shares of the node at ``place``; MalformedReply for anything else."""
    with _malformed():
        record = content.config_records[RECORD]
        parts = _cut(bytes(record["sealed"]), SEALED_BYTES)  # type: ignore[arg-type]
        others = [other for other in range(1, parties + 1) if other != place]
        commitment = bytes(record["commitment"])  # type: ignore[arg-type]
        return Shared(dict(zip(others, parts, strict=True)), commitment)


@dataclass(frozen=True)
class MaskRequest:
    """What comes with the work: whose shares a node gets, and the grids of its sums by name."""

    session: bytes
    sealed: Mapping[int, bytes]
    steps: Mapping[str, float]

    def record(self) -> ConfigRecord:
        """As it travels."""
        others = sorted(self.sealed)
        return ConfigRecord(
            {
                "session": self.session,
                "others": others,
                "sealed": b"".join(self.sealed[other] for other in others),
                "names": list(self.steps),
                "steps": list(self.steps.values()),
                "modulus-bits": grid.MODULUS_BITS,
            }
        )

    @classmethod
    def of(cls, content: RecordDict) -> "MaskRequest":
        """From a request to work; ProtocolError for anything else, or another modulus."""
        record = content.config_records[RECORD]
        try:
            bits = record["modulus-bits"]
            others = list(record["others"])  # type: ignore[arg-type]
            names = [str(name) for name in record["names"]]  # type: ignore[union-attr]
            steps = [float(step) for step in record["steps"]]  # type: ignore[union-attr]
            parts = _cut(bytes(record["sealed"]), SEALED_BYTES)  # type: ignore[arg-type]
            sealed = dict(zip([int(other) for other in others], parts, strict=True))
            found = cls(session_of(content), sealed, dict(zip(names, steps, strict=True)))
            if len(sealed) < len(others) or len(found.steps) < len(names):
                raise ValueError("a place or a name comes twice")
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"not a request for a masked sum: {error}") from None
        if bits != grid.MODULUS_BITS:
            raise ProtocolError(f"sums are masked modulo 2^{grid.MODULUS_BITS}, not 2^{bits}")
        return found

    def whole(self, sums: Mapping[str, np.ndarray]) -> np.ndarray:
        """The sums as whole numbers of steps, one after the other, (L,) int64.

        Raises:
            ProtocolError: the request is about other sums, or one is not on its grid: it could not
                be masked without rounding it, which no bound covers.
        """
        if set(sums) != set(self.steps):
            raise ProtocolError(f"there are sums {sorted(sums)}, not {sorted(self.steps)}")
        try:
            parts = [grid.to_whole(sums[name].ravel(), step) for name, step in self.steps.items()]
        except ValueError as error:
            raise ProtocolError(str(error)) from None
        return np.concatenate(parts)


def masked_reply(masked_L: np.ndarray) -> RecordDict:
    """A node's masked vector, and nothing else."""
    return RecordDict({RECORD: messages.array_record({"masked": masked_L})})


def read_masked(content: RecordDict, length: int) -> np.ndarray:
    """A masked vector, (L,) uint64; MalformedReply for anything else."""
    with _malformed():
        masked_L = content.array_records[RECORD]["masked"].numpy()
        if masked_L.shape != (length,) or masked_L.dtype != np.uint64:
            raise ValueError(f"{length} unsigned 64-bit numbers were asked for")
        return masked_L


def unmask_request(session: bytes, arrived: Sequence[int]) -> RecordDict:
    """Say whose vectors arrived, and ask for shares of their seeds and of the others' keys."""
    return RecordDict({RECORD: ConfigRecord({"session": session, "arrived": list(arrived)})})


def read_arrived(content: RecordDict) -> list[int]:
    """Whose vectors arrived; ProtocolError for anything else."""
    try:
        return [int(place) for place in content.config_records[RECORD]["arrived"]]  # type: ignore[union-attr,arg-type]
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"not a list of places: {error}") from None


def opened_reply(opened: Opened) -> RecordDict:
    """A node's shares, in the order of places."""
    parts = {
        name: b"".join(shares[place] for place in sorted(shares))
        for name, shares in (("seeds", opened.seeds), ("keys", opened.keys))
    }
    return RecordDict({RECORD: ConfigRecord(dict(parts))})


def read_opened(content: RecordDict, arrived: Sequence[int], gone: Sequence[int]) -> Opened:
    """Shares of the seeds of ``arrived`` and the keys of ``gone``; MalformedReply otherwise."""
    with _malformed():
        record = content.config_records[RECORD]
        found = []
        for name, places in (("seeds", arrived), ("keys", gone)):
            parts = _cut(bytes(record[name]), shamir.SHARE_BYTES)  # type: ignore[arg-type]
            found.append(dict(zip(sorted(places), parts, strict=True)))
        return Opened(*found)


@contextmanager
def _malformed() -> Iterator[None]:
    """Whatever goes wrong while another machine's bytes are read is a MalformedReply."""
    try:
        yield
    except Exception as error:
        raise messages.MalformedReply(f"not an answer of this session: {error!r}") from None


def _cut(data: bytes, size: int) -> list[bytes]:
    if len(data) % size:
        raise ValueError(f"{len(data)} bytes are no whole number of {size}")
    return [data[first : first + size] for first in range(0, len(data), size)]
