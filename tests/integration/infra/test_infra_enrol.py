"""A machine of a pool gets a worker token of its own: its script, and the function that answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind
from forge_schema.access.worker_tokens import WorkerTokens
from support.cloud.cloudformation import INFRA
from support.cloud.gateway_events import http_event
from support.cloud.instance import REGION, ROLE_ID, Aws, aws

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from support.queue.rig import Rig

SCRIPT = "/usr/local/lib/forge/enrol.py"


@pytest.fixture
def enrolment(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The function's module, on the rig's database."""
    monkeypatch.setenv("FORGE_DATABASE_URL", rig.url)
    monkeypatch.setenv("FORGE_ENROL_ROLE", ROLE_ID)
    spec = find_spec("forge_functions.handlers.enrol")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "configure_log", lambda *_: None)
    yield module
    if module.database.cache_info().currsize:
        module.database().close()


@pytest.fixture
def cloud(enrolment: ModuleType) -> Iterator[Aws]:
    with aws(enrolment.handler) as running:
        yield running


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script that cloud-init writes."""
    text = (INFRA / "cloud-init" / "worker.yaml").read_text(encoding="utf-8")
    (content,) = (f["content"] for f in yaml.safe_load(text)["write_files"] if f["path"] == SCRIPT)
    path = tmp_path / "enrol.py"
    path.write_text(content, encoding="utf-8")
    return path


def enrol(script: Path, cloud: Aws, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the machine's script as systemd does, and return how it ended."""
    return subprocess.run(
        [sys.executable, script, script.with_name("token")],
        env={
            "PATH": os.environ["PATH"],
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{cloud.url}/",
            "AWS_DEFAULT_REGION": REGION,
            "FORGE_URL": cloud.url,
            **env,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def worker_of(rig: Rig, script: Path) -> dict[str, Any] | None:
    """Return the worker that the token in the file is for."""
    content = script.with_name("token").read_text(encoding="utf-8")
    workers = WorkerTokens(rig.database, actor="test")
    return workers.check(tokens.parse(content.strip(), TokenKind.WORKER))


def test_a_machine_gets_a_token_of_its_own(rig: Rig, cloud: Aws, script: Path) -> None:
    ended = enrol(script, cloud)
    assert ended.returncode == 0, ended.stderr
    worker = worker_of(rig, script)
    assert worker is not None
    assert worker["name"] == cloud.instance
    assert script.with_name("token").stat().st_mode & 0o777 == 0o600
    assert "fgw_" not in ended.stdout + ended.stderr
    (made,) = rig.rows("SELECT actor, worker_id FROM event WHERE action = 'worker_created'")
    assert made == {"actor": f"machine:{cloud.instance}", "worker_id": worker["id"]}


def test_a_machine_that_asks_again_is_the_same_worker_with_another_token(
    rig: Rig, cloud: Aws, script: Path
) -> None:
    enrol(script, cloud)
    first = json.loads(cloud.answers[0]["body"])
    enrol(script, cloud)
    worker = worker_of(rig, script)
    assert worker is not None
    assert worker["id"] == first["worker_id"]
    before = tokens.parse(first["token"], TokenKind.WORKER)
    assert WorkerTokens(rig.database, actor="test").check(before) is None


def test_two_machines_are_two_workers(rig: Rig, cloud: Aws, script: Path) -> None:
    enrol(script, cloud)
    cloud.instance = "i-0fedcba9876543210"
    enrol(script, cloud)
    assert rig.count("worker") == 2


def test_a_request_with_another_signature_gets_nothing(rig: Rig, cloud: Aws, script: Path) -> None:
    ended = enrol(script, cloud, AWS_DEFAULT_REGION="us-east-1")
    assert ended.returncode != 0
    assert cloud.unsigned == 1
    assert not script.with_name("token").exists()
    assert rig.count("worker") == 0


@pytest.mark.parametrize(
    "caller",
    [
        None,
        {},
        {"iam": {}},
        {"iam": {"userId": "AROASOMEBODYELSE12345:i-0123456789abcdef0"}},
        {"iam": {"userId": f"{ROLE_ID}:somebody"}},
        {"iam": {"userId": f"{ROLE_ID}:i-0123456789abcdef0:x"}},
        {"iam": {"userId": ROLE_ID}},
    ],
)
def test_a_machine_without_the_role_is_refused(
    enrolment: ModuleType,
    rig: Rig,
    caller: dict[str, Any] | None,
) -> None:
    event = http_event("POST", "/api/v1/workers/enrol", {})
    event["requestContext"]["authorizer"] = caller
    answer = enrolment.handler(event, None)
    assert answer["statusCode"] == 403
    assert json.loads(answer["body"])["code"] == "forbidden"
    assert rig.count("worker") == 0


def test_a_database_that_is_away_is_said_without_its_name(
    enrolment: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORGE_DATABASE_URL", "postgresql://nobody:pw@127.0.0.1:1/none")
    event = http_event("POST", "/api/v1/workers/enrol", {})
    event["requestContext"]["authorizer"] = {"iam": {"userId": f"{ROLE_ID}:i-0123456789abcdef0"}}
    answer = enrolment.handler(event, None)
    assert answer["statusCode"] == 503
    assert json.loads(answer["body"])["code"] == "database_unreachable"
    assert "127.0.0.1" not in answer["body"]
