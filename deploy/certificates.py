"""Keys and certificates of a deployment: a CA, the server's certificate, one key for each client.

Decisions:
- P-384 throughout, as Flower's SuperNode authentication wants it; client keys in OpenSSH's format.
- The CA signs one server certificate and nothing else (path length 0). Its names are exactly the
  addresses that clients connect to; a client trusts this CA alone, not the system's.
- What is secret is in a file named ``.key``, written with mode 0600 and never over another.
"""

import datetime
import ipaddress
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from murmuration.preference.data.errors import InputError

_CA_YEARS, _SERVER_DAYS = 10, 825


@dataclass(frozen=True)
class Authority:
    """A certificate authority of the deployment's own."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str) -> "Authority":
        """A fresh one."""
        key = ec.generate_private_key(ec.SECP384R1())
        subject = _name(f"{name} CA")
        certificate = (
            _builder(subject, subject, key.public_key(), days=365 * _CA_YEARS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA384())
        )
        return cls(key, certificate)

    def server(self, hosts: list[str]) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """A key and a certificate for a server that is reached at these names and addresses.

        From its own machine it is reached at the loopback address too.
        """
        names = list(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))
        key = ec.generate_private_key(ec.SECP384R1())
        identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        certificate = (
            _builder(_name(hosts[0]), self.certificate.subject, key.public_key(), _SERVER_DAYS)
            .add_extension(x509.SubjectAlternativeName([_alternative(n) for n in names]), False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False
            )
            .sign(self.key, hashes.SHA384())
        )
        return key, certificate


def client_key() -> tuple[bytes, bytes]:
    """A client's private key and public line, in OpenSSH's format."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    return private, public_line(key.public_key())


def public_line(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as ``flwr supernode register`` takes it."""
    ssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return key.public_bytes(*ssh) + b"\n"


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A server's private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def load_client_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A client's private key.

    Raises:
        InputError: it cannot be read, is of another kind, or others can read it.
    """
    try:
        mode = path.stat().st_mode
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"the key {path} cannot be used: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"the key {path} is not an elliptic-curve key: ssh-keygen -t ecdsa -b 384")
    if mode & 0o077:
        raise InputError(f"the key {path} can be read by others: chmod 600 it, or make a new one")
    return key


def executor_secret() -> bytes:
    """A new secret that an executor must present to get a task: 256 bits, as text."""
    return secrets.token_hex(32).encode()


def write_new(path: Path, data: bytes) -> Path:
    """Write a file that must not exist; a ``.key`` for its owner alone. FileExistsError."""
    make_folders(path.parent, 0o755)
    mode = {".key": 0o600, ".sh": 0o755}.get(path.suffix, 0o644)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return path


def make_folders(folder: Path, mode: int) -> None:
    """Make a folder and those on the way to it that are not there, of this mode whatever the
    process's mask allows: who may rename a folder decides what is in it."""
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            place.mkdir(mode=mode, exist_ok=True)


def days_left(certificate: x509.Certificate) -> int:
    """The number of days until a certificate expires."""
    return (certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise InputError(f"{host!r} is neither a name nor an address of a server") from None


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )
