"""Signed requests of keys and workers: what is altered, late or sent twice is refused."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from forge_functions.middleware.failures import LIMIT
from forge_schema.model.states import WorkerStatus
from forge_schema.read.audit import Audit
from forge_worker.connect import connect
from forge_worker.queue.http.session import TokenRefused
from forge_worker.settings.settings import WorkerSettings
from support.http.api import bearer, opened, problem
from support.http.http_worker import machine

if TYPE_CHECKING:
    from pathlib import Path

    from support.http.api import Api, Caller, Signer

ME = "/api/v1/me"
HEARTBEAT = "/api/v1/workers/heartbeat"
HINTS = "/api/v1/workers/stream"


def refused(caller: Caller) -> str:
    return problem(caller.call("GET", ME), 401, "unauthenticated")


@pytest.fixture
def signer(api: Api) -> Signer:
    return api.signing_key()


def test_replays_and_a_wrong_clock_do_not_lock_a_signing_key(api: Api, signer: Signer) -> None:
    late = str(int(api.rig.clock.now.timestamp()) - 301)
    spent = signer.signed("GET", ME)
    assert api.http.get(ME, headers=spent).is_success
    for _ in range(LIMIT):
        for headers in (spent, signer.signed("GET", ME, timestamp=late), signer.headers):
            problem(api.http.get(ME, headers=headers), 401, "unauthenticated")
    assert signer.get(ME)["owner"] == "ann"


def test_a_signed_request_is_taken_once(api: Api, signer: Signer) -> None:
    headers = signer.signed("GET", ME)
    assert api.http.get(ME, headers=headers).json()["owner"] == "ann"
    assert "already used" in problem(api.http.get(ME, headers=headers), 401, "unauthenticated")
    assert api.rig.count("request_nonce") == 1


def test_a_key_that_signs_has_to(api: Api, signer: Signer) -> None:
    unsigned = api.caller(signer.headers)
    assert "signed" in refused(unsigned)
    short = signer.post("/api/v1/token")["token"]
    assert "signed" in refused(api.caller(bearer(short)))
    signer.headers = bearer(short)
    assert signer.get(ME)["owner"] == "ann"


def test_what_is_signed_is_all_that_the_server_acts_on(signer: Signer) -> None:
    body = {"jobs": [{"name": "\u00e9", "command": ["true"], "env": {"A": "b"}}]}
    assert signer.post("/api/v1/queue/submit", body)["job_ids"]
    assert signer.get("/api/v1/queue/jobs?count=1&owner=ann&state=ready&state=running")["items"]
    assert signer.call("PUT", "/api/v1/queue/templates/a%26b%2Fc", {"spec": {}}).is_success
    assert signer.get("/api/v1/queue/templates/a%26b%2Fc?owner=a%6En")["name"] == "a&b/c"


def nonces(signer: Signer) -> int:
    """Count a signer's accepted requests."""
    seen = "SELECT 1 FROM request_nonce WHERE key_id = %s"
    return len(signer.api.rig.rows(seen, signer.key_id))


@pytest.mark.parametrize("part", ["method", "path", "query", "body", "time", "nonce", "key"])
def test_what_was_altered_is_refused(shared_api: Api, part: str) -> None:
    signer = shared_api.signing_key()
    body, path, time = b'{"job_ids": [1]}', "/api/v1/queue/statuses", "1750000000"
    nonce = secrets.token_urlsafe(16)
    headers = signer.signed("POST", path, body, timestamp=time, nonce=nonce)
    match part:
        case "method":
            headers = signer.signed("PUT", path, body)
        case "path":
            headers = signer.signed("POST", "/api/v1/queue/check", body)
        case "query":
            path += "?all=1"
        case "body":
            body = b'{"job_ids": [2]}'
        case "time":
            headers = {name: text.replace(time, "1750000001") for name, text in headers.items()}
        case "nonce":
            headers = {name: text.replace(nonce, "n" * 22) for name, text in headers.items()}
        case "key":
            other = shared_api.signing_key("ann")
            headers = {**other.signed("POST", path, body), **signer.headers}
    headers["Content-Type"] = "application/json"
    answer = shared_api.http.post(path, headers=headers, content=body)
    assert "does not match" in problem(answer, 401, "unauthenticated")
    assert nonces(signer) == 0


