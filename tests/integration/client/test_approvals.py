"""Approvals by the SDK, over HTTP, and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client import Client, ClientError
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.states import Role
from support.client.command import command
from support.client.reaching import WAYS, key, reaching
from support.client.telling import told
from support.http.server import served, server_settings

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig

SPEC = {"name": "x", "owner": "ann", "command": ["ls"], "resources": {"gpus": 2}}
HOURS = {**SPEC, "timeout_s": 5 * 3600}


def limit(rig: Rig) -> None:
    rig.admin.limit_owner("ann", OwnerSettings(approve_gpu_hours=8))


@pytest.mark.parametrize("way", WAYS)
def test_both_ways_limit_list_explain_and_approve(way: str, rig: Rig, tmp_path: Path) -> None:
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        backend = client.backend
        backend.admin.limit_owner("ann", OwnerSettings(weight=1, approve_gpu_hours=8))
        backend.admin.limit_owner("ann", OwnerSettings(max_jobs=50))
        backend.admin.limit_owner("ann", OwnerSettings(approve_cost=None))
        (limits,) = backend.admin.owner_limits()
        assert (limits.max_jobs, limits.approve_gpu_hours, limits.approve_cost) == (None, 8, None)
        jobs = backend.submit([{**HOURS, "sweep": "s"}] * 2)
        (unlimited,) = backend.submit([SPEC])
        assert [job.job_id for job in backend.admin.approvals()] == [*jobs, unlimited]
        (last,) = backend.admin.approvals(owner="ann", sweep="s", after=jobs[0], count=1)
        assert (last.sweep, last.approval.jobs, last.approval.all_gpu_hours) == ("s", 2, 20)
        (limit,) = backend.explain(last.job_id).limits
        assert (limit.code, limit.approval) == ("approval", last.approval)
        assert limit.text == (
            "an admin must approve it: its request of 2 jobs may use 20 GPU-hours,"
            " more than the 8 allowed without approval"
        )
        assert "(--timeout)" in backend.explain(unlimited).remedies[0].text
        assert backend.job(unlimited).waits_for == ["approval"]
        assert backend.overview().awaiting_approval == 3
        for _ in range(2):
            done = backend.admin.approve([*jobs, 999])
            assert (done.approved, done.unasked, done.absent) == (2, 0, 1)
            assert done.became == {**dict.fromkeys(jobs, "approved"), 999: "absent"}
        assert backend.job(jobs[0]).state == "queued"
        assert client.job(jobs[1]).approve()
        backend.cancel(unlimited)
        ended = backend.explain(unlimited).text
        assert ended == "it was cancelled before it began: it was not approved"


def test_only_an_admin_approves(rig: Rig, tmp_path: Path) -> None:
    limit(rig)
    with served(server_settings(rig.url, (tmp_path / "store").as_uri())) as url:
        with Client(url=url, api_key=key(rig, role=Role.SUBMITTER)) as ann:
            (job,) = ann.backend.submit([{**HOURS, "owner": "ann"}])
            for refused in (ann.backend.admin.approvals, lambda: ann.backend.admin.approve([job])):
                with pytest.raises(ClientError, match="role admin"):
                    refused()
        with Client(url=url, api_key=key(rig, role=Role.ADMIN)) as admin:
            assert admin.backend.admin.approve([job]).approved == 1
    assert rig.state(job) == "ready"


def test_the_command_says_who_waits_and_approves_jobs_or_a_sweep(rig: Rig, tmp_path: Path) -> None:
    limit(rig)
    store_url = (tmp_path / "store").as_uri()
    forge = command(
        tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=store_url, FORGE_OWNER="ann"
    )
    done = forge("submit", ".", "--gpus", "2", "--timeout", "5h", "--", "ls")
    job = done.stdout.strip()
    assert "it may use 10 GPU-hours, more than the 8 allowed" in " ".join(done.stderr.split())
    assert "waits for approval (10 GPU-hours)" in " ".join(forge("show", job).stdout.split())
    assert "waits for approval" in " ".join(forge("ps").stdout.split())
    assert "10 GPU-hours" in forge("approve").stdout
    sweep = rig.submit_many(3, gpus=1, sweep="rates-1a2b", timeout_s=4 * 3600)
    told(forge("approve", "--sweep", "rates"), 2, "3 jobs to approve", "held, of ann", "--yes")
    assert [rig.state(one) for one in sweep] == ["held"] * 3
    assert "rates-1a2b: 3 approved" in forge("approve", "--sweep", "rates", "--yes").stderr
    assert [rig.state(one) for one in sweep] == ["ready"] * 3
    rig.submit_many(3, gpus=1, sweep="depth", timeout_s=4 * 3600)
    rig.submit_many(3, gpus=1, sweep="depths", timeout_s=4 * 3600)
    told(forge("approve", "--sweep", "dep"), 2, "depth or depths", "`forge approve` lists them")
    assert "depth: 3 approved" in forge("approve", "--sweep", "depth").stderr
    assert "depths: 3 approved" in forge("approve", "--sweep", "depths").stderr
    assert "1 approved" in forge("approve", job).stderr
    assert forge("approve").stdout.count("\n") <= 1
    unasked = rig.submit()
    other = forge("approve", job, str(unasked), "999")
    assert other.returncode == 3
    assert "1 approved" in other.stderr
    assert f"job {unasked} was not waiting for approval" in other.stderr
    assert "job 999 does not exist" in other.stderr
