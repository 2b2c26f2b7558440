"""What the sieges read: a large file in chunks, a small one that grows when shown, a visitor."""

import hashlib
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import httpx
from forge_schema.database.pool import Database
from forge_schema.model.attempt_records import ArtifactRecord, StoredArtifacts
from forge_schema.queue.attempt_records import Records
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.keys import AttemptKeys
from forge_schema.storage.manifest import CHUNK_BYTES, Entry, Manifest

from benchmarks.server.attacks import Headers, Site

CHUNKS = 8
DEEP, NUMBERS = 900, 127_000


@dataclass(frozen=True)
class Scenery:
    """The path of the large file, the page of the small one, and a visitor's headers."""

    large: str
    bomb: str
    visitor: Headers


def scenery(site: Site) -> Scenery:
    """Make it, as a worker and a browser do."""
    fence = next(one.fence for one in site.fleet if one.fence)
    keys = AttemptKeys(fence.job_id, 1, fence.mark)
    store = FileStore(site.server.root / "store")
    chunk = bytes(CHUNK_BYTES)
    names = [f"{keys.prefix}chunks/{hashlib.sha256(chunk).hexdigest()}"] * CHUNKS
    store.put(names[0], chunk)
    entry = Entry.in_chunks("model.bin", CHUNKS * CHUNK_BYTES, names, CHUNK_BYTES)
    listed = keys.chunked_artifact("model.bin")
    store.put(listed, Manifest((entry,)).dumped())
    deep = b"[" * DEEP + b",".join([b"1"] * NUMBERS) + b"]" * DEEP
    store.put(keys.artifact("deep.json"), deep)
    whole = hashlib.sha256()
    for _ in range(CHUNKS):
        whole.update(chunk)
    files = [
        ArtifactRecord("model.bin", listed, entry.size, whole.hexdigest()),
        ArtifactRecord(
            "deep.json", keys.artifact("deep.json"), len(deep), hashlib.sha256(deep).hexdigest()
        ),
    ]
    with Database(site.server.url) as database:
        assert Records(database).record(fence, StoredArtifacts(files))
    page = f"/jobs/{fence.job_id}/file?path={quote('deep.json')}"
    return Scenery(_signed(site, fence.job_id), page, _visitor(site))


def _signed(site: Site, job_id: int) -> str:
    path = f"{site.server.base}/api/v1/queue/jobs/{job_id}/artifacts"
    found = (
        httpx.get(path, headers=site.users["root"], timeout=60).raise_for_status().json()["items"]
    )
    url = urlsplit(next(one["url"] for one in found if one["path"] == "model.bin"))
    return f"{url.path}?{url.query}"


def _visitor(site: Site) -> Headers:
    key = site.users["root"]["Authorization"].removeprefix("Bearer ")
    said = {"Origin": site.server.base, "Sec-Fetch-Site": "same-origin"}
    answer = httpx.post(f"{site.server.base}/login", data={"key": key}, headers=said, timeout=60)
    assert answer.cookies, answer.text
    cookies = "; ".join(f"{name}={value}" for name, value in answer.cookies.items())
    return {"Cookie": cookies, "Host": urlsplit(site.server.base).netloc}
