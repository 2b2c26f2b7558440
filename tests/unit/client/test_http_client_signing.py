"""Signed requests: the same text on both sides, and the forms in which people keep their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fastapi import Request
from forge_client.cli.options.values import read_public_key
from forge_client.errors import ClientError
from forge_client.http import open_signing
from forge_functions.auth import signature as servers
from forge_schema.signing import target_of

if TYPE_CHECKING:
    from pathlib import Path


URL = "https://forge.example/stage/api/v1/queue/templates/a%2Fb%20%C3%A4%25"
PRIVATE = serialization.PrivateFormat
PUBLIC = serialization.PublicFormat
PEM, SSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH


def as_server(request: httpx.Request) -> Request:
    """Return a request as the server sees it."""
    scope = {
        "type": "http", "method": request.method, "path": request.url.path,
        "query_string": request.url.query, "headers": request.headers.raw,
    }  # fmt: skip
    return Request(scope)


@pytest.mark.parametrize(
    "query", ["", "state=ready&state=running&before=7", "owner=a%20b%2B%26%C3%A4&empty=", "x=1+2"]
)
def test_both_sides_sign_the_same(query: str) -> None:
    url = httpx.URL(f"{URL}?{query}" if query else URL)
    request = httpx.Request("GET", url)
    assert target_of(request) == servers.target_of(as_server(request))


@pytest.mark.parametrize("form", [PRIVATE.PKCS8, PRIVATE.OpenSSH])
def test_a_signing_key_is_read_as_openssl_and_openssh_write_it(
    tmp_path: Path, form: serialization.PrivateFormat
) -> None:
    private = Ed25519PrivateKey.generate()
    nothing = serialization.NoEncryption()
    (tmp_path / "key").write_bytes(private.private_bytes(PEM, form, nothing))
    opened = open_signing(tmp_path / "key")
    assert opened is not None
    private.public_key().verify(opened.private.sign(b"text"), b"text")


def test_a_signing_key_with_a_passphrase_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    secret = serialization.BestAvailableEncryption(b"secret")
    locked = Ed25519PrivateKey.generate().private_bytes(PEM, PRIVATE.PKCS8, secret)
    other = X25519PrivateKey.generate().private_bytes(
        PEM, PRIVATE.PKCS8, serialization.NoEncryption()
    )
    for content in (locked, other, b"-----BEGIN PRIVATE KEY-----", b""):
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(ClientError) as caught:
            open_signing(tmp_path / "key")
        assert (caught.value.code, caught.value.exit_code) == ("signing_key_invalid", 6)


@pytest.mark.parametrize(
    ("encoding", "form"), [(PEM, PUBLIC.SubjectPublicKeyInfo), (SSH, PUBLIC.OpenSSH)]
)
def test_a_public_key_is_read_as_openssl_and_openssh_write_it(
    tmp_path: Path, encoding: serialization.Encoding, form: serialization.PublicFormat
) -> None:
    public = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "key").write_bytes(public.public_bytes(encoding, form) + b"\n")
    assert read_public_key(tmp_path / "key") == public.public_bytes_raw()


def test_what_is_no_public_key_is_refused(tmp_path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    secret = private.private_bytes(PEM, PRIVATE.PKCS8, serialization.NoEncryption())
    other = X25519PrivateKey.generate().public_key()
    (tmp_path / "missing").unlink(missing_ok=True)
    contents = [
        b"", b"\xff", secret, other.public_bytes(PEM, PUBLIC.SubjectPublicKeyInfo),
        b"ssh-ed25519 AAAA", b"-----BEGIN PUBLIC KEY-----\n!!\n-----END PUBLIC KEY-----",
    ]  # fmt: skip
    for content in contents:
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(ClientError) as caught:
            read_public_key(tmp_path / "key")
        assert (caught.value.code, caught.value.exit_code) == ("public_key_invalid", 2)
    with pytest.raises(ClientError):
        read_public_key(tmp_path / "missing")
