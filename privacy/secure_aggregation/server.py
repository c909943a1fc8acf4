"""The server's side of secure aggregation: from masked vectors to their sum, and to nothing else.

Source: Bonawitz et al. 2017, Protocol 1, round 4. Vectors that arrived are added up modulo 2⁶⁴. In
the sum the masks of two parties that are both there cancel. What is left is each party's own mask,
whose seed is joined from shares, and masks with parties that left in between, whose masking keys
are joined. What was joined is compared with what its owner showed before (the hash of a seed, a
public key), so a wrong share is noticed and no false sum comes out.

Legend: L numbers of a vector, P parties.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
        """The number of parties that must stay to the end."""
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
    to = bound(session.name, session.about, session.roster)
    gone = [place for place in session.commitments if place not in masked]
    total_L = np.zeros_like(next(iter(masked.values())))
    places = sorted(opened)
    # Who wants more parties in the sum has split their seed so that as many shares are needed.
    ways = dict.fromkeys([tuple(places[: session.threshold]), tuple(places)])
    weights = functools.cache(shamir.weights)

    def joined(place: int, shares: Mapping[int, bytes], shown: Callable[[bytes], bool]) -> bytes:
        """Return the secret of which these are shares: that which its owner has ``shown``."""
        for openers in (each for each in ways if shares.keys() >= {*each}):
            with suppress(ValueError):  # too few
                secret = shamir.combine_shares([shares[o] for o in openers], weights(openers))
                if shown(secret):
                    return secret
        raise ProtocolError(f"shares of party {place} that do not fit, or are too few")

    for place, masked_L in masked.items():
        shares = {o: one.seeds[place] for o, one in opened.items() if place in one.seeds}
        committed = session.commitments[place]
        seed = joined(place, shares, lambda it, by=committed: crypto.commitment(it) == by)
        total_L += masked_L
        total_L -= crypto.mask(seed_key(seed, to), len(total_L))
    for place in gone:
        shares = {o: one.keys[place] for o, one in opened.items() if place in one.keys}
        public = session.roster[place - 1].masking
        key = joined(place, shares, lambda it, by=public: crypto.public_key(it) == by)
        for other in masked:
            # What ``other`` put on with ``place`` is what ``place`` would have taken off.
            pair = pair_key(key, session.roster[other - 1].masking, to, (place, other))
            add_pair_mask(total_L, pair, place, other)
    return total_L.view(np.int64)
