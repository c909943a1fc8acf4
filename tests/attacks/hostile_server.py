"""A server that departs from the protocol of sums under masks, against agents it can talk to.

It speaks to agents as a ClientApp does. Whatever it learns it has from their answers alone.

Legend: D dimensions, L numbers of a masked vector.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from flwr.app import RecordDict

from murmuration.client.agent.agent import Agent
from murmuration.privacy.secure_aggregation.server import Session, unmasked
from murmuration.strategies.protocol import secure_messages as wire

Work = Mapping[int, RecordDict]


def exact_sum(
    agents: Mapping[int, Agent],
    work: Work,
    steps: Mapping[str, float],
    length: int,
    *,
    session: bytes,
    kind: str = "train",
    about: Callable[[int], bytes] | None = None,
) -> np.ndarray:
    """The sum over the agents that ``work`` asks, (L,) int64, before any noise.

    ``about`` may tell each agent of another sum; by default all hear of the first one's.
    """
    places = {name: place for place, name in enumerate(work, start=1)}
    first = wire.about(kind, next(iter(work.values())), steps)
    said = about or (lambda name: first)
    roster = [
        wire.read_keys(agents[name].handle(wire.KEYS, wire.keys_request(session))) for name in work
    ]
    shared = {}
    for name, place in places.items():
        told = wire.Invitation(session, place, roster, said(name))
        reply = agents[name].handle(wire.SHARES, told.request())
        shared[place] = wire.read_shares(reply, place, len(roster))
    masked = {}
    for name, place in places.items():
        sealed = {other: given.sealed[place] for other, given in shared.items() if other != place}
        record = wire.MaskRequest(session, sealed, steps).record()
        reply = agents[name].handle(kind, RecordDict({**work[name], wire.RECORD: record}))
        masked[place] = wire.read_masked(reply, length)
    return opened_sum(agents, places, session, said(next(iter(work))), roster, shared, masked)


def opened_sum(
    agents: Mapping[int, Agent],
    places: Mapping[int, int],
    session: bytes,
    about: bytes,
    roster: Sequence[wire.Entry],
    shared: Mapping[int, wire.Shared],
    masked: Mapping[int, np.ndarray],
) -> np.ndarray:
    """The last exchange, and the sum."""
    arrived = sorted(masked)
    gone = sorted(set(shared) - set(masked))
    opened = {
        place: wire.read_opened(
            agents[name].handle(wire.UNMASK, wire.unmask_request(session, arrived)), arrived, gone
        )
        for name, place in places.items()
        if place in masked
    }
    commitments = {place: given.commitment for place, given in shared.items()}
    keys = [entry.keys for entry in roster]
    return unmasked(Session(session, about, keys, commitments), masked, opened)
