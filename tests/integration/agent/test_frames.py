"""The depth of the worker's call stack between the end of a job and its database statement."""

from __future__ import annotations

import uuid
from threading import Thread
from traceback import extract_stack
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.prepared import Prepared
from forge_schema.model.spec import JobSpec
from forge_worker.agent.agent import Agent
from forge_worker.connect import connect
from forge_worker.runners.choice import available
from forge_worker.settings.settings import WorkerSettings
from support.workers.worker import SMALL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.waiting import Eventually

MOST = 8
OURS = ("/forge_worker/", "/forge_schema/")


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the stack of each statement that ends a lease."""
    kept: list[list[str]] = []
    run = Prepared.run

    def looked_at(self: Prepared, params: Mapping[str, Any]) -> Any:  # noqa: ANN401  as it is
        names = [frame.name for frame in extract_stack() if any(s in frame.filename for s in OURS)]
        if params.get("tokens") and "_run_job" in names:
            # The last frame would be `Prepared.run`, which this function replaces.
            kept.append([*names[names.index("_run_job") :], "run"])
        return run(self, params)

    monkeypatch.setattr(Prepared, "run", looked_at)
    return kept


@pytest.mark.parametrize("command", ["true", "false"])
def test_from_the_end_of_a_job_to_sql_are_few_frames(
    tmp_path: Path,
    database_url: str,
    eventually: Eventually,
    stacks: list[list[str]],
    command: str,
) -> None:
    for folder in ("store", "worker"):
        (tmp_path / folder).mkdir()
    given: dict[str, Any] = {
        "database_url": database_url,
        "store_url": (tmp_path / "store").as_uri(),
        "worker_dir": tmp_path / "worker",
        "worker_name": f"w-{uuid.uuid4().hex[:8]}",
        "runner": "process",
        "allow_processes": True,
        "cpus": 2,
        "memory_mb": 1024,
        "poll_s": 0.2,
    }
    settings = WorkerSettings(**given)
    with connect(settings) as transport:
        agent = Agent(settings, transport.gateway, transport.objects, available(settings))
        transport.gateway.queue.submit(  # type: ignore[attr-defined] # the direct gateway has one
            [JobSpec(name="j", owner="ann", command=[command], resources=SMALL, max_failures=0)]
        )
        works = Thread(target=agent.run)
        works.start()
        try:
            eventually(lambda: stacks)
        finally:
            agent.leaving.stop()
            works.join(60)
    assert not works.is_alive()
    assert max(map(len, stacks)) <= MOST, stacks
