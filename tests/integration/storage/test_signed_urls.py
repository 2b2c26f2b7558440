"""What a signed URL opens and what it does not: the same table for S3 and for the server's own.

S3 is moto behind a proxy that verifies signatures, as moto itself lets everybody in.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.store.signed_doors import Door, Request, S3Door, get, put, s3_door, server_door
from support.store.storage import (
    Bucket,
    needs_conditions,
    new_bucket,
    only_moto,
    use_credentials,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = b"what was signed for"
OTHER = b"what was never meant"[: len(CONTENT)]
LONGER = CONTENT + b"!"
STRANGE = "jobs/1/ä b+c&d=e?f#g%2e%2f~'(1)/x"
KINDS = ("s3", "server")


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_credentials(monkeypatch)


@pytest.fixture
def s3(bucket: Bucket) -> Iterator[S3Door]:
    with s3_door(bucket) as opened:
        yield opened


@pytest.fixture(params=KINDS)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    if request.param == "s3":
        yield request.getfixturevalue("s3")
    else:
        with server_door((tmp_path / "store").as_uri()) as opened:
            yield opened


def kind(door: Door) -> str:
    return "s3" if isinstance(door, S3Door) else "server"


def stored(door: Door) -> dict[str, bytes]:
    return {found.key: door.store.get(found.key) for found in door.store.list("")}


def checksum(content: bytes) -> str:
    return b64encode(hashlib.sha256(content).digest()).decode()


def tampered(request: Request) -> Request:
    last = "0" if request.url[-1] != "0" else "1"
    return replace(request, url=request.url[:-1] + last)


def later(request: Request) -> Request:
    if "X-Amz-Expires" in request.url:
        return request.rewritten("X-Amz-Expires=900", "X-Amz-Expires=901")
    return request.rewritten("expires=1", "expires=2")


def other_key(request: Request) -> Request:
    return request.rewritten("/mine?", "/yours?")


def with_body(content: bytes) -> Callable[[Request], Request]:
    """Send another body, with its true length."""
    return lambda request: replace(
        request.headed(content_length=str(len(content))), content=content
    )


def chunked(content: bytes) -> Callable[[Request], Request]:
    """Send another body without saying its length."""
    return lambda request: replace(
        request.headed(content_length=None), content=content, chunked=True
    )


def other_checksum(request: Request) -> Request:
    """Send another body, and its own checksum with it."""
    changed = with_body(OTHER)(request)
    if "sha256=" in request.url:
        old, new = (hashlib.sha256(content).hexdigest() for content in (CONTENT, OTHER))
        return changed.rewritten(old, new)
    return changed.headed(x_amz_checksum_sha256=checksum(OTHER))


def no_checksum(request: Request) -> Request:
    if "sha256=" in request.url:
        return request.rewritten("sha256=", "unasked=")
    return request.headed(x_amz_checksum_sha256=None)


def unconditional(request: Request) -> Request:
    if "if_absent=1" in request.url:
        return request.rewritten("if_absent=1", "if_absent=0")
    return request.headed(if_none_match=None)


def larger_limit(request: Request) -> Request:
    """Send more, with the larger size in place of the signed one."""
    changed = with_body(LONGER)(request)
    size = f"size={len(CONTENT)}"
    return changed.rewritten(size, f"size={len(LONGER)}") if size in request.url else changed


def one_more_parameter(request: Request) -> Request:
    return request.rewritten("?", "?versionId=1&")


def method(name: str) -> Callable[[Request], Request]:
    return lambda request: replace(request, method=name)


class Case(NamedTuple):
    """A change to a request, and what each door answers."""

    change: Callable[[Request], Request]
    s3: tuple[int, str]
    server: tuple[int, str]


UNSIGNED = (403, "SignatureDoesNotMatch")
INVALID = (403, "signature_invalid")

PUTS = {
    "tampered signature": Case(tampered, UNSIGNED, INVALID),
    "later expiry": Case(later, UNSIGNED, INVALID),
    "one more parameter": Case(one_more_parameter, UNSIGNED, (422, "invalid")),
    "other key": Case(other_key, UNSIGNED, INVALID),
    "other method, GET": Case(method("GET"), UNSIGNED, (400, "invalid")),
    "other method, DELETE": Case(method("DELETE"), UNSIGNED, (405, "method_not_allowed")),
    "oversize": Case(with_body(LONGER), UNSIGNED, (413, "too_large")),
    "oversize, tampered size": Case(larger_limit, UNSIGNED, INVALID),
    "oversize, no length": Case(chunked(LONGER), (411, "MissingContentLength"), (413, "too_large")),
    "undersize": Case(with_body(CONTENT[:-1]), UNSIGNED, (422, "body_short")),
    "undersize, no length": Case(
        chunked(CONTENT[:-1]), (411, "MissingContentLength"), (422, "body_short")
    ),
    "wrong checksum": Case(with_body(OTHER), (400, "BadDigest"), (422, "checksum_wrong")),
    "tampered checksum": Case(other_checksum, UNSIGNED, INVALID),
    "dropped checksum": Case(no_checksum, UNSIGNED, (422, "invalid")),
    "dropped condition": Case(unconditional, UNSIGNED, INVALID),
}
GETS = {
    "tampered signature": Case(tampered, UNSIGNED, INVALID),
    "later expiry": Case(later, UNSIGNED, INVALID),
    "one more parameter": Case(one_more_parameter, UNSIGNED, (422, "invalid")),
    "other key": Case(other_key, UNSIGNED, INVALID),
    "other method, PUT": Case(method("PUT"), UNSIGNED, (422, "invalid")),
    "other method, DELETE": Case(method("DELETE"), UNSIGNED, (405, "method_not_allowed")),
}


@pytest.mark.parametrize("name", PUTS)
def test_a_put_that_is_not_the_one_signed_stores_nothing(door: Door, name: str) -> None:
    case = PUTS[name]
    if isinstance(door, S3Door):
        needs_conditions(door.store)
    signed = put(door.signer, "mine", CONTENT, if_absent=True)
    answer = case.change(signed).send()
    assert (answer.status_code, door.refusal(answer)) == getattr(case, kind(door))
    assert stored(door) == {}
    # The change alone was the reason.
    assert signed.send().status_code == 200
    assert stored(door) == {"mine": CONTENT}


@pytest.mark.parametrize("name", GETS)
def test_a_get_that_is_not_the_one_signed_shows_nothing(door: Door, name: str) -> None:
    case = GETS[name]
    objects = {"mine": CONTENT, "yours": CONTENT}
    for key, content in objects.items():
        door.store.put(key, content)
    signed = get(door.signer, "mine")
    answer = case.change(signed).send()
    assert (answer.status_code, door.refusal(answer)) == getattr(case, kind(door))
    assert stored(door) == objects
    assert signed.send().content == CONTENT


@pytest.mark.parametrize("content", [CONTENT, b""], ids=["some", "empty"])
@pytest.mark.parametrize("key", ["mine", STRANGE])
def test_what_was_signed_goes_in_and_out(door: Door, key: str, content: bytes) -> None:
    assert put(door.signer, key, content).send().status_code == 200
    assert stored(door) == {key: content}
    answer = get(door.signer, key).send()
    assert (answer.status_code, answer.content) == (200, content)
    assert answer.headers["Content-Length"] == str(len(content))


def test_a_url_may_be_used_again_until_its_time_is_over(door: Door) -> None:
    signed = put(door.signer, "mine", CONTENT)
    assert [signed.send().status_code for _ in range(2)] == [200, 200]
    assert put(door.signer, "mine", OTHER).send().status_code == 200
    assert stored(door) == {"mine": OTHER}


def test_an_object_that_is_there_stays_as_it_is_where_that_was_signed(door: Door) -> None:
    if isinstance(door, S3Door):
        needs_conditions(door.store)
    door.store.put("mine", OTHER)
    assert put(door.signer, "mine", CONTENT, if_absent=True).send().status_code == 412
    assert stored(door) == {"mine": OTHER}


def test_an_object_that_is_not_there_is_not_found(door: Door) -> None:
    assert get(door.signer, "mine").send().status_code == 404


def test_a_url_works_to_its_end(door: Door) -> None:
    door.store.put("mine", OTHER)
    signer = door.aged(890)
    assert get(signer, "mine").send().content == OTHER
    assert put(signer, "mine", CONTENT).send().status_code == 200


def test_an_expired_url_is_refused(door: Door) -> None:
    door.store.put("mine", OTHER)
    expired = {"s3": (403, "AccessDenied"), "server": (403, "url_expired")}[kind(door)]
    signer = door.aged(901)
    for request in (put(signer, "mine", CONTENT), get(signer, "mine")):
        answer = request.send()
        assert (answer.status_code, door.refusal(answer)) == expired
    assert stored(door) == {"mine": OTHER}


def test_another_secret_signs_nothing_here(door: Door) -> None:
    door.store.put("yours", OTHER)
    refused = {"s3": UNSIGNED, "server": INVALID}[kind(door)]
    signer = door.foreign()
    for request in (put(signer, "mine", CONTENT), get(signer, "yours")):
        answer = request.send()
        assert (answer.status_code, door.refusal(answer)) == refused
    assert stored(door) == {"yours": OTHER}


class TestVerifyingProxy:
    """It must be able to refuse, or the table above proves nothing."""

    def test_it_refuses_what_moto_takes(self, s3: S3Door, bucket: Bucket) -> None:
        only_moto("a real server refuses it too")
        request = tampered(put(s3.signer, "mine", CONTENT))
        assert request.send().status_code == 403
        assert stored(s3) == {}
        assert request.rewritten(s3.verifier.url, bucket.endpoint).send().status_code == 200
        assert stored(s3) == {"mine": CONTENT}

    def test_it_takes_nothing_unsigned(self, s3: S3Door) -> None:
        request = put(s3.signer, "mine", CONTENT)
        for url in (request.url.partition("?")[0], request.url.rpartition("&")[0]):
            assert replace(request, url=url).send().status_code == 403
        assert stored(s3) == {}

    @pytest.mark.parametrize(
        ("header", "code"),
        [
            ({"x_amz_acl": "public-read"}, "AccessDenied"),
            ({"x_amz_checksum_crc32": "AAAAAA=="}, "AccessDenied"),
            ({"host": "elsewhere"}, "SignatureDoesNotMatch"),
            ({"x_amz_checksum_sha256": checksum(OTHER)}, "SignatureDoesNotMatch"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_a_header_that_was_not_signed_is_refused(
        self, s3: S3Door, header: dict[str, str], code: str
    ) -> None:
        assert put(s3.signer, "mine", CONTENT).headed(**header).send().status_code == 403
        assert s3.verifier.refused == [code]
        assert stored(s3) == {}

    def test_another_bucket_is_refused(self, s3: S3Door, bucket: Bucket) -> None:
        with new_bucket(bucket.endpoint) as other:
            request = put(s3.signer, "mine", CONTENT).rewritten(bucket.name, other.name)
            assert request.send().status_code == 403
            assert other.client.list_objects_v2(Bucket=other.name)["KeyCount"] == 0

    def test_a_date_to_come_is_refused(self, s3: S3Door) -> None:
        assert put(s3.aged(-1000), "mine", CONTENT).send().status_code == 400

    def test_an_unknown_key_pair_is_refused(self, s3: S3Door) -> None:
        s3.verifier.access_key = "another"
        assert put(s3.signer, "mine", CONTENT).send().status_code == 403
        assert s3.verifier.refused == ["InvalidAccessKeyId"]


class TestS3Signer:
    def test_a_session_token_is_signed_too(
        self, s3: S3Door, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only_moto("a real server knows its session tokens")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "session+1/=")
        request = put(s3.signer, "mine", CONTENT)
        assert request.rewritten("session", "cession").send().status_code == 403
        assert request.send().status_code == 200
        assert stored(s3) == {"mine": CONTENT}
