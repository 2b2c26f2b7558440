"""Connections to a server: certificates, signed requests, and what `/health` reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from forge_client import Client, ClientError
from forge_client.cli.options.values import read_public_key
from forge_client.http import Server, transport
from forge_client.http.backend import HttpBackend
from forge_client.project.bundle import pack
from forge_schema.access.api_keys import Keys
from forge_schema.database.pool import Database
from forge_schema.model.states import Role
from support.http.certificates import Certificates, certificates
from support.http.server import quick_app, served, server_settings, serving
from support.store.storage import answer, drop, proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = {"name": "x", "command": ["ls"]}


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def keys(database_url: str) -> Iterator[Keys]:
    with Database(database_url) as database:
        yield Keys(database, actor="user:root")


@pytest.fixture
def key(keys: Keys) -> str:
    return keys.create("ann", Role.ADMIN)[1]


@pytest.fixture
def certified(tmp_path: Path) -> Certificates:
    return certificates(tmp_path)


@pytest.fixture
def secured(database_url: str, store_url: str, certified: Certificates) -> Iterator[str]:
    """A server with a certificate that nobody trusts by default."""
    app = quick_app(server_settings(database_url, store_url))
    files = {"ssl_certfile": str(certified.server), "ssl_keyfile": str(certified.key)}
    with serving(app, **files) as url:
        yield url


def refusal(code: str, exit_code: int) -> pytest.RaisesExc[ClientError]:
    def fits(error: ClientError) -> bool:
        return (error.code, error.exit_code) == (code, exit_code)

    return pytest.RaisesExc(ClientError, check=fits)


def test_a_certificate_that_is_not_trusted_is_told(secured: str, key: str) -> None:
    with HttpBackend(Server(secured, key)) as backend, refusal("tls_failed", 6) as caught:
        backend.jobs()
    assert "not trusted" in caught.value.message
    assert "--tls-ca" in caught.value.hint


def test_an_authority_that_is_named_is_trusted_for_objects_too(
    secured: str, key: str, certified: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    bundle = pack(tmp_path / "project", tmp_path / "bundle", limit_bytes=1 << 20)
    with HttpBackend(Server(secured, key, ca=certified.authority)) as backend:
        backend.upload_bundle(bundle)
        assert backend.has_bundle(bundle)


def test_nothing_is_verified_only_where_that_is_said(secured: str, key: str) -> None:
    with HttpBackend(Server(secured, key, verify=False)) as backend:
        assert backend.jobs() == []
        found = {check.name: check for check in backend.health()}
    assert found["API key"].standing == "warn"
    assert "FORGE_INSECURE_SKIP_VERIFY" in found["API key"].hint


def test_a_name_that_the_certificate_is_not_for_is_told(
    secured: str, key: str, certified: Certificates
) -> None:
    elsewhere = secured.replace("127.0.0.1", "localhost")
    with (
        HttpBackend(Server(elsewhere, key, ca=certified.authority)) as backend,
        refusal("tls_failed", 6),
    ):
        backend.jobs()


def test_http_and_https_mixed_up_are_told(
    secured: str, database_url: str, store_url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "FIRST_PATIENCE_S", 0.3)
    with served(server_settings(database_url, store_url)) as plain:
        mixed_up = Server(plain.replace("http://", "https://"), key)
        with HttpBackend(mixed_up) as backend, refusal("tls_failed", 6) as caught:
            backend.jobs()
        assert "http://" in caught.value.hint
    with (
        HttpBackend(Server(secured.replace("https://", "http://"), key)) as backend,
        refusal("server_unreachable", 5),
    ):
        backend.jobs()


@pytest.mark.parametrize("content", [b"", b"no certificate"])
def test_a_file_that_holds_no_certificate_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ca.pem").write_bytes(content)
    with refusal("tls_ca_invalid", 6):
        HttpBackend(Server("https://127.0.0.1:1", ca=tmp_path / "ca.pem"))
    with refusal("tls_ca_invalid", 6):
        HttpBackend(Server("https://127.0.0.1:1", ca=tmp_path / "missing.pem"))
    with refusal("tls_ca_invalid", 6):
        Client(url="https://127.0.0.1:1", tls_ca=tmp_path / "ca.pem")


@pytest.fixture
def signing(tmp_path: Path, keys: Keys) -> tuple[str, Path]:
    """An API key that requires signed requests, and the private key that signs them."""
    private = Ed25519PrivateKey.generate()
    file, public = tmp_path / "private.pem", tmp_path / "public.pem"
    file.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return keys.create("ann", Role.ADMIN, public_key=read_public_key(public))[1], file


def test_a_key_that_wants_signatures_gets_them_at_every_try(
    database_url: str, store_url: str, signing: tuple[str, Path]
) -> None:
    key, file = signing
    lost = ["/submit"]

    def unheard(_method: str, path: str) -> int | None:
        return 0 if lost and lost[0] in path and lost.pop() else None

    with served(server_settings(database_url, store_url)) as url, proxy(url) as door:
        door.answer_limit = lambda _method, path: (
            0 if lost and lost[0] in path and lost.pop() else None
        )
        with HttpBackend(Server(door.url, key, signing_key=file)) as backend:
            (job,) = backend.submit([SPEC])
            assert [row.job_id for row in backend.jobs(states=["queued", "running"])] == [job]
            backend.keep_template("ä b/%c", {"command": ["ls"]})
            assert backend.template("ä b/%c").name == "ä b/%c"
            assert backend.report("jobs", count=1)[0]["job_id"] == job
        assert not lost
        with HttpBackend(Server(door.url, key)) as backend, refusal("unauthenticated", 7) as caught:
            backend.jobs()
    assert "sign" in caught.value.message


def test_a_file_that_holds_no_signing_key_is_told(tmp_path: Path, certified: Certificates) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for file in (tmp_path / "empty", tmp_path / "missing", certified.key, certified.server):
        with refusal("signing_key_invalid", 6):
            HttpBackend(Server("https://127.0.0.1:1", signing_key=file))


def findings(backend: HttpBackend) -> dict[str, str]:
    return {check.name: check.standing.value for check in backend.health()}


def test_health_tells_what_the_server_finds(database_url: str, store_url: str, key: str) -> None:
    with served(server_settings(database_url, store_url)) as url, proxy(url) as door:
        with HttpBackend(Server(door.url, key)) as backend:
            found = findings(backend)
            assert set(found) == {"server", "database", "store", "sweeper", "API key", "workers"}
            # No sweeper runs here, which is told a minute after the database's start.
            assert found.pop("sweeper") in {"ok", "warn"}
            assert (found.pop("workers"), set(found.values())) == ("warn", {"ok"})
            door.fault = lambda handler, _body: answer(handler, 200, b"<html>")
            assert findings(backend) == {"server": "fail"}
            door.fault = lambda handler, _body: drop(handler)
            assert findings(backend) == {"server": "fail"}
        door.fault = None
        with HttpBackend(Server(door.url)) as backend:
            found = findings(backend)
            assert (found["server"], found["API key"], "workers" in found) == ("ok", "fail", False)


def test_health_tells_of_a_database_that_is_away(store_url: str) -> None:
    nowhere = "postgresql://127.0.0.1:1/forge"
    with (
        served(server_settings(nowhere, store_url)) as url,
        HttpBackend(Server(url, "fgk_whatever")) as backend,
    ):
        found = {check.name: check for check in backend.health()}
    assert (found["server"].standing, found["database"].standing) == ("ok", "fail")
    assert found["store"].standing == "ok"
    assert "127.0.0.1:1/" not in str(found["database"])
    assert all(check.hint for check in found.values() if check.standing == "fail")
