"""What happens to a job whose lease is not renewed, on a clock that the test moves."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Phase, Reason
from forge_worker.agent.leases import LeaseWatchdog
from forge_worker.agent.registration import WorkerIdentity
from forge_worker.attempt import LiveAttempt
from forge_worker.loop import Bell
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path

    from forge_worker.settings.sections import Policy


class Bench:
    """A countdown over one attempt whose last renewal was sent at 1000."""

    def __init__(self, root: Path, policy: Policy, grace_s: float = 10, nodes: int = 1) -> None:
        grant = some_grant()
        grant = replace(grant, spec={**grant.spec, "grace_s": grace_s}, nodes=nodes)
        self.attempt: LiveAttempt = attempt_of(grant, root / "attempt")
        self.attempt.renewed_s = self.now = 1000.0
        self.attempt.phase = Phase.RUNNING
        self.woken = Event()
        self.countdown = LeaseWatchdog(
            lambda: [self.attempt],
            policy=policy,
            identity=WorkerIdentity(ttl_s=120),
            continue_s=600,
            slept=Bell(self.woken),
            clock=lambda: self.now,
        )

    def at(self, now: float) -> str:
        self.now = now
        self.countdown.step()
        stop = self.attempt.stop
        return "runs" if stop is None else "lost" if stop.lost else stop.reason.value


@pytest.mark.parametrize(
    ("grace_s", "asked_s", "killed_s"),
    # With its grace before the lease's end, where that is no more than a third of it.
    [(10, 1107.5, 1117.5), (500, 1080.5, 1117.5), (0, 1117.5, 1118.6)],
)
def test_strict_has_a_job_gone_before_its_lease_ends(
    tmp_path: Path, grace_s: float, asked_s: float, killed_s: float
) -> None:
    bench = Bench(tmp_path, "strict", grace_s)
    assert bench.at(asked_s - 1) == "runs"
    assert bench.at(asked_s) == Reason.WORKER_LOST.value
    assert bench.at(killed_s - 1) == Reason.WORKER_LOST.value
    assert bench.at(killed_s) == "lost"


def test_continue_goes_on_past_the_lease_and_ends_with_its_grace(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "continue")
    assert bench.at(1719) == "runs"
    assert bench.at(1721) == Reason.WORKER_LOST.value
    assert bench.at(9999) == Reason.WORKER_LOST.value


def test_a_member_of_a_gang_is_gone_before_its_lease_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "continue", nodes=2)
    assert bench.at(1106) == "runs"
    assert bench.at(1108) == Reason.WORKER_LOST.value
    assert bench.at(1118) == "lost"


@pytest.mark.parametrize("policy", ["strict", "continue"])
def test_a_job_that_has_ended_waits_for_its_delivery(tmp_path: Path, policy: Policy) -> None:
    bench = Bench(tmp_path, policy)
    bench.attempt.phase = Phase.FINISHING
    assert bench.at(99_999) == "runs"


def test_a_renewal_counts_from_when_it_was_sent(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "strict")
    bench.attempt.renewed_s = 1100.0
    assert bench.at(1206) == "runs"
    assert bench.at(1208) == Reason.WORKER_LOST.value


def test_who_slept_has_its_leases_renewed_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "continue")
    bench.at(1001)
    assert not bench.woken.is_set()
    bench.at(1011)
    assert bench.woken.is_set()
    bench.woken.clear()
    bench.at(1012)
    assert not bench.woken.is_set()
