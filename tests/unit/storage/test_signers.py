"""The contents of a signed URL."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from forge_functions.services import Services
from forge_schema.model.stored import SignedUrl
from forge_schema.storage import KeyInvalid, StoreUnreachable, StoreUrlInvalid
from forge_schema.storage.signed import Permit, ServerSigner, Signer, open_signer
from forge_schema.storage.store import ObjectTooLarge
from support.http.server import server_settings
from support.store.storage import use_credentials

if TYPE_CHECKING:
    from pathlib import Path

SHA256 = "ab" * 32
S3 = "s3://bucket/forge?region=eu-west-1"
ELSEWHERE = "s3://bucket/forge?endpoint_url=http%3A%2F%2F127.0.0.1%3A9000&region=us-east-1"
FILE = "file:///srv/forge"
PERMIT = Permit("PUT", "a", 1000, 5, SHA256)


def signer(store_url: str, lasts_s: int = 900, base_url: str = "https://forge.test/") -> Signer:
    return open_signer(store_url, secret=b"s" * 32, base_url=base_url, lasts_s=lasts_s)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_credentials(monkeypatch)


def names_signed(signed: SignedUrl) -> set[str]:
    (names,) = parse_qs(urlsplit(signed.url).query)["X-Amz-SignedHeaders"]
    return set(names.split(";"))


@pytest.mark.parametrize("if_absent", [True, False])
def test_s3_signs_every_header_that_the_caller_is_told_to_send(*, if_absent: bool) -> None:
    signed = signer(S3).put("a", size=5, sha256=SHA256, if_absent=if_absent)
    assert names_signed(signed) == {"host", *(name.lower() for name in signed.headers)}
    assert signed.headers["Content-Length"] == "5"
    assert signed.headers["x-amz-checksum-sha256"] == "q6ur" * 10 + "q6s="
    assert signed.headers.get("If-None-Match") == ("*" if if_absent else None)


@pytest.mark.parametrize(
    ("store_url", "begins"),
    [
        (S3, "https://bucket.s3.eu-west-1.amazonaws.com/forge/a?"),
        ("s3://bucket?region=eu-west-1", "https://bucket.s3.eu-west-1.amazonaws.com/a?"),
        (ELSEWHERE, "http://127.0.0.1:9000/bucket/forge/a?"),
        (FILE, "https://forge.test/api/v1/objects/a?"),
    ],
)
def test_a_url_names_the_stores_own_place(store_url: str, begins: str) -> None:
    assert signer(store_url).get("a").url.startswith(begins)
    assert signer(store_url).put("a", size=5, sha256=SHA256).url.startswith(begins)


def test_a_url_lasts_as_long_as_it_says() -> None:
    signed = signer(S3, lasts_s=60).get("a")
    assert signed.expires_in_s == 60
    assert "X-Amz-Expires=60&" in signed.url
    at = ServerSigner(b"s", base_url="", lasts_s=60, clock=lambda: 1000.9)
    assert "expires=1060&" in at.get("a").url


@pytest.mark.parametrize("store_url", [S3, FILE])
@pytest.mark.parametrize("lasts_s", [0, -1, 901])
def test_a_url_lasts_a_quarter_of_an_hour_at_most(store_url: str, lasts_s: int) -> None:
    with pytest.raises(ValueError, match="15 min"):
        signer(store_url, lasts_s=lasts_s)


@pytest.mark.parametrize("store_url", [S3, FILE])
@pytest.mark.parametrize(
    ("key", "sha256"),
    [("../a", SHA256), ("/a", SHA256), ("a\n1", SHA256), ("a", SHA256.upper()), ("a", "ab")],
)
def test_only_what_every_store_holds_is_signed(store_url: str, key: str, sha256: str) -> None:
    with pytest.raises(KeyInvalid):
        signer(store_url).put(key, size=5, sha256=sha256)
    if sha256 == SHA256:
        with pytest.raises(KeyInvalid):
            signer(store_url).get(key)


def test_s3_takes_no_more_than_it_can_in_one_request() -> None:
    largest = 5 << 30
    assert signer(S3).put("a", size=largest, sha256=SHA256).url
    with pytest.raises(ObjectTooLarge, match="more than 5 GiB"):
        signer(S3).put("a", size=largest + 1, sha256=SHA256)


def test_without_credentials_nothing_is_signed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreUnreachable) as caught:
        signer("s3://nobody?region=eu-west-1").get("a")
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint


@pytest.mark.parametrize("store_url", ["", "http://x/y", "file:///", "file://host/a", "s3://B"])
def test_a_url_that_names_no_store_signs_nothing(store_url: str) -> None:
    with pytest.raises(StoreUrlInvalid):
        signer(store_url)


@pytest.mark.parametrize(
    "other",
    [
        replace(PERMIT, method="GET"),
        replace(PERMIT, key="b"),
        replace(PERMIT, expires=1001),
        replace(PERMIT, size=6),
        replace(PERMIT, sha256="cd" * 32),
        replace(PERMIT, if_absent=True),
    ],
)
def test_a_signature_is_for_one_permit(other: Permit) -> None:
    ours = ServerSigner(b"s" * 32, base_url="", lasts_s=1)
    assert ours.is_signed(PERMIT, ours.signature(PERMIT))
    assert not ours.is_signed(other, ours.signature(PERMIT))
    assert not ours.is_signed(PERMIT, "")
    assert not ours.is_signed(PERMIT, "ä" * 64)


@pytest.mark.parametrize(("now", "over"), [(999.9, False), (1000.0, True)])
def test_a_permit_is_over_when_it_expires(now: float, *, over: bool) -> None:
    assert ServerSigner(b"s", base_url="", lasts_s=1, clock=lambda: now).is_over(PERMIT) is over


@pytest.mark.parametrize(
    ("public_url", "begins"),
    [("", "http://asked.test/api/v1/"), ("https://forge.test/f/", "https://forge.test/f/api/v1/")],
)
def test_the_servers_urls_begin_as_callers_reach_it(public_url: str, begins: str) -> None:
    settings = server_settings("postgresql://none", FILE, public_url=public_url)
    assert Services(settings).signer("http://asked.test/").get("a").url.startswith(begins)


def test_signing_for_a_file_store_does_not_load_boto3() -> None:
    code = (
        "import sys; from forge_schema.storage.signed import open_signer;"
        f"open_signer({FILE!r}, secret=b's', base_url='http://x', lasts_s=9).get('a');"
        "sys.exit('botocore' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
