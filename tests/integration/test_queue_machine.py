"""Any order of verbs, any number of stale writers and lost answers: the invariants hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import stamina
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from support.queue_machine import QueueMachine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.rig import Rig


@pytest.fixture
def machine(rig: Rig) -> Iterator[type[QueueMachine]]:
    """The machine on this test's database, with two lanes and three workers for all its runs."""
    rig.submit()
    rig.submit(labels={"zone": "eu"})
    team = [rig.worker("eu", labels={"zone": "eu"}), rig.worker("a"), rig.worker("b")]
    for worker in team:
        worker.renew()
    rig.sweep.tick()
    with stamina.set_testing(True, attempts=4, cap=True):
        yield type("Machine", (QueueMachine,), {"rig": rig, "team": team})


def test_whatever_happens_in_whatever_order(machine: type[QueueMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=80,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
