"""Messages between server and nodes in secure aggregation; see
``privacy.secure_aggregation.party``.

Three exchanges stand around the one that asks for work, which carries one record more and is
answered with one masked vector instead of sums. Places (1 to P) name the nodes of one session.

A session is about one sum: the kind of work, the model and every parameter of the request (run,
round and clip norm among them), all except each node's users. Nodes hash that for themselves from
the work they get; a node that was sent another sum than the others reveals no shares. On which grid
a sum is follows from the parameters (``strategies.spec.NodeHalf``).

Legend: P nodes of a session, L numbers of a masked vector.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from murmuration.privacy.mechanisms import grid
from murmuration.privacy.secure_aggregation import crypto, shamir, signing
from murmuration.privacy.secure_aggregation.party import (
    SEALED_BYTES,
    Opened,
    ProtocolError,
    PublicKeys,
    Shared,
)
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.arrays import decoded
from murmuration.strategies.protocol.records import arrays_of, config_of

#: Message types of the exchanges before and after the work.
KEYS, SHARES, UNMASK = "query.secure_keys", "query.secure_shares", "query.secure_unmask"
#: The record by which a request belongs to a session.
RECORD = "secure"


def session_of(content: RecordDict) -> bytes:
    """The session that a request names; ProtocolError if it names none."""
    record = content.get(RECORD)
    session = record.get("session") if isinstance(record, ConfigRecord) else None
    if not isinstance(session, bytes):
        raise ProtocolError("the request names no session")
    return session


def keys_request(session: bytes) -> RecordDict:
    """Ask for fresh public keys."""
    return RecordDict({RECORD: ConfigRecord({"session": session})})


@dataclass(frozen=True)
class Entry:
    """One node of a session: its keys, and the signature on them.

    ``signer`` is the permanent public key of the node's owner's agent, ``signature`` its signature
    of this session's keys. Both are empty without an agent.
    """

    keys: PublicKeys
    signer: bytes = b""
    signature: bytes = b""

    def signed_by(self, session: bytes) -> bytes:
        """The signer; ProtocolError if it did not sign these keys for this session."""
        try:
            signing.check(self.signer, signed_text(session, self.keys), self.signature)
        except ValueError as error:
            raise ProtocolError(f"keys that nobody has signed: {error}") from None
        return self.signer

    def to_bytes(self) -> bytes:
        """The entry as bytes of a roster, ``ENTRY_BYTES`` long: zeros for no signature."""
        word = self.signer + self.signature or bytes(ENTRY_BYTES - 2 * crypto.KEY_BYTES)
        return self.keys.sealing + self.keys.masking + word


_SIGNER = signing.KEY_BYTES
#: Of one node in a roster.
ENTRY_BYTES = 2 * crypto.KEY_BYTES + _SIGNER + signing.SIGNATURE_BYTES


def signed_text(session: bytes, keys: PublicKeys) -> bytes:
    """The text that a node's agent signs."""
    return b"murmuration secure sum 2 keys\x00" + session + keys.sealing + keys.masking


def keys_reply(entry: Entry) -> RecordDict:
    """A node's public keys."""
    shown: dict[str, bytes] = {"sealing": entry.keys.sealing, "masking": entry.keys.masking}
    if entry.signer:
        shown |= {"signer": entry.signer, "signature": entry.signature}
    return RecordDict({RECORD: ConfigRecord({**shown})})


def read_keys(content: RecordDict) -> Entry:
    """Public keys; MalformedReply for anything else.

    Also for a key that the other nodes could not agree on anything with: they would refuse the
    whole session. Whether a signature is good is for the nodes to say.
    """
    with messages.reading("this session"):
        record = config_of(content, RECORD)
        keys = PublicKeys(bytes(record["sealing"]), bytes(record["masking"]))  # type: ignore[arg-type]
        for key in (keys.sealing, keys.masking):
            crypto.check_public(key)
        word = [bytes(record.get(name, b"")) for name in ("signer", "signature")]  # type: ignore[arg-type]
        if [len(part) for part in word] not in ([0, 0], [_SIGNER, signing.SIGNATURE_BYTES]):
            raise ValueError("a signature of another length")
        return Entry(keys, *word)


def about(kind: str, content: RecordDict) -> bytes:
    """A hash of the inputs of a request's sum, of this ``kind`` of work.

    It is the same for all nodes of a round; ProtocolError if this is not such a request.
    """
    try:
        model, parameters = arrays_of(content, "model"), config_of(content, "parameters")
        arrays_N = {name: decoded(array) for name, array in model.items()}
    except Exception as error:  # another machine's bytes can fail to decode in any way
        raise ProtocolError(f"not a request for a sum: {error!r}") from None
    hashed = hashlib.sha256(b"murmuration secure sum 3 about\x00")
    told = [[name, *_plain(value)] for name, value in parameters.items()]
    shapes = [[name, str(a.dtype), a.shape] for name, a in sorted(arrays_N.items())]
    hashed.update(json.dumps([kind, sorted(told), shapes]).encode() + b"\x00")
    for name in sorted(arrays_N):
        hashed.update(np.ascontiguousarray(arrays_N[name]).data)
    return hashed.digest()


def _plain(value: object) -> tuple[str, str]:
    """A parameter as it is at either end: a float64 of numpy arrives as a float."""
    if isinstance(value, bool | bytes | str):
        return type(value).__name__, repr(value)
    for kind in (int, float):
        if isinstance(value, kind):
            return kind.__name__, repr(kind(value))
    raise ProtocolError(f"a parameter that is no single value: {type(value).__name__}")


