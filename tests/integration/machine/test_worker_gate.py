"""A real worker with the operator's programs around its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.explain import explain
from forge_schema.model.explanation import Chance

if TYPE_CHECKING:
    from pathlib import Path

    from support.waiting import Eventually
    from support.workers.worker import Bed


def test_a_job_whose_gate_fails_loses_nothing_and_runs_once_the_machine_is_mended(
    process: Bed, tmp_path: Path, eventually: Eventually
) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    line = f"sh -c 'echo look; test ! -e {broken}'"
    worker = process.worker(before_job=line, after_job="sh -c 'echo exit $FORGE_EXIT_CODE'")
    job = process.submit("true")

    def seen() -> bool:
        return any(
            one.chance is Chance.CONSTRAINED and "--before-job failed: exit code 1" in one.text
            for one in explain(process.database, job).workers
        )

    eventually(seen)
    assert process.reasons(job) == ["drained"]
    (spent,) = process.database.rows("explain_job", job_id=job)
    assert (spent["failures"], spent["losses"], spent["preemptions"]) == (0, 0, 0)
    assert b"forge: --before-job: look" in process.log(job)
    worker.leave()
    broken.unlink()
    # Set aside across the restart, until an admin or a check says otherwise.
    again = process.begin(before_job=line, after_job="sh -c 'echo exit $FORGE_EXIT_CODE'")
    process.succeeds(job)
    assert "machine_released" in again.output
    assert b"forge: --after-job: exit 0" in process.log(job, 2)


def test_a_failing_program_after_a_job_leaves_its_end_as_it_was(
    process: Bed, eventually: Eventually
) -> None:
    worker = process.worker(after_job="false", check_before_job=True)
    process.succeeds(process.submit("true"))
    eventually(lambda: "machine_set_aside" in worker.output)
