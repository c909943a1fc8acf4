"""A node's part in secure aggregation: its sums leave under masks, or not at all.

The state of a session (``privacy.secure_aggregation.party.Party``) lies in the node's own memory
between messages: the ClientApp's context or, with an agent, the agent. A node is in one session at
a time; one that begins ends the one before.

A session is about one sum (``strategies.protocol.secure_messages.about``): a node that is asked to
work on another shows nothing. Where its owner lists by whom the others' keys must be signed, a
session with anybody else shows nothing either.

Legend: L numbers of a masked vector.
"""

from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass

import numpy as np
from flwr.app import RecordDict

from murmuration.client.agent.identity import Identity
from murmuration.privacy.mechanisms import discrete_gaussian, grid
from murmuration.privacy.mechanisms.distributed import check_shares, with_share
from murmuration.privacy.secure_aggregation.party import LEAST_PARTIES, Party, ProtocolError
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol import secure_messages as secure
from murmuration.strategies.protocol.records import config_of

#: Where a session lies in a node's memory.
_STATE = "secure-session"
#: What the owner may say (``client.labels.terms``): sums leave under masks only; over how many
#: nodes at least; and by which keys (hex) the others' are signed.
ONLY, LEAST, SIGNERS = "secure-only", "min-parties", "parties"

Memory = MutableMapping[str, bytes]


class Unwanted(ProtocolError):
    """A company that the owner does not want to be in; ``rule`` says by what they ruled it out."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def keys(content: RecordDict, memory: Memory, identity: Identity) -> RecordDict:
    """Begin a session: fresh keys."""
    party = Party.begin(secure.session_of(content))
    memory[_STATE] = party.to_bytes()
    return secure.keys_reply(identity.entry(party))


def shares(
    content: RecordDict, memory: Memory, terms: Mapping[str, object], identity: Identity
) -> RecordDict:
    """Shares of this node's secrets, sealed for the others."""
    party, told = _party(content, memory), secure.Invitation.of(content)
    check_company(told, terms, identity)
    keys = [entry.keys for entry in told.roster]
    shared = party.share(told.place, keys, told.about, _least(terms))
    memory[_STATE] = party.to_bytes()
    return secure.shares_reply(shared)


def check_company(told: secure.Invitation, terms: Mapping[str, object], identity: Identity) -> None:
    """Unwanted unless there are as many others as the owner wants, all of them known to them."""
    if len(told.roster) < _least(terms):
        raise Unwanted(
            LEAST, f"a sum over {len(told.roster)} parties; at least {_least(terms)} must be in it"
        )
    listed: Collection[str] = terms.get(SIGNERS, ())  # type: ignore[assignment]
    if not listed:
        return
    known = {bytes.fromhex(name) for name in listed} - {identity.public}
    for place, entry in enumerate(told.roster, start=1):
        if place == told.place:
            continue
        try:
            known.remove(entry.signed_by(told.session))
        except (ProtocolError, KeyError) as error:
            why = str(error) if isinstance(error, ProtocolError) else "not listed, or listed twice"
            raise Unwanted(SIGNERS, f"party {place} of {len(told.roster)}: {why}") from None


def _least(terms: Mapping[str, object]) -> int:
    return int(terms.get(LEAST, LEAST_PARTIES))  # type: ignore[call-overload]


def check_terms(content: RecordDict, terms: Mapping[str, object]) -> None:
    """ProtocolError for a request for bare sums where the owner wants them masked."""
    if only(terms) and not masked(content):
        raise ProtocolError(f"sums leave this node under masks only ({ONLY})")


def masked(content: RecordDict) -> bool:
    """True if a request asks for a masked sum."""
    return secure.RECORD in content


def only(terms: Mapping[str, object]) -> bool:
    """True if the owner insists on masks. Any value except a plain no counts as yes."""
    return terms.get(ONLY, False) not in (False, "false")


@dataclass(frozen=True)
class Masking:
    """Put sums under masks: all that can be wrong with these was found before there were any.

    ``steps`` are their grids by name, ``shares`` the standard deviations of this node's noise.
    """

    party: Party
    steps: Mapping[str, float]
    shares: Mapping[str, float]

    def reply(self, sums: Mapping[str, np.ndarray], memory: Memory) -> RecordDict:
        """Sums that lie on their grids, with this node's share of the noise, under masks."""
        whole = {name: grid.to_whole(sums[name].ravel(), step) for name, step in self.steps.items()}
        if self.shares:
            whole = with_share(whole, self.steps, self.shares)
        masked_L = self.party.mask(np.concatenate([*whole.values()]))
        memory[_STATE] = self.party.to_bytes()  # before anything leaves: these masks are spent
        return secure.masked_reply(masked_L)


def masking(
    kind: str, content: RecordDict, steps: Mapping[str, float], memory: Memory
) -> Masking | None:
    """Return the masks for the sums of a request, on the grids ``steps``; None: they leave bare.

    Where nodes add noise, as many must stay to the end as there are shares in it.

    Raises:
        ProtocolError: the request is about another sum than the session or about one on no grid, it
            asks for bare sums with noise or for noise that cannot be drawn, or a share of another
            party does not open.
    """
    parties, shares = _noise(content) if kind == "train" else (0, {})
    if not masked(content):
        if parties:
            raise ProtocolError("a node's share of noise hides nothing without masks")
        return None
    party, request = _party(content, memory), secure.MaskRequest.of(content)
    if party.about != secure.about(kind, content):
        raise ProtocolError("this is another sum than the session was begun for")
    if not steps:
        raise ProtocolError("sums that are on no grid cannot be masked")
    if shares:
        try:
            check_shares(steps, shares)
        except ValueError as error:
            raise ProtocolError(str(error)) from None
        if not discrete_gaussian.installed():
            raise ProtocolError("the library that draws noise is not installed here")
    party.least = max(party.least, parties)
    party.receive(request.sealed)
    return Masking(party, steps, shares)


def lacks_noise(parameters: Mapping[str, messages.Scalar]) -> bool:
    """True if nodes are to add noise, but the library that draws it is not installed here.

    Raises ValueError for parameters of which that cannot be said.
    """
    parties, _ = messages.read_noise(parameters)
    return parties > 0 and not discrete_gaussian.installed()


def _noise(content: RecordDict) -> tuple[int, dict[str, float]]:
    try:
        return messages.read_noise(dict(config_of(content, "parameters")))  # type: ignore[arg-type]
    except ValueError as error:
        raise ProtocolError(str(error)) from None


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
