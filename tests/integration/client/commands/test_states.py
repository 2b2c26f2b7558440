"""The state of a job is one word in commands, the SDK, JSON, SQL, reports and queries."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from forge_schema.model.states import Reason, State, StateWord
from support.client.command import command
from support.client.reaching import WAYS, reaching

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


def one_in_each_state(rig: Rig) -> dict[int, tuple[State, str]]:
    """Bring a job into each of the queue's own states; return it with the word for it."""
    submitted = {"owner": "ann", "experiment": "digits"}
    jobs = {
        rig.submit(**submitted, name="twice", max_failures=0): (State.DEAD, "failed"),
        rig.submit(**submitted, name="good"): (State.SUCCEEDED, "succeeded"),
        rig.submit(**submitted, name="now"): (State.RUNNING, "running"),
    }
    worker = rig.worker()
    rig.finish(worker.claim_one(), Reason.EXIT_CODE, exit_code=1)
    rig.finish(worker.claim_one())
    worker.claim_one()
    jobs |= {
        rig.submit(**submitted, delay_s=60): (State.SCHEDULED, "queued"),
        rig.submit(**submitted, after_ok=[max(jobs)]): (State.HELD, "held"),
        rig.submit(**submitted): (State.READY, "queued"),
        rig.submit(**submitted): (State.CANCELLED, "cancelled"),
    }
    rig.queue.cancel(max(jobs))
    assert {job: rig.state(job) for job in jobs} == {job: state for job, (state, _) in jobs.items()}
    return jobs


@pytest.mark.parametrize("way", WAYS)
def test_everything_says_the_same_word(rig: Rig, tmp_path: Path, way: str) -> None:
    jobs = one_in_each_state(rig)
    words = {job: word for job, (_, word) in jobs.items()}
    store = (tmp_path / "store").as_uri()
    with reaching(way, rig, store) as client:
        assert {job.job_id: job.state for job in client.jobs()} == words
        assert {job: client.job(job).state for job in jobs} == words
        assert {job: client.backend.explain(job).state for job in jobs} == words
        assert {run.job_id: run.state for run in client.runs("experiment:digits")} == words
        assert {
            row["job_id"]: row["state"] for row in client.backend.report("jobs", count=50)
        } == words
        for word in set(words.values()):
            found = {job.job_id for job in client.jobs(states=[word])}
            assert found == {job.job_id for job in client.jobs(f"state:{word}")}
            assert found == {job for job, its in words.items() if its == word}
        for former in ("ready", "scheduled", "dead"):
            with pytest.raises(ClientError, match="not a job state"):
                client.jobs(states=[former])
        assert [job.job_id for job in client.jobs() if job.exhausted] == [min(jobs)]
        seen = client.backend.overview()
    assert (seen.states[StateWord.QUEUED], seen.ended[StateWord.FAILED]) == (2, 1)
    for view in ("jobs", "runs"):
        rows = rig.rows(f"SELECT job_id, state FROM {view}")
        assert {row["job_id"]: row["state"] for row in rows} == words


def test_json_has_the_word_that_a_table_shows(rig: Rig, tmp_path: Path) -> None:
    jobs = one_in_each_state(rig)
    forge = command(
        tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=tmp_path.as_uri(), FORGE_OWNER="ann"
    )
    rows = [json.loads(line) for line in forge("ps", "-o", "jsonl").stdout.splitlines()]
    assert {row["job_id"]: row["state"] for row in rows} == {
        job: word for job, (_, word) in jobs.items()
    }
    table = forge("ps").stdout
    assert not any(former in table for former in ("ready", "scheduled", "dead"))


def test_reports_that_sum_up_go_back_a_week_and_say_so(rig: Rig, tmp_path: Path) -> None:
    forge = command(tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=tmp_path.as_uri())
    rig.submit()
    rig.finish(rig.worker().claim_one())

    def rows(*arguments: str) -> tuple[int, str]:
        ran = forge("report", "show", *arguments, "-o", "jsonl")
        assert ran.returncode == 0, ran.stderr
        return len(ran.stdout.splitlines()), ran.stderr

    bounded = (0, "no rows since 7d; --since all shows the whole history\n")
    assert rows("cost")[0] == rows("attempt_history", "--by", "owner")[0] == 1
    rig.clock.advance(30 * 86_400)
    assert rows("cost") == rows("attempt_history", "--by", "owner") == bounded
    for shown in (["cost", "--since", "all"], ["cost", "--since", "40d"], ["attempt_history"]):
        assert rows(*shown) == (1, "")
    for _ in range(2):
        rig.submit()
        rig.finish(rig.worker().claim_one())
    table = forge("report", "show", "gpu_hours", "--since", "all", "-o", "table").stderr
    assert "in all: attempts 3" in table
    curve = "▅" + "▁" * 29 + "█"
    assert re.search(rf"attempts from 20\d\d-\d\d-\d\d to 20\d\d-\d\d-\d\d: {curve}\n", table)
