"""Every function, driven by the events that API Gateway and EventBridge send."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Role
from forge_schema.sweeper.retention import Removed
from forge_schema.sweeper.tick import Moved
from support.cloud.gateway_events import HOST, http_event, scheduled_event
from support.cloud.lambda_events import Functions, functions
from support.http.api import SPEC, bearer
from support.http.server import server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.queue.rig import Rig

PLACE = {"cpus": 4, "memory_mb": 4096, "disk_mb": 4096}


@pytest.fixture
def lambdas(rig: Rig, tmp_path: Path) -> Iterator[Functions]:
    with functions(server_settings(rig.url, (tmp_path / "store").as_uri())) as lent:
        yield lent


@pytest.fixture
def key(rig: Rig) -> dict[str, str]:
    return bearer(Keys(rig.database, actor="user:root").create("ann", Role.ADMIN)[1])


def said(answer: dict[str, Any], status: int = 200) -> Any:  # noqa: ANN401  whatever JSON holds
    """Check an answer's form, and return what it says."""
    assert answer["statusCode"] == status, answer
    assert answer["headers"]["content-type"] == "application/json"
    assert answer["headers"]["x-request-id"]
    assert answer["isBase64Encoded"] is False
    return json.loads(answer["body"])


@pytest.mark.parametrize("encoded", [False, True])
def test_submit_takes_jobs(lambdas: Functions, key: dict[str, str], encoded: bool) -> None:  # noqa: FBT001  a case
    event = http_event(
        "POST", "/api/v1/queue/submit", {"jobs": [SPEC]}, headers=key, encoded=encoded
    )
    (job,) = said(lambdas.call("submit", event))["job_ids"]
    event = http_event("GET", "/api/v1/queue/jobs", headers=key, query="state=ready&state=running")
    assert [row["job_id"] for row in said(lambdas.call("submit", event))["items"]] == [job]
    nobody = http_event("GET", f"/api/v1/queue/jobs/{job}")
    assert said(lambdas.call("submit", nobody), 401)["code"] == "unauthenticated"


def test_submit_serves_health_and_its_paths(lambdas: Functions) -> None:
    assert said(lambdas.call("submit", http_event("GET", "/health")))["status"] == "ok"
    paths = said(lambdas.call("submit", http_event("GET", "/openapi.json")))["paths"]
    assert {"/api/v1/queue/submit", "/api/v1/bundles", "/api/v1/token", "/health"} <= set(paths)
    assert not [path for path in paths if path.startswith(("/api/v1/admin", "/api/v1/workers"))]


def test_each_function_has_its_own_paths_alone(lambdas: Functions, key: dict[str, str]) -> None:
    for function, path in (
        ("submit", "/api/v1/workers"),
        ("admin", "/api/v1/queue/jobs"),
        ("workers", "/api/v1/admin/keys"),
    ):
        answer = lambdas.call(function, http_event("GET", path, headers=key))
        assert said(answer, 404)["code"] == "not_found"


def test_admin_makes_a_worker_that_works(rig: Rig, lambdas: Functions, key: dict[str, str]) -> None:
    event = http_event("POST", "/api/v1/admin/workers", {"name": "spot"}, headers=key)
    made = said(lambdas.call("admin", event), 201)
    token = {"X-Worker-Token": made["token"]}
    job = rig.submit()
    boot = {"boot_id": str(uuid4())}

    def works(path: str, **body: Any) -> Any:  # noqa: ANN401  whatever JSON holds
        event = http_event("POST", f"/api/v1/workers/{path}", {**boot, **body}, headers=token)
        return said(lambdas.call("workers", event))

    assert works("register", **PLACE)["worker_id"] == made["id"]
    (grant,) = works("claim", free=PLACE, wait_s=30)["grants"]
    assert grant["job_id"] == job
    fence = {name: grant[name] for name in ("job_id", "token", "nonce")}
    renewed = works("heartbeat", status="busy", leases=[fence])
    assert [lease["standing"] for lease in renewed["standings"]] == ["ok"]
    event = http_event("GET", f"/api/v1/workers/{made['id']}", headers=key)
    assert said(lambdas.call("admin", event))["leases"] == 1
    works("claim", free=PLACE, count=0, ends=[fence])
    works("disconnect")
    assert rig.state(job) == "succeeded"


def test_the_dashboard_is_logged_in_to(rig: Rig, lambdas: Functions) -> None:
    text = Keys(rig.database, actor="user:root").create("ann", Role.VIEWER)[1]
    headers = {"origin": f"https://{HOST}", "content-type": "application/x-www-form-urlencoded"}
    event = http_event("POST", "/login", headers=headers)
    answer = lambdas.call("dashboard", {**event, "body": f"key={text}&next=/queues"})
    assert (answer["statusCode"], answer["headers"]["location"]) == (303, "/queues")
    (cookie,) = answer["cookies"]
    assert cookie.startswith("__Host-forge=")
    assert "; Secure" in cookie
    page = http_event("GET", "/queues", headers={"accept": "text/html"})
    shown = lambdas.call("dashboard", {**page, "cookies": [cookie.partition(";")[0]]})
    assert shown["statusCode"] == 200
    assert shown["headers"]["content-type"] == "text/html; charset=utf-8"
    assert ">ann<" in shown["body"]
    (sheet,) = re.findall(r'href="(/static/[0-9a-f]+/forge.css)"', shown["body"])
    packed = lambdas.call(
        "dashboard", http_event("GET", sheet, headers={"accept-encoding": "gzip"})
    )
    assert packed["isBase64Encoded"] is True
    plain = lambdas.call("dashboard", http_event("GET", sheet))
    assert gzip.decompress(base64.b64decode(packed["body"])).decode() == plain["body"]
    assert "immutable" in plain["headers"]["cache-control"]


def test_a_tick_answers_with_what_it_moved(rig: Rig, lambdas: Functions) -> None:
    rig.submit(delay_s=10)
    rig.clock.advance(10)
    removed = [f"removed_{what}" for what in Removed.__dataclass_fields__]
    nothing = dict.fromkeys([*Moved.__dataclass_fields__, *removed], 0)
    assert lambdas.call("sweep", scheduled_event()) == {**nothing, "promoted": 1}
    assert lambdas.call("sweep", scheduled_event()) == nothing


@pytest.mark.parametrize(
    ("function", "foreign"),
    [
        ("submit", {"workers.protocol", "fleet", "admin.workers", "objects"}),
        ("admin", {"workers.protocol", "jobs", "submission", "objects"}),
        ("workers", {"fleet", "jobs", "submission", "admin.keys", "objects"}),
        ("dashboard", {"workers.protocol", "workers.records", "submission", "admin.keys"}),
        ("sweep", {"workers.protocol", "jobs", "health"}),
    ],
)
def test_a_function_imports_its_own_routes_alone_and_needs_no_variables(
    function: str, foreign: set[str]
) -> None:
    code = (
        f"import sys, forge_functions.handlers.{function} as f; assert callable(f.handler); "
        "print(*[m.partition('functions.routes.')[2] for m in sys.modules],"
        " 'jinja2' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert not foreign & set(done.stdout.split())
    assert "uvicorn" not in done.stdout
    assert ("True" in done.stdout) == (function == "dashboard"), "templates are for pages alone"
