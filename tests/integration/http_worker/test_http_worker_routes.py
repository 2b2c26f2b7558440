"""The workers' paths: who may call them, the answers, and that nobody touches another's lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from forge_schema.model.attempt_records import CHUNK
from forge_schema.model.lease import End, Fence
from forge_schema.model.reading import LARGEST
from forge_schema.model.states import ATTEMPT_REASONS, Command, Reason, WorkerKind
from forge_schema.read.audit import Audit
from forge_schema.storage import keys, open_store
from support.http.api import opened, problem
from support.http.http_worker import DIGEST, FREE, RawWorker, held, lease, raw_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.http.api import Api
    from support.queue.rig import Rig

BUNDLE = "cd" * 32


@pytest.fixture
def api(rig: Rig, tmp_path: Path) -> Iterator[Api]:
    with opened(rig, tmp_path / "store", long_poll_s=0.2) as made:
        (tmp_path / "store").mkdir()
        yield made


@pytest.fixture
def worker(api: Api) -> RawWorker:
    return raw_worker(api)


def actions(api: Api, action: str) -> list[dict[str, Any]]:
    return Audit(api.rig.database).events(action=action)


def granted(worker: RawWorker, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  fields of all types
    worker.api.rig.submit(bundle_digest=BUNDLE, **fields)
    (grant,) = worker.claim(hinted=True)
    return grant


def fence(grant: dict[str, Any]) -> Fence:
    return Fence(grant["job_id"], grant["token"], UUID(grant["nonce"]))


def own_keys(grant: dict[str, Any]) -> keys.AttemptKeys:
    return keys.AttemptKeys(grant["job_id"], grant["attempt"], fence(grant).mark)


def records(grant: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a valid body for each path that is about a lease."""
    own, token = own_keys(grant), held(grant)
    file = {"path": "a", "key": own.artifact("a"), "bytes": 1, "sha256": DIGEST}
    chunk = {"number": 0, "key": own.log_chunk(0), "start": 0, "bytes": 1, "sha256": DIGEST}
    row = {"number": 0, "key": own.checkpoint_manifest(0), "files": 1, "bytes": 1}
    wanted = {"operation": "put", "key": own.log_chunk(0), "size": 1, "sha256": DIGEST}
    return {
        "log-chunks": {**token, **chunk},
        "checkpoints": {**token, **row},
        "artifacts": {**token, "artifacts": [file]},
        "metrics": {**token, "lines": [{"number": 0, "step": 1, "values": {"loss": 0.5}}]},
        "objects": {**token, **wanted},
        "objects/batch": {**token, "objects": [wanted]},
        "status": {**token, "phase": "running", "devices": []},
    }


def test_a_registered_worker_is_told_who_it_is(api: Api) -> None:
    worker = raw_worker(api, "gpu-1", kind=WorkerKind.EPHEMERAL, registered=False)
    assert worker.register(kind="persistent", labels={"zone": "eu"}) == {
        "worker_id": worker.id, "name": "gpu-1", "kind": "ephemeral", "heartbeat_s": 30.0,
        "lease_ttl_s": 120.0, "queue_id": str(api.rig.registry.queue_id()), "small_objects": True,
    }  # fmt: skip
    (row,) = api.rig.registry.workers()
    assert (row["name"], row["status"], row["cpus"]) == ("gpu-1", "connecting", 1000)
    assert row["labels"] == {"forge.runs": "images,projects", "zone": "eu"}


def test_each_registration_is_in_the_trail_also_a_refused_one(api: Api) -> None:
    worker = raw_worker(api)
    old, worker.token = worker.token, api.workers.rotate(worker.id)
    for token in (old, old[:-1], "", api.workers.create("other")[1].replace("fgw", "fgk")):
        stranger = RawWorker(api, 0, "", token)
        problem(stranger.post("/register", stranger.machine()), 401, "unauthenticated")
    problem(worker.post("/register", {**worker.machine(), "cpus": -1}), 422, "invalid")
    worker.register()
    refused = [row["detail"] for row in actions(api, "registration_refused")]
    assert [(said["said"], said["why"]) for said in refused] == [
        (str(worker.id), "unauthenticated"),
        ("", "unauthenticated"),
        ("", "unauthenticated"),
        ("", "unauthenticated"),
        (str(worker.id), "invalid"),
    ]
    assert {said["from"] for said in refused} == {"127.0.0.1"}
    assert len(actions(api, "registered")) == 2
    assert worker.token not in str(api.rig.rows("SELECT * FROM event"))


