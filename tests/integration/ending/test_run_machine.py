"""Members of runs end in any order, and more than once: each run is settled once.

`FORGE_TEST_MACHINE_EXAMPLES=2000 pytest tests/integration/ending/test_run_machine.py` runs that
many examples.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from support.gangs.run_machine import RunMachine

if TYPE_CHECKING:
    from support.queue.rig import Rig

WANTED = os.environ.get("FORGE_TEST_MACHINE_EXAMPLES")
EXAMPLES = int(WANTED or 25)
STEPS = 40


# A long run takes hours.
@pytest.mark.timeout(0 if WANTED else 300)
def test_runs_end_once_whatever_their_members_do(rig: Rig) -> None:
    team = [rig.worker(f"gpu-{rank}", address="10.0.0.1") for rank in range(3)]
    rig.tick.run()
    run_state_machine_as_test(
        type("Machine", (RunMachine,), {"rig": rig, "team": team}),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=WANTED is None,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
