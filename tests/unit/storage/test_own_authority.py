"""Authorities of users' own, as Python checks them from 3.13 on."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from threading import Thread

import httpx
import pytest
from forge_client.http.errors import loss
from forge_schema.http_client import REISSUE, TRUST_HINTS, tls_context
from forge_worker.circuit_breaker import NotAnswered, QueueRefused, Servers
from forge_worker.queue.http.session import not_answered
from support.http.certificates import certificates
from support.services import require

PAGE = Path(__file__).parents[3] / "docs" / "deploy-server.md"
# As most pages on the web tell it.
CLASSIC = """
EC="-newkey ec -pkeyopt ec_paramgen_curve:P-256"
openssl req -x509 $EC -nodes -subj "/CN=ours" -keyout authority.key -out authority.pem
openssl req $EC -nodes -subj /CN=forge.example -keyout tls_key -out request.pem
echo subjectAltName=DNS:forge.example > extensions
openssl x509 -req -in request.pem -CA authority.pem -CAkey authority.key -CAcreateserial \
  -extfile extensions -out tls_cert
"""


def ours() -> str:
    _, _, rest = PAGE.read_text("utf-8").partition("#### An authority of your own\n\n```\n")
    return rest.split("```")[0]


def issued(folder: Path, commands: str) -> None:
    require(shutil.which("openssl"), "openssl")
    subprocess.run(["sh", "-ec", commands], cwd=folder, check=True, capture_output=True)


def handshake(authority: Path, certificate: Path, key: Path, host: str) -> None:
    """Connect as on Python 3.13 and later; raises what a connection raises."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = tls_context(authority)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()

    def serve() -> None:
        with suppress(OSError), server.wrap_socket(there, server_side=True):
            pass

    with here, there:
        serving = Thread(target=serve)
        serving.start()
        try:
            client.wrap_socket(here, server_hostname=host).close()
        finally:
            here.close()
            serving.join()


def refused(folder: Path, host: str) -> httpx.ConnectError:
    with pytest.raises(ssl.SSLCertVerificationError) as found:
        handshake(folder / "authority.pem", folder / "tls_cert", folder / "tls_key", host)
    error = httpx.ConnectError(str(found.value))
    error.__cause__ = found.value
    return error


def worker_hint(error: httpx.ConnectError) -> str:
    def ask(_url: str) -> NotAnswered:
        raise not_answered(error)

    with pytest.raises(QueueRefused) as told:
        Servers(["https://forge.example"], longest_pause_s=1).ask(ask)
    return told.value.hint


def test_the_page_s_commands_make_a_certificate_that_every_python_trusts(tmp_path: Path) -> None:
    issued(tmp_path, ours())
    handshake(
        tmp_path / "authority.pem", tmp_path / "tls_cert", tmp_path / "tls_key", "forge.example"
    )


def test_certificates_of_the_tests_are_trusted_by_every_python(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    handshake(made.authority, made.server, made.key, "127.0.0.1")


def test_a_client_that_trusts_an_authority_without_a_key_usage_learns_to_reissue_it(
    tmp_path: Path,
) -> None:
    issued(tmp_path, CLASSIC)
    error = refused(tmp_path, "forge.example")
    told = loss(error, "https://forge.example")
    assert str(told).endswith("key usage extension (checked from Python 3.13 on)")
    assert told.hint == worker_hint(error) == REISSUE  # type: ignore[union-attr]


def test_another_name_is_not_a_question_of_the_authority(tmp_path: Path) -> None:
    issued(tmp_path, ours())
    error = refused(tmp_path, "other.example")
    hint = loss(error, "https://other.example").hint  # type: ignore[union-attr]
    assert hint == worker_hint(error) == TRUST_HINTS["mismatch"]
