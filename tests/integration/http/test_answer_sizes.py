"""No answer holds more than a few MiB of what workers and users wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from forge_client.findings import all_tests
from forge_client.http import Server
from forge_client.http.backend import HttpBackend
from forge_schema.model.states import Role
from forge_schema.read.report_definitions import REPORTS
from forge_schema.service import caller
from support.client.reaching import key
from support.http.api import good, opened, problem
from support.http.guest import Guest
from support.http.hostile_worker import HostileWorker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.http.api import Api
    from support.queue.rig import Rig

MOST = 4 << 20
# Not the CSV files of reports, which have up to 10,000 rows.
PAGES = [
    *("/", "/jobs", "/jobs/{job_id}", "/jobs/{job_id}/log", "/jobs/{job_id}/series", "/runs"),
    *("/runs?metric=loss", "/runs.csv", "/compare?jobs={job_id}&jobs=2", "/events", "/workers"),
    *("/workers/{worker_id}", "/reports", "/queues", "/schedules", "/notifications", "/submit"),
    *(f"/reports/{name}" for name in REPORTS),
]
JOB = "/api/v1/queue/jobs/{job_id}"
WIDE = ["/metrics?rank=1", "/metrics/last?rank=1", "/series?rank=1"]
ROWS = {
    "artifact": "(job_id, token, attempt, created_at, path, key, bytes, sha256) SELECT %(job)s,"
    " %(token)s, 1, forge_now(), repeat('d', 200) || '/' || repeat('\u00e9', 800) || n,"
    " 'jobs/1/1-1/artifacts/' || repeat(repeat('\u00e9', 100) || '/', 4) || n, 1, repeat('ab', 32)"
    " FROM generate_series(1, 600) AS n",
    "log_chunk": "(job_id, token, rank, number, attempt, key, start, bytes, sha256, created_at)"
    " SELECT %(job)s, %(token)s, 0, n, 1, repeat('k', 890) || n, n * 10, 10, repeat('ab', 32),"
    " forge_now() FROM generate_series(1, 300) AS n",
    "metric": "(job_id, token, rank, number, attempt, at, step, values) SELECT %(job)s, %(token)s,"
    " rank, n, 1, forge_now(), n, CASE rank WHEN 0 THEN %(long)s::jsonb ELSE %(wide)s::jsonb END"
    " FROM generate_series(1, 60) AS n, generate_series(0, 1) AS rank",
    "sample": "(job_id, token, rank, number, attempt, at, values) SELECT %(job)s, %(token)s, 0, n,"
    " 1, forge_now(), %(long)s FROM generate_series(1, 60) AS n",
    "test_result": "(job_id, token, number, attempt, created_at, suite, name, verdict, seconds,"
    " message) SELECT %(job)s, %(token)s, n, 1, forge_now(), repeat('s', 1000), repeat('n', 900)"
    " || n, 'failed', 1, repeat('m', 10000) FROM generate_series(1, 800) AS n",
    "result": "(job_id, token, attempt, values, created_at)"
    " SELECT id, 0, 1, %(long)s, forge_now() FROM job",
}


@pytest.fixture
def large(rig: Rig, tmp_path: Path) -> Iterator[HostileWorker]:
    """A worker whose job is as large as it may be, beside other large jobs."""
    (tmp_path / "store").mkdir()
    with opened(rig, tmp_path / "store", caller_rate=0) as api:
        rig.submit_many(20, owner="ann", env={"X": "y" * 100_000}, sweep="s", experiment="e")
        made = HostileWorker(api)
        texts = {
            "long": json.dumps({f"k{n}": "x" * 1000 for n in range(200)}),
            "wide": json.dumps({f"metric-{n:05}-{'x' * 50}": n for n in range(3000)}),
        }
        numbers = {"job": made.job_id, "token": made.grant["token"]}
        with rig.database.connection() as connection:
            for table, rows in ROWS.items():
                connection.execute(f"INSERT INTO {table} {rows}", {**texts, **numbers})
            connection.execute("UPDATE worker SET condition = %(long)s", texts)
        yield made


def test_no_answer_is_larger_than_a_few_mib(large: HostileWorker) -> None:
    ann, guest = large.api.key("ann", Role.ADMIN), Guest(large.api).login("ann", Role.ADMIN)
    sizes = {}
    for path in paths(large):
        answer = ann.call("GET", path) if path.startswith("/api") else guest.http.get(path)
        assert not answer.is_server_error, path
        sizes[path] = len(answer.content)
    guest.close()
    assert {path: size for path, size in sizes.items() if size > MOST} == {}


def paths(large: HostileWorker) -> list[str]:
    """Return every path that is read, with this job and the largest pages that it has."""
    found = [*PAGES, *(f"{JOB}{path}" for path in WIDE)]
    for path, verbs in large.api.app.openapi()["paths"].items():
        if "get" in verbs and "{path" not in path and "stream" not in path:
            fields = verbs["get"].get("parameters", ())
            most = [one["schema"].get("maximum") for one in fields if one["name"] == "count"]
            found += [path, *(f"{path}?count={count}" for count in most)]
    names = {"job_id": large.job_id, "worker_id": large.worker.id, "name": "s"}
    names |= dict.fromkeys(("key", "digest", "report", "delivery_id", "template"), "x")
    return [path.format(**names) for path in found]


def test_a_client_reads_all_pages_of_what_is_large(large: HostileWorker) -> None:
    with HttpBackend(Server(large.api.url, key(large.api.rig))) as backend:
        found = backend.artifacts(large.job_id)
        assert len({one.path for one in found}) == len(found) == 600
        assert len(list(all_tests(backend.findings, large.job_id))) == 800
        ann, path = large.api.key("ann"), f"/api/v1/queue/jobs/{large.job_id}/metrics"
        lines = 0
        while path:
            page = ann.get(path)
            lines, path = lines + len(page["items"]), page["next"]
        assert lines == 60


@pytest.mark.parametrize("kind", ["template", "schedule"])
def test_the_jobs_that_an_owner_keeps_are_small_together(
    api: Api, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(caller, "MOST_KEPT_BYTES", 2000)
    spec = {"name": "n", "command": ["true"], "env": {"X": "y" * 800}}
    body = {"spec": spec, **({"cron": "0 0 1 1 *"} if kind == "schedule" else {})}
    ann, path = api.key(), f"/api/v1/queue/{kind}s/"
    for name in ("a", "b", "a"):
        good(ann.call("PUT", path + name, body))
    problem(ann.call("PUT", path + "c", body), 422, "too_many_kept")


def test_an_owner_has_only_so_many_valid_keys(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(caller.MOST_KEPT, "key", 2)
    root, wanted = api.key("root", Role.ADMIN), {"owner": "ann", "role": "viewer"}
    first = root.post("/api/v1/admin/keys", wanted)
    root.post("/api/v1/admin/keys", wanted)
    told = root.call("POST", "/api/v1/admin/keys", wanted)
    problem(told, 422, "too_many_kept")
    assert told.json()["hint"] == "remove one with `forge key revoke KEY`"
    good(root.call("DELETE", f"/api/v1/admin/keys/{first['id']}"))
    root.post("/api/v1/admin/keys", wanted)
