"""The key by which an owner's agent is known to other owners' agents.

Flower gives a ClientApp neither its node's private key nor the other nodes' public ones, and a
server could name any. So an agent has a key of its own, made when it starts for the first time, in
its state folder; owners exchange the public halves (``murmuration agent`` prints it) and list those
they know in their policies (``parties``). With it the agent signs its keys in every session of
secure aggregation, so nobody but those who are listed can be in one with it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from murmuration.preference.data.errors import InputError
from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.secure_aggregation import crypto, signing
from murmuration.privacy.secure_aggregation.party import Party
from murmuration.strategies.protocol import secure_messages as secure


@dataclass(frozen=True)
class Identity:
    """An agent's private key; empty where there is no agent, who then signs nothing."""

    private: bytes = field(default=b"", repr=False)

    @classmethod
    def at(cls, path: Path) -> "Identity":
        """The key in a file (mode 0600), which is made if there is none.

        Raises:
            InputError: the file cannot be made or read, or holds no key.
        """
        try:
            if not path.exists():
                replace_file(path, f"{crypto.new_key().hex()}\n".encode(), mode=0o600)
            private = bytes.fromhex(path.read_text(encoding="ascii"))
            signing.public_key(private)
            return cls(private)
        except (ValueError, OSError) as error:
            raise InputError(
                f"the agent's key {path} cannot be used ({error}): bring it back, or remove it; "
                "then it gets a new one, which the others must list instead"
            ) from None

    @property
    def public(self) -> bytes:
        """The public key; empty if there is none."""
        return signing.public_key(self.private) if self.private else b""

    def entry(self, party: Party) -> secure.Entry:
        """The keys of a session, signed."""
        if not self.private:
            return secure.Entry(party.public)
        text = secure.signed_text(party.session, party.public)
        return secure.Entry(party.public, self.public, signing.sign(self.private, text))
