"""The verbs of commands that are typed all day, as a server is asked for them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from forge_schema.model.reading import BEGINNING, FILES, THE_END, Place
from forge_schema.model.states import StateWord

from forge_client.plain.place import refuse_proxied
from forge_client.plain.rows import ChunkRow, ExplanationRow, JobRow, PlainRow
from forge_client.plain.wire import NotPlain, Wire

Packed: TypeAlias = Any
"""A `project.bundle.Bundle`, which stands above."""

API = "/api/v1"
# In bytes; a larger one is not read into memory as a whole.
LARGEST_BUNDLE = 8 << 20
NOTHING: Mapping[str, Any] = {}
JOBS = f"{API}/queue/jobs"


class PlainVerbs:
    """As the methods of `Service` with the same names, which declare the requests; once each.

    Args:
        wire: the connection to the server.
        owner: whose jobs are one's own; None is the key's owner.
    """

    def __init__(self, wire: Wire, owner: str | None) -> None:
        self._wire, self._owner = wire, owner
        self._stores: dict[str, Wire] = {}

    def close(self) -> None:
        """Close the connections."""
        for wire in (self._wire, *self._stores.values()):
            wire.close()

    def me(self) -> PlainRow:
        return PlainRow(self._wire.json("GET", f"{API}/me"))

    def job_id(self, handle: str) -> int:
        if handle.isascii() and handle.isdecimal():
            return int(handle)
        params = {"handle": handle, "owner": self._owner}
        return int(self._wire.json("GET", f"{API}/queue/job-id", params)["job_id"])

    def jobs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        states: Sequence[str] | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> list[JobRow]:
        params = {
            "q": query, "owner": owner, "state": states and [*states], "before": before,
            "count": count,
        }  # fmt: skip
        return [JobRow(fields) for fields in self._wire.json("GET", JOBS, params)["items"]]

    def job(self, job_id: int) -> JobRow:
        return JobRow(self._wire.json("GET", f"{JOBS}/{job_id}"))

    def statuses(self, job_ids: Sequence[int]) -> dict[int, JobRow]:
        answer = self._wire.json("POST", f"{API}/queue/statuses", body={"job_ids": [*job_ids]})
        return {fields["job_id"]: JobRow(fields) for fields in answer["items"]}

    def cancel(self, job_id: int) -> StateWord:
        return JobRow(self._wire.json("POST", f"{JOBS}/{job_id}/cancel", body={})).state

    def check(self, specs: Sequence[Mapping[str, Any]]) -> None:
        self._wire.json("POST", f"{API}/queue/check", body={"jobs": [*specs]})

    def submit(self, specs: Sequence[Mapping[str, Any]]) -> list[int]:
        answer = self._wire.json("POST", f"{API}/queue/submit", body={"jobs": [*specs]})
        ids: list[int] = answer["job_ids"]
        return ids

    def explain(self, job_id: int, *, workers: int) -> ExplanationRow:
        params = {"workers": workers}
        return ExplanationRow(self._wire.json("GET", f"{JOBS}/{job_id}/explain", params))

    def has_bundle(self, bundle: Packed) -> bool:
        return bool(self._offer(bundle)["stored"])

    def upload_bundle(self, bundle: Packed, progress: Callable[[int], object]) -> None:
        if bundle.size > LARGEST_BUNDLE:
            raise NotPlain("it is not sent at once")
        offer = self._offer(bundle)
        if not offer["stored"]:
            store, target = self._store_of(offer["url"])
            store.ask(offer["method"], target, bundle.path.read_bytes(), offer["headers"])
        progress(bundle.size)

    def _offer(self, bundle: Packed) -> Any:  # noqa: ANN401 - JSON
        wanted = {"digest": bundle.digest, "bytes": bundle.size}
        return self._wire.json("POST", f"{API}/bundles", body=wanted)

    def attempts(self, job_id: int) -> list[PlainRow]:
        return self._rows(job_id, "attempts")

    def events(self, job_id: int) -> list[PlainRow]:
        return self._rows(job_id, "events")

    def artifacts(self, job_id: int) -> list[PlainRow]:
        found = self._rows(job_id, "artifacts", {"job_id": job_id})
        if len(found) >= FILES:
            raise NotPlain("there are more pages")
        return found

    def last_metrics(self, job_id: int) -> list[PlainRow]:
        return self._rows(job_id, "metrics/last")

    def result(self, job_id: int) -> PlainRow:
        return PlainRow(self._wire.json("GET", f"{JOBS}/{job_id}/result"))

    def log_chunks(self, job_id: int, *, after: Place = BEGINNING, **chosen: Any) -> list[ChunkRow]:  # noqa: ANN401 - as `_log_page`
        return self._log_page(job_id, after, **chosen)

    def log_chunks_before(
        self,
        job_id: int,
        *,
        before: Place = THE_END,
        **chosen: Any,  # noqa: ANN401 - as above
    ) -> list[ChunkRow]:
        return self._log_page(job_id, before, last=True, **chosen)

    def log_bytes(self, chunk: Any) -> bytes:  # noqa: ANN401 - a `ChunkRow`, read as a `LogChunk`
        # Only what reads a log needs hashes.
        from forge_client.plain.unpacking import unpacked  # noqa: PLC0415

        store, target = self._store_of(chunk.url)
        return unpacked(chunk, store.ask("GET", target))

    def _store_of(self, url: str) -> tuple[Wire, str]:
        """Return the connection for a signed URL, which never gets the key, and what to ask it."""
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        refuse_proxied(host)
        store = self._stores.setdefault(host, Wire(f"{scheme}://{host}", {}))
        return store, slash + path

    def _rows(self, job_id: int, what: str, more: Mapping[str, Any] = NOTHING) -> list[PlainRow]:
        answer = self._wire.json("GET", f"{JOBS}/{job_id}/{what}")
        return [PlainRow({**fields, **more}) for fields in answer["items"]]

    def _log_page(
        self,
        job_id: int,
        place: Place,
        *,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
        last: bool = False,
    ) -> list[ChunkRow]:
        token, of, number = place
        params = {
            "token": token, "rank": of, "number": number, "attempt": attempt, "of_rank": rank,
            "since": since and since.isoformat(), "last": last,
        }  # fmt: skip
        answer = self._wire.json("GET", f"{JOBS}/{job_id}/logs", params)
        return [ChunkRow({**fields, "job_id": job_id}) for fields in answer["items"]]
