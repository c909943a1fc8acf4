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
    sum_of = _told(work, kind, about)
    roster, shared = shared_out(agents, places, session, sum_of)
    masked = {}
    for name, place in places.items():
        request = with_shares(work[name], place, shared, session)
        masked[place] = wire.read_masked(agents[name].handle(kind, request), length)
    return opened_sum(agents, places, session, sum_of(next(iter(work))), roster, shared, masked)


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


def asked_for_masked(
    agents: Mapping[int, Agent], request: RecordDict, session: bytes = b"s" * 16
) -> dict[int, RecordDict]:
    """Return what each agent would be asked for next, all for one sum: nothing is masked yet."""
    places = {name: place for place, name in enumerate(agents, start=1)}
    sum_of = _told(dict.fromkeys(agents, request), "train", None)
    _, shared = shared_out(agents, places, session, sum_of)
    return {name: with_shares(request, place, shared, session) for name, place in places.items()}


def _told(work: Work, kind: str, about: Callable[[int], bytes] | None) -> Callable[[int], bytes]:
    first = wire.about(kind, next(iter(work.values())))
    return about or (lambda name: first)


def shared_out(
    agents: Mapping[int, Agent],
    places: Mapping[int, int],
    session: bytes,
    said: Callable[[int], bytes],
) -> tuple[list[wire.Entry], dict[int, wire.Shared]]:
    """The first two exchanges: the roster, and who sealed what for whom."""
    roster = [
        wire.read_keys(agents[name].handle(wire.KEYS, wire.keys_request(session)))
        for name in places
    ]
    shared = {}
    for name, place in places.items():
        invitation = wire.Invitation(session, place, roster, said(name))
        reply = agents[name].handle(wire.SHARES, invitation.request())
        shared[place] = wire.read_shares(reply, place, len(roster))
    return roster, shared


def with_shares(
    request: RecordDict, place: int, shared: Mapping[int, wire.Shared], session: bytes
) -> RecordDict:
    """A request for a sum under masks, as the party at ``place`` gets it."""
    sealed = {other: given.sealed[place] for other, given in shared.items() if other != place}
    record = wire.MaskRequest(session, sealed).record()
    return RecordDict({**request, wire.RECORD: record})
