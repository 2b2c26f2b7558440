"""Failures that only the store in S3 must survive: a server that is down, wrong, slow or cut."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest
from forge_schema.storage import StoreError, StoreUnreachable, StoreUrlInvalid, open_store
from support.store.storage import (
    CREDENTIALS,
    GIVEN,
    Bucket,
    Proxy,
    answer,
    drop,
    kill_in_mid_upload,
    needs_conditions,
    proxy,
    s3_url,
    unfinished_uploads,
    use_credentials,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

LARGE = 17 << 20  # three parts
NO_UPLOAD = b"<Error><Code>NoSuchUpload</Code><Message>m</Message></Error>"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_credentials(monkeypatch)


@pytest.fixture
def flaky(bucket: Bucket) -> Iterator[Proxy]:
    with proxy(bucket.endpoint) as running:
        yield running


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(LARGE))
    return path


class TestS3Store:
    def test_objects_lie_under_the_prefix_only(self, bucket: Bucket) -> None:
        bucket.client.put_object(Bucket=bucket.name, Key="forgery", Body=b"")
        store = open_store(bucket.url())
        store.put("a", b"x")
        listed = bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]
        assert [found["Key"] for found in listed] == ["forge/a", "forgery"]
        assert [found.key for found in store.list("")] == ["a"]

    def test_a_missing_bucket_is_named(self, moto: str) -> None:
        store = open_store(s3_url("no-such-bucket", moto))
        # SeaweedFS makes the bucket that is written to, so it is looked for before.
        uses: list[Callable[[], object]] = [store.check]
        if not GIVEN.hostname:
            uses += [lambda: store.put("a", b""), lambda: store.get("a")]
        for use in uses:
            with pytest.raises(StoreUrlInvalid, match="no-such-bucket") as caught:
                use()
            assert caught.value.hint

    def test_no_credentials_are_said_so(
        self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in CREDENTIALS:
            monkeypatch.delenv(name)
        with pytest.raises(StoreUnreachable, match="credentials"):
            open_store(bucket.url()).check()

    def test_check_of_a_refused_connection_answers_soon(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        _expect_unreachable_soon(f"http://127.0.0.1:{port}")

    def test_check_of_a_silent_server_answers_soon(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            _expect_unreachable_soon(f"http://127.0.0.1:{server.getsockname()[1]}")

    def test_check_of_an_unknown_host_answers_soon(self) -> None:
        _expect_unreachable_soon("http://no-such-host.invalid")

    def test_check_of_something_else_than_s3_says_so(self, flaky: Proxy, bucket: Bucket) -> None:
        flaky.fault = lambda handler, _body: answer(handler, 404)
        with pytest.raises(StoreUrlInvalid):
            open_store(bucket.url(flaky.url)).check()
        flaky.fault = lambda handler, _body: answer(handler, 200, b"<html>hello</html>")
        with pytest.raises(StoreUrlInvalid):
            open_store(bucket.url(flaky.url)).check()

    def test_a_store_that_is_busy_for_a_moment_is_asked_again(
        self, flaky: Proxy, bucket: Bucket
    ) -> None:
        needs_conditions(open_store(bucket.url()))
        left = [503, 500]

        def busy(handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
            return bool(left) and answer(handler, left.pop())

        flaky.fault = busy
        assert open_store(bucket.url(flaky.url)).put("a", b"x", if_absent=True)
        assert not left

    @pytest.mark.parametrize(
        ("status", "code", "hint"),
        [
            (403, "AccessDenied", "set AWS_ACCESS_KEY_ID"),
            (400, "ExpiredToken", "set AWS_ACCESS_KEY_ID"),
            (403, "RequestTimeTooSkewed", "set the clock"),
        ],
    )
    def test_a_forbidden_store_is_not_asked_again(
        self, flaky: Proxy, bucket: Bucket, status: int, code: str, hint: str
    ) -> None:
        body = f"<Error><Code>{code}</Code></Error>".encode()
        flaky.fault = lambda handler, _body: answer(handler, status, body)
        with pytest.raises(StoreUnreachable, match=rf"denies access \({code}\)") as caught:
            open_store(bucket.url(flaky.url)).put("a", b"x")
        assert caught.value.hint.startswith(hint)
        assert len(flaky.seen) == 1

    def test_a_broken_upload_leaves_no_object_and_no_upload(
        self, flaky: Proxy, bucket: Bucket, large: Path
    ) -> None:
        def refuse_second_part(handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
            return "partNumber=2" in handler.path and answer(handler, 403)

        flaky.fault = refuse_second_part
        store = open_store(bucket.url(flaky.url))
        with pytest.raises(StoreUnreachable):
            store.put_file("f", large)
        assert store.size("f") is None
        assert unfinished_uploads(bucket.client, bucket.name) == 0

    def test_a_file_that_shrinks_is_not_stored(
        self, flaky: Proxy, bucket: Bucket, large: Path
    ) -> None:
        def shrink(handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
            if handler.path.endswith("?uploads"):
                os.truncate(large, 100)
            return False

        flaky.fault = shrink
        store = open_store(bucket.url(flaky.url))
        with pytest.raises(StoreError, match="shorter"):
            store.put_file("f", large)
        assert store.size("f") is None
        assert unfinished_uploads(bucket.client, bucket.name) == 0

    def test_a_lost_answer_to_the_last_request_is_not_a_failure(
        self, flaky: Proxy, bucket: Bucket, large: Path
    ) -> None:
        completions: list[str] = []

        def lose(method: str, path: str) -> int | None:
            if method == "POST" and "uploadId" in path:
                completions.append(path)
                return 0
            return None

        # moto forgives a second completion; S3 no longer knows the upload by then.
        flaky.answer_limit = lose
        flaky.fault = lambda handler, _body: (
            bool(completions) and "uploadId" in handler.path and answer(handler, 404, NO_UPLOAD)
        )
        store = open_store(bucket.url(flaky.url))
        assert store.put_file("f", large)
        assert len(completions) == 1
        assert store.get("f") == large.read_bytes()
        assert unfinished_uploads(bucket.client, bucket.name) == 0

    def test_an_upload_that_somebody_aborted_is_a_failure(
        self, flaky: Proxy, bucket: Bucket, large: Path
    ) -> None:
        flaky.fault = lambda handler, _body: (
            handler.command == "POST"
            and "uploadId" in handler.path
            and answer(handler, 404, NO_UPLOAD)
        )
        store = open_store(bucket.url(flaky.url))
        with pytest.raises(StoreError, match="NoSuchUpload"):
            store.put_file("f", large)
        assert store.size("f") is None

    def test_a_broken_download_goes_on_where_it_was(
        self, flaky: Proxy, bucket: Bucket, large: Path, tmp_path: Path
    ) -> None:
        store = open_store(bucket.url(flaky.url))
        store.put_file("f", large)
        breaks = [3 << 20, 2 << 20]
        flaky.answer_limit = lambda method, _path: (
            breaks.pop() if method == "GET" and breaks else None
        )
        received: list[int] = []
        store.get_file("f", tmp_path / "back", progress=received.append)
        assert (tmp_path / "back").read_bytes() == large.read_bytes()
        assert sum(received) == LARGE
        assert not breaks

    def test_a_download_does_not_mix_two_versions(
        self, flaky: Proxy, bucket: Bucket, large: Path, tmp_path: Path
    ) -> None:
        store = open_store(bucket.url(flaky.url))
        store.put_file("f", large)

        def replace(method: str, _path: str) -> int | None:
            if method != "GET":
                return None
            flaky.answer_limit = lambda _method, _path: None
            bucket.client.put_object(Bucket=bucket.name, Key="forge/f", Body=b"n" * LARGE)
            return 3 << 20

        flaky.answer_limit = replace
        with pytest.raises(StoreError):
            store.get_file("f", tmp_path / "back")
        assert not (tmp_path / "back").exists()

    def test_a_conflicting_conditional_write_is_tried_again(
        self, flaky: Proxy, bucket: Bucket
    ) -> None:
        needs_conditions(open_store(bucket.url()))
        conflicts = [1, 2]

        def conflict(handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
            if handler.command != "PUT" or not conflicts:
                return False
            conflicts.pop()
            body = b"<Error><Code>ConditionalRequestConflict</Code><Message>m</Message></Error>"
            return answer(handler, 409, body)

        flaky.fault = conflict
        assert open_store(bucket.url(flaky.url)).put("a", b"x", if_absent=True)
        assert not conflicts

    def test_a_connection_that_drops_is_made_again(self, flaky: Proxy, bucket: Bucket) -> None:
        drops = [1]

        def cut(handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
            if not drops:
                return False
            drops.pop()
            return drop(handler)

        flaky.fault = cut
        assert open_store(bucket.url(flaky.url)).put("a", b"x")

    def test_what_a_killed_writer_left_is_tidied_once_it_is_old(
        self, bucket: Bucket, large: Path
    ) -> None:
        kill_in_mid_upload(bucket.url(), large, CREDENTIALS)
        store = open_store(bucket.url())
        assert unfinished_uploads(bucket.client, bucket.name) == 1
        assert list(store.list("")) == []
        # moto dates every upload to 2010, so a minimum age can only be tested with a real S3.
        # Swift rounds up to whole seconds.
        assert store.tidy(older_than_s=-5) == 1
        assert unfinished_uploads(bucket.client, bucket.name) == 0


def _expect_unreachable_soon(endpoint: str) -> None:
    store = open_store(s3_url("some-bucket", endpoint))
    began = time.monotonic()
    with pytest.raises(StoreUnreachable) as caught:
        store.check()
    # With all the retries of a transfer it would take minutes.
    assert time.monotonic() - began < 60
    assert endpoint.removeprefix("http://") in str(caught.value).replace("%3A", ":")
    assert caught.value.hint
