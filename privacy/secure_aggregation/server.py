"""The server's side of secure aggregation: from masked vectors to their sum, and to nothing else.

Source: Bonawitz et al. 2017, Protocol 1, round 4. Vectors that arrived are added up modulo 2⁶⁴. In
the sum the masks of two parties that are both there cancel. What is left is each party's own mask,
whose seed is joined from shares, and masks with parties that left in between, whose masking keys
are joined. What was joined is compared with what its owner showed before (the hash of a seed, a
public key), so a wrong share is noticed and no false sum comes out.

Legend: L numbers of a vector, P parties.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from murmuration.privacy.secure_aggregation import crypto, shamir
from murmuration.privacy.secure_aggregation.party import (
    Opened,
    ProtocolError,
    PublicKeys,
    add_pair_mask,
    bound,
    pair_key,
    seed_key,
    threshold,
)


@dataclass(frozen=True)
class Session:
    """The state of a session that the server has before vectors arrive; places are 1 to P.

    ``about`` names what is summed; ``commitments`` are those of the parties that shared, by place.
    """

    name: bytes
    about: bytes
    roster: Sequence[PublicKeys]
    commitments: Mapping[int, bytes]

    @property
    def threshold(self) -> int:
        """Return how many parties must stay to the end."""
        return threshold(len(self.roster))


def unmasked(
    session: Session, masked: Mapping[int, np.ndarray], opened: Mapping[int, Opened]
) -> np.ndarray:
    """The sum of the vectors under ``masked`` (each (L,) uint64), exact, (L,) int64.

    ``opened`` is what parties sent last. The sum is right if it is between −2⁶³ and 2⁶³.

    Raises:
        ProtocolError: fewer than the threshold opened, or their shares do not fit. No sum exists.
    """
    if len(opened) < session.threshold:
        raise ProtocolError(
            f"{len(opened)} of {len(session.roster)} parties stayed to the end; at least "
            f"{session.threshold} must: this sum cannot be unmasked"
        )
    openers = sorted(opened)[: session.threshold]
    weights = shamir.weights(openers)
    to = bound(session.name, session.about, session.roster)
    gone = [place for place in session.commitments if place not in masked]
    total_L = np.zeros_like(next(iter(masked.values())))
    for place, masked_L in masked.items():
        seed = _joined(place, [opened[opener].seeds.get(place) for opener in openers], weights)
        if crypto.commitment(seed) != session.commitments[place]:
            raise ProtocolError(f"shares of the seed of party {place} that do not fit")
        total_L += masked_L
        total_L -= crypto.mask(seed_key(seed, to), len(total_L))
    for place in gone:
        key = _joined(place, [opened[opener].keys.get(place) for opener in openers], weights)
        if crypto.public_key(key) != session.roster[place - 1].masking:
            raise ProtocolError(f"shares of the key of party {place} that do not fit")
        for other in masked:
            public = session.roster[other - 1].masking
            # What ``other`` put on with ``place`` is what ``place`` would have taken off.
            add_pair_mask(total_L, pair_key(key, public, to, (place, other)), place, other)
    return total_L.view(np.int64)


def _joined(place: int, shares: Sequence[bytes | None], weights: Sequence[int]) -> bytes:
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        raise ProtocolError(f"a share of party {place} is missing")
    try:
        return shamir.combine_shares(known, weights)
    except ValueError as error:
        raise ProtocolError(f"party {place}: {error}") from None
