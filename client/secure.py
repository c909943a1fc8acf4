"""A node's part in secure aggregation: its sums leave under masks, or not at all.

The state of a session (``privacy.secure_sum.Party``) lies in the node's own memory between
messages: the ClientApp's context or, with an agent, the agent. A node is in one session at a time;
one that begins ends the one before.

Legend: L numbers of a masked vector.
"""

from collections.abc import Mapping, MutableMapping

from flwr.app import RecordDict

from privacy.secure_sum import LEAST_PARTIES, Party, ProtocolError
from strategies import secure_messages as secure

#: Where a session lies in a node's memory.
_STATE = "secure-session"
#: What the owner may say (``client.label_terms``): sums leave under masks only, and in a company of
#: how many nodes at least.
ONLY, LEAST = "secure-only", "secure-least"

Memory = MutableMapping[str, bytes]


def keys(content: RecordDict, memory: Memory) -> RecordDict:
    """Begin a session: fresh keys."""
    party = Party.begin(secure.session_of(content))
    memory[_STATE] = party.to_bytes()
    return secure.keys_reply(party.public)


def shares(content: RecordDict, memory: Memory, terms: Mapping[str, object]) -> RecordDict:
    """Shares of this node's secrets, sealed for the others."""
    party = _party(content, memory)
    place, roster = secure.read_roster(content)
    shared = party.share(place, roster, int(terms.get(LEAST, LEAST_PARTIES)))  # type: ignore[call-overload]
    memory[_STATE] = party.to_bytes()
    return secure.shares_reply(shared)


def check_terms(content: RecordDict, terms: Mapping[str, object]) -> None:
    """ProtocolError for a request for bare sums where the owner wants them masked."""
    if _only(terms) and secure.RECORD not in content.config_records:
        raise ProtocolError(f"sums leave this node under masks only ({ONLY})")


def _only(terms: Mapping[str, object]) -> bool:
    """Whether the owner wants masks. Whatever they wrote but a plain no counts as yes."""
    return terms.get(ONLY, False) not in (False, "false")


def finished(content: RecordDict, reply: RecordDict, memory: Memory) -> RecordDict:
    """``reply``, with its sums under masks if the request asks for that."""
    if secure.RECORD not in content.config_records:
        return reply
    party, request = _party(content, memory), secure.MaskRequest.of(content)
    sums = {name: array.numpy() for name, array in reply.array_records["sums"].items()}
    masked_L = party.mask(request.whole(sums), request.sealed)
    memory[_STATE] = party.to_bytes()  # before anything leaves: these masks are spent
    return secure.masked_reply(masked_L)


def unmask(content: RecordDict, memory: Memory) -> RecordDict:
    """Shares of the others' secrets; ends the session."""
    party = _party(content, memory)
    opened = party.unmask(secure.read_arrived(content))
    del memory[_STATE]
    return secure.opened_reply(opened)


def _party(content: RecordDict, memory: Memory) -> Party:
    if _STATE not in memory:
        raise ProtocolError("no session was begun")
    party = Party.from_bytes(bytes(memory[_STATE]))
    if party.session != secure.session_of(content):
        raise ProtocolError("another session was begun since")
    return party
