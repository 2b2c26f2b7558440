"""An authority of the installation's own, and the server's certificate by it."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CHAIN, KEY = "server.pem", "server.key"
OF_AUTHORITY = ("authority.pem", "authority.key")
LASTS = timedelta(days=3650)
# The server's own is made again this long before it ends.
CERTIFICATE_LASTS, EARLY = timedelta(days=397), timedelta(days=60)
ONE_HOUR = timedelta(hours=1)
PrivateKey = ec.EllipticCurvePrivateKey
OTHER_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "encipher_only", "decipher_only"),
)


def issued(folder: Path, names: tuple[str, ...]) -> tuple[Path, Path, bool]:
    """Return the server's chain and key, and whether they were made now.

    The authority, `authority.pem`, stays the same: clients and workers trust it.
    """
    chain, key = folder / CHAIN, folder / KEY
    if _holds(chain, names) and key.exists():
        return chain, key, False
    authority, signer = _authority(folder)
    own = ec.generate_private_key(ec.SECP256R1())
    names_of_it = x509.SubjectAlternativeName(list(map(_general, names)))
    certificate = (
        _builder(names[0], authority.subject, own.public_key(), CERTIFICATE_LASTS)
        .add_extension(names_of_it, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        # Python 3.13 and later refuse a certificate without both.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    write(key, _pem(own), 0o640)
    # With the authority, which the server then gives to those who know its fingerprint.
    whole = [one.public_bytes(serialization.Encoding.PEM) for one in (certificate, authority)]
    write(chain, b"".join(whole), 0o644)
    return chain, key, True


def _authority(folder: Path) -> tuple[x509.Certificate, PrivateKey]:
    file, key = (folder / name for name in OF_AUTHORITY)
    if file.exists():
        signer = serialization.load_pem_private_key(key.read_bytes(), password=None)
        assert isinstance(signer, PrivateKey)  # noqa: S101 - we have made it
        return x509.load_pem_x509_certificate(file.read_bytes()), signer
    signer = ec.generate_private_key(ec.SECP256R1())
    name = _named("Forge's own authority")
    usage = dict.fromkeys(OTHER_USES, False)
    certificate = (
        _builder("Forge's own authority", name, signer.public_key(), LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    write(key, _pem(signer), 0o600)
    write(file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate, signer


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - ONE_HOUR)
        .not_valid_after(now + lasts)
    )


def _named(name: str) -> x509.Name:
    # A common name has at most 64 characters; what counts are the alternative names.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _holds(chain: Path, names: tuple[str, ...]) -> bool:
    """Tell whether a certificate is for these names, and valid for a while."""
    if named(chain) != names:
        return False
    ends = x509.load_pem_x509_certificate(chain.read_bytes()).not_valid_after_utc
    return ends - EARLY > datetime.now(UTC)


def named(chain: Path) -> tuple[str, ...]:
    """Return the names that a certificate is for; none if there is no such file."""
    if not chain.exists():
        return ()
    certificate = x509.load_pem_x509_certificate(chain.read_bytes())
    kept = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return tuple(str(name.value) for name in kept)


def _pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write(path: Path, data: bytes, mode: int) -> None:
    """Write a file whole, closed to others from its first byte on."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600)
    beside.write_bytes(data)
    beside.chmod(mode)
    beside.replace(path)
