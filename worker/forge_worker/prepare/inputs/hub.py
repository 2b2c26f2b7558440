"""Repositories of a Hugging Face hub as inputs, by the hub's own paths.

Its library is not used: it begins each file anew after an interruption, and this needs two requests
and the fetcher's ranges. Like S3, a hub is asked with the secrets of the job's owner alone.
"""

import json
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import urllib3
from forge_schema.model.spec.inputs import NamedSource
from forge_schema.proxies import proxy_of
from forge_schema.storage import StoreUnreachable
from forge_schema.storage.manifest import CHUNK_BYTES, Extent
from urllib3.exceptions import HTTPError

from forge_worker.prepare.inputs.source import (
    InputListing,
    InputUnusable,
    RemoteFile,
    below,
    check_paths,
)

HUB = "https://huggingface.co"
# A larger one does not stay in the processor's cache.
PIECE = 256 << 10
CONNECTIONS = 32
TIMEOUT = urllib3.Timeout(connect=5.0, read=10.0)
# Large files are on other hosts, which must not get the token: urllib3 leaves it out there.
REDIRECTS = urllib3.Retry(total=5, redirect=5, connect=0, read=0, status=0, other=0)
NEXT = re.compile(r'<([^>]+)>; *rel="next"')
REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}
PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
SAID = 300


class HubFiles:
    """The files of a model or a dataset, all or those at a path, at one commit.

    Args:
        secret: returns a secret of the job's owner by its name, None if there is none.
    """

    def __init__(self, source: NamedSource, secret: Callable[[str], str | None]) -> None:
        self._source = source
        self._hub = (secret("HF_ENDPOINT") or HUB).rstrip("/")
        token = secret("HF_TOKEN")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        proxy = proxy_of(self._hub)
        pool = {"timeout": TIMEOUT, "retries": REDIRECTS, "maxsize": CONNECTIONS}
        self._pool: urllib3.PoolManager = (
            urllib3.ProxyManager(proxy.url, **pool) if proxy else urllib3.PoolManager(**pool)  # type: ignore[arg-type]  # of several types
        )
        self._commit = ""

    def listing(self) -> InputListing:
        """Return the files at the revision's commit now, as `InputSource`."""
        revision = quote(self._source.parts.get("revision", "main"), safe="")
        answer, _ = self._asked(f"{self._api}/revision/{revision}")
        self._commit = str(answer["sha"])
        place = self._source.path
        entries = [
            entry
            for entry in self._tree()
            if not place or entry["path"] == place or entry["path"].startswith(f"{place}/")
        ]
        if not entries:
            raise InputUnusable(
                f"there is nothing at {place or 'it'} in commit {self._commit[:12]}"
            )
        paths = {entry["path"]: below(entry["path"], place) for entry in entries}
        check_paths(paths.values())
        large = {entry["path"]: (entry.get("lfs") or {}).get("oid", "") for entry in entries}
        files = [
            RemoteFile(paths[entry["path"]], entry["size"], entry["path"], large[entry["path"]])
            for entry in entries
        ]
        contents = {paths[entry["path"]]: entry["oid"] for entry in entries}
        return InputListing(self._commit[:12], files, contents)

    def expect(self, extents: Sequence[Extent]) -> None:
        """Do nothing: what was listed needs no preparation."""

    def read(self, extent: Extent) -> Generator[bytes, None, None]:
        """Yield a part of a file."""
        if not extent.size:
            return
        kind = self._source.parts.get("datasets", "")
        path = f"{kind}{self._source.parts['repo']}/resolve/{self._commit}/{quote(extent.key)}"
        ranged = extent.offset > 0 or extent.size == CHUNK_BYTES
        last = extent.offset + extent.size - 1
        headers = {"Range": f"bytes={extent.offset}-{last}"} if ranged else {}
        with self._answer(f"{self._hub}/{path}", headers) as answer:
            if ranged and answer.status != HTTPStatus.PARTIAL_CONTENT:
                raise StoreUnreachable(f"{self._hub} sent all of {extent.key} instead of a part")
            yield from answer.stream(PIECE)

    @property
    def _api(self) -> str:
        kind = self._source.parts.get("datasets", "models/")
        return f"{self._hub}/api/{kind}{self._source.parts['repo']}"

    def _tree(self) -> Iterator[dict[str, Any]]:
        url: str | None = f"{self._api}/tree/{self._commit}?recursive=true"
        while url:
            page, url = self._asked(url)
            yield from (entry for entry in page if entry["type"] == "file")

    def _asked(self, url: str) -> tuple[Any, str | None]:
        """Return an answer of the hub, and the URL of its next page."""
        with self._answer(url, {}) as answer:
            text = answer.read()
            further = NEXT.search(answer.headers.get("Link", ""))
        try:
            document = json.loads(text)
        except ValueError as error:
            raise InputUnusable(f"{self._hub} is no hub: it answers {text[:40]!r}") from error
        # Another host must not get the token.
        own = further and further[1].startswith(f"{self._hub}/")
        return document, further[1] if further and own else None

    @contextmanager
    def _answer(self, url: str, headers: dict[str, str]) -> Iterator[urllib3.BaseHTTPResponse]:
        try:
            answer = self._pool.request(
                "GET", url, headers={**self._headers, **headers}, preload_content=False
            )
            try:
                self._check(answer)
                yield answer
            finally:
                answer.close()
        except HTTPError as error:
            raise StoreUnreachable(f"{self._hub} does not answer: {error}") from error

    def _check(self, answer: urllib3.BaseHTTPResponse) -> None:
        status = answer.status
        if status < HTTPStatus.MULTIPLE_CHOICES:
            return
        why = answer.headers.get("X-Error-Message") or answer.reason or ""
        message = f"{self._hub} answers {status}: {why[:SAID]}"
        if status in REFUSED:
            known = "a token" if self._headers else "no token"
            raise InputUnusable(
                f"{message} (asked with {known})",
                hint="check the name; for what is private or gated, store HF_TOKEN as a secret of"
                " the job's owner on the workers",
            )
        if status in PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise StoreUnreachable(message)
        raise InputUnusable(message)