@dataclass(frozen=True)
class Invitation:
    """A request for a node's shares: its place, all entries, and the purpose."""

    session: bytes
    place: int
    roster: Sequence[Entry]
    about: bytes

    def request(self) -> RecordDict:
        """The request as a message."""
        everybody = b"".join(entry.to_bytes() for entry in self.roster)
        told = {"session": self.session, "place": self.place, "roster": everybody}
        return RecordDict({RECORD: ConfigRecord({**told, "about": self.about})})

    @classmethod
    def of(cls, content: RecordDict) -> "Invitation":
        """The invitation of a request for shares; ProtocolError for anything else."""
        try:
            record = config_of(content, RECORD)
            parts = _cut(bytes(record["roster"]), ENTRY_BYTES)  # type: ignore[arg-type]
            roster = [_entry(part) for part in parts]
            about = bytes(record["about"])  # type: ignore[arg-type]
            return cls(session_of(content), int(record["place"]), roster, about)  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"not a roster: {error}") from None


def _entry(part: bytes) -> Entry:
    size = crypto.KEY_BYTES
    keys, word = PublicKeys(part[:size], part[size : 2 * size]), part[2 * size :]
    return Entry(keys, word[:_SIGNER], word[_SIGNER:]) if any(word) else Entry(keys)


def shares_reply(shared: Shared) -> RecordDict:
    """A node's sealed shares, in the order of the others' places."""
    sealed = b"".join(shared.sealed[place] for place in sorted(shared.sealed))
    return RecordDict({RECORD: ConfigRecord({"sealed": sealed, "commitment": shared.commitment})})


def read_shares(content: RecordDict, place: int, parties: int) -> Shared:
    """Sealed shares of the node at ``place``; MalformedReply for anything else."""
    with messages.reading("this session"):
        record = config_of(content, RECORD)
        parts = _cut(bytes(record["sealed"]), SEALED_BYTES)  # type: ignore[arg-type]
        others = [other for other in range(1, parties + 1) if other != place]
        commitment = bytes(record["commitment"])  # type: ignore[arg-type]
        return Shared(dict(zip(others, parts, strict=True)), commitment)


#: All that a request for a masked sum says.
_OF_MASKS = {"session", "others", "sealed", "modulus-bits"}


@dataclass(frozen=True)
class MaskRequest:
    """The part of a training request with the shares for a node."""

    session: bytes
    sealed: Mapping[int, bytes]

    def record(self) -> ConfigRecord:
        """The record for a message."""
        others = sorted(self.sealed)
        return ConfigRecord(
            {
                "session": self.session,
                "others": others,
                "sealed": b"".join(self.sealed[other] for other in others),
                "modulus-bits": grid.MODULUS_BITS,
            }
        )

    @classmethod
    def of(cls, content: RecordDict) -> "MaskRequest":
        """The shares in a training request; ProtocolError for anything else, another modulus, or a
        grid.
        """
        record = config_of(content, RECORD)
        try:
            bits = record["modulus-bits"]
            others = list(record["others"])  # type: ignore[arg-type]
            parts = _cut(bytes(record["sealed"]), SEALED_BYTES)  # type: ignore[arg-type]
            sealed = dict(zip([int(other) for other in others], parts, strict=True))
            if len(sealed) < len(others):
                raise ValueError("a place comes twice")
            if more := set(record) - _OF_MASKS:
                raise ValueError(f"it also says {', '.join(sorted(more))}"[:200])
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"not a request for a masked sum: {error}") from None
        if bits != grid.MODULUS_BITS:
            raise ProtocolError(f"sums are masked modulo 2^{grid.MODULUS_BITS}, not 2^{bits}")
        return cls(session_of(content), sealed)


def masked_reply(masked_L: np.ndarray) -> RecordDict:
    """A node's masked vector, and nothing else."""
    return RecordDict({RECORD: messages.array_record({"masked": masked_L})})


def read_masked(content: RecordDict, length: int) -> np.ndarray:
    """A masked vector, (L,) uint64; MalformedReply for anything else."""
    with messages.reading("this session"):
        masked_L = decoded(arrays_of(content, RECORD)["masked"])
        if masked_L.shape != (length,) or masked_L.dtype != np.uint64:
            raise ValueError(f"{length} unsigned 64-bit numbers were asked for")
        return masked_L


def unmask_request(session: bytes, arrived: Sequence[int]) -> RecordDict:
    """Request the shares of seeds of nodes whose vectors arrived, and of the keys of the others."""
    return RecordDict({RECORD: ConfigRecord({"session": session, "arrived": list(arrived)})})


def read_arrived(content: RecordDict) -> list[int]:
    """The places of the nodes whose vectors arrived; ProtocolError for anything else."""
    try:
        return [int(place) for place in config_of(content, RECORD)["arrived"]]  # type: ignore[union-attr,arg-type]
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
    with messages.reading("this session"):
        record = config_of(content, RECORD)
        result = []
        for name, places in (("seeds", arrived), ("keys", gone)):
            parts = _cut(bytes(record[name]), shamir.SHARE_BYTES)  # type: ignore[arg-type]
            result.append(dict(zip(sorted(places), parts, strict=True)))
        return Opened(*result)


def _cut(data: bytes, size: int) -> list[bytes]:
    if len(data) % size:
        raise ValueError(f"{len(data)} bytes are no whole number of {size}")
    return [data[first : first + size] for first in range(0, len(data), size)]
