"""Keys and certificates: in the formats that both sides want, and never written over."""

import contextlib
import ssl
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509 import DNSName, IPAddress, SubjectAlternativeName

from murmuration.deploy import certificates
from murmuration.deploy.certificates import Authority
from murmuration.preference.data.errors import InputError


def test_the_servers_names_are_those_asked_for_and_the_loopback():
    _, certificate = Authority.new("x").server(["example.org", "10.0.0.7", "::1"])
    names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert names.get_values_for_type(DNSName) == ["example.org", "localhost"]
    addresses = [str(address) for address in names.get_values_for_type(IPAddress)]
    assert addresses == ["10.0.0.7", "::1", "127.0.0.1"]


def test_the_server_is_believed_by_its_own_authority_alone(tmp_path):
    ours, other = Authority.new("x"), Authority.new("x")
    key, certificate = ours.server(["localhost"])
    files = {"key": certificates.key_pem(key), "crt": certificates.certificate_pem(certificate)}
    files |= {"ca": certificates.certificate_pem(ours.certificate)}
    files |= {"other": certificates.certificate_pem(other.certificate)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "crt", tmp_path / "key")

    def shake_hands(authority):
        client = ssl.create_default_context(cafile=str(tmp_path / authority))
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        one = client.wrap_bio(to_client, to_server, server_hostname="localhost")
        two = server.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for side in (one, two):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        return one.version()

    assert shake_hands("ca") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands("other")


def test_a_clients_key_is_one_that_ssh_knows(tmp_path):
    private, public = certificates.client_key()
    path = certificates.write_new(tmp_path / "node.key", private)
    assert path.stat().st_mode & 0o777 == 0o600
    assert certificates.public_line(certificates.load_client_key(path).public_key()) == public
    assert public.startswith(b"ecdsa-sha2-nistp384 ")
    read = serialization.load_ssh_public_key(public)
    assert read.curve.name == "secp384r1"


def test_ssh_keygen_reads_it(tmp_path):
    private, public = certificates.client_key()
    path = certificates.write_new(tmp_path / "node.key", private)
    try:
        told = subprocess.run(["ssh-keygen", "-y", "-f", path], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("no ssh-keygen on this machine")
    assert told.stdout.split()[:2] == public.split()[:2]


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = certificates.write_new(tmp_path / "node.key", certificates.client_key()[0])
    path.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        certificates.load_client_key(path)


def test_other_keys_are_refused(tmp_path):
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    with pytest.raises(InputError, match="elliptic"):
        certificates.load_client_key(certificates.write_new(tmp_path / "a.key", key))
    with pytest.raises(InputError, match="cannot be used"):
        certificates.load_client_key(certificates.write_new(tmp_path / "b.key", b"x"))
    with pytest.raises(InputError, match="cannot be used"):
        certificates.load_client_key(tmp_path / "none")


def test_nothing_is_written_over(tmp_path):
    path = certificates.write_new(tmp_path / "a" / "b", b"first")
    with pytest.raises(FileExistsError):
        certificates.write_new(path, b"second")
    assert path.read_bytes() == b"first"


def test_a_host_that_is_none_is_refused():
    with pytest.raises(InputError, match="neither a name nor an address"):
        Authority.new("x").server(["bücher.example"])
