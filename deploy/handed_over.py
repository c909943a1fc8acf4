"""A client's folder is data: the files that may be in it, and whether they are as they were signed.

The operator's authority, whose certificate is ``ca.crt``, signs the list of a folder's files with
their SHA-256 (``SHA256SUMS``, as ``sha256sum`` reads it). That shows that the folder is what
``deploy init`` wrote, whole, if the owner knows the authority's fingerprint: given as
``--fingerprint``, or kept from the first start. It shows nothing against the operator, who signs;
against them is that nothing here is ever code, and that a policy is read by its owner.

Each file is read once. So the files in use are those that were examined and shown to the owner,
even if somebody writes to the folder afterwards; and only its owner may.
"""

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from murmuration.deploy.terms import RUN
from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.privacy.durable_files import replace_file

SETTINGS, POLICY, AUTHORITY = "client.toml", "policy.toml", "ca.crt"
KEY, PUBLIC, README = "node.key", "node.pub", "README.md"
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
#: What the operator writes, and nobody else; and what its owner may change, or make anew.
OPERATORS, OWNERS = frozenset({SETTINGS, RUN, AUTHORITY, README}), frozenset({POLICY, KEY, PUBLIC})
FILES = OPERATORS | OWNERS | {SUMS, SIGNATURE}
#: Bytes of one of them; they are a few kilobytes.
LONGEST = 1 << 20
#: In the owner's own folder: the fingerprint that the first start met.
KNOWN = "authority.sha256"
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
_HASH = ec.ECDSA(hashes.SHA384())


@dataclass(frozen=True)
class HandedOver:
    """A folder that is as it was signed, except for files that its owner may change.

    Attributes:
        fingerprint: SHA-256 of the authority's certificate, as ``openssl x509 -fingerprint
            -sha256`` writes it.
        changed: the owner's files that are not, or no longer, as they were handed over.
        contents: of all files, by name.
    """

    fingerprint: str
    changed: tuple[str, ...]
    contents: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def examine(cls, folder: Path) -> "HandedOver":
        """Look at everything in a folder.

        Raises:
            InputError: something is there that does not belong there, lacks, or is not as signed.
        """
        contents = _read(folder)
        try:
            (certificate,) = x509.load_pem_x509_certificates(contents[AUTHORITY])
            key = certificate.public_key()
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise ValueError("its key is not on an elliptic curve")
            key.verify(contents[SIGNATURE], contents[SUMS], _HASH)
        except ValueError as error:
            raise InputError(f"{folder / AUTHORITY} is no authority's: {error}") from None
        except InvalidSignature:
            raise InputError(
                f"{folder / SUMS} is not signed by {AUTHORITY}: ask the operator for the folder "
                "that `murmuration deploy init` wrote"
            ) from None
        signed = _sums_in(contents[SUMS])
        digests = {name: _digest(content) for name, content in contents.items()}
        other = {name for name in signed | digests if signed.get(name) != digests.get(name)}
        other -= {SUMS, SIGNATURE}
        if bad := sorted(other - OWNERS):
            raise InputError(f"{folder / bad[0]} is not as the operator signed it ({SUMS})")
        return cls(fingerprint_of(certificate), tuple(sorted(other)), contents)

    def check_authority(self, state: Path, expected: str) -> bool:
        """True if the owner knows the fingerprint, from elsewhere or from before.

        Raises:
            InputError: it is another than expected, or than at the first start (kept in ``state``).
        """
        own = _bare(self.fingerprint)
        if expected and _bare(expected) != own:
            raise InputError(
                f"the folder is signed by {self.fingerprint}, not by --fingerprint {expected}"
            )
        known = state / KNOWN
        if not known.exists():
            return bool(expected)
        if _bare(known.read_text(encoding="ascii", errors="replace")) != own:
            raise InputError(
                f"the folder is signed by {self.fingerprint}, which is not who signed it before "
                f"({known}): ask the operator, by another channel, and remove that file if it is so"
            )
        return True

    def keep_authority(self, state: Path) -> None:
        """Note who signed it, for the next start."""
        if not (state / KNOWN).exists():
            replace_file(state / KNOWN, f"{self.fingerprint}\n".encode(), mode=0o600)


def signed(files: Mapping[str, bytes], authority: ec.EllipticCurvePrivateKey) -> dict[str, bytes]:
    """Return the two files by which a client's other ``files`` are known again."""
    lines = (f"{_digest(content)}  {name}\n" for name, content in sorted(files.items()))
    sums = "".join(lines).encode()
    return {SUMS: sums, SIGNATURE: authority.sign(sums, _HASH)}


def fingerprint_of(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate in the way in which people compare it."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _read(folder: Path) -> dict[str, bytes]:
    """The files by name; InputError, naming each entry that is none of ``FILES``."""
    with disk_errors_as(f"{folder} is not a client's folder"):
        seen = folder.stat()
        entries = {path.name: path.lstat() for path in sorted(folder.iterdir())}
    bad = [f"{name!a} ({why})" for name, entry in entries.items() if (why := _wrong(name, entry))]
    if bad:
        raise InputError(
            f"{folder} may hold {', '.join(sorted(FILES))} and nothing else. Take out: "
            f"{', '.join(bad)}"
        )
    if lacking := sorted((OPERATORS | {SUMS, SIGNATURE}).difference(entries)):
        raise InputError(
            f"{folder} lacks {', '.join(lacking)}: ask the operator for the folder that "
            "`murmuration deploy init` wrote"
        )
    if any(_others_write(entry) for entry in (seen, *entries.values())):
        raise InputError(
            f"others may write to {folder}, and so decide what leaves: make it yours alone "
            "(chmod -R go-w), and look at policy.toml again"
        )
    try:
        return {name: _content(folder / name) for name in entries}
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}") from None


def _content(path: Path) -> bytes:
    """The content of a file of the list; InputError if another file took its place meanwhile."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor has no path)
        if why := _wrong(path.name, os.fstat(descriptor)):
            raise InputError(f"{path} changed while it was read: now it is {why}")
        return file.read(LONGEST)


def _others_write(seen: os.stat_result) -> bool:
    """True if another account may write there, or owns it. Root, who may start the node for an
    owner, does not count."""
    account = os.geteuid()
    return bool(seen.st_mode & 0o022) or (account != 0 and seen.st_uid not in (0, account))


def _wrong(name: str, seen: os.stat_result) -> str:
    """The reason why a directory's entry is not one of a client's files; "" if it is one."""
    if stat.S_ISLNK(seen.st_mode):
        return "a link"
    if name not in FILES:
        return "not on the list"
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1:
        return "not a file of its own"
    if seen.st_mode & 0o111:
        return "executable: chmod -x it, if it is yours"
    return f"above {LONGEST} bytes" if seen.st_size > LONGEST else ""


def _sums_in(text: bytes) -> dict[str, str]:
    lines = text.decode("ascii", errors="replace").splitlines()
    sums = [match.groups() for line in lines if (match := _LINE.fullmatch(line))]
    return {name: digest for digest, name in sums}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _bare(fingerprint: str) -> str:
    """Without what people write between its digits."""
    digits = fingerprint.lower().rpartition("=")[2].strip().removeprefix("sha256:")
    return re.sub(r"[^0-9a-f]", "", digits)
