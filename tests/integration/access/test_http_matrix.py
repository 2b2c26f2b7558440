"""Every path by every kind of caller; the table lists each one's rights, and misses no path."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
from forge_functions.server import whole_app
from support.http.api import SPEC
from support.http.http_worker import held, lease
from support.http.server import server_settings
from support.http.world import DIGEST, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.http.api import Api

    Request = tuple[str, object]
    Case = tuple[dict[str, int], Callable[[World, str], Request]]

NOBODY = ("none", "rotated", "revoked", "expired", "signed off", "unsigned")
WORKERS = ("worker", "other worker")
# These see the jobs of others: ann's, but for the other team's viewer.
TEAMS = ("team's submitter", "team's signed on")
OF_ALL = ("viewer of all", "signed on for all")
SEEING = ("team's viewer", "other team's viewer", *TEAMS, *OF_ALL)
PEOPLE = ("viewer", "submitter", "token", "signed on", "other owner", *SEEING, "admin")
KINDS = (*NOBODY, *WORKERS, *PEOPLE)


def each(
    viewer: int, submitter: int, other: int, admin: int, *, worker: int = 401, nobody: int = 401
) -> dict[str, int]:
    """Return a status for each kind of caller.

    Who sees ann's things reads them as a viewer of hers does, and changes none; who does not see
    them is answered as another owner is, if the role is high enough.
    """
    ann = dict.fromkeys(("submitter", "token", "signed on"), submitter)
    people = {"viewer": viewer, **ann, "other owner": other, "admin": admin}
    people |= dict.fromkeys(("team's viewer", *OF_ALL), viewer)
    people["other team's viewer"] = 403 if viewer == 403 else other
    people |= dict.fromkeys(TEAMS, min(other, 403) if viewer == 403 else viewer)
    return people | dict.fromkeys(WORKERS, worker) | dict.fromkeys(NOBODY, nobody)


ANYBODY = each(200, 200, 200, 200, worker=200, nobody=200)
NO_SIGNATURE = each(403, 403, 403, 403, worker=403, nobody=403)
READS = each(200, 200, 200, 200)
READS_OWN = each(200, 200, 404, 200)
WRITES = each(403, 200, 200, 200)
# Of ann's, whoever names her.
KEEPS = WRITES | dict.fromkeys(TEAMS, 403)
ACTS_ON_OWN = each(403, 200, 404, 200)
ADMINS = each(403, 403, 403, 200)
# Whoever sees everyone's jobs reads what admins set.
READS_ALL = ADMINS | dict.fromkeys(OF_ALL, 200)
# A team is seen by a key that sees it, and by being in it only with single sign-on.
READS_TEAM = {
    **each(404, 404, 404, 200),
    **dict.fromkeys(("team's viewer", *TEAMS, *OF_ALL, "signed on"), 200),
}
MAKES = each(403, 403, 403, 201)
WORKS = each(401, 401, 401, 401, worker=200)
HOLDS = WORKS | {"other worker": 404}
# Pods identify themselves by their cluster's tokens: off here, and no other bearer passes for one.
PODS = each(403, 403, 403, 403, nobody=403) | {"none": 401}
# Only a key makes a token.
TOKENS = READS | dict.fromkeys(("token", "signed on", "team's signed on", "signed on for all"), 403)


def fixed(path: str, body: object = None) -> Callable[[World, str], Request]:
    """Return a request that names no object."""
    return lambda _world, _kind: (path, body)


def of_job(what: str = "", body: object = None) -> Callable[[World, str], Request]:
    return lambda world, _: (f"/api/v1/queue/jobs/{world.job()}{what}", body)


def of_worker(what: str = "", body: object = None) -> Callable[[World, str], Request]:
    return lambda world, _: (f"/api/v1/admin/workers/{world.absent_worker()}{what}", body)


def of_anns(
    room: str, make: Callable[[World], object], body: object = None, what: str = ""
) -> Callable[[World, str], Request]:
    """Return a request about a new thing of ann's; those who see her things name her."""

    def request(world: World, kind: str) -> Request:
        named = "?owner=ann" if kind in {"admin", *SEEING} - {"other team's viewer"} else ""
        return f"/api/v1/queue/{room}/{make(world)}{what}{named}", body

    return request


