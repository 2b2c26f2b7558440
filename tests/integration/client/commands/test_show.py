"""`forge show` and `forge ps` of a job that runs: its attempt, metrics, files, environment."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from forge_schema.model.attempt_records import MetricRecord
from forge_schema.model.states import Phase
from psycopg.types.json import Jsonb
from support.client.command import command

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


def test_a_running_job_shows_what_it_has_so_far(rig: Rig, tmp_path: Path) -> None:
    job = rig.submit(name="long", env={"A": "1", "B": "two"})
    grant = rig.worker("gpu-1").claim_one()
    rig.queue.report(grant.fence, Phase.RUNNING, replaced_by=uuid4())
    rig.records.add_metrics(grant.fence, [MetricRecord(0, 3.0, {"step": 3, "loss": 0.25})])
    through = Jsonb({"program": "port", "ports": [8888]})
    rig.database.row("enter", actor="ann", job_id=job, rank=0, detail=through)
    rig.clock.advance(42)
    store_url = (tmp_path / "store").as_uri()
    forge = command(tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=store_url)
    lines = [" ".join(line.split()) for line in forge("show", str(job)).stdout.splitlines()]
    for said in (
        "running for 42 s", "metrics loss=0.25", "environment A=1", "B=two", "command true",
        "1 gpu-1 running 42 s",
    ):  # fmt: skip
        assert said in lines, lines
    entered = "ann Job entered ports=8888, program=port"
    for said in (entered, "The agent of gpu-1 was replaced; the job ran on"):
        assert [line for line in lines if line.endswith(said)]
    listed = " ".join(forge("ps").stdout.splitlines()[1].split())
    assert f"{job} long running running 42 s loss=0.25 1 gpu-1" in listed
