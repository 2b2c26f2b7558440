"""Any order of verbs, any number of stale writers and lost answers: the invariants hold.

`FORGE_TEST_MACHINE_EXAMPLES=2000 pytest -s tests/integration/queue/test_queue_machine.py
--hypothesis-seed=1` runs that many examples; another seed gives other ones. Only such a run shrinks
an example that fails, which takes minutes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import stamina
from forge_schema.queue import claim, lanes, reservation
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from stamina.instrumentation import set_on_retry_hooks
from support.database.clock import Steady
from support.urgency.guarantee_machine import GPUS, GuaranteeMachine
from support.urgency.urgent_machine import UrgentMachine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.queue.rig import Rig

WANTED = os.environ.get("FORGE_TEST_MACHINE_EXAMPLES")
EXAMPLES = int(WANTED or 25)
STEPS = 50
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=WANTED is None,
    database=None,
    phases=[Phase.generate, Phase.shrink] if WANTED else [Phase.generate],
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def machine(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[UrgentMachine]]:
    """The machine on this test's database, with two lanes and three workers for all its runs."""
    steady = Steady()
    for module in (lanes, claim, reservation):
        monkeypatch.setattr(module, "monotonic", steady)
    rig.submit()
    rig.submit(labels={"zone": "eu"})
    team = [rig.worker("eu", labels={"zone": "eu"}), rig.worker("a"), rig.worker("b")]
    for worker in team:
        worker.renew()
    rig.tick.run()
    # Thousands of answers are lost on purpose; the retries need no log.
    set_on_retry_hooks(())
    with stamina.set_testing(True, attempts=4, cap=True):
        yield type("Machine", (UrgentMachine,), {"rig": rig, "team": team})
    set_on_retry_hooks(None)


# A long run takes hours.
@pytest.mark.timeout(0 if WANTED else 300)
def test_whatever_happens_in_whatever_order(machine: type[UrgentMachine]) -> None:
    run_state_machine_as_test(machine, settings=SETTINGS)
    print(f"{machine.examples} examples, {machine.steps} steps, {machine.seen}")  # noqa: T201  shown with -s
    assert machine.examples >= EXAMPLES
    assert set(machine.seen) == {"displaced", "suspected", "trusted", "held back"}


@pytest.mark.timeout(0 if WANTED else 300)
def test_guaranteed_gpus_are_given_back_and_never_taken(rig: Rig) -> None:
    gpus = [{"name": "NVIDIA H100", "uuid": f"GPU-{n}", "vram_mb": 81920} for n in range(GPUS)]
    team = [rig.worker(name, gpus=gpus) for name in ("one", "two")]
    machine = type("Machine", (GuaranteeMachine,), {"rig": rig, "team": team})
    run_state_machine_as_test(machine, settings=SETTINGS)
    assert GuaranteeMachine.seen["given back"]