def of_template(body: object = None) -> Callable[[World, str], Request]:
    return of_anns("templates", World.template, body)


def of_input(body: object = None) -> Callable[[World, str], Request]:
    return of_anns("inputs", World.input, body)


def of_schedule(body: object = None, path: str = "schedules") -> Callable[[World, str], Request]:
    return of_anns(path, World.schedule, body)


def of_notification(
    body: object = None, path: str = "notifications"
) -> Callable[[World, str], Request]:
    return of_anns(path, World.notification, body)


def of_sweep(what: str = "", body: object = None) -> Callable[[World, str], Request]:
    return of_anns("sweeps", World.sweep, body, what)


def of_lease(what: str, **body: Any) -> Callable[[World, str], Request]:  # noqa: ANN401  fields of all types
    """Return a lease holder's request; LOG, MANIFEST and FILE stand for keys that it may write."""

    def request(world: World, _kind: str) -> Request:
        grant, keys = world.lease()
        mine = {"LOG": keys.log_chunk(0), "MANIFEST": keys.checkpoint_manifest(0)}
        mine["FILE"] = keys.artifact("a")
        said = {name: mine.get(str(value), value) for name, value in body.items()}
        if "artifacts" in said:
            said["artifacts"] = [{**said["artifacts"], "key": mine["FILE"]}]
        if "objects" in said:
            said["objects"] = [{**said["objects"], "key": mine["FILE"]}]
        return f"/api/v1/workers/job/{grant['job_id']}{what}", {**held(grant), **said}

    return request


def booted(path: str, **body: Any) -> Callable[[World, str], Request]:  # noqa: ANN401  as above
    """Return a request that a worker's boot sends."""

    def request(world: World, kind: str) -> Request:
        boot = world.other.boot_id if kind == "other worker" else world.holder.boot_id
        return path, {"boot_id": str(boot), **body}

    return request


def ends(world: World, kind: str) -> Request:
    grant, _ = world.lease()
    path, body = booted("/api/v1/workers/claim", free=ROOM, count=0)(world, kind)
    assert isinstance(body, dict)
    return path, {**body, "ends": [lease(grant)]}


ROOM = {"cpus": 1, "memory_mb": 1, "disk_mb": 1}
OBJECT = {"path": "a", "bytes": 6, "sha256": DIGEST}
CONTENT = b64encode(b"object").decode()
KEY = {"owner": "eve", "role": "viewer"}
HOOK = {"kind": "webhook", "target": "https://hooks.example/"}
WEEKLY = {"cron": "0 3 * * 0", "spec": SPEC}
SIGNED = f"/api/v1/objects/bundles/x?expires=9999999999&signature={'0' * 64}"

