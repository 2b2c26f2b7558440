"""How a job's end is told."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import pytest
from forge_schema.model.lease import Fence, Usage
from forge_schema.model.states import Phase, Reason
from forge_worker.attempt import Redactor
from forge_worker.job_runs import job_run
from forge_worker.job_runs.job_run import _end_by_itself, _store_small
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


@pytest.mark.parametrize(("nodes", "told"), [(1, []), (2, [Phase.STOPPING])])
def test_the_others_of_a_run_stop_before_a_failed_member_stores_anything(
    monkeypatch: pytest.MonkeyPatch, nodes: int, told: list[Phase]
) -> None:
    entered: list[Phase] = []
    sent: list[Phase] = []
    phases = SimpleNamespace(enter=entered.append, step=lambda: sent.extend(entered))
    grant = SimpleNamespace(nodes=nodes)
    failed = cast(
        "Parts",
        SimpleNamespace(
            attempt=SimpleNamespace(grant=grant, lost=True), phases=phases, stopped_for=None
        ),
    )
    stored_after: list[list[Phase]] = []
    monkeypatch.setattr(job_run, "_store_in_time", lambda _: stored_after.append([*sent]))
    assert job_run.finish(failed, Exit(3)) is None
    assert stored_after == [told]
    assert entered == [*told, Phase.FINISHING]


def test_output_is_stored_while_the_phase_is_reported() -> None:
    done: list[str] = []

    def step(name: str) -> SimpleNamespace:
        note = partial(done.append, name)
        return SimpleNamespace(step=note, store=note, finish=note)

    names = ("phases", "findings", "metrics", "logs")
    attempt = SimpleNamespace(while_held=lambda: None)
    _store_small(cast("Parts", SimpleNamespace(attempt=attempt, **{n: step(n) for n in names})))
    assert done == ["findings", "metrics", "logs", "phases"]


def parts(refused: list[str]) -> Parts:
    """Return what the end of a job is told from."""
    attempt = SimpleNamespace(fence=Fence(1, 1, uuid4()), redactor=Redactor(()))
    services = SimpleNamespace(sampler=SimpleNamespace(last=lambda _: Usage()))
    artifacts = SimpleNamespace(refused=refused)
    return cast(
        "Parts",
        SimpleNamespace(attempt=attempt, services=services, artifacts=artifacts, usage=None),
    )
