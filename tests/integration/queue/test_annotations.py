"""Notes, tags and the archive of jobs; ended jobs that are deleted with all that they stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.job_filter import parse
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.attempt_records import ArtifactRecord
from forge_schema.model.fields import MOST_TAGS
from forge_schema.model.states import Reason, Role
from forge_schema.queue.limits import Limits
from forge_schema.service.caller import Caller, Forbidden
from forge_schema.service.service import Service
from forge_schema.storage.file_store import FileStore
from forge_schema.sweeper.retention import Removed, Retention
from support.at_once import at_once

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from support.queue.rig import Rig


def service(rig: Rig, owner: str = "ann", role: Role = Role.SUBMITTER) -> Service:
    caller = Caller(owner, role, f"user:{owner}")
    return Service(caller, lambda: rig.database, None)  # type: ignore[arg-type] # no verb here needs a store


def became(rig: Rig, *job_ids: int, owner: str = "ann", **given: Any) -> list[str]:  # noqa: ANN401  fields of all types
    acted = service(rig, owner).annotate(job_ids, **given)
    return [acted.became[job_id] for job_id in job_ids]


def ended(rig: Rig, reason: Reason = Reason.SUCCEEDED, **changes: Any) -> int:  # noqa: ANN401  as above
    job: int = rig.submit(max_failures=0, **changes)
    grant = rig.worker(price_per_hour=2.0).claim_one()
    assert grant.job_id == job
    rig.clock.advance(3600)
    key = f"jobs/{job}/1-{grant.fence.mark}/artifacts/a"
    assert rig.records.add_artifacts(grant.fence, [ArtifactRecord("a", key, 1, "ab" * 32)])
    rig.finish(grant, reason)
    return job


def noted(rig: Rig, job_id: int) -> list[Any]:
    return [row["detail"] for row in rig.jobs.events(job_id) if row["action"] == "annotated"]


def test_a_note_and_tags_are_kept_and_a_repeat_is_no_event(rig: Rig) -> None:
    first, second = rig.submit_many(2)
    for _ in range(2):
        assert became(rig, first, second, note="for the paper", add=["v1", "paper"]) == [
            "changed", "changed",
        ]  # fmt: skip
    assert became(rig, second, note="", remove=["v1", "never-there"]) == ["changed"]
    jobs = service(rig).statuses([first, second])
    assert [(job.tags, job.note) for job in jobs.values()] == [
        (["paper", "v1"], "for the paper"),
        (["paper"], None),
    ]
    assert len(noted(rig, first)) == 1
    assert noted(rig, second)[1] == {"tags_removed": ["v1"], "note": ""}
    assert rig.jobs.ids(parse("tag:paper tag:v*"), count=9) == [first]


def test_jobs_have_the_tags_that_they_are_submitted_with_and_may_lose_them(rig: Rig) -> None:
    first, second = rig.submit_many(2, tags=["paper", "v1", "v1"])
    third = rig.submit(tags=["paper"], idempotency_key="k")
    assert rig.submit(tags=["other"], idempotency_key="k") == third
    assert became(rig, second, remove=["paper"]) == ["changed"]
    assert rig.jobs.ids(parse("tag:paper"), count=9) == [third, first]
    assert service(rig).statuses([first])[first].tags == ["paper", "v1"]
    with pytest.raises(ValueError, match="cannot be a tag: use up to 64 characters"):
        rig.submit(tags=["a b"])


def test_two_who_annotate_at_once_both_have_their_way(rig: Rig) -> None:
    job = ended(rig)
    at_once(
        lambda: became(rig, job, note="mine"),
        lambda: became(rig, job, archived=True),
        lambda: became(rig, job, add=["a"]),
        lambda: became(rig, job, add=["a", "b"]),
    )
    status = service(rig).job(job)
    assert (status.note, status.archived, status.tags) == ("mine", True, ["a", "b"])


def test_what_is_not_mine_has_not_ended_or_has_too_many_tags_is_left_alone(rig: Rig) -> None:
    job = rig.submit()
    other = rig.submit(owner="ben")
    assert became(rig, job, other, 99, add=["x"], archived=True) == ["unended", "absent", "absent"]
    assert became(rig, job, other, add=["x"]) == ["changed", "absent"]
    many = [f"t{number}" for number in range(MOST_TAGS)]
    assert became(rig, job, add=many) == ["full"]
    assert became(rig, job, add=many, remove=["x"]) == ["changed"]
    assert (noted(rig, other), len(noted(rig, job))) == ([], 2)
    with pytest.raises(Forbidden):
        service(rig, role=Role.VIEWER).annotate([job], note="no")


def test_lists_leave_out_what_is_archived_until_it_is_retried(rig: Rig) -> None:
    failed, other = ended(rig, Reason.EXIT_CODE), ended(rig)
    assert became(rig, failed, archived=True) == ["changed"]
    assert listed(rig) == [other]
    assert listed(rig, "archived:yes") == listed(rig, str(failed)) == [failed]
    assert listed(rig, "archived:yes,no") == [other, failed]
    rig.queue.retry(failed)
    assert listed(rig) == [other, failed]


def listed(rig: Rig, query: str = "") -> list[int]:
    return [job.job_id for job in service(rig).jobs(query)]


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def deleted(rig: Rig, *job_ids: int, owner: str = "ann") -> Sequence[str]:
    acted = service(rig, owner).delete(job_ids)
    return [acted.became[job_id] for job_id in job_ids]


def test_a_deleted_job_is_gone_with_its_objects_and_a_repeat_says_the_same(
    rig: Rig, store: FileStore
) -> None:
    other, job = ended(rig), ended(rig)
    for each in (job, other):
        store.put(f"jobs/{each}/1-1/logs/0.zst", b"x")
    became(rig, job, add=["paper"], note="n", archived=True)
    for _ in range(2):
        assert deleted(rig, job, 99) == ["deleted", "absent"]
    assert deleted(rig, job, owner="ben") == ["absent"]
    assert [rig.count(table) for table in ("annotation", "job_tag", "job")] == [0, 0, 1]
    # No worker that was cut off stores anything of it an hour after its end.
    assert Retention(rig.database, actor="sweeper", store=store).run() == Removed()
    rig.clock.advance(3600)
    # Retention is off, and the objects go all the same.
    assert Retention(rig.database, actor="sweeper", store=store).run() == Removed(objects=1)
    assert [key.key for key in store.list("jobs/")] == [f"jobs/{other}/1-1/logs/0.zst"]
    (event,) = rig.rows("SELECT actor, job_id, detail FROM event WHERE action = 'deleted'")
    assert (event["actor"], event["job_id"], event["detail"]["owner"]) == ("user:ann", job, "ann")


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.EXIT_CODE])
def test_what_a_deleted_job_cost_stays_in_reports_and_budgets(rig: Rig, reason: Reason) -> None:
    rig.admin.limit_owner("ann", OwnerSettings(cost_per_month=100))
    job = ended(rig, reason)
    before = spent(rig)
    assert before[0][0]["cost"] == pytest.approx(2.0)
    assert deleted(rig, job) == ["deleted"]
    assert spent(rig) == before


def spent(rig: Rig) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    Limits(rig.database, actor="sweeper").count_spending()
    cost = rig.rows("SELECT owner, queue, job_id, attempts, cost, useful_cost FROM cost")
    return cost, rig.rows("SELECT cost, gpu_hours FROM spending")


def test_a_job_that_an_unfinished_one_needs_is_not_deleted(rig: Rig) -> None:
    waited, source, artifact, free = (ended(rig) for _ in range(4))
    running = rig.submit()
    needs = [
        rig.submit(after=[waited, running]),
        rig.submit(inputs={"model": f"artifact:{artifact}"}, after_any=[running]),
    ]
    rig.rows("UPDATE job SET source_job_id = %s, source_token = 1, source_number = 0"
             " WHERE id = %s RETURNING id", source, running)  # fmt: skip
    acted = service(rig).delete([waited, source, artifact, free, running])
    assert list(acted.became.values()) == ["needed", "needed", "needed", "deleted", "unended"]
    assert acted.needed_by == {waited: needs[0], source: running, artifact: needs[1]}


def test_a_job_that_somebody_is_changing_is_busy(rig: Rig) -> None:
    job = ended(rig, Reason.EXIT_CODE)
    with rig.uncommitted() as queue:
        queue.retry(job)
        assert deleted(rig, job) == ["busy"]
    assert deleted(rig, job) == ["unended"]
