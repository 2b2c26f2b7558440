"""Workers that publish only single ports get gangs whose ports are all fixed, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance, Outlook
from forge_schema.model.spec import GANG_NETWORK
from forge_schema.model.states import Launcher, State
from support.gangs.elastic import members, pass_time
from support.gangs.gang_workers import asleep, gang_worker

if TYPE_CHECKING:
    from support.gangs.gang_workers import GangWorker
    from support.queue.rig import Rig

NARROW = (
    "lacks all ports, which --launcher torchrun needs"
    " (it publishes only single ones: --gang-network ports)"
)
NEED_ALL = [launcher for launcher in Launcher if launcher is not Launcher.NONE]


def publishing(rig: Rig, count: int) -> list[GangWorker]:
    """Register workers that publish ports, which lie idle."""
    labels = {GANG_NETWORK: "ports"}
    workers = [gang_worker(rig, f"p{n}", labels=labels) for n in range(count)]
    for worker in workers:
        worker.look()
    return workers


@pytest.mark.parametrize("launcher", NEED_ALL)
def test_no_gang_that_needs_all_ports_forms_there(rig: Rig, launcher: Launcher) -> None:
    publishing(rig, 2)
    asleep(rig, 1)
    job = rig.submit(nodes=2, launcher=launcher)
    for _ in range(3):
        pass_time(rig, 60)
    assert rig.state(job) is State.READY
    assert rig.count("draft") == 0
    asleep(rig, 2)
    assert {row["worker"] for row in chosen(rig, job)} == {"g0", "g1"}


@pytest.mark.parametrize("launcher", [Launcher.NONE, None])
def test_a_gang_without_a_launcher_takes_both_kinds(rig: Rig, launcher: Launcher | None) -> None:
    publishing(rig, 1)
    asleep(rig, 1)
    job = rig.submit(nodes=2, launcher=launcher)
    assert {row["worker"] for row in chosen(rig, job)} == {"p0", "g0"}


@pytest.mark.parametrize(("launcher", "taken"), [(Launcher.TORCHRUN, 2), (Launcher.NONE, 4)])
def test_a_range_counts_only_the_workers_that_it_can_have(
    rig: Rig, launcher: Launcher, taken: int
) -> None:
    publishing(rig, 2)
    asleep(rig, 2)
    job = rig.submit(nodes=2, max_nodes=8, launcher=launcher)
    assert len(members(rig, job)) == taken


def test_who_asks_learns_which_workers_publish_too_little(rig: Rig) -> None:
    publishing(rig, 2)
    gang_worker(rig, "hidden", address=None)
    found = explain(rig.database, rig.submit(nodes=2, launcher=Launcher.TORCHRUN))
    assert found.outlook is Outlook.UNFIT
    told = {one.worker: (one.chance, one.text) for one in found.workers}
    assert told["p0"] == told["p1"]
    assert told["p0"] == (Chance.UNFIT, NARROW)
    alone = "is not set up for multi-node jobs (start it with --gang-network host)"
    assert told["hidden"][1].startswith(alone)
    assert "an address for multi-node jobs (--gang-network host)" in found.remedies[0].text


def chosen(rig: Rig, job: int) -> list[dict[str, str]]:
    return rig.rows(
        "SELECT worker.name AS worker FROM lease JOIN worker ON worker.id = worker_id"
        " WHERE job_id = %s",
        job,
    )
