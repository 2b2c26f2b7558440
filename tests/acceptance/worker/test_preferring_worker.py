"""A worker takes the jobs first whose code it has, directly and over HTTP, also after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.model.spec import JobSpec
from support.workers.worker import SMALL

if TYPE_CHECKING:
    from support.workers.worker import Bed


def project(made: Bed, name: str) -> JobSpec:
    """Return a job with a bundle of its own."""
    folder = made.root / name
    folder.mkdir()
    (folder / "main.py").write_text(f"print({name!r})\n", encoding="utf-8")
    digest = made.upload(folder)
    command = [made.python, "main.py"]
    return JobSpec(name=name, command=command, owner="ann", bundle_digest=digest, resources=SMALL)


def submit(made: Bed, *specs: JobSpec) -> list[int]:
    return made.queue.submit(specs, any_owner=True)


def order(made: Bed, jobs: list[int]) -> list[int]:
    """Wait for some jobs, and return them in the order in which they were claimed."""
    for job in jobs:
        made.succeeds(job)
    return sorted(jobs, key=lambda job: made.jobs.attempts(job)[0]["token"])


def test_a_worker_takes_the_jobs_first_whose_code_it_has(each_way: Bed) -> None:
    worker = each_way.worker(max_jobs=1)
    known, new = project(each_way, "known"), project(each_way, "new")
    order(each_way, submit(each_way, known))
    first, *later = submit(each_way, new, known, known)
    assert order(each_way, [first, *later]) == [*later, first]
    # Both bundles are there now.
    assert len(list((worker.folder / "warm").iterdir())) == 2
    worker.leave()
    each_way.worker(max_jobs=1)
    first, *later = submit(each_way, project(each_way, "newer"), known, new)
    assert order(each_way, [first, *later]) == [*later, first]
