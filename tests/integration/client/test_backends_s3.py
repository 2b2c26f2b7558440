"""Objects in S3 through a server: by S3's own signed URLs, which something verifies."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from forge_client.http import Server
from forge_client.http.backend import HttpBackend
from forge_client.project.bundle import pack
from support.client.reaching import key
from support.http.server import served, server_settings
from support.queue.holder import Holder
from support.store.storage import moto_server, new_bucket, proxy, use_credentials
from support.store.verifying_proxy import Verifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from support.queue.rig import Rig

SPEC = {"name": "x", "command": ["ls"]}


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Verifier]]:
    """The URL of a store in S3, and the verifier of requests to it."""
    use_credentials(monkeypatch)
    with moto_server() as endpoint, new_bucket(endpoint) as bucket, proxy(endpoint) as before:
        verifier = Verifier(before.url)

        def fault(handler: BaseHTTPRequestHandler, body: bytes) -> bool:
            # The server and the worker use credentials of their own.
            return "Authorization" not in handler.headers and verifier.fault(handler, body)

        before.fault = fault
        yield bucket.url(verifier.url), verifier


@pytest.fixture
def backend(rig: Rig, verified: tuple[str, Verifier]) -> Iterator[HttpBackend]:
    with (
        served(server_settings(rig.url, verified[0])) as url,
        HttpBackend(Server(url, key(rig))) as backend,
    ):
        yield backend


def test_code_goes_to_s3_and_results_come_from_it(
    backend: HttpBackend, rig: Rig, verified: tuple[str, Verifier], tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    bundle = pack(tmp_path / "project", tmp_path / "bundle", limit_bytes=1 << 20)
    assert not backend.has_bundle(bundle)
    backend.upload_bundle(bundle)
    assert backend.has_bundle(bundle)
    (job,) = backend.submit([{**SPEC, "bundle_digest": bundle.digest}])
    holder = Holder(rig, verified[0])
    holder.write(b"epoch 1\n")
    holder.leave("models/a b.bin", b"w" * 100)
    assert backend.log_bytes(backend.log_chunks(job)[0]) == b"epoch 1\n"
    backend.download(backend.artifacts(job)[0], tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == b"w" * 100
    assert verified[1].refused == []


def test_a_url_whose_time_is_over_is_asked_for_once_more(
    backend: HttpBackend, rig: Rig, verified: tuple[str, Verifier], tmp_path: Path
) -> None:
    url, verifier = verified
    (job,) = backend.submit([SPEC])
    Holder(rig, url).leave("model", b"w")
    (file,) = backend.artifacts(job)
    verifier.ahead = timedelta(hours=1)
    with pytest.raises(ClientError) as caught:
        backend.download(file, tmp_path / "model")
    assert (caught.value.code, verifier.refused) == ("url_refused", ["AccessDenied"] * 2)
    assert "X-Amz" not in str(caught.value)
    verifier.ahead = timedelta()
    backend.download(file, tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == b"w"
