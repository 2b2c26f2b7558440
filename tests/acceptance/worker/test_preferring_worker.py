"""A worker takes the jobs first whose code it has, directly and over HTTP, also after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.model.spec import JobSpec
from support.workers.http_bed import http_bed
from support.workers.worker import SMALL, Bed, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["direct", "http"])
def made(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Iterator[Bed]:
    opened = bed("process", tmp_path, database_url) if request.param == "direct" else None
    with opened or http_bed(tmp_path, database_url) as one:
        yield one


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


def test_a_worker_takes_the_jobs_first_whose_code_it_has(made: Bed) -> None:
    worker = made.worker(max_jobs=1)
    known, new = project(made, "known"), project(made, "new")
    order(made, submit(made, known))
    first, *later = submit(made, new, known, known)
    assert order(made, [first, *later]) == [*later, first]
    # Both bundles are there now.
    assert len(list((worker.folder / "warm").iterdir())) == 2
    worker.leave()
    made.worker(max_jobs=1)
    first, *later = submit(made, project(made, "newer"), known, new)
    assert order(made, [first, *later]) == [*later, first]