def test_a_flood_of_refused_registrations_does_not_flood_the_trail(api: Api) -> None:
    for _ in range(15):
        stranger = RawWorker(api, 0, "", "nothing")
        problem(stranger.post("/register", {}), 401, "unauthenticated")
    assert len(actions(api, "registration_refused")) == 10


def test_a_job_goes_its_way(worker: RawWorker) -> None:
    api = worker.api
    job = api.rig.submit(bundle_digest=BUNDLE)
    (grant,) = worker.claim()
    assert (grant["job_id"], grant["attempt"], grant["bundle_digest"]) == (job, 1, BUNDLE)
    assert grant["spec"]["command"] == ["true"]
    for what, body in records(grant).items():
        answer = worker.post(f"/job/{job}/{what}", body)
        assert answer.status_code == 200, answer.text
    assert worker.heartbeat(lease(grant), status="busy")["standings"] == [
        {**lease(grant), "standing": "ok"}
    ]
    checkpoint = worker.get(f"/job/{job}/checkpoint").json()["checkpoint"]
    assert (checkpoint["number"], checkpoint["key"]) == (0, own_keys(grant).checkpoint_manifest(0))
    end = {"reason": "exit_code", "exit_code": 3, "detail": "no"}
    told = worker.post(f"/job/{job}/status", {**held(grant), "end": end}).json()
    assert told["ended"] == {
        "job_id": job, "accepted": True, "reason": "exit_code", "state": "scheduled",
    }  # fmt: skip
    (attempt,) = api.rig.jobs.attempts(job)
    assert (attempt["exit_code"], attempt["detail"]) == (3, "no")


def test_a_success_is_told_with_the_next_claim(worker: RawWorker) -> None:
    first, second = worker.api.rig.submit_many(2)
    (grant,) = worker.claim()
    body = {
        "boot_id": str(worker.boot_id), "free": FREE, "count": 1,
        "ends": [{**lease(grant), "usage": {"gpu_seconds": 2.5, "cost": 0.25}}],
    }  # fmt: skip
    answer = worker.post("/claim", body).json()
    assert answer["ended"] == [
        {"job_id": first, "accepted": True, "reason": "succeeded", "state": "succeeded"}
    ]
    assert [one["job_id"] for one in answer["grants"]] == [second]
    (attempt,) = worker.api.rig.jobs.attempts(first)
    assert (attempt["gpu_seconds"], attempt["cost"]) == (2.5, 0.25)


def test_an_end_may_be_told_twice(worker: RawWorker) -> None:
    grant = granted(worker)
    path, end = f"/job/{grant['job_id']}/status", {"reason": "preempted"}
    answers = [worker.post(path, {**held(grant), "end": end}).json() for _ in range(2)]
    assert answers[0] == answers[1]
    other = worker.post(path, {**held(grant), "end": {"reason": "oom"}}).json()
    assert other["ended"]["accepted"] is False
    assert len(worker.api.rig.jobs.attempts(grant["job_id"])) == 1


@pytest.mark.parametrize("what", ["ended", "absent", "another's", "wrong nonce", "another job"])
def test_a_lease_that_is_not_held_is_absent(worker: RawWorker, what: str) -> None:
    api, other = worker.api, raw_worker(worker.api, "other")
    grant = granted(other if what == "another's" else worker)
    bodies = records(grant)
    if what == "ended":
        api.rig.queue.finish([End(fence(grant), Reason.PREEMPTED)])
    wrong = {"absent": {"token": grant["token"] + 99}, "wrong nonce": {"nonce": str(uuid4())}}
    job = granted(other)["job_id"] if what == "another job" else grant["job_id"]
    before = api.rig.rows("SELECT * FROM lease ORDER BY job_id")
    answers = [
        worker.post(f"/job/{job}/{path}", {**body, **wrong.get(what, {})})
        for path, body in bodies.items()
    ]
    messages = {problem(answer, 404, "lease_unknown") for answer in answers}
    assert messages == {"this worker holds no such lease"}
    assert api.rig.rows("SELECT * FROM lease ORDER BY job_id") == before
    for table in ("log_chunk", "checkpoint", "artifact", "metric"):
        assert api.rig.count(table) == 0


