"""`forge explain` of a waiting gang, and what an autoscaler is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_functions.dashboard import words
from forge_functions.dashboard.explained import in_words
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance, Outlook
from forge_schema.model.states import Command, Phase, Reason
from forge_schema.model.worker import Gpu
from forge_schema.read.overview import OverviewReader, demand
from support.gangs.gang_workers import asleep, gang_worker
from support.gangs.runs import running

if TYPE_CHECKING:
    from forge_schema.model.explanation import Explanation
    from support.queue.rig import Rig


def said(rig: Rig, job: int) -> Explanation:
    return explain(rig.database, job)


def test_a_gang_is_told_how_many_machines_are_free_and_who_lacks_what(rig: Rig) -> None:
    rig.submit()
    (busy, *_) = [gang_worker(rig, f"w{n}") for n in range(4)]
    busy.look()
    gang_worker(rig, "small", memory_mb=10)
    gang_worker(rig, "hidden", address=None)
    job = rig.submit(nodes=4, memory_mb=50)
    found = said(rig, job)
    assert (found.outlook, found.nodes, found.free) == (Outlook.BUSY, 4, 3)
    assert found.text == "it waits for machines: 3 of the 4 machines that it needs are free"
    chances = {one.worker: (one.chance, one.text) for one in found.workers}
    assert chances["w1"] == (Chance.STARTS, "is free for it")
    assert chances["w0"][0] is Chance.BUSY
    assert chances["small"][1] == "lacks 50 MiB of memory (it has 10 MiB)"
    assert chances["hidden"][1] == (
        "is not set up for multi-node jobs (start it with --gang-network host)"
    )
    assert found.remedies == []


def test_a_gang_that_has_too_few_machines_is_told_what_is_missing(rig: Rig) -> None:
    asleep(rig, 3)
    gang_worker(rig, "other", cpus=0.5)
    job = rig.submit(nodes=5)
    found = said(rig, job)
    assert found.outlook is Outlook.UNFIT
    assert found.text == "it needs 5 machines, and only 3 workers could run it (4 checked)"
    add, fewer = found.remedies
    assert add.text == (
        "start 2 more workers with 1 CPU, an address for multi-node jobs (--gang-network host)"
    )
    assert (fewer.code, fewer.changes) == ("ask_less", {"nodes": 3})
    words.reads("hi", None)
    told = in_words(found)
    words.reads("en", None)
    assert told.text == "इसे एक साथ 5 मशीनें चाहिए, और 3 खाली हैं"
    assert told.remedies[1].text == "इसे 3 मशीनों के लिए जमा करें"


def test_workers_that_only_need_the_flag_are_restarted_with_it(rig: Rig) -> None:
    for name in ("a", "b"):
        gang_worker(rig, name, address=None)
    found = said(rig, rig.submit(nodes=2))
    again = "restart 2 of them with --gang-network host (forge up --gang-network host)"
    assert found.remedies[0].text == again
    more = said(rig, rig.submit(nodes=3)).remedies[0].text
    assert more.startswith(f"{again}, and start 1 more worker with ")


def test_a_gang_whose_machines_drain_is_told_so(rig: Rig) -> None:
    workers = asleep(rig, 2)
    rig.registry.command(workers[0].id, Command.DRAIN)
    found = said(rig, rig.submit(nodes=2))
    assert found.outlook is Outlook.UNAVAILABLE
    assert found.text == "only 1 of the 2 machines that it needs is taking jobs now"
    assert found.remedies[0].command == "forge worker drain g0 --undo"


def test_only_machines_with_the_same_label_count_together(rig: Rig) -> None:
    for n, zone in enumerate(("eu", "us", "eu")):
        gang_worker(rig, f"w{n}", labels={"zone": zone})
    found = said(rig, rig.submit(nodes=3, same="zone"))
    assert found.text == (
        "only 2 of the 3 machines that it needs have the same value of zone (3 checked)"
    )
    assert found.remedies[0].text.endswith(", the same value of the label zone")
    assert "a label zone" not in found.remedies[0].text


def test_a_label_that_no_worker_has_is_named(rig: Rig) -> None:
    asleep(rig, 3)
    found = said(rig, rig.submit(nodes=2, same="rack"))
    assert found.outlook is Outlook.UNFIT
    assert found.text == "no worker has the label rack, which --same compares (3 checked)"
    assert found.workers[0].text == "lacks a label rack (it has none)"
    assert [one.text for one in found.remedies] == [
        "start workers with the label (--labels rack=…)"
    ]


def test_a_gang_and_others_are_told_of_workers_that_keep_room_for_it(rig: Rig) -> None:
    rig.submit_many(2)
    one, two = (gang_worker(rig, name) for name in ("one", "two"))
    for worker in (one, two):
        assert worker.look()
    job = rig.submit(nodes=2)
    for seconds in (0, 10):
        rig.clock.advance(seconds)
        rig.tick.draft()
    assert said(rig, job).text == (
        "it waits for machines: 0 of the 2 machines that it needs are free;"
        " 2 workers keep room for it, for up to 5 min"
    )
    rig.rows("DELETE FROM lease WHERE worker_id = %s", one.id)
    single = rig.submit()
    assert said(rig, job).free == 1
    chances = {member.worker: member.chance for member in said(rig, single).workers}
    assert chances == {"one": Chance.RESERVED, "two": Chance.BUSY}
    urgent = rig.submit(priority=1)
    chances = {member.worker: member.chance for member in said(rig, urgent).workers}
    assert chances["one"] is Chance.STARTS


@pytest.mark.parametrize(("limit", "code"), [(3, "queue_gpus"), (4, None)])
def test_a_limit_of_gpus_counts_those_of_all_machines(
    rig: Rig, limit: int, code: str | None
) -> None:
    gpus = [Gpu(f"GPU-{n}", "H100", 80_000) for n in range(2)]
    for n in range(2):
        gang_worker(rig, f"w{n}", gpus=gpus, accelerator="cuda")
    rig.admin.set_queue("default", {"max_jobs": None, "max_gpus": limit})
    found = said(rig, rig.submit(nodes=2, gpus=2))
    assert [one.code for one in found.limits] == ([code] if code else [])
    assert (found.outlook is Outlook.HELD) == (code is not None)


def test_an_autoscaler_is_told_of_all_machines_that_gangs_need(rig: Rig) -> None:
    asleep(rig, 2)
    for nodes in (2, 3, 3):
        rig.submit(nodes=nodes)
    rig.submit()
    rows = rig.rows("SELECT nodes, waiting, running, demand FROM queue_demand ORDER BY nodes")
    assert [tuple(row.values()) for row in rows] == [(1, 1, 0, 1), (2, 0, 2, 2), (3, 2, 0, 6)]


def test_the_demand_page_counts_the_workers_that_can_be_machines_of_a_gang(rig: Rig) -> None:
    for n in range(3):
        gang_worker(rig, f"w{n}")
    gang_worker(rig, "hidden", address=None)
    rig.rows("UPDATE worker SET status = 'idle'")
    for nodes in (1, 2, 4):
        rig.submit(nodes=nodes)
    found = {row["nodes"]: (row["workers"], row["room"]) for row in demand(rig.database)}
    assert found == {1: (4, 4), 2: (3, 1), 4: (3, 0)}


def test_an_autoscaler_is_told_of_the_machines_that_ranges_would_use(rig: Rig) -> None:
    asleep(rig, 3)
    rig.submit(nodes=2, max_nodes=8)
    for most in (4, None):
        rig.submit(nodes=2, max_nodes=most)
    found = rig.row("SELECT waiting, running, demand, max_demand FROM queue_demand")
    assert tuple(found.values()) == (2, 3, 3 + 2 + 2, 8 + 4 + 2)
    rig.admin.set_queue("default", {"paused": True})
    found = rig.row("SELECT waiting, running, demand, max_demand FROM queue_demand")
    assert tuple(found.values()) == (0, 3, 3, 8)


def test_a_job_with_a_range_of_machines_is_told_of_it(rig: Rig) -> None:
    asleep(rig, 1)
    job = rig.submit(nodes=2, max_nodes=8)
    needs = "of the 2 to 8 machines that it needs"
    found = said(rig, job)
    assert found.text == "it needs 2 to 8 machines, and only 1 worker could run it (1 checked)"
    assert (found.nodes, found.max_nodes, found.free) == (2, 8, 1)
    busy = [gang_worker(rig, f"b{n}") for n in range(2)]
    rig.submit_many(2)
    for worker in busy:
        assert worker.look()
    assert said(rig, job).text == f"it waits for machines: 1 {needs} are free"
    for n in range(2):
        gang_worker(rig, f"free{n}")
    assert said(rig, job).text == f"it would start now: 3 {needs} are free"


def test_a_run_with_fewer_machines_than_it_may_have_is_told_so(rig: Rig) -> None:
    asleep(rig, 3)
    jobs = [rig.submit(nodes=3, max_nodes=8)]
    asleep(rig, 2)
    jobs.append(rig.submit(nodes=2, max_nodes=2))
    few, all_of_them = (said(rig, job) for job in jobs)
    assert few.text.startswith("running on 3 of up to 8 machines: g0, g1 and g2 for ")
    assert few.run is not None
    assert (few.run.nodes, few.run.max_nodes) == (3, 8)
    assert all_of_them.text.startswith("running on g0 and g1 for ")


def test_a_gang_that_no_workers_could_run_is_among_the_stuck_jobs(rig: Rig) -> None:
    asleep(rig, 2)
    job = rig.submit(nodes=3)
    rig.submit(nodes=2)
    assert rig.rows("SELECT kind, job_id FROM stuck") == [{"kind": "unclaimable", "job_id": job}]


def test_a_gang_that_gathers_is_told_whom_the_others_wait_for(rig: Rig) -> None:
    run = running(rig)

    def waits() -> str:
        return said(rig, run.job_id).text.partition("; ")[2]

    for rank in (0, 1):
        rig.queue.report(run.fences[rank], Phase.PREPARING)
    assert waits() == "its 3 machines are gathering: rank 2 on gpu-2 has not fetched its lease"
    rig.queue.report(run.fences[2], Phase.PREPARING)
    rig.queue.gather(run.fences[1], 1, {})
    assert waits() == (
        "its 3 machines are gathering: rank 0 on gpu-0 has not prepared yet,"
        " rank 2 on gpu-2 has not prepared yet"
    )
    for rank, step in ((0, 1), (1, 2), (2, 2)):
        rig.queue.gather(run.fences[rank], step, {})
    assert waits() == (
        "its 3 machines are gathering: rank 0 on gpu-0 has not passed the network check"
    )
    rig.queue.gather(run.fences[0], 2, {})
    assert waits() == ""
    run.start()
    assert waits() == ""


def test_a_job_runs_until_its_last_rank_has_ended(rig: Rig) -> None:
    run = running(rig)
    run.start()
    rig.queue.report(run.fences[0], Phase.FINISHING)
    run.end(0)
    run.end(1)
    found = said(rig, run.job_id)
    assert found.text.startswith("running on gpu-0, gpu-1 and gpu-2 for ")
    assert found.text.partition("; ")[2] == "1 of its 3 ranks has not ended: rank 2 on gpu-2"
    assert rig.jobs.job(run.job_id)["phase"] == Phase.RUNNING
    (row,) = OverviewReader(rig.database).now(jobs=1)["jobs"]
    assert row["phase"] == Phase.RUNNING
    rig.queue.report(run.fences[2], Phase.FINISHING)
    assert rig.jobs.job(run.job_id)["phase"] == Phase.FINISHING


def test_a_rank_that_ends_because_of_another_is_explained(rig: Rig) -> None:
    run = running(rig, nodes=2)
    run.start()
    run.end(1, Reason.EXIT_CODE, exit_code=1)
    told = said(rig, run.job_id).text.partition("; ")[2]
    assert told == (
        "it is asked to end: its run is over; 1 of its 2 ranks has not ended: rank 0 on gpu-0"
    )


def test_a_gang_too_large_for_each_machine_is_told_what_they_have(rig: Rig) -> None:
    for n in range(3):
        gang_worker(rig, f"w{n}", cpus=0.5)
    found = said(rig, rig.submit(nodes=2))
    assert found.text == "it needs 2 machines, and no worker could run it (3 checked)"
    less = found.remedies[0]
    assert (less.text, less.changes) == (
        "request 0.5 CPUs instead of 1: 3 workers have it",
        {"cpus": 0.5},
    )
    few = said(rig, rig.submit(nodes=4))
    assert [one.code for one in few.remedies] == ["add_worker"]
