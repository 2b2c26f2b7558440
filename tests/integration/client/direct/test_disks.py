"""`forge doctor` predicts when a disk is full, as far as it can see one."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from forge_client.backend import CheckStanding
from forge_client.direct.checks import disks
from forge_schema.model.attempt_records import ArtifactRecord
from forge_schema.read.overview import growth
from forge_schema.storage.file_store import FileStore

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig

DAY = 86_400.0


def worked(rig: Rig, jobs: int) -> None:
    """Run jobs that leave an artifact of a gigabyte each."""
    for job in rig.submit_many(jobs):
        grant = rig.worker().claim_one()
        made = ArtifactRecord("model", f"jobs/{job}/model", 10**9, "ab" * 32)
        assert rig.records.add_artifacts(grant.fence, [made])
        rig.finish(grant)


def test_growth_is_what_two_weeks_added_less_what_was_removed(rig: Rig) -> None:
    worked(rig, 1)
    assert growth(rig.database).objects_per_day is None
    rig.clock.advance(40 * DAY)
    worked(rig, 5)
    rig.clock.advance(2 * DAY)
    found = growth(rig.database)
    assert found.objects_per_day == pytest.approx(5e9 / 2)
    assert found.tables_per_day == pytest.approx(found.bytes * 5 / 6 / 2, rel=0.05)
    rig.rows(
        "INSERT INTO event (at, actor, action, detail)"
        " VALUES (forge_now(), 'sweeper', 'jobs removed', '{\"jobs\": 4}')"
    )
    assert growth(rig.database).objects_per_day == pytest.approx(1e9 / 2)


def test_a_disk_that_is_soon_full_is_warned_of_and_one_elsewhere_is_not_guessed(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    assert ["too young" in check.detail for check in disks(rig.database, store)] == [True, True]
    worked(rig, 3)
    rig.clock.advance(3 * DAY)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10 * 10**9))
    database, objects = disks(rig.database, store)
    assert (database.name, objects.name) == ("database disk", "store disk")
    assert objects.standing is CheckStanding.WARN
    assert "full in about 10 days" in objects.detail
    assert "--keep-jobs-days" in objects.hint
    assert "full in about" in database.detail
    monkeypatch.setattr(rig.database, "url", "postgresql://db.example.com/forge")
    (elsewhere, _) = disks(rig.database, store)
    assert elsewhere.standing is CheckStanding.OK
    assert "cannot be seen from here" in elsewhere.detail