def test_a_worker_cannot_end_or_renew_what_another_holds(worker: RawWorker) -> None:
    api, other = worker.api, raw_worker(worker.api, "other")
    grant = granted(other)
    path = f"/job/{grant['job_id']}/status"
    end = {**held(grant), "end": {"reason": "succeeded"}}
    problem(worker.post(path, end), 404, "lease_unknown")
    body = {"boot_id": str(worker.boot_id), "free": FREE, "ends": [lease(grant)]}
    problem(worker.post("/claim", body), 404, "lease_unknown")
    before = api.rig.row("SELECT expires_at FROM lease")
    api.rig.clock.advance(10)
    assert worker.heartbeat(lease(grant))["standings"] == [{**lease(grant), "standing": "lost"}]
    assert api.rig.row("SELECT expires_at FROM lease") == before
    problem(worker.get(f"/job/{grant['job_id']}/checkpoint"), 404, "lease_unknown")
    # Nor does it learn how the job ended.
    assert other.post(path, end).json()["ended"]["accepted"]
    problem(worker.post(path, end), 404, "lease_unknown")
    problem(worker.post("/claim", body), 404, "lease_unknown")


def test_one_foreign_end_leaves_the_others_alone(worker: RawWorker) -> None:
    mine, theirs = granted(worker), granted(raw_worker(worker.api, "other"))
    body = {"boot_id": str(worker.boot_id), "free": FREE, "ends": [lease(mine), lease(theirs)]}
    problem(worker.post("/claim", body), 404, "lease_unknown")
    assert worker.api.rig.count("lease") == 2


@pytest.mark.parametrize(
    ("operation", "key", "allowed"),
    [
        ("put", "{own}logs/00000000.zst", True),
        ("put", "{own}artifacts/deep/file", True),
        ("put", "{own}", False),
        ("put", "{own}../x", False),
        ("put", "jobs/{job}/1-{other}/logs/00000000.zst", False),
        ("put", "jobs/{strange}/1-1-000000000000/logs/00000000.zst", False),
        ("put", "bundles/{bundle}.tar.zst", False),
        ("get", "bundles/{bundle}.tar.zst", True),
        ("get", "bundles/{wrong}.tar.zst", False),
        ("get", "jobs/{job}/1-7-000000000000/checkpoints/000000.json", True),
        ("get", "jobs/{job}/1-7-000000000000/checkpoints/files/{wrong}", True),
        ("get", "jobs/{job}/1-7-000000000000/artifacts/x", False),
        ("get", "jobs/{job}/1-7-000000000000/logs/00000000.zst", False),
        ("get", "jobs/{job}/a/b/checkpoints/000000.json", False),
        ("get", "jobs/{job}/../{strange}/checkpoints/000000.json", False),
        ("get", "jobs/{strange}/1-7-000000000000/checkpoints/000000.json", False),
        ("get", "jobs/{job}0/1-7-000000000000/checkpoints/000000.json", False),
    ],
)
def test_only_objects_that_the_server_would_name_are_signed(
    worker: RawWorker, operation: str, key: str, *, allowed: bool
) -> None:
    strange = granted(raw_worker(worker.api, "other"))
    grant = granted(worker)
    named = key.format(
        own=own_keys(grant).prefix, job=grant["job_id"], strange=strange["job_id"],
        other="9-abcdefabcdef", bundle=BUNDLE, wrong=DIGEST,
    )  # fmt: skip
    body = {**held(grant), "operation": operation, "key": named}
    if operation == "put":
        body |= {"size": 3, "sha256": DIGEST}
    answer = worker.post(f"/job/{grant['job_id']}/objects", body)
    if not allowed:
        problem(answer, 404, "object_unknown")
        return
    signed = answer.json()
    assert signed["method"] == operation.upper()
    assert signed["url"].startswith(f"{worker.api.url}/api/v1/objects/{named}?")
    assert 0 < signed["expires_in_s"] <= 900


@pytest.mark.parametrize("what", ["log-chunks", "checkpoints", "artifacts"])
def test_a_record_names_objects_of_its_own_attempt_alone(worker: RawWorker, what: str) -> None:
    strange = granted(raw_worker(worker.api, "other"))
    grant = granted(worker)
    body = {**records(strange)[what], **held(grant)}
    problem(worker.post(f"/job/{grant['job_id']}/{what}", body), 404, "object_unknown")
    assert worker.api.rig.count(what.replace("-", "_").removesuffix("s")) == 0