TABLE: dict[tuple[str, str], Case] = {
    ("get", "/health"): (ANYBODY, fixed("/health")),
    ("get", "/openapi.json"): (ANYBODY, fixed("/openapi.json")),
    ("get", "/api/v1/me"): (READS, fixed("/api/v1/me")),
    # None of them came with an invitation.
    ("post", "/api/v1/me/key"): (
        each(409, 409, 409, 409),
        fixed("/api/v1/me/key", {"secret_sha256": "0" * 64}),
    ),
    ("post", "/api/v1/token"): (TOKENS, fixed("/api/v1/token", {})),
    ("post", "/api/v1/queue/submit"): (WRITES, fixed("/api/v1/queue/submit", {"jobs": [SPEC]})),
    ("post", "/api/v1/queue/foresee"): (WRITES, fixed("/api/v1/queue/foresee", {"jobs": [SPEC]})),
    ("post", "/api/v1/queue/check"): (WRITES, fixed("/api/v1/queue/check", {"jobs": [SPEC]})),
    ("post", "/api/v1/queue/statuses"): (READS, fixed("/api/v1/queue/statuses", {"job_ids": [1]})),
    ("post", "/api/v1/queue/cancel"): (WRITES, fixed("/api/v1/queue/cancel", {"job_ids": []})),
    ("post", "/api/v1/queue/retry"): (WRITES, fixed("/api/v1/queue/retry", {"job_ids": []})),
    ("post", "/api/v1/queue/annotate"): (WRITES, fixed("/api/v1/queue/annotate", {"job_ids": []})),
    ("post", "/api/v1/queue/delete"): (WRITES, fixed("/api/v1/queue/delete", {"job_ids": []})),
    ("get", "/api/v1/queue/jobs"): (READS, fixed("/api/v1/queue/jobs")),
    ("get", "/api/v1/queue/search"): (READS, fixed("/api/v1/queue/search")),
    ("get", "/api/v1/queue/runs"): (READS, fixed("/api/v1/queue/runs")),
    ("get", "/api/v1/queue/run-groups"): (READS, fixed("/api/v1/queue/run-groups?by=owner")),
    ("get", "/api/v1/queue/experiments"): (READS, fixed("/api/v1/queue/experiments")),
    ("get", "/api/v1/queue/job-id"): (READS, fixed("/api/v1/queue/job-id?handle=7")),
    ("get", "/api/v1/queue/jobs/{job_id}"): (READS_OWN, of_job()),
    ("patch", "/api/v1/queue/jobs/{job_id}"): (ACTS_ON_OWN, of_job(body={"priority": 1})),
    ("get", "/api/v1/queue/jobs/{job_id}/attempts"): (READS_OWN, of_job("/attempts")),
    ("get", "/api/v1/queue/jobs/{job_id}/events"): (READS_OWN, of_job("/events")),
    ("get", "/api/v1/queue/jobs/{job_id}/explain"): (READS_OWN, of_job("/explain")),
    ("get", "/api/v1/queue/jobs/{job_id}/logs"): (READS_OWN, of_job("/logs")),
    ("get", "/api/v1/queue/jobs/{job_id}/artifacts"): (READS_OWN, of_job("/artifacts")),
    ("get", "/api/v1/queue/jobs/{job_id}/artifacts/chunks"): (
        READS_OWN,
        of_job("/artifacts/chunks?file=a"),
    ),
    ("get", "/api/v1/queue/jobs/{job_id}/code/{digest}"): (
        READS_OWN,
        of_job(f"/code/{'0' * 64}"),
    ),
    ("get", "/api/v1/queue/jobs/{job_id}/request"): (
        READS_OWN,
        of_job("/request"),
    ),
    ("get", "/api/v1/queue/jobs/{job_id}/checkpoints"): (READS_OWN, of_job("/checkpoints")),
    ("post", "/api/v1/queue/jobs/{job_id}/cancel"): (ACTS_ON_OWN, of_job("/cancel")),
    ("post", "/api/v1/queue/jobs/{job_id}/preempt"): (ACTS_ON_OWN, of_job("/preempt")),
    ("post", "/api/v1/queue/jobs/{job_id}/shells"): (
        ACTS_ON_OWN,
        lambda world, _: (f"/api/v1/queue/jobs/{world.running_job()}/shells", {"command": ["ls"]}),
    ),
    ("post", "/api/v1/queue/jobs/{job_id}/retry"): (
        ACTS_ON_OWN,
        lambda world, _: (f"/api/v1/queue/jobs/{world.dead_job()}/retry", None),
    ),
    ("get", "/api/v1/queue/jobs/{job_id}/tests"): (READS_OWN, of_job("/tests")),
    ("get", "/api/v1/queue/jobs/{job_id}/series"): (READS_OWN, of_job("/series")),
    ("get", "/api/v1/queue/jobs/{job_id}/metrics"): (READS_OWN, of_job("/metrics")),
    ("get", "/api/v1/queue/jobs/{job_id}/metrics/last"): (READS_OWN, of_job("/metrics/last")),
    ("get", "/api/v1/queue/jobs/{job_id}/result"): (READS_OWN, of_job("/result")),
    ("get", "/api/v1/queue/sweeps/{name}"): (READS_OWN, of_sweep()),
    ("get", "/api/v1/queue/sweeps/{name}/points"): (READS_OWN, of_sweep("/points")),
    ("patch", "/api/v1/queue/sweeps/{name}"): (ACTS_ON_OWN, of_sweep(body={"parallel": 2})),
    ("post", "/api/v1/queue/sweeps/{name}/cancel"): (ACTS_ON_OWN, of_sweep("/cancel")),
    ("get", "/api/v1/queue/templates"): (READS, fixed("/api/v1/queue/templates")),
    ("get", "/api/v1/queue/templates/{name}"): (READS_OWN, of_template()),
    ("put", "/api/v1/queue/templates/{name}"): (KEEPS, of_template({"spec": {}})),
    ("delete", "/api/v1/queue/templates/{name}"): (ACTS_ON_OWN, of_template()),
    ("get", "/api/v1/queue/inputs"): (READS, fixed("/api/v1/queue/inputs")),
    ("put", "/api/v1/queue/inputs/{name}"): (KEEPS, of_input({"source": "s3://sets"})),
    ("delete", "/api/v1/queue/inputs/{name}"): (ACTS_ON_OWN, of_input()),
    ("get", "/api/v1/queue/schedules"): (READS, fixed("/api/v1/queue/schedules")),
    ("post", "/api/v1/queue/check-schedule"): (
        WRITES,
        fixed("/api/v1/queue/check-schedule", {"name": "night", "cron": "0 3 * * 0"}),
    ),
    ("get", "/api/v1/queue/schedules/{name}"): (READS_OWN, of_schedule()),
    ("put", "/api/v1/queue/schedules/{name}"): (KEEPS, of_schedule(WEEKLY)),
    ("patch", "/api/v1/queue/schedules/{name}"): (ACTS_ON_OWN, of_schedule({"paused": True})),
    ("delete", "/api/v1/queue/schedules/{name}"): (ACTS_ON_OWN, of_schedule()),
    ("post", "/api/v1/queue/run-schedule/{name}"): (ACTS_ON_OWN, of_schedule({}, "run-schedule")),
    ("get", "/api/v1/queue/notifications"): (READS, fixed("/api/v1/queue/notifications")),
    ("put", "/api/v1/queue/notifications/{name}"): (KEEPS, of_notification(HOOK)),
    ("delete", "/api/v1/queue/notifications/{name}"): (ACTS_ON_OWN, of_notification()),
    ("post", "/api/v1/queue/test-notification/{name}"): (
        ACTS_ON_OWN,
        of_notification(path="test-notification"),
    ),
    ("get", "/api/v1/queue/deliveries"): (READS, fixed("/api/v1/queue/deliveries?state=failed")),
    ("get", "/api/v1/queue/deliveries/{delivery_id}"): (
        READS_OWN,
        lambda world, _: (f"/api/v1/queue/deliveries/{world.delivery()}", None),
    ),
    ("post", "/api/v1/queue/retry-deliveries"): (
        WRITES,
        fixed("/api/v1/queue/retry-deliveries", {"ids": []}),
    ),
    ("get", "/api/v1/admin/notifier"): (READS_ALL, fixed("/api/v1/admin/notifier")),
    ("patch", "/api/v1/admin/notifier"): (ADMINS, fixed("/api/v1/admin/notifier", {})),
    ("post", "/api/v1/bundles"): (WRITES, fixed("/api/v1/bundles", {"digest": DIGEST, "bytes": 6})),
    ("post", "/api/v1/bundles/segments"): (
        WRITES,
        fixed("/api/v1/bundles/segments", {"segments": [{"sha256": DIGEST, "bytes": 6}]}),
    ),
    ("post", "/api/v1/images"): (WRITES, fixed("/api/v1/images", {"digest": DIGEST, "bytes": 6})),
    ("get", "/api/v1/reports"): (READS, fixed("/api/v1/reports")),
    ("get", "/api/v1/reports/{name}"): (READS_ALL, fixed("/api/v1/reports/queue_demand")),
    ("get", "/api/v1/overview"): (READS, fixed("/api/v1/overview?jobs=9&workers=9")),
    ("get", "/api/v1/workers"): (READS, fixed("/api/v1/workers")),
    ("get", "/api/v1/workers/{worker_id}"): (
        READS,
        lambda world, _: (f"/api/v1/workers/{world.holder.id}", None),
    ),
    ("get", "/api/v1/admin/workers"): (READS_ALL, fixed("/api/v1/admin/workers")),
    ("post", "/api/v1/admin/workers"): (MAKES, fixed("/api/v1/admin/workers", {"name": "new"})),
    ("get", "/api/v1/admin/workers/named/newest"): (
        READS_ALL,
        fixed("/api/v1/admin/workers/named/newest?name=holder"),
    ),
    ("delete", "/api/v1/admin/workers/{worker_id}"): (ADMINS, of_worker()),
    ("post", "/api/v1/admin/workers/{worker_id}/drain"): (ADMINS, of_worker("/drain", {})),
    ("post", "/api/v1/admin/workers/{worker_id}/token"): (ADMINS, of_worker("/token", {})),
    ("get", "/api/v1/admin/keys"): (READS_ALL, fixed("/api/v1/admin/keys")),
    ("post", "/api/v1/admin/keys"): (MAKES, fixed("/api/v1/admin/keys", KEY)),
    ("delete", "/api/v1/admin/keys/{key_id}"): (
        ADMINS,
        lambda world, _: (f"/api/v1/admin/keys/{world.spare_key()}", None),
    ),
    ("post", "/api/v1/admin/keys/{key_id}/token"): (
        ADMINS,
        lambda world, _: (f"/api/v1/admin/keys/{world.spare_key()}/token", None),
    ),
    ("post", "/api/v1/admin/invitations"): (
        MAKES,
        fixed("/api/v1/admin/invitations", {"name": "invited"}),
    ),
    ("get", "/api/v1/admin/upgrade-line"): (READS_ALL, fixed("/api/v1/admin/upgrade-line")),
    ("get", "/api/v1/admin/queues"): (READS, fixed("/api/v1/admin/queues")),
    ("put", "/api/v1/admin/queues/{name}"): (ADMINS, fixed("/api/v1/admin/queues/night", {})),
    ("patch", "/api/v1/admin/queues/{name}"): (ADMINS, fixed("/api/v1/admin/queues/night", {})),
    ("delete", "/api/v1/admin/queues/{name}"): (
        ADMINS,
        lambda world, _: (f"/api/v1/admin/queues/{world.queue()}", None),
    ),
    ("get", "/api/v1/admin/quotas"): (READS, fixed("/api/v1/admin/quotas")),
    ("put", "/api/v1/admin/quotas/{owner}"): (ADMINS, fixed("/api/v1/admin/quotas/ann", {})),
    ("get", "/api/v1/queue/teams/{name}"): (READS_TEAM, fixed("/api/v1/queue/teams/vision")),
    ("get", "/api/v1/queue/teams"): (READS, fixed("/api/v1/queue/teams")),
    ("patch", "/api/v1/admin/teams/{name}"): (ADMINS, fixed("/api/v1/admin/teams/audio", {})),
    ("delete", "/api/v1/admin/teams/{name}"): (
        ADMINS,
        lambda world, _: (f"/api/v1/admin/teams/{world.team()}", None),
    ),
    ("get", "/api/v1/admin/approvals"): (READS_ALL, fixed("/api/v1/admin/approvals")),
    ("post", "/api/v1/admin/approvals"): (
        ADMINS,
        fixed("/api/v1/admin/approvals", {"job_ids": [1]}),
    ),
    ("get", "/api/v1/admin/events"): (READS_ALL, fixed("/api/v1/admin/events")),
    ("post", "/api/v1/workers/register"): (WORKS, booted("/api/v1/workers/register", **ROOM)),
    ("post", "/api/v1/workers/claim"): (HOLDS, ends),
    ("post", "/api/v1/workers/heartbeat"): (
        WORKS,
        booted("/api/v1/workers/heartbeat", status="idle"),
    ),
    ("post", "/api/v1/workers/disconnect"): (WORKS, booted("/api/v1/workers/disconnect")),
    ("post", "/api/v1/workers/enrol"): (PODS, fixed("/api/v1/workers/enrol")),
    ("get", "/api/v1/workers/package"): (ANYBODY, fixed("/api/v1/workers/package")),
    # The world's server has a certificate that everybody trusts, or none.
    ("get", "/api/v1/workers/authority"): (
        each(409, 409, 409, 409, worker=409, nobody=409),
        fixed("/api/v1/workers/authority"),
    ),
    # Only the token of a line joins.
    ("post", "/api/v1/workers/join"): (
        each(401, 401, 401, 401, worker=401),
        fixed("/api/v1/workers/join", {"secret": "a" * 64}),
    ),
    ("get", "/api/v1/workers/stream"): (WORKS, fixed("/api/v1/workers/stream?wait_s=0")),
    ("post", "/api/v1/workers/next"): (WORKS, booted("/api/v1/workers/next")),
    # No such job waits.
    ("post", "/api/v1/workers/next/{job_id}/objects"): (
        HOLDS | {"worker": 404},
        fixed("/api/v1/workers/next/999999/objects", {"keys": [f"bundles/{DIGEST}.tar.zst"]}),
    ),
    ("post", "/api/v1/workers/job/{job_id}/status"): (HOLDS, of_lease("/status", phase="running")),
    ("post", "/api/v1/workers/job/{job_id}/gather"): (
        HOLDS,
        of_lease("/gather", step=1, member={"address": "10.0.0.5"}),
    ),
    ("post", "/api/v1/workers/job/{job_id}/log-chunks"): (
        HOLDS,
        of_lease("/log-chunks", number=0, key="LOG", start=0, bytes=6, sha256=DIGEST),
    ),
    ("post", "/api/v1/workers/job/{job_id}/checkpoints"): (
        HOLDS,
        of_lease("/checkpoints", number=0, key="MANIFEST", files=1, bytes=6),
    ),
    ("post", "/api/v1/workers/job/{job_id}/checkpoints/begin"): (
        HOLDS,
        of_lease("/checkpoints/begin", attempt=1, number=0),
    ),
    ("post", "/api/v1/workers/job/{job_id}/checkpoints/newest"): (
        HOLDS,
        of_lease("/checkpoints/newest"),
    ),
    ("post", "/api/v1/workers/job/{job_id}/checkpoints/thin"): (
        HOLDS,
        of_lease("/checkpoints/thin", keep=5),
    ),
    ("post", "/api/v1/workers/job/{job_id}/artifacts"): (
        HOLDS,
        of_lease("/artifacts", artifacts=OBJECT),
    ),
    ("post", "/api/v1/workers/job/{job_id}/metrics"): (
        HOLDS,
        of_lease("/metrics", lines=[{"number": 0, "values": {"loss": 1}}]),
    ),
    ("post", "/api/v1/workers/job/{job_id}/samples"): (
        HOLDS,
        of_lease("/samples", samples=[{"number": 0, "values": {"cpu": 1}}]),
    ),
    ("post", "/api/v1/workers/job/{job_id}/result"): (HOLDS, of_lease("/result", values={"a": 1})),
    ("post", "/api/v1/workers/job/{job_id}/tests"): (
        HOLDS,
        of_lease("/tests", tests=[{"number": 0, "suite": "s", "name": "t", "verdict": "passed"}]),
    ),
    ("post", "/api/v1/workers/job/{job_id}/inputs"): (
        HOLDS,
        of_lease("/inputs", inputs={"set": {"source": "s3://bucket", "digest": DIGEST}}),
    ),
    ("post", "/api/v1/workers/job/{job_id}/inputs/artifacts"): (
        HOLDS,
        of_lease("/inputs/artifacts", source_id=1),
    ),
    ("post", "/api/v1/workers/job/{job_id}/inputs/checkpoint"): (
        HOLDS,
        of_lease("/inputs/checkpoint", source_id=1),
    ),
    ("get", "/api/v1/workers/job/{job_id}/checkpoint"): (
        HOLDS,
        lambda world, _: (f"/api/v1/workers/job/{world.lease()[0]['job_id']}/checkpoint", None),
    ),
    ("post", "/api/v1/workers/job/{job_id}/objects"): (
        HOLDS,
        of_lease("/objects", operation="put", key="FILE", size=6, sha256=DIGEST),
    ),
    ("post", "/api/v1/workers/job/{job_id}/objects/batch"): (
        HOLDS,
        of_lease("/objects/batch", objects={"operation": "put", "size": 6, "sha256": DIGEST}),
    ),
    ("post", "/api/v1/workers/job/{job_id}/objects/small"): (
        HOLDS,
        of_lease("/objects/small", objects={"sha256": DIGEST, "content": CONTENT}),
    ),
    ("get", "/api/v1/objects/{key}"): (NO_SIGNATURE, fixed(SIGNED)),
    ("put", "/api/v1/objects/{key}"): (
        NO_SIGNATURE,
        fixed(f"{SIGNED}&size=6&sha256={DIGEST}"),
    ),
}