@pytest.mark.parametrize(("seconds", "ok"), [(-301, 0), (-300, 1), (300, 1), (301, 0)])
def test_a_signature_is_good_for_five_minutes(shared_api: Api, seconds: int, ok: int) -> None:
    signer = shared_api.signing_key()
    timestamp = str(int(shared_api.rig.clock.now.timestamp()) + seconds)
    answer = shared_api.http.get(ME, headers=signer.signed("GET", ME, timestamp=timestamp))
    assert answer.is_success == ok
    assert nonces(signer) == ok
    if not ok:
        when = "before" if seconds < 0 else "after"
        assert f"5 min 1 s {when}" in answer.json()["message"]
        assert "set the clock of the machine" in answer.json()["hint"]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Signature", ""),
        ("Signature", "forge=:c2hvcnQ=:"),
        ("Signature", "other=:c2hvcnQ=:"),
        ("Signature-Input", ""),
        ("Signature-Input", "forge=()"),
        ("Signature-Input", "\u00e9"),
        ("Content-Digest", ""),
    ],
)
def test_a_malformed_signature_is_refused(shared_api: Api, header: str, value: str) -> None:
    headers = {**shared_api.signing_key().signed("GET", ME), header: value}
    coded = [(name.encode(), text.encode()) for name, text in headers.items()]
    problem(shared_api.http.get(ME, headers=coded), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        # Valid signatures of too little: of no body, of no path, without a time, for another use.
        (' "content-digest"', ""),
        ('"@path" ', ""),
        (";created=", ";expires="),
        (';tag="forge"', ';tag="other"'),
        ('nonce="', 'nonce="short";x="'),
    ],
)
def test_a_signature_that_covers_too_little_is_refused(
    shared_api: Api, was: str, becomes: str
) -> None:
    signer = shared_api.signing_key()

    class Careless:
        """Signs the text that `becomes` makes of it."""

        def sign(self, text: bytes) -> bytes:
            lines = text.decode().replace(was, becomes).split("\n")
            lines = [line for line in lines if line.partition(":")[0] != was.strip()]
            return private.sign("\n".join(lines).encode())

    private, signer.private = signer.private, Careless()  # type: ignore[assignment]  # signs, too
    headers = signer.signed("GET", ME)
    headers["Signature-Input"] = headers["Signature-Input"].replace(was, becomes)
    problem(shared_api.http.get(ME, headers=headers), 401, "unauthenticated")
    assert nonces(signer) == 0


def test_a_nonce_is_taken_by_each_signer_for_itself(api: Api, signer: Signer) -> None:
    other, worker = api.signing_key("bob"), api.signing_worker()
    for caller, path in ((signer, ME), (other, ME), (worker, HINTS)):
        signed = caller.signed("GET", path, nonce="n" * 16)
        assert api.http.get(path, headers=signed | {"Accept": "application/json"}).is_success
    api.rig.clock.advance(901)
    api.rig.tick.run()
    assert api.rig.count("request_nonce") == 0


def beat(worker: Signer) -> dict[str, object]:
    """Register a worker, and return a heartbeat of it."""
    boot = machine()
    room = {"cpus": boot.cpus, "memory_mb": boot.memory_mb, "disk_mb": boot.disk_mb}
    worker.post("/api/v1/workers/register", {"boot_id": str(boot.boot_id), **room})
    return {"boot_id": str(boot.boot_id), "status": "idle", "leases": []}


def test_a_worker_with_a_public_key_has_to_sign(api: Api) -> None:
    worker = api.signing_worker()
    heartbeat = beat(worker)
    worker.post(HEARTBEAT, heartbeat)
    unsigned = api.caller(worker.headers)
    for method, path, body in (("POST", HEARTBEAT, heartbeat), ("GET", HINTS, None)):
        said = problem(unsigned.call(method, path, body), 401, "signature_invalid")
        assert "must be signed" in said


def test_a_workers_request_is_taken_once_by_all_servers(api: Api, tmp_path: Path) -> None:
    worker = api.signing_worker()
    heartbeat = beat(worker)
    request = api.http.build_request("POST", HEARTBEAT, json=heartbeat)
    request.headers.update(worker.signed("POST", HEARTBEAT, request.content))
    with opened(api.rig, tmp_path / "other") as other:
        assert api.http.send(request).is_success
        said = other.http.post(HEARTBEAT, headers=request.headers, content=request.content)
        assert "already used" in problem(said, 401, "signature_invalid")


def test_a_worker_signs_and_hears_why_it_is_refused(api: Api, tmp_path: Path) -> None:
    worker = api.signing_worker()
    worker_id, token = int(worker.key_id.partition(":")[2]), worker.headers["X-Worker-Token"]
    api.rig.clock.advance((datetime.now(UTC) - api.rig.clock.now).total_seconds())
    file = tmp_path / "signing.pem"
    file.write_bytes(
        worker.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    settings = WorkerSettings.model_validate(
        {"url": api.url, "token": token, "signing_key_file": file, "worker_dir": tmp_path}
    )
    with connect(settings) as transport:
        gateway = transport.gateway
        gateway.register(machine())
        gateway.renew([], WorkerStatus.IDLE)
        # The clock of the database moves, and the worker's stays.
        api.rig.clock.advance(3600)
        for _ in range(3):
            with pytest.raises(TokenRefused, match=r"signed .+ before") as error:
                gateway.renew([], WorkerStatus.IDLE)
            assert "timedatectl" in error.value.hint
        assert "before the time of" in transport.refusals.why
    key = worker.private.public_key().public_bytes_raw()
    api.workers.rotate(api.workers.create("unsigned")[0], public_key=key)
    events = Audit(api.rig.database).events(action="token_rotated")
    assert [event["detail"] for event in events] == [{"signs": True}]
    new = api.workers.rotate(worker_id)
    unsigned = api.caller({"X-Worker-Token": new})
    problem(unsigned.call("POST", HEARTBEAT, {}), 401, "signature_invalid")
