"""Behaviour specific to the backend that accesses database and store directly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from forge_client.backend import CheckStanding
from forge_client.direct.backend import DirectBackend
from forge_client.settings import QueueConnection
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


def test_a_healthy_installation_is_told_so(rig: Rig, tmp_path: Path) -> None:
    here = QueueConnection(rig.url, (tmp_path / "store").as_uri())
    backend = DirectBackend(here, owner="ann")

    def found() -> dict[str, CheckStanding]:
        return {check.name: check.standing for check in backend.health()}

    sound = ("database", "tables", "connections", "database disk", "store disk", "store")
    tried = ("store: writing", "store: reading", "store: deleting")
    assert found() == dict.fromkeys((*sound, *tried), "ok") | {"workers": "warn"}
    rig.worker("w")
    assert found()["workers"] == "ok"
    for condition, said in (
        ({"constrained": "1 GiB of disk free"}, "w takes no jobs: 1 GiB of disk free"),
        ({"in_memory": True}, "1 online: w; the folder of w is in memory"),
    ):
        rig.rows("UPDATE worker SET condition = %s", Jsonb(condition))
        (check,) = (check for check in backend.health() if check.name == "workers")
        assert (check.standing, said in check.detail, bool(check.hint)) == ("warn", True, True)
    rig.rows("UPDATE alembic_version SET version_num = '0000'")
    assert (found()["tables"], "workers" in found()) == ("fail", False)
    rig.rows("DROP TABLE alembic_version")
    assert found()["tables"] == "fail"
    backend.__exit__(None, None, None)
    (tmp_path / "file").write_text("", encoding="utf-8")
    away = QueueConnection("postgresql://127.0.0.1:1/x", (tmp_path / "file" / "x").as_uri())
    checks = DirectBackend(away, owner="ann").health()
    assert {check.name: check.standing for check in checks} == {"database": "fail", "store": "fail"}
    assert all(check.hint for check in checks)


def test_a_forge_up_that_was_killed_is_named_in_the_hint(tmp_path: Path) -> None:
    gone = QueueConnection("postgresql:///x?host=/nowhere", "file:///nowhere", up_dir=tmp_path)
    with pytest.raises(ClientError) as caught:
        DirectBackend(gone, owner="ann").workers()
    assert caught.value.code == "database_unreachable"
    assert str(tmp_path) in caught.value.hint
