"""Jobs that start from another job's checkpoint: which one, whose, and the same when repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from forge_client import Client, ClientError
from forge_schema.model.attempt_records import CheckpointRecord
from forge_schema.model.job import IdempotencyConflict, JobUnknown
from forge_schema.model.states import Reason, Role
from forge_schema.queue.inputs import CheckpointUnknown
from support.client.command import command
from support.client.reaching import WAYS, key, reaching
from support.http.server import served, server_settings
from support.queue.rig import spec

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig


def save(rig: Rig, grant: Grant, *numbers: int) -> None:
    for number in numbers:
        made = CheckpointRecord(number, f"jobs/{grant.fence.job_id}/k{number}", 2, 3 << 20)
        assert rig.records.add_checkpoint(grant.fence, made)


def trained(rig: Rig, owner: str = "ann") -> tuple[int, Grant]:
    """Return a job that runs for the second time; its checkpoints are 1.0, 1.1, 2.0."""
    job = rig.submit(owner=owner)
    first = rig.worker("w1").claim_one()
    save(rig, first, 0, 1)
    rig.finish(first, Reason.PREEMPTED)
    second = rig.worker("w2").claim_one()
    save(rig, second, 0)
    return job, second


def source(rig: Rig, job_id: int) -> tuple[Any, ...]:
    row = rig.jobs.job(job_id)
    return row["source_job_id"], row["source_attempt"], row["source_number"]


def test_the_source_is_settled_at_the_submit_and_a_repeat_finds_the_same_job(rig: Rig) -> None:
    job, grant = trained(rig)
    newest = {"job_id": job}
    child = rig.submit(from_checkpoint=newest, idempotency_key="k")
    assert source(rig, child) == (job, 2, 0)
    save(rig, grant, 1)
    assert rig.submit(from_checkpoint=newest, idempotency_key="k") == child
    assert source(rig, child) == (job, 2, 0)
    assert source(rig, rig.submit(from_checkpoint=newest)) == (job, 2, 1)
    older = rig.submit(from_checkpoint={**newest, "attempt": 1, "number": 1})
    assert source(rig, older) == (job, 1, 1)
    assert source(rig, rig.submit()) == (None, None, None)
    rig.rows("DELETE FROM checkpoint")
    assert rig.submit(from_checkpoint=newest, idempotency_key="k") == child
    with pytest.raises(IdempotencyConflict):
        rig.submit(idempotency_key="k")
    # A missing checkpoint is reported.
    with pytest.raises(CheckpointUnknown, match=f"job {job} .* is gone"):
        rig.records.restorable(child)


def test_a_job_without_its_source_keeps_the_whole_batch_out(rig: Rig) -> None:
    job, _ = trained(rig)
    bare = rig.submit()
    foreign = rig.submit(owner="bob")
    count = rig.count("job")
    wrong: list[tuple[dict[str, int], type[Exception], str]] = [
        ({"job_id": 999}, JobUnknown, "no job 999"),
        ({"job_id": foreign}, JobUnknown, f"no job {foreign}"),
        ({"job_id": bare}, CheckpointUnknown, f"job {bare} has no complete checkpoint"),
        ({"job_id": job, "attempt": 1, "number": 7}, CheckpointUnknown, "no checkpoint 1.7"),
    ]
    for asked, error, said in wrong:
        with pytest.raises(error, match=said):
            rig.queue.submit([spec(), spec(from_checkpoint=asked)])
    assert rig.count("job") == count


def test_its_own_checkpoint_comes_before_its_source(rig: Rig) -> None:
    job, _ = trained(rig)
    child = rig.submit(from_checkpoint={"job_id": job}, priority=5)
    assert [row["job_id"] for row in rig.records.restorable(child)] == [job]
    grant = rig.worker("w3").claim_one()
    assert grant.resumes
    save(rig, grant, 0)
    assert [row["job_id"] for row in rig.records.restorable(child)] == [child, job]


@pytest.mark.parametrize("way", WAYS)
def test_both_ways_list_checkpoints_and_start_from_them(way: str, rig: Rig, tmp_path: Path) -> None:
    job, running = trained(rig)
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        backend = client.backend
        found = client.job(job).checkpoints()
        assert [one.name for one in found] == ["2.0", "1.1", "1.0"]
        assert [one.next for one in found] == [True, False, False]
        rig.finish(running, Reason.SUCCEEDED)
        assert not any(one.next for one in client.job(job).checkpoints())
        assert {(one.files, one.bytes) for one in found} == {(2, 3 << 20)}
        asked = {"name": "x", "owner": "ann", "command": ["ls"]}
        older = {"job_id": job, "attempt": 1, "number": 0}
        (child,) = backend.submit([{**asked, "from_checkpoint": older}])
        detail = backend.job(child)
        assert (detail.source_job_id, detail.source_attempt) == (job, 1)
        assert backend.checkpoints(child) == []
        for lacking, code in [(999, "job_unknown"), (child, "checkpoint_unknown")]:
            wanted = {**asked, "from_checkpoint": {"job_id": lacking}}
            for refuse in (backend.check, backend.submit):
                with pytest.raises(ClientError) as refused:
                    refuse([wanted])
                assert (refused.value.code, refused.value.exit_code) == (code, 3)


@pytest.mark.parametrize("way", WAYS)
def test_a_retry_begins_with_the_checkpoint_that_somebody_chose(
    way: str, rig: Rig, tmp_path: Path
) -> None:
    job, running = trained(rig)
    rig.finish(running, Reason.TIMEOUT)
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        for unknown, code in (("1.7", "checkpoint_unknown"), (f"{job + 1}:1.0", "invalid_input")):
            with pytest.raises(ClientError) as refused:
                client.job(job).retry(from_checkpoint=unknown)
            assert refused.value.code == code
        for name in ("1.0", f"{job}:1.1"):
            client.job(job).retry(from_checkpoint=name)
            found = client.job(job).checkpoints()
            assert [one.name for one in found if one.next] == [name.partition(":")[2] or name]
            assert rig.jobs.events(job)[-1]["detail"]["checkpoint"] == name[-3:]
            grant = rig.worker("w3").claim_one()
            rows = rig.records.restorable(job)
            assert f"{rows[0]['attempt']}.{rows[0]['number']}" == name[-3:]
            rig.finish(grant, Reason.TIMEOUT)
        assert [one.standing for one in client.job(job).checkpoints()] == [
            "passed over: an older one was chosen",
            "",
            "",
        ]
        # Its own next checkpoint is newer than all.
        client.job(job).retry()
        grant = rig.worker("w3").claim_one()
        save(rig, grant, 0)
        assert client.job(job).checkpoints()[0].next


def test_only_an_admin_starts_from_another_owners_job(rig: Rig, tmp_path: Path) -> None:
    job, _ = trained(rig, owner="bob")
    wanted = {"name": "x", "command": ["ls"], "from_checkpoint": {"job_id": job}}
    with served(server_settings(rig.url, (tmp_path / "store").as_uri())) as url:
        with (
            Client(url=url, api_key=key(rig, role=Role.SUBMITTER)) as ann,
            pytest.raises(ClientError, match=f"there is no job {job}") as refused,
        ):
            ann.backend.submit([wanted])
        assert refused.value.code == "job_unknown"
        with Client(url=url, api_key=key(rig, role=Role.ADMIN)) as admin:
            assert len(admin.backend.submit([wanted])) == 1


def test_the_command_lists_checkpoints_and_starts_from_one(rig: Rig, tmp_path: Path) -> None:
    job, _ = trained(rig)
    store_url = (tmp_path / "store").as_uri()
    forge = command(tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=store_url)
    lines = forge("checkpoints", str(job)).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["CHECKPOINT", "2.0", "1.1", "1.0"]
    assert [line.endswith("restored next") for line in lines] == [False, True, False, False]
    listed = [
        json.loads(one) for one in forge("checkpoints", str(job), "-o", "jsonl").stdout.splitlines()
    ]
    assert "key" not in listed[0]
    assert [(one["attempt"], one["number"]) for one in listed] == [(2, 0), (1, 1), (1, 0)]
    chosen = ("submit", ".", "--from-checkpoint", f"{job}:1.1", "--", "ls")
    assert forge(*chosen).returncode == 0
    shown = forge("show", str(job + 1)).stdout
    assert f"checkpoint {job}:1.1" in shown
    none = forge("checkpoints", str(job + 1))
    said = f"job {job + 1} has no checkpoint yet; it starts from checkpoint {job}:1.1"
    assert (none.returncode, none.stderr.strip()) == (0, said)
    refused = forge("submit", ".", "--from-checkpoint", f"{job}:1.7", "--dry-run", "--", "ls")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert f"job {job} has no checkpoint 1.7" in refused.stderr
    assert "thinned out" in refused.stderr
    forge("rerun", str(job), "--from-checkpoint", "1.0")
    assert f"checkpoint {job}:1.0" in forge("show", str(job + 2)).stdout
    refused = forge("retry", str(job), str(job + 1), "--from-checkpoint", "1.0")
    assert "--from-checkpoint is for one job" in refused.stderr
    refused = forge("submit", ".", "--from-checkpoint", f"{job}:99999.1", "--", "ls")
    assert f"there is no checkpoint {job}:99999.1" in refused.stderr
