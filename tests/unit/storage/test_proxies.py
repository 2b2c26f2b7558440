"""The proxy for a URL, and that no library sends loopback addresses to one."""

from __future__ import annotations

import ssl
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import httpx
import pytest
from forge_client.http.errors import Retryable, loss, refusal
from forge_schema import proxies, shell
from forge_schema.http_client import open_client
from forge_schema.proxies import ProxyUnusable, is_loopback, proxy_of
from forge_schema.storage.s3.client import connect as connect_s3
from websockets.exceptions import InvalidHandshake

if TYPE_CHECKING:
    from collections.abc import Iterator

DEAD = "http://ann:hidden@127.0.0.1:9"
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
LOOPBACKS = ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.1", "127.0.0.2", "[::1]"]
LOOPBACKS += ["[::ffff:127.0.0.1]", "0.0.0.0"]  # noqa: S104  an address to connect to


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("http", "https", "all", "no"):
        for name in (f"{kind}_proxy", f"{kind}_PROXY".upper()):
            monkeypatch.delenv(name, raising=False)


def found(url: str) -> str | None:
    proxy = proxy_of(url)
    return proxy.url if proxy else None


@pytest.mark.parametrize("host", LOOPBACKS)
def test_loopback_has_no_proxy_whatever_is_set(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    assert is_loopback(host)
    for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5://[")
    assert found(f"http://{host}:8900/x") is found(f"https://{host}") is None


def test_addresses_elsewhere_are_not_loopback() -> None:
    for host in ("10.0.0.1", "localhost.example", "forge", "[fe80::1]", "1.127.0.0", "mylocalhost"):
        assert not is_loopback(host)


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({"HTTP_PROXY": "http://p:1"}, "http://forge.example", "http://p:1"),
        ({"http_proxy": "p:1"}, "http://forge.example", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://forge.example", None),
        ({"HTTPS_PROXY": "http://p:1", "ALL_PROXY": "q:1"}, "https://f", "http://p:1"),
        ({"all_proxy": "http://u:w@p:1"}, "https://forge.example", "http://u:w@p:1"),
        ({"HTTP_PROXY": ""}, "http://forge.example", None),
    ],
)
def test_the_variables_of_proxies(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, proxy: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert found(url) == proxy


@pytest.mark.parametrize(
    ("entry", "url", "excepted"),
    [
        ("*", "http://a.example", True),
        ("example", "http://a.example", True),
        (".example", "http://a.example", True),
        ("*.example", "http://a.example", True),
        ("x.org, A.EXAMPLE", "http://a.example", True),
        ("x.org a.example", "http://a.example", True),
        ("http://a.example", "http://a.example", True),
        ("a.example:80", "http://a.example", True),
        ("a.example:443", "http://a.example", False),
        ("ample", "http://a.example", False),
        ("10.0.0.0/8", "http://10.1.2.3:9", True),
        ("10.0.0.0/8", "http://11.1.2.3", False),
        ("10.1.2.3", "http://10.1.2.3", True),
        ("fd00::/8", "http://[fd00::1]:9", True),
        ("[fd00::1]:9", "http://[fd00::1]:9", True),
    ],
)
def test_the_forms_of_no_proxy(
    monkeypatch: pytest.MonkeyPatch, entry: str, url: str, *, excepted: bool
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://p:1")
    monkeypatch.setenv("NO_PROXY", entry)
    assert (found(url) is None) is excepted


@pytest.mark.parametrize(
    "value", ["http://", "ftp://p:1", "http://u:hidden@p:x", "u:hidden@", "a b"]
)
def test_a_malformed_proxy_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("http_proxy", value)
    with pytest.raises(ProxyUnusable, match="http_proxy names no usable proxy") as refused:
        proxy_of("http://forge.example")
    assert "hidden" not in refused.value.message + refused.value.hint


def test_socks_says_which_packages_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5h://ann:hidden@p:1080")
    monkeypatch.setattr(proxies, "find_spec", lambda module: None if module == "socks" else module)
    with pytest.raises(
        ProxyUnusable, match=r"SOCKS proxy socks5h://p:1080 \(ALL_PROXY\) needs PyS"
    ):
        proxy_of("http://forge.example")
    monkeypatch.setattr(proxies, "find_spec", lambda module: module)
    assert found("http://forge.example") == "socks5h://ann:hidden@p:1080"


class Plain(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/x" else 407)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its own name
        pass


@pytest.fixture
def place() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Plain) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_every_library_reaches_loopback_past_the_proxy(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, DEAD)
    with open_client("forge", TLS, httpx.Timeout(30)) as client:
        assert client.get(f"{place}/x").status_code == 200
    # It is no WebSocket, but it answered.
    with pytest.raises(InvalidHandshake, match="200"):
        shell.connect(place, "/x", {}, TLS)
    for endpoint, known in ((place, {}), ("http://s3.example", {"http": DEAD})):
        s3 = connect_s3("s3://bucket", "bucket", "", endpoint_url=endpoint, region="x")
        assert s3.meta.config.proxies == known  # type: ignore[attr-defined]


def test_a_proxy_that_fails_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", DEAD)
    named = r"http://127.0.0.1:9 \(HTTP_PROXY\)"
    with open_client("forge", TLS, httpx.Timeout(30)) as client:
        with pytest.raises(httpx.ConnectError, match=f"refused.*{named}") as failed:
            client.get("http://forge.example/x")
        told = loss(failed.value, "http://forge.example")
        assert isinstance(told, Retryable)
        assert not told.unsure
        monkeypatch.setenv("HTTP_PROXY", place.replace("//", "//ann:hidden@"))
        answer = client.get("http://forge.example/y")
    refused = refusal(answer, "http://forge.example")
    assert isinstance(refused, Exception)
    said = [str(failed.value), str(told), told.error.hint, str(refused)]
    assert "http://forge.example, through the proxy http://127.0.0.1:9 (HTTP_PROXY)," in said[1]
    assert "NO_PROXY" in said[2]
    assert f"through the proxy {place} (HTTP_PROXY)" in said[3]
    assert not [text for text in said if "hidden" in text]
    monkeypatch.setenv("HTTP_PROXY", DEAD)
    with pytest.raises(OSError, match=named):
        shell.connect("http://forge.example", "/x", {}, TLS)