def test_what_is_signed_can_be_stored_and_read(worker: RawWorker, tmp_path: Path) -> None:
    import hashlib  # noqa: PLC0415  here alone

    grant, data = granted(worker), b"abc"
    own = own_keys(grant).checkpoint_manifest(0)
    wanted = {"operation": "put", "key": own, "size": 3,
              "sha256": hashlib.sha256(data).hexdigest()}  # fmt: skip
    path = f"/job/{grant['job_id']}/objects"
    signed = worker.post(path, {**held(grant), **wanted}).json()
    sent = worker.api.http.put(signed["url"], content=data, headers=signed["headers"])
    assert sent.is_success, sent.text
    assert open_store((tmp_path / "store").as_uri()).get(own) == data
    read = worker.post(path, {**held(grant), "operation": "get", "key": own}).json()
    assert worker.api.http.get(read["url"], headers=read["headers"]).content == data


def test_a_drained_worker_is_given_nothing_at_once(worker: RawWorker) -> None:
    rig = worker.api.rig
    rig.submit_many(2)
    (grant,) = worker.claim()
    rig.registry.command(worker.id, Command.DRAIN)
    assert worker.claim() == []
    assert worker.heartbeat(lease(grant), status="busy")["command"] == "drain"
    assert rig.registry.workers()[0]["status"] == "draining"
    body = {"boot_id": str(worker.boot_id), "free": FREE, "count": 1, "ends": [lease(grant)]}
    answer = worker.post("/claim", body).json()
    assert (answer["ended"][0]["accepted"], answer["grants"]) == (True, [])
    rig.registry.command(worker.id, None)
    assert len(worker.claim(hinted=True)) == 1


def test_an_older_boot_is_told_to_register_but_may_end_what_it_ran(worker: RawWorker) -> None:
    grant = granted(worker)
    old, worker.boot_id = worker.boot_id, uuid4()
    worker.register()
    worker.boot_id, new = old, worker.boot_id
    worker.api.rig.submit()
    body = {"boot_id": str(old), "free": FREE, "count": 1}
    problem(worker.post("/claim", body), 409, "worker_unknown")
    beat = {"boot_id": str(old), "status": "idle"}
    problem(worker.post("/heartbeat", beat), 409, "worker_unknown")
    answer = worker.post("/claim", {**body, "ends": [lease(grant)]}).json()
    assert (answer["ended"][0]["accepted"], answer["grants"]) == (True, [])
    worker.boot_id = new
    assert len(worker.claim()) == 1


def test_a_worker_leaves_once_and_a_newer_boot_stays(worker: RawWorker) -> None:
    rig = worker.api.rig
    old, worker.boot_id = worker.boot_id, uuid4()
    worker.register()
    worker.heartbeat()
    assert worker.post("/disconnect", {"boot_id": str(old)}).json() == {}
    assert rig.registry.workers()[0]["status"] == "idle"
    for _ in range(2):
        assert worker.post("/disconnect", {"boot_id": str(worker.boot_id)}).json() == {}
    assert rig.registry.workers()[0]["status"] == "offline"
    assert len(actions(worker.api, "disconnected")) == 1


def test_a_replaced_token_is_refused_at_once(worker: RawWorker) -> None:
    granted(worker)
    new = worker.api.workers.rotate(worker.id)
    for path, body in (
        ("/claim", {"boot_id": str(worker.boot_id), "free": FREE}),
        ("/heartbeat", {"boot_id": str(worker.boot_id), "status": "idle"}),
        ("/disconnect", {"boot_id": str(worker.boot_id)}),
    ):
        problem(worker.post(path, body), 401, "unauthenticated")
    problem(worker.get("/stream"), 401, "unauthenticated")
    worker.token = new
    worker.heartbeat()