def offered() -> set[tuple[str, str]]:
    """Return every method and path of the app."""
    app = whole_app(server_settings("postgresql://none", "file:///none"))
    paths = app.openapi()["paths"].items()
    return {(method, path) for path, methods in paths for method in methods}


def test_the_table_has_every_path_and_no_other() -> None:
    wanted = "give each path a row in TABLE: who may do it, and a request"
    assert offered() | {("get", "/openapi.json")} == set(TABLE), wanted
    assert all(set(expected) == set(KINDS) for expected, _ in TABLE.values())


# These change the worker that holds the leases, or a template, schedule, input or notification that
# other requests may share by name, and so would disturb the others.
APART = (
    *("/api/v1/workers/register", "/api/v1/workers/disconnect"),
    *("/api/v1/queue/templates/{name}", "/api/v1/queue/schedules/{name}"),
    "/api/v1/queue/inputs/{name}",
    *("/api/v1/queue/notifications/{name}", "/api/v1/queue/test-notification/{name}"),
)


@pytest.fixture(scope="module")
def shared(shared_api: Api) -> World:
    """A world for all requests that name only objects made for them."""
    return World(shared_api)


@pytest.fixture
def world(request: pytest.FixtureRequest, path: str, shared: World) -> World:
    return World(request.getfixturevalue("api")) if path in APART else shared


