"""Certificates for tests: an untrusted authority, and a server's certificate for loopback."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = timedelta(days=1)
SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Certificates:
    """PEM files: the authority's certificate, the server's certificate and its key."""

    authority: Path
    server: Path
    key: Path


def certificates(folder: Path) -> Certificates:
    """Create an authority and have it sign a certificate for 127.0.0.1."""
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = _name("an authority of tests")
    authority = (
        _certificate(name, name, authority_key, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(SIGNS, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    server = (
        _certificate(_name("a server of tests"), name, server_key, authority_key)
        .add_extension(loopback, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    files = Certificates(folder / "authority.pem", folder / "server.pem", folder / "key.pem")
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.server.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    now, theirs = datetime.now(UTC), x509.AuthorityKeyIdentifier
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        # Python 3.13 and later trust no certificate without them.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(theirs.from_issuer_public_key(signer.public_key()), critical=False)
    )