BAD: list[tuple[str, dict[str, Any]]] = [
    ("/register", {"cpus": 0}),
    ("/register", {"cpus": 1e400}),
    ("/register", {"memory_mb": 2**31}),
    ("/register", {"disk_mb": -1}),
    ("/register", {"boot_id": "00000000-0000-0000-0000-000000000000"}),
    ("/register", {"labels": {"zone": "a\0b"}}),
    ("/register", {"labels": {"zone": "\ud800"}}),
    ("/register", {"labels": {"zone": 3}}),
    ("/register", {"labels": {"": "x"}}),
    ("/register", {"gpus": [{"uuid": "u", "name": "n", "vram_mb": "lots"}]}),
    ("/register", {"gpus": [{"name": "n"}]}),
    ("/register", {"kind": "forever"}),
    ("/claim", {"count": 101}),
    ("/claim", {"wait_s": 1e9}),
    ("/claim", {"free": {"cpus": -1, "memory_mb": 1, "disk_mb": 1}}),
    ("/claim", {"ends": [{"job_id": 2**63, "token": 1, "nonce": DIGEST[:32]}]}),
    ("/claim", {"ends": [{"job_id": 1, "token": 1, "nonce": DIGEST[:32]}] * 2}),
    ("/heartbeat", {"status": "draining"}),
    ("/heartbeat", {"status": "offline"}),
    ("/heartbeat", {"leases": [{"job_id": 0, "token": 1, "nonce": DIGEST[:32]}]}),
    ("status", {"phase": None}),
    ("status", {"end": {"reason": "succeeded"}}),
    ("status", {"phase": "resting"}),
    ("status", {"devices": ["a\0"]}),
    ("status", {"phase": None, "end": {"reason": "oom", "exit_code": 2**31}}),
    ("status", {"phase": None, "end": {"reason": "oom", "detail": "a\0"}}),
    ("status", {"phase": None, "end": {"reason": "oom", "usage": {"cost": -1}}}),
    ("log-chunks", {"number": 10**8}),
    ("log-chunks", {"bytes": 0}),
    ("log-chunks", {"start": 2**63}),
    ("log-chunks", {"sha256": DIGEST.upper()}),
    ("log-chunks", {"key": ""}),
    ("checkpoints", {"files": 2**31}),
    ("artifacts", {"artifacts": []}),
    ("artifacts", {"artifacts": [{"path": "p" * 2001, "key": "k", "bytes": 1, "sha256": DIGEST}]}),
    ("metrics", {"lines": [{"number": -1, "values": {}}]}),
    ("metrics", {"lines": [{"number": 0, "values": {"a": "\0"}}]}),
    ("metrics", {"lines": [{"number": 0, "values": {"\udfff": 1}}]}),
    ("metrics", {"lines": [{"number": 0, "values": [1]}]}),
    ("metrics", {"lines": [{"number": 0, "step": 1e999, "values": {}}]}),
    ("objects", {"operation": "delete"}),
    ("objects", {"size": None}),
    ("objects", {"sha256": "x"}),
]


@pytest.mark.parametrize(("path", "change"), BAD, ids=str)
def test_what_a_row_cannot_hold_is_refused(
    worker: RawWorker, path: str, change: dict[str, Any]
) -> None:
    import json  # noqa: PLC0415  here alone

    grant = granted(worker)
    boot = {"boot_id": str(worker.boot_id)}
    whole = {
        "/register": worker.machine(),
        "/claim": {**boot, "free": FREE},
        "/heartbeat": {**boot, "status": "idle"},
        "/disconnect": boot,
        **records(grant),
    }
    place = path if path.startswith("/") else f"/job/{grant['job_id']}/{path}"
    # Python's JSON encoder writes what no strict one would: Infinity, half a surrogate pair.
    content = json.dumps({**whole[path], **change})
    headers = {**worker.headers, "Content-Type": "application/json"}
    answer = worker.api.http.post(f"/api/v1/workers{place}", content=content, headers=headers)
    problem(answer, 422, "invalid")


