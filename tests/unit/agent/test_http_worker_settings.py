"""How a worker gets its servers and its token."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind
from forge_schema.http_client import CertificatesUnusable, tls_context
from forge_worker.settings.settings import TokenUnusable, WorkerSettings
from pydantic import ValidationError
from pydantic_settings import CliApp

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://forge.example"
TOKEN = tokens.mint(TokenKind.WORKER, "7")[0]
SQL = {"database_url": "postgresql://x/y", "store_url": "file:///store"}


def settings(**given: Any) -> WorkerSettings:  # noqa: ANN401  settings of all types
    return WorkerSettings(**given)


def refused(**given: Any) -> str:  # noqa: ANN401  as above
    with pytest.raises(ValidationError) as error:
        settings(**given)
    (fault,) = error.value.errors()
    return fault["msg"]


def test_a_url_and_a_token_are_enough() -> None:
    read = settings(url=URL, token=TOKEN)
    assert (read.url, read.worker_token(), read.database_url) == ([URL], TOKEN, "")
    assert TOKEN not in repr(read)


@pytest.mark.parametrize(
    ("said", "urls"),
    [
        ("http://a:8900", ["http://a:8900"]),
        ("http://a/,https://b/forge/", ["http://a", "https://b/forge"]),
        (" http://a , ,http://b", ["http://a", "http://b"]),
        (["http://a", "http://b"], ["http://a", "http://b"]),
    ],
)
def test_several_urls_are_a_list(said: Any, urls: list[str]) -> None:  # noqa: ANN401  both forms
    assert settings(url=said, token=TOKEN).url == urls


def test_urls_come_by_flag_and_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_URL", "http://a,http://b")
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    assert CliApp.run(WorkerSettings, cli_args=[]).url == ["http://a", "http://b"]
    flags = ["--url", "http://c", "--url", "http://d,http://e", "--reconnect-limit-s", "3"]
    read = CliApp.run(WorkerSettings, cli_args=flags)
    assert read.url == ["http://c", "http://d", "http://e"]
    assert read.reconnect_limit_s == 3


def test_variables_that_are_empty_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "TOKEN", "TOKEN_FILE", "TLS_CA"):
        monkeypatch.setenv(f"FORGE_{name}", "")
    read = settings(**SQL)
    assert (read.url, read.token_file, read.tls_ca) == ([], None, None)


@pytest.mark.parametrize(
    "url",
    ["forge.example", "ftp://x", "https://", "http://x:0", "http://x:99999", "https://u:pw@x",
     "https://x?y", "https://x#y", "http://[x"],
)  # fmt: skip
def test_what_is_no_url_of_a_server_is_refused_and_not_repeated(url: str) -> None:
    said = refused(url=url, token=TOKEN)
    assert "a server's URL" in said
    assert "pw" not in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {},
            "no `forge up` is running here: start one, or give --url and --token, or --database",
        ),
        ({"store_url": "file:///x"}, "no queue is given"),
        ({"json": True}, "--json goes with --status"),
        ({"json": True, "recover": True}, "--json goes with --status"),
        ({"database_url": "postgresql://x"}, "--store-url is missing"),
        ({"url": URL}, "--url needs --token or --token-file"),
        ({"url": URL, "token": ""}, "--url needs --token or --token-file"),
        ({"url": URL, "token": TOKEN, **SQL}, "both a URL and a database are given"),
        ({"url": URL, "token": TOKEN, "token_file": "/x"}, "give --token or --token-file"),
        ({"url": URL, "token": TOKEN[:-1]}, "not a complete token"),
        ({"url": URL, "token": tokens.mint(TokenKind.KEY, "k")[0]}, "it begins with fgw_"),
        ({"url": URL, "token_file": "/no/such/file"}, "/no/such/file cannot be read: No such"),
    ],
)
def test_what_is_missing_or_too_much_is_said(given: dict[str, Any], said: str) -> None:
    message = refused(**given)
    assert said in message
    assert TOKEN[:-1] not in message


def test_a_token_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    read = settings(url=URL, token_file=file)
    assert read.worker_token() == TOKEN
    newer = tokens.mint(TokenKind.WORKER, "7")[0]
    file.write_text(newer)
    assert read.worker_token() == newer
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(TokenUnusable, match="it is not a text file"):
        read.worker_token()


def test_a_token_comes_by_a_pipe_that_cannot_be_read_again() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours), os.fdopen(theirs, "w") as writer:
        writer.write(f"{TOKEN}\n")
        writer.close()
        read = settings(url=URL, token_file=f"/dev/fd/{ours}")
        assert [read.worker_token(), read.worker_token()] == [TOKEN, TOKEN]
        assert os.read(ours, 100) == b""


def test_a_file_that_holds_no_certificates_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    for content in (b"", b"nothing"):
        file.write_bytes(content)
        with pytest.raises(CertificatesUnusable, match=r"ca\.pem cannot be used"):
            tls_context(file)
    with pytest.raises(CertificatesUnusable, match="No such file"):
        tls_context(tmp_path / "none")
