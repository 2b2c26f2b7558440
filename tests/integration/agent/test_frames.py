"""The depth of the worker's call stack between the end of a job and its database statement."""

from __future__ import annotations

import uuid
from threading import Thread
from traceback import extract_stack
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.pool import Connection
from forge_schema.database.statements import Prepared
from forge_schema.model.lease import array
from forge_schema.model.spec import JobSpec
from forge_worker.agent.agent import Agent
from forge_worker.connect import connect
from forge_worker.runners.choice import available
from forge_worker.settings.settings import WorkerSettings
from support.workers.worker import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.waiting import Eventually

MOST = 8
NONE = array([])
OURS = ("/forge_worker/", "/forge_schema/")


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the stack of each call of the driver that ends a lease."""
    kept: list[list[str]] = []

    def watch(kind: type, name: str, ends: Callable[[Any], bool]) -> None:
        run = getattr(kind, name)

        def watched(self: object, given: Any) -> Any:  # noqa: ANN401  as it is
            called = [f.name for f in extract_stack() if any(s in f.filename for s in OURS)]
            if "_run_job" in called and ends(given):
                # The last frame would be the method that this function replaces.
                kept.append([*called[called.index("_run_job") :], name])
            return run(self, given)

        monkeypatch.setattr(kind, name, watched)

    watch(Prepared, "run", lambda params: params.get("tokens", NONE) != NONE)
    watch(Connection, "together", lambda statements: statements[0][0] == "finish")
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
    assert [stack[-1] for stack in stacks] == ["run" if command == "true" else "together"]
    assert len(stacks[0]) <= MOST, stacks