def test_the_largest_that_is_taken_fits_into_a_row(worker: RawWorker) -> None:
    worker.register(
        cpus=1e6, memory_mb=2**31 - 1, disk_mb=2**31 - 1, price_per_hour=1e15,
        labels={"l" * 200: "v" * 200}, version="v" * 200,
        gpus=[{"uuid": "u" * 200, "name": "n" * 200, "vram_mb": 2**31 - 1}] * 64,
        speed={"method": "m" * 200, "cuda": {f"{n}" * 100: 1e12 for n in range(20)}},
    )  # fmt: skip
    grant = granted(worker)
    path = f"/job/{grant['job_id']}"
    own = own_keys(grant)
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"d": deep}
    values = {"big": 10**4000, "small": 5e-324, "large": 1.7e308, "deep": deep, "": None}
    files = [
        # Random, so that the index cannot compress it.
        {"path": path, "key": own.artifact(path), "bytes": LARGEST, "sha256": DIGEST}
        for path in ("/".join(uuid4().hex * 7 for _ in range(3)) for _ in range(3))
    ]
    for what, body in (
        ("status", {"phase": "running", "devices": ["d" * 200] * 64, "progress": 1e300}),
        ("log-chunks", {"number": 99_999_999, "key": own.log_chunk(99_999_999),
                        "start": LARGEST, "bytes": CHUNK, "sha256": DIGEST}),
        ("checkpoints", {"number": 999_999, "key": own.checkpoint_manifest(999_999),
                         "files": 2**31 - 1, "bytes": LARGEST}),
        ("artifacts", {"artifacts": files}),
        ("metrics", {"lines": [{"number": 2**31 - 2, "step": 1.7e308, "values": values}],
                     "progress": -1e300}),
        ("objects", {"operation": "put", "key": own.log_chunk(0), "size": LARGEST,
                     "sha256": DIGEST}),
        ("status", {"end": {"reason": "oom", "exit_code": -(2**31), "detail": "\U0001f600" * 10_000,
                            "usage": {"gpu_seconds": 1e15, "energy_j": 1e15, "cost": 1e15}}}),
    ):  # fmt: skip
        answer = worker.post(f"{path}/{what}", {**held(grant), **body})
        assert answer.status_code == 200, (what, answer.text)


@pytest.mark.parametrize("job_id", ["0", "-1", str(2**63), "x", "1.5"])
def test_a_job_that_is_no_number_is_refused(worker: RawWorker, job_id: str) -> None:
    problem(worker.get(f"/job/{job_id}/checkpoint"), 422, "invalid")


@pytest.mark.parametrize("path", ["../../evil", "other", "a\x1b", "/a", ""])
def test_an_artifact_goes_by_the_path_that_its_key_has(worker: RawWorker, path: str) -> None:
    grant = granted(worker)
    file = {"path": path, "key": own_keys(grant).artifact("a"), "bytes": 1, "sha256": DIGEST}
    answer = worker.post(f"/job/{grant['job_id']}/artifacts", {**held(grant), "artifacts": [file]})
    assert answer.status_code in {404, 422}


def test_a_log_chunk_is_no_larger_than_its_reader_can_take(worker: RawWorker) -> None:
    grant = granted(worker)
    chunk = {"number": 0, "key": own_keys(grant).log_chunk(0), "start": 0, "sha256": DIGEST}
    answer = worker.post(
        f"/job/{grant['job_id']}/log-chunks", {**held(grant), **chunk, "bytes": CHUNK + 1}
    )
    problem(answer, 422, "invalid")


def test_what_succeeded_has_exited_with_0(worker: RawWorker, rig: Rig) -> None:
    grant = granted(worker)
    end = {"end": {"reason": "succeeded", "exit_code": 7}}
    worker.post(f"/job/{grant['job_id']}/status", {**held(grant), **end})
    assert rig.jobs.job(grant["job_id"])["exit_code"] == 0


def test_a_reason_of_each_kind_can_be_told(worker: RawWorker) -> None:
    for reason in ATTEMPT_REASONS:
        grant = granted(worker, backoff_s=0)
        body = {**held(grant), "end": {"reason": reason.value}}
        told = worker.post(f"/job/{grant['job_id']}/status", body).json()
        assert told["ended"]["accepted"], reason
        worker.api.rig.queue.cancel(grant["job_id"])
    grant = granted(worker)
    body = {**held(grant), "end": {"reason": "dependency_failed"}}
    assert worker.post(f"/job/{grant['job_id']}/status", body).status_code == 422


def test_the_sweeper_knows_what_a_late_end_does_not(worker: RawWorker) -> None:
    rig = worker.api.rig
    grant = granted(worker)
    rig.expire()
    rig.tick.run()
    late = worker.post(
        f"/job/{grant['job_id']}/status", {**held(grant), "end": {"reason": "succeeded"}}
    ).json()
    assert late["ended"]["accepted"] is False
    assert late["ended"]["reason"] == "worker_lost"
