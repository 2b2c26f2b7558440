"""What S3 lists in pages of a thousand: all of it is found, and leaves with its old job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from forge_schema.storage import open_store
from forge_schema.sweeper.retention import Retention
from support.store.storage import GIVEN, use_credentials

if TYPE_CHECKING:
    from forge_schema.storage import Store
    from support.queue.rig import Rig
    from support.store.storage import Bucket

PAGE = 1000 if GIVEN.hostname else 10


@pytest.fixture
def store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose pages have `PAGE` objects."""
    use_credentials(monkeypatch)
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(PAGE))
    return open_store(bucket.url())


def filled(store: Store, folder: str) -> list[str]:
    """Put two pages and a half into a folder, and return their keys."""
    keys = [f"{folder}{n:04d}" for n in range(PAGE * 5 // 2)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: store.put(key, b""), keys))
    return keys


def test_list_goes_through_every_page(store: Store, bucket: Bucket) -> None:
    keys = filled(store, "n/")
    assert len(bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]) == PAGE
    assert sorted(found.key for found in store.list("n/")) == keys


def test_an_old_job_leaves_with_every_page_and_takes_no_object_of_another(
    rig: Rig, store: Store
) -> None:
    old = rig.submit()
    rig.finish(rig.worker().claim_one())
    rig.clock.advance(timedelta(days=31).total_seconds())
    young = rig.submit()
    keys = filled(store, f"jobs/{old}/1-a/")
    store.put(f"jobs/{young}/1-a/log", b"")
    store.put(f"jobs/{old}0/1-a/log", b"")
    retention = Retention(
        rig.database,
        actor="sweeper",
        store=store,
        jobs_days=30,
        audit_months=0,
        clock=lambda: 0.0,
    )
    removed = retention.run()
    assert (removed.jobs, removed.objects) == (1, len(keys))
    left = {found.key for found in store.list("jobs/")}
    assert left == {f"jobs/{young}/1-a/log", f"jobs/{old}0/1-a/log"}
