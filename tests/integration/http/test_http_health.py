"""GET /health: it reports problems, and reveals nothing else."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import httpx
import pytest
from forge_functions import health
from support.http.api import Api, problem
from support.http.server import served, server_settings

if TYPE_CHECKING:
    from pathlib import Path

WELL = {"database": "ok", "store": "ok", "sweeper": "ok"}
KEPT_S = health.KEPT_S


@pytest.fixture(autouse=True)
def _looks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "KEPT_S", -1.0)


def look(base: str) -> dict[str, str]:
    """Return how everything stands, and check the answer's form."""
    answer = httpx.get(f"{base}/health", timeout=60)
    head = httpx.head(f"{base}/health", timeout=60)
    assert (head.status_code, head.content) == (answer.status_code, b"")
    told = {check["name"]: check["standing"] for check in answer.json()["checks"]}
    failing = [name for name, standing in told.items() if standing == "failing"]
    if not failing:
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        return told
    message = problem(answer, 503, "unhealthy")
    assert all(f"{name}: " in message for name in failing)
    for secret in ("hunter2", "127.0.0.1", "localhost", "/tmp", "postgresql://"):  # noqa: S108  looked for
        assert secret not in answer.text
    return told


def test_all_is_well(api: Api) -> None:
    assert look(api.url) == WELL


def test_a_store_that_is_gone(api: Api, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("this is no folder")
    assert look(api.url) == {**WELL, "store": "failing"}


def test_a_store_that_hangs_delays_no_health_check(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = Event()
    monkeypatch.setattr(api.services.store, "check", lambda: answered.wait(30))
    assert look(api.url) == {**WELL, "store": "failing"}
    answered.set()


def test_a_database_that_is_away(tmp_path: Path) -> None:
    away = "postgresql://ann:hunter2@127.0.0.1:1/forge"
    with served(server_settings(away, tmp_path.as_uri())) as base:
        assert look(base) == {"database": "failing", "store": "ok", "sweeper": "unknown"}


def test_a_database_without_tables(empty_database_url: str, tmp_path: Path) -> None:
    with served(server_settings(empty_database_url, tmp_path.as_uri())) as base:
        assert look(base)["database"] == "failing"
        assert "forge db upgrade" in httpx.get(f"{base}/health", timeout=60).text


def test_tables_of_another_version(api: Api) -> None:
    for version, standing in (("0000", "failing"), ("9999", "ok")):
        api.rig.rows("UPDATE alembic_version SET version_num = %s", version)
        assert look(api.url)["database"] == standing


def test_health_fails_if_a_due_job_is_not_promoted(api: Api) -> None:
    api.rig.submit(delay_s=10)
    api.rig.clock.advance(70)
    # No sweeper has run for more than a minute either.
    assert look(api.url) == {**WELL, "sweeper": "unknown"}
    api.rig.clock.advance(1)
    assert look(api.url) == {**WELL, "sweeper": "failing"}
    api.rig.tick.run()
    assert look(api.url) == WELL


def test_health_fails_if_an_expired_lease_is_not_ended(api: Api) -> None:
    api.rig.submit()
    api.rig.worker().claim_one()
    ttl = api.services.settings.lease_ttl_s
    api.rig.clock.advance(3 * ttl + 60)
    assert look(api.url) == {**WELL, "sweeper": "unknown"}
    api.rig.clock.advance(1)
    assert look(api.url) == {**WELL, "sweeper": "failing"}
    api.rig.tick.run()
    assert look(api.url) == WELL


def test_looking_often_asks_seldom(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "KEPT_S", KEPT_S)
    asked: list[None] = []
    monkeypatch.setattr(api.services.store, "check", lambda: asked.append(None))
    for _ in range(20):
        assert look(api.url) == WELL
    assert len(asked) < 20
