"""One party of secure aggregation: it shows its vector under masks that cancel in the sum.

Source: Bonawitz et al. 2017, Protocol 1, in its semi-honest form (no signatures, no consistency
check). Four steps, each at most once and in this order:

1. ``Party.begin``: two fresh key pairs, one for sealing shares and one for masks.
2. ``share``: given everybody's public keys, a random seed of its own and its private masking key
   are each split among all parties, and the shares sealed, one for each.
3. ``receive``: the shares that the others sealed for it. ``mask``: the vector, modulo 2⁶⁴, plus the
   mask of its seed, plus a mask for each other party that shared, which the two have agreed on and
   one of them subtracts.
4. ``unmask``: of a party whose vector arrived a share of its seed, of one whose vector did not a
   share of its key. Never both of the same party: with both its vector would lie open.

Formal guarantee: an observer of all messages who colludes with fewer than ``threshold`` parties
learns the sum of the other parties' vectors and nothing else about them (Bonawitz et al. 2017,
Theorem 6.3), if the server follows the protocol and the primitives are what they are taken for. It
says nothing about the sum itself. A party trusts the server to pass on everybody's true keys: one
that invents parties, or keys of parties, sees through the masks.

Keys live for one session: masks cannot repeat, and what was sealed in one session opens in no
other. All keys are bound to what the session is about and to its whole roster (``bound``): where
parties got different rosters or subjects, the shares of one do not open at the other, and nothing
is shown. A party refuses a session of fewer than ``LEAST_PARTIES``, and an unmasking for fewer than
``threshold(parties)``, which is more than two thirds, or for fewer than the number that it was
given: as many shares open its seed. Parties do not compare whose vectors are said to have arrived.
Each shows one share of a party, that of its seed or of its key; one that colludes with the server
shows both: so one vector can be opened alone by m + threshold(P) − P of these, where m shares open
its seed. If parties signed the list before, and showed shares for one with m signatures, it would
be no more.

Legend: L numbers of a vector, P parties.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from murmuration.privacy.secure_aggregation import crypto, shamir

#: With fewer, a party's own vector reveals too much of the others'.
LEAST_PARTIES = 3
#: Every party agrees on a key with every other: beyond this a session takes minutes.
MOST_PARTIES = 1000
SESSION_BYTES = 16
#: A hash that names what is summed.
ABOUT_BYTES = 32
#: The sealed shares of one party for another: of its seed, and of its key.
SEALED_BYTES = 2 * shamir.SHARE_BYTES + crypto.SEAL_BYTES


_BYTES = "session", "sealing", "masking", "seed", "about", "bound"


class ProtocolError(ValueError):
    """A step that is out of order, or a message that does not fit the session; nothing was
    revealed."""


def threshold(parties: int) -> int:
    """The number of ``parties`` that must stay to the end; one fewer may collude with the
    server."""
    return 2 * parties // 3 + 1


@dataclass(frozen=True)
class PublicKeys:
    """The first message of a party: its public keys for sealing and for masks."""

    sealing: bytes
    masking: bytes

    def __post_init__(self) -> None:
        if {len(self.sealing), len(self.masking)} != {crypto.KEY_BYTES}:
            raise ProtocolError("a public key has 32 bytes")


@dataclass(frozen=True)
class Shared:
    """The second message of a party: a seal for each other party, and by what to know its seed."""

    sealed: Mapping[int, bytes]
    commitment: bytes


@dataclass(frozen=True)
class Opened:
    """The last message of a party: shares of seeds and of keys, by whose they are."""

    seeds: Mapping[int, bytes]
    keys: Mapping[int, bytes]


@dataclass(kw_only=True)
class Party:
    """The state of one party in one session; places are 1 to P.

    It holds secrets, and goes to nobody. ``to_bytes`` and ``from_bytes`` keep it between messages.
    """

    session: bytes
    sealing: bytes = field(repr=False)
    masking: bytes = field(repr=False)
    seed: bytes = field(repr=False)
    about: bytes = b""
    bound: bytes = b""
    least: int = LEAST_PARTIES
    done: int = 1
    place: int = 0
    roster: list[PublicKeys] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    held: dict[int, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def begin(cls, session: bytes) -> "Party":
        """Step 1: fresh keys; show ``public``."""
        if len(session) != SESSION_BYTES:
            raise ProtocolError(f"a session is named by {SESSION_BYTES} bytes")
        return cls(
            session=session,
            sealing=crypto.new_key(),
            masking=crypto.new_key(),
            seed=crypto.new_key(),
        )

    @property
    def public(self) -> PublicKeys:
        """The public keys."""
        return PublicKeys(crypto.public_key(self.sealing), crypto.public_key(self.masking))

    def share(
        self, place: int, roster: Sequence[PublicKeys], about: bytes, least: int = LEAST_PARTIES
    ) -> Shared:
        """Step 2: shares of its seed and its key, sealed for the others; ``roster`` is in order.

        ``about`` names what is summed; ``least`` parties must be in the sum, to the end.

        Raises:
            ProtocolError: out of order, fewer than ``least`` parties or too many, or not its keys.
        """
        self._next(1)
        parties, least = len(roster), max(least, LEAST_PARTIES)
        if not least <= parties <= MOST_PARTIES:
            raise ProtocolError(
                f"a sum over {parties} parties; at least {least} and at most "
                f"{MOST_PARTIES} must take part"
            )
        if len(about) != ABOUT_BYTES:
            raise ProtocolError(f"what is summed is named by {ABOUT_BYTES} bytes")
        distinct = {keys.sealing for keys in roster} | {keys.masking for keys in roster}
        if len(distinct) < 2 * parties:
            raise ProtocolError("two parties with the same key")
        if not 1 <= place <= parties or roster[place - 1] != self.public:
            raise ProtocolError("these are not this party's keys")
        self.place, self.roster, self.least = place, list(roster), least
        seeds = shamir.split(self.seed, self._enough, parties)
        keys = shamir.split(self.masking, threshold(parties), parties)
        self.about, self.bound = about, bound(self.session, about, roster)
        self.held = {place: seeds[place - 1] + keys[place - 1]}
        sealed = {
            other: crypto.seal(
                self._sealing_key(other, place, other),
                seeds[other - 1] + keys[other - 1],
                self._label("share", place, other),
            )
            for other in range(1, parties + 1)
            if other != place
        }
        self.done = 2
        return Shared(sealed, crypto.commitment(self.seed))

    def receive(self, sealed: Mapping[int, bytes]) -> None:
        """Step 3, before there is a vector: shares ``sealed`` for this party, by who sealed them.

        Those whose shares these are, and this party, are who takes part from here on.

        Raises:
            ProtocolError: out of order, too few parties left, or a share that does not open: it was
                altered, or is of another party or session. Nothing is shown.
        """
        self._next(2)
        others = sorted(sealed)
        if self.place in sealed or not set(others) <= set(range(1, len(self.roster) + 1)):
            raise ProtocolError("shares of somebody who is no party")
        if len(others) + 1 < self._enough:
            raise ProtocolError(
                f"{len(others) + 1} of {len(self.roster)} parties are left; at least "
                f"{self._enough} must be"
            )
        self.held.update({other: self._open(other, sealed[other]) for other in others})
        self.shared = sorted([*others, self.place])

    def mask(self, values_L: np.ndarray) -> np.ndarray:
        """Step 3: ``values_L`` (int64) under masks, (L,) uint64.

        Raises:
            ProtocolError: out of order. Nothing is shown.
        """
        self._next(2)
        if not self.shared:
            raise ProtocolError("shares of the others come first")
        # From here on there is no second try: the same masks on two vectors show their difference.
        self.done = 3
        total_L = values_L.astype(np.int64).view(np.uint64).copy()
        total_L += crypto.mask(seed_key(self.seed, self.bound), len(total_L))
        for other in self.shared:
            if other == self.place:
                continue
            key = pair_key(
                self.masking,
                self.roster[other - 1].masking,
                self.bound,
                (self.place, other),
            )
            add_pair_mask(total_L, key, self.place, other)
        return total_L

    def unmask(self, arrived: Sequence[int]) -> Opened:
        """Step 4: shares of the seeds of those whose vectors ``arrived``, of the others' keys.

        Raises:
            ProtocolError: out of order, too few vectors arrived, or not this party's own. Nothing
                is shown.
        """
        self._next(3)
        here = set(arrived)
        if len(here) < len(arrived) or not here <= set(self.shared) or self.place not in here:
            raise ProtocolError("not a list of parties that showed their vectors")
        if len(here) < self._enough:
            raise ProtocolError(
                f"{len(here)} of {len(self.roster)} vectors arrived; at least {self._enough} must"
            )
        self.done = 4
        cut = shamir.SHARE_BYTES
        result = Opened(
            {other: self.held[other][:cut] for other in self.shared if other in here},
            {other: self.held[other][cut:] for other in self.shared if other not in here},
        )
        self.held = {}
        return result

    def to_bytes(self) -> bytes:
        """The state as JSON; secret."""
        return json.dumps(asdict(self), default=bytes.hex).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Party":
        """The state back; ProtocolError if it is none."""
        try:
            state = json.loads(data)
            return cls(
                **{name: bytes.fromhex(state[name]) for name in _BYTES},
                least=int(state["least"]),
                done=int(state["done"]),
                place=int(state["place"]),
                roster=[
                    PublicKeys(bytes.fromhex(keys["sealing"]), bytes.fromhex(keys["masking"]))
                    for keys in state["roster"]
                ],
                shared=[int(place) for place in state["shared"]],
                held={int(place): bytes.fromhex(both) for place, both in state["held"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProtocolError(f"the state of a session is damaged: {error!r}") from None

    @property
    def _enough(self) -> int:
        """The least number of parties in the sum."""
        return max(self.least, threshold(len(self.roster)))

    def _next(self, after: int) -> None:
        if self.done != after:
            raise ProtocolError(f"step {after + 1} of a session that has done step {self.done}")

    def _open(self, other: int, sealed: bytes) -> bytes:
        label = self._label("share", other, self.place)
        try:
            return crypto.unseal(self._sealing_key(other, other, self.place), sealed, label)
        except ValueError as error:
            raise ProtocolError(str(error)) from None

    def _sealing_key(self, other: int, sender: int, receiver: int) -> bytes:
        label = self._label("seal", sender, receiver)
        return _agreed(self.sealing, self.roster[other - 1].sealing, label)

    def _label(self, purpose: str, sender: int, receiver: int) -> bytes:
        return _label(purpose, self.bound, sender, receiver)


def bound(session: bytes, about: bytes, roster: Sequence[PublicKeys]) -> bytes:
    """The hash that binds every key of a session to its name, its subject and all its parties."""
    keys = b"".join(entry.sealing + entry.masking for entry in roster)
    return hashlib.sha256(b"murmuration secure sum 2\x00" + session + about + keys).digest()


def seed_key(seed: bytes, to: bytes) -> bytes:
    """The key of the mask that a party puts on by itself; ``to`` is what it is ``bound`` to."""
    return crypto.derived_key(seed, _label("own mask", to))


def pair_key(private: bytes, public: bytes, to: bytes, pair: tuple[int, int]) -> bytes:
    """The key of the mask of two parties, from the private key of one and the public of the other.

    ``to`` is what it is ``bound`` to.

    Raises:
        ProtocolError: the public key is none.
    """
    return _agreed(private, public, _label("pair mask", to, *sorted(pair)))


def add_pair_mask(total_L: np.ndarray, key: bytes, place: int, other: int) -> None:
    """Put on the mask that ``place`` has with ``other``: the first of the two adds it."""
    mask_L = crypto.mask(key, len(total_L))
    if place < other:
        total_L += mask_L
    else:
        total_L -= mask_L


def _agreed(private: bytes, public: bytes, label: bytes) -> bytes:
    try:
        return crypto.agreed_key(private, public, label)
    except ValueError as error:
        raise ProtocolError(f"a public key that is none: {error}") from None


def _label(purpose: str, to: bytes, *places: int) -> bytes:
    numbers = b"".join(place.to_bytes(4, "big") for place in places)
    return b"murmuration secure sum 2 " + purpose.encode() + b"\x00" + to + numbers
