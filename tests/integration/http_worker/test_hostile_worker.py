"""A worker that lies: the server refuses each lie and keeps nothing of it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import pytest
from support.http.api import opened
from support.http.hostile_worker import DIGEST, HostileWorker
from support.http.http_worker import good, held, raw_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import httpx
    from support.queue.rig import Rig

Lies: TypeAlias = "Mapping[str, tuple[dict[str, Any], dict[str, list[Any]]]]"
# Where what workers say is kept.
KEPT = (
    "artifact",
    "checkpoint",
    "beginning",
    "log_chunk",
    "metric",
    "sample",
    "result",
    "test_result",
    "lease",
    "outcome",
    "attempt_row",
)
NUMBERS = [-1, 10**400, 1.5, "7", True, None, float("nan")]
DEEP = json.loads("[" * 80 + "]" * 80)
HUGE = {"x": "y" * (300 << 10)}
DOCUMENTS: list[Any] = [
    *({"x": float(word)} for word in ("nan", "inf", "-inf")),
    {"x": "\0"},
    {"\0": 1},
    {"x": "\ud800"},
    {"x": DEEP},
    HUGE,
    [],
    "text",
    7,
    None,
]
NAMES = [
    *("/etc/passwd", "..", "../x", "a/../../x", "a//b", "./x", "a/.", "a/", "", "a\0b", "\ud800"),
    "x" * 2001,
    7,
    None,
]
DIGESTS = ["", "ab", "AB" * 32, "zz" * 32, f"{DIGEST}\n", DIGEST[:-1] + "٣", 7, None]


@pytest.fixture
def liar(rig: Rig, tmp_path: Path) -> Iterator[HostileWorker]:
    (tmp_path / "store").mkdir()
    with opened(rig, tmp_path / "store") as api:
        rig.submit()
        yield HostileWorker(api)


def kept(rig: Rig) -> dict[str, Any]:
    """Return all that the database holds of what workers say, except for times."""
    rows = {table: rig.rows(f"SELECT * FROM {table}") for table in KEPT}
    (worker,) = rig.rows("SELECT * FROM worker WHERE name = 'liar'")
    return {**rows, "worker": {k: v for k, v in worker.items() if k != "seen_at"}}


def lies_about(liar: HostileWorker) -> Lies:
    """Return by path what a worker may say, and which values of each field are lies."""
    keys = [
        liar.keys.artifact("other"),
        f"jobs/{liar.job_id + 1}/1-1-abc/artifacts/x",
        f"bundles/{DIGEST}.tar.zst",
        "../x",
        "/etc/passwd",
        "",
        "k" * 901,
        "\0",
        7,
        None,
    ]
    chunk = {"number": 0, "key": liar.keys.log_chunk(0), "start": 0, "bytes": 5, "sha256": DIGEST}
    manifest = liar.keys.checkpoint_manifest(0)
    checkpoint = {"number": 0, "key": manifest, "files": 1, "bytes": 5}
    artifact = {"path": "x", "key": liar.keys.artifact("x"), "bytes": 5, "sha256": DIGEST}
    moments = [
        "yesterday",
        5,
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "5000-01-01",
    ]
    line = {"number": 0, "values": {"loss": 1.0}}
    test = {"number": 0, "suite": "s", "name": "n", "verdict": "passed", "seconds": 1.0}
    amounts = [-1.0, 1e300, float("nan"), "7", 10**400]
    get = {"operation": "get", "key": liar.keys.artifact("x")}
    put = {"operation": "put", "key": liar.keys.artifact("x"), "size": 1, "sha256": DIGEST}
    small = {"key": liar.keys.artifact("x"), "sha256": DIGEST, "content": "eHg="}
    return {
        "log-chunks": (
            chunk,
            {
                "number": [*NUMBERS, 10**8],
                "key": keys,
                "start": NUMBERS,
                "bytes": [*NUMBERS, 0, (16 << 20) + 1],
                "sha256": DIGESTS,
            },
        ),
        "checkpoints": (
            checkpoint,
            {
                "number": [*NUMBERS, 10**6],
                "key": keys,
                "files": NUMBERS,
                "bytes": NUMBERS,
                "follows": NUMBERS[:-2],
                "step": NUMBERS[:-2],
                "killed": ["yes", 1],
            },
        ),
        "checkpoints/begin": (
            {"attempt": 1, "number": 0},
            {"attempt": [*NUMBERS, 0, 1 << 15], "number": NUMBERS},
        ),
        "artifacts": (
            {"artifacts": [artifact]},
            {
                "artifacts": [
                    [],
                    "x",
                    *(
                        [
                            artifact
                            | {"path": name, "key": liar.keys.artifact("unnameable/" + DIGEST)}
                        ]
                        for name in NAMES
                    ),
                    *([artifact | {"key": key}] for key in keys),
                    *([artifact | {"bytes": number}] for number in NUMBERS),
                    *([artifact | {"sha256": digest}] for digest in DIGESTS),
                    *([artifact | {"target": target}] for target in ("", "\0", "x" * 2001, 7)),
                    *([artifact | {"modified_at": moment}] for moment in moments),
                ]
            },
        ),
        "metrics": (
            {"lines": [line]},
            {
                "lines": [
                    [],
                    [line] * 5001,
                    *([line | {"values": values}] for values in DOCUMENTS),
                    *([line | {"number": number}] for number in NUMBERS),
                    *([line | {"step": step}] for step in (float("inf"), "7", 10**400)),
                ],
                "progress": [float("nan"), "half", 10**400],
            },
        ),
        "samples": (
            {"samples": [line]},
            {
                "samples": [
                    [],
                    *([line | {"values": values}] for values in DOCUMENTS),
                    *([line | {"number": number}] for number in NUMBERS),
                ]
            },
        ),
        "result": ({"values": {"score": 1}}, {"values": DOCUMENTS}),
        "tests": (
            {"tests": [test]},
            {
                "tests": [
                    [],
                    *([test | {"number": number}] for number in NUMBERS),
                    *([test | {"seconds": seconds}] for seconds in amounts),
                    *([test | {"verdict": verdict}] for verdict in ("best", 1, None)),
                    *(
                        [test | {field: text}]
                        for field in ("suite", "name")
                        for text in ("x" * 1001, "\0", 7)
                    ),
                    [test | {"message": "x" * 10_001}],
                ]
            },
        ),
        "status": (
            {"end": {"reason": "exit_code", "exit_code": 3}},
            {
                "end": [{"reason": reason} for reason in ("best", "", 7)]
                + [
                    {"reason": "oom", "exit_code": code}
                    for code in (2**31, 10**400, 1.5, "7", True)
                ]
                + [{"reason": "oom", "detail": detail} for detail in ("x" * 10_001, "\0", 7)]
                + [
                    {"reason": "oom", "usage": {field: amount}}
                    for field in ("gpu_seconds", "cost", "peak_memory_mb")
                    for amount in amounts
                ],
                "phase": ["running", "best"],
                "progress": [float("inf"), "half"],
                "devices": [["x" * 201], ["\0"], "gpu"],
            },
        ),
        "gather": ({"step": 1, "member": {}}, {"step": [0, 3, *NUMBERS], "member": DOCUMENTS}),
        "checkpoints/thin": ({"keep": 1}, {"keep": [0, 1001, *NUMBERS]}),
        "objects": (
            get,
            {
                "key": [key for key in keys if not str(key).endswith("/other")],
                "operation": ["delete", 7],
            },
        ),
        "objects/batch": (
            {"objects": [put]},
            {
                "objects": [
                    [],
                    [put] * 101,
                    *([put | {"key": key}] for key in keys if not str(key).endswith("/other")),
                    *([put | {"size": number}] for number in NUMBERS),
                    *([put | {"sha256": digest}] for digest in DIGESTS),
                ]
            },
        ),
        "objects/small": (
            {"objects": [small]},
            {
                "objects": [
                    [small],
                    [small | {"content": "%%"}],
                    *([small | {"key": key}] for key in keys if not str(key).endswith("/other")),
                ]
            },
        ),
    }


def lies_about_itself(liar: HostileWorker) -> Lies:
    """Return the same of what a worker says of its machine and its leases."""
    boot = str(liar.worker.boot_id)
    other = {"job_id": liar.job_id, **held(liar.grant), "nonce": str(uuid4())}
    free = {"cpus": 1, "memory_mb": 1, "disk_mb": 1}
    claim = {"boot_id": boot, "free": free, "count": 0}
    gpu = {"uuid": "GPU-1", "name": "A100", "memory_mb": 1000}
    return {
        "/register": (
            liar.worker.machine(),
            {
                "boot_id": ["0" * 32, "x", 7, None],
                "cpus": [-1, "7", float("nan"), 10**400, None],
                "memory_mb": NUMBERS,
                "labels": [{"x": 7}, {"\0": "x"}, [], {"x": "y" * (1 << 20)}],
                "gpus": [
                    [gpu] * 1000,
                    [gpu | {"uuid": "\0"}],
                    [gpu | {"memory_mb": -1}],
                    [gpu, gpu],
                    7,
                ],
                "price_per_hour": [-1.0, float("inf"), "7", 10**400],
            },
        ),
        "/claim": (
            claim,
            {
                "boot_id": ["x", 7, None],
                "free": [{}, free | {"cpus": float("nan")}, free | {"cpus": -1}, 7],
                "count": [-1, 101, 10**400, "7"],
                "wait_s": [-1, 61, float("nan"), "7"],
                "ends": [[other | {"reason": "best"}], [other, other], [other] * 101, [{}], 7],
                "warm": [[2**40], ["x"], 7],
                "nonce": ["x", 7],
            },
        ),
        "/heartbeat": (
            {"boot_id": boot, "status": "idle", "leases": []},
            {
                "boot_id": ["x", None],
                "status": ["offline", "best", 7],
                "leases": [[{}], [other | {"token": -1}], [other] * 501, 7],
                "condition": DOCUMENTS[:-1],
            },
        ),
        "/disconnect": ({"boot_id": boot}, {"boot_id": ["x", 7, None]}),
    }


def test_each_lie_about_a_job_is_refused_and_nothing_of_it_is_kept(
    liar: HostileWorker, rig: Rig
) -> None:
    about_job = partial(told, lies_about(liar), lambda path, said: liar.say(path, **said))
    assert about_job(lambda: kept(rig)) == []
    assert told(lies_about_itself(liar), liar.send, lambda: kept(rig)) == []
    assert list(liar.api.services.store.list("")) == []


def test_a_worker_speaks_only_of_its_own_leases(liar: HostileWorker, rig: Rig) -> None:
    rig.submit()
    (other,) = raw_worker(liar.api, "other").claim()
    job = f"/job/{other['job_id']}"
    mine, theirs, before = held(liar.grant), held(other), kept(rig)
    wrong = []
    for path, (honest, _) in lies_about(liar).items():
        for base, fence in (
            (f"/job/{liar.job_id}", mine | {"token": theirs["token"]}),
            (f"/job/{liar.job_id}", mine | {"nonce": theirs["nonce"]}),
            (job, mine),
            (job, theirs),
            ("/job/999999", mine),
        ):
            answer = liar.send(f"{base}/{path}", {**honest, **fence})
            if answer.status_code not in {404, 409}:
                wrong.append((path, base, fence, answer.status_code, answer.text[:200]))
    claim = lies_about_itself(liar)["/claim"][0]
    end = {"job_id": other["job_id"], **theirs, "reason": "succeeded"}
    assert liar.send("/claim", claim | {"ends": [end]}).status_code == 404
    assert wrong == []
    assert kept(rig) == before
    lease = {"job_id": other["job_id"], **theirs}
    said = good(
        liar.send(
            "/heartbeat", {"boot_id": str(liar.worker.boot_id), "status": "idle", "leases": [lease]}
        )
    )
    assert [one["standing"] for one in said["standings"]] == ["lost"]


def told(
    lies: Lies, say: Callable[[str, dict[str, Any]], httpx.Response], state: Callable[[], object]
) -> list[tuple[object, ...]]:
    """Tell all lies; return those that are not refused with a clear error, or change the state."""
    wrong: list[tuple[object, ...]] = []
    before = state()
    for path, (honest, fields) in lies.items():
        for field, values in fields.items():
            for value in values:
                answer = say(path, {**honest, field: value})
                said = answer.json() if answer.is_client_error else {}
                if not said.get("code") or not said.get("message"):
                    wrong.append((path, field, str(value)[:80], answer.status_code))
        if (now := state()) != before:
            wrong.append((path, "something of it was kept"))
            before = now
    return wrong
