"""How a job's end is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from forge_schema.model.lease import Fence, Usage
from forge_schema.model.states import Reason
from forge_worker.attempt.redact import Redactor
from forge_worker.job_runs.settlement import _end_by_itself
from forge_worker.runners.runner import Exit

if TYPE_CHECKING:
    from forge_worker.job_runs.parts import Parts


def test_a_success_says_what_of_it_was_lost() -> None:
    end = _end_by_itself(parts(refused=["big is too large"]), Exit(0, detail="3 bytes were lost"))
    assert (end.reason, end.detail) == (
        Reason.SUCCEEDED,
        "3 bytes were lost; big is too large",
    )
    assert _end_by_itself(parts(refused=[]), Exit(0)).detail is None


def parts(refused: list[str]) -> Parts:
    """Return what the end of a job is told from."""
    attempt = SimpleNamespace(fence=Fence(1, 1, uuid4()), redactor=Redactor(()))
    services = SimpleNamespace(sampler=SimpleNamespace(last=lambda _: Usage()))
    artifacts = SimpleNamespace(refused=refused)
    return cast(
        "Parts",
        SimpleNamespace(attempt=attempt, services=services, artifacts=artifacts, usage=None),
    )