@pytest.mark.parametrize(("method", "path"), TABLE, ids=[f"{m} {p}" for m, p in TABLE])
def test_each_kind_of_caller_may_what_the_table_says(world: World, method: str, path: str) -> None:
    expected, request = TABLE[method, path]
    found = {kind: world.call(kind, method.upper(), *request(world, kind)) for kind in KINDS}
    assert found == expected


# What all people read, each a part of it.
LISTS = [
    path
    for (method, path), (expected, _) in TABLE.items()
    if method == "get" and expected == READS and "{" not in path
]


def test_a_list_names_only_the_jobs_that_its_reader_sees(api: Api) -> None:
    world = World(api)
    world.template(), world.schedule(), world.delivery(), world.sweep()
    world.running_job()
    api.rig.submit(owner="ann", name="ann-waits", queue="ann-queue", experiment="ann-tries")
    naming = {}
    for kind in ("viewer", *SEEING, "other owner"):
        caller = api.caller(world.callers[kind])
        answers = {
            path: caller.call("GET", TABLE["get", path][1](world, kind)[0]) for path in LISTS
        }
        naming[kind] = {path for path, answer in answers.items() if '"ann' in answer.text}
    for kind in ("other team's viewer", "other owner"):
        assert naming[kind] == set()
    # Ann's own key sees her jobs and no team; a team is for the keys that see one.
    apart = {"/api/v1/me", "/api/v1/queue/teams"}
    assert naming["team's viewer"] - naming["viewer"] == {"/api/v1/queue/teams"}
    assert naming["team's viewer"] - apart == naming["viewer"] - apart
