"""Claims from more lanes than one look sees."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, NoReturn
from unittest.mock import Mock, patch
from uuid import uuid4

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.database.statements import statement
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.states import Command
from forge_schema.queue import lanes
from forge_schema.queue.lane import SHOWN
from forge_schema.queue.lanes import FEW, LEAPT, SERVES_S, LaneBook, Lanes
from support.at_once import at_once
from support.gangs.drafts import drafted, fresh, late, turn_over
from support.queue.rig import Worker, spec
from support.waiting import eventually

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig

LONG_S = 3600
MANY = [f"o{n}" for n in range(3 * SHOWN)]


def attentive(rig: Rig, name: str = "w", refresh_s: float = LONG_S) -> Worker:
    """Register a worker that reads its lanes once."""
    worker = rig.worker(name)
    worker.lanes = Lanes(rig.database, worker.id, refresh_s=refresh_s)
    return worker


def submit(rig: Rig, owners: list[str], each: int, **changes: object) -> list[int]:
    """Submit the same number of jobs for each owner."""
    return rig.queue.submit([spec(owner=owner, **changes) for owner in owners for _ in range(each)])


@pytest.mark.parametrize("count", [1, 7])
def test_all_owners_get_the_same(rig: Rig, count: int) -> None:
    submit(rig, MANY, 4)
    worker = attentive(rig)
    owners: Counter[str] = Counter()
    while owners.total() < 2 * len(MANY):
        left = 2 * len(MANY) - owners.total()
        owners.update(grant.owner for grant in worker.claim(min(count, left)))
    assert set(owners.values()) == {2}


def test_weights_count(rig: Rig) -> None:
    rig.admin.limit_owner("o5", OwnerSettings(weight=3))
    submit(rig, MANY, 8)
    worker = attentive(rig)
    owners = Counter(worker.claim_one().owner for _ in range(len(MANY) + 2))
    assert owners == {owner: 3 if owner == "o5" else 1 for owner in MANY}


def test_urgent_jobs_go_first_wherever_they_are(rig: Rig) -> None:
    submit(rig, MANY, 2)
    urgent = submit(rig, MANY[-3:], 2, priority=5)
    worker = attentive(rig)
    claimed = [worker.claim_one().job_id for _ in range(8)]
    assert sorted(claimed[:6]) == urgent
    assert not {*claimed[6:]} & {*urgent}


def test_lanes_that_others_have_emptied_are_passed(rig: Rig) -> None:
    submit(rig, MANY, 1)
    worker, other = attentive(rig), attentive(rig, "other")
    first = worker.claim_one()
    taken = other.claim(len(MANY) - 2)
    last = worker.claim_one()
    assert {grant.owner for grant in (first, *taken, last)} == {*MANY}
    assert worker.claim() == []


def test_a_job_in_a_lane_that_was_empty_is_found_after_a_hint(rig: Rig) -> None:
    submit(rig, MANY, 1)
    worker = attentive(rig)
    for owner in MANY:
        submit(rig, [owner], 1)
    assert len(worker.claim(2 * len(MANY))) == 2 * len(MANY)
    (job,) = submit(rig, MANY[4:5], 1)
    worker.lanes.doubt()
    assert worker.claim_one().job_id == job


def test_owners_at_their_limit_hide_no_others(rig: Rig) -> None:
    submit(rig, MANY, 1, priority=5)
    (job,) = submit(rig, ["last"], 1)
    for owner in MANY:
        rig.admin.limit_owner(owner, OwnerSettings(max_jobs=0))
    assert attentive(rig).claim_one().job_id == job


def test_jobs_that_do_not_fit_hide_no_others(rig: Rig) -> None:
    submit(rig, MANY, 1, priority=5, cpus=8)
    (job,) = submit(rig, ["last"], 1)
    worker = rig.worker(cpus=8)
    worker.lanes = Lanes(rig.database, worker.id, refresh_s=LONG_S, patience_s=LONG_S)
    worker.free = replace(worker.free, cpus=4)
    assert worker.claim_one().job_id == job


def test_reading_many_lanes_sorts_them_in_memory(rig: Rig) -> None:
    owners = [f"o{n}" for n in range(1000)]
    submit(rig, owners, 1)
    with rig.database.connection() as connection:
        connection.execute("ANALYZE")
        explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement("match")
        which = {"few": FEW, "leapt": LEAPT, "besides": "{}", "skipped": "{}"}
        row = connection.execute(explain, which).fetchone()
    assert row is not None
    plan = row["QUERY PLAN"][0]["Plan"]
    assert plan["Actual Rows"] == len(owners)
    assert plan["Temp Written Blocks"] == 0


def test_what_a_lost_answer_granted_is_found_though_its_lane_is_empty(rig: Rig) -> None:
    owners = [f"o{n}" for n in range(FEW + 2)]
    submit(rig, owners, 1)
    worker, nonce = attentive(rig), uuid4()
    queue, lanes, free = rig.queue, worker.lanes, worker.free
    granted = queue.finish_and_claim([], lanes, free, count=2, nonce=nonce)[1]
    again = queue.finish_and_claim([], lanes, free, count=2, nonce=nonce, repeated=True)[1]
    assert fences(again) == fences(granted)


def test_workers_with_one_book_read_the_lanes_once_and_share_what_they_claim(rig: Rig) -> None:
    submit(rig, MANY, 3)
    book = LaneBook(rig.database)
    workers = [attentive(rig, f"w{n}") for n in range(6)]
    for worker in workers:
        worker.lanes = Lanes(rig.database, worker.id, refresh_s=LONG_S, book=book)
        worker.claim_one()
    rig.database.ran.clear()
    owners = [worker.claim_one().owner for worker in workers for _ in range(5)]
    assert len({*owners}) == len(owners) == len(MANY) - len(workers)
    assert {*rig.database.names()} == {"finish_and_claim"}


def test_workers_with_one_book_read_only_lanes_that_they_could_serve(rig: Rig) -> None:
    """A new one reads all lanes, unless another has just now; one that serves more shares them."""
    submit(rig, MANY, 2)
    submit(rig, MANY, 1, cpus=8)
    book = LaneBook(rig.database)
    small, large = rig.worker("small", cpus=1), rig.worker("large", cpus=8)

    def join(worker: Worker) -> None:
        worker.lanes = Lanes(rig.database, worker.id, refresh_s=LONG_S, book=book)

    def reads(worker: Worker) -> tuple[int, int]:
        """Return how often it reads the lanes for a claim, and how many it knows then."""
        rig.database.ran.clear()
        worker.claim_one()
        return rig.database.names().count("match"), len(worker.lanes._edition.lanes)

    for worker, times in ((small, 1), (large, 0)):
        join(worker)
        assert reads(worker) == (times, 2 * len(MANY))
    for worker, known in ((small, len(MANY)), (large, 2 * len(MANY))):
        worker.lanes.forget()
        assert reads(worker) == (1, known)
    small.lanes._asked_at -= SERVES_S + 1
    small.lanes.forget()
    assert reads(small) == (1, len(MANY))
    # Enough kinds have editions of their own already.
    with patch.object(lanes, "KINDS", 2):
        tiny = rig.worker("tiny", cpus=0.5)
        join(tiny)
        submit(rig, MANY[:2], 1, cpus=0.5)
        for _ in range(2):
            tiny.lanes.forget()
            assert reads(tiny) == (1, 2 * len(MANY) + 2)


def test_workers_with_one_book_read_the_lanes_once_after_a_hint(rig: Rig) -> None:
    submit(rig, MANY, 1)
    book = LaneBook(rig.database)
    workers = [rig.worker(f"w{n}") for n in range(3)]
    for worker in workers:
        worker.lanes = Lanes(rig.database, worker.id, refresh_s=LONG_S, book=book)
    workers[0].claim(len(MANY))
    assert [worker.claim() for worker in workers[1:]] == [[], []]
    jobs = submit(rig, MANY[4:7], 1)
    rig.database.ran.clear()
    hinted_at = monotonic()
    for worker in workers[1:]:
        worker.lanes.doubt(hinted_at)
    assert [worker.claim_one().job_id for worker in workers[1:]] == jobs[:2]
    assert rig.database.names().count("match") == 1


def test_a_worker_with_a_shared_book_stops_and_goes_on_as_it_is_asked(rig: Rig) -> None:
    submit(rig, MANY, 1)
    book = LaneBook(rig.database)
    worker, other = rig.worker(), rig.worker("other")
    for one in (worker, other):
        one.lanes = Lanes(rig.database, one.id, refresh_s=-1, book=book)
    rig.registry.command(worker.id, Command.DRAIN)
    assert (len(worker.claim()), len(other.claim())) == (0, 1)
    rig.registry.command(worker.id, None)
    assert len(worker.claim()) == 1


@pytest.mark.parametrize("leapt", [LEAPT, FEW])
@pytest.mark.parametrize("owners", [SHOWN, FEW + 44])
def test_only_lanes_of_shapes_that_a_worker_serves_are_read(
    rig: Rig, leapt: int, owners: int
) -> None:
    worker, named, large = rig.worker(), [f"o{n}" for n in range(owners)], 10**7
    jobs = rig.queue.submit([spec(owner=o, memory_mb=mb) for o in named for mb in (1, large)])
    submit(rig, ["o1"], 1, memory_mb=large, priority=1)
    with patch.object(lanes, "LEAPT", leapt):
        edition = worker.lanes._read(monotonic())
        assert [lane.needs.memory_mb for lane in edition.lanes.values()] == [1] * owners
        assert sorted(grant.job_id for grant in worker.claim(owners)) == jobs[::2]
        # Of a new shape that it could serve, and of one that it could not.
        job, _ = rig.queue.submit([spec(memory_mb=2), spec(memory_mb=large + 1)])
        for expected in ([job], []):
            worker.lanes.forget()
            assert [grant.job_id for grant in worker.claim(2)] == expected
        left = {lane.needs.memory_mb for lane in worker.lanes._edition.lanes.values()}
    assert left <= {1, 2}


def test_gangs_are_seen_among_lanes_that_are_leapt(rig: Rig) -> None:
    """A gang's shape is none that a worker serves alone, and is asked for by its lane."""
    submit(rig, [f"o{n}" for n in range(FEW + 44)], 1)
    rig.rows("DELETE FROM ready")
    workers = [fresh(rig, f"w{n}") for n in range(2)]
    assert [worker.look() for worker in workers] == [[], []]
    # Once the first has formed, the second keeps the lane among those with jobs.
    gangs = submit(rig, ["gang"], 2, nodes=2)
    met = {grant.job_id for _ in range(3) for worker in workers for grant in worker.look()}
    assert (met, [rig.places(job) for job in gangs]) == ({*gangs}, [["lease", "lease"]] * 2)
    assert rig.count("attempt") == 0


def test_a_draft_is_kept_among_lanes_that_are_leapt(rig: Rig) -> None:
    submit(rig, [f"o{n}" for n in range(FEW + 44)], 1)
    rig.rows("DELETE FROM ready")
    workers = [fresh(rig, f"w{n}") for n in range(2)]
    submit(rig, ["z"], 2)
    assert all(worker.look() for worker in workers)
    late(rig, owner="gang")
    assert len(drafted(rig)) > 0
    submit(rig, ["y"], 4)
    turn_over(workers[0])
    assert workers[0].grants == []


def test_a_worker_that_could_not_ask_which_shapes_it_serves_asks_again(rig: Rig) -> None:
    submit(rig, ["ann"], 2)
    worker = attentive(rig)
    worker.claim_one()
    (job,) = submit(rig, ["bob"], 1, cpus=2, priority=1)
    worker.lanes.forget()
    rig.database.meanwhile["serves"] = Mock(side_effect=DatabaseUnreachable("it is away"))
    with pytest.raises(DatabaseUnreachable):
        worker.claim()
    assert worker.claim_one().job_id == job


def test_workers_that_wait_for_a_reading_of_the_lanes_share_its_time_out(rig: Rig) -> None:
    book, line, reads = LaneBook(rig.database), Line(), Counter[str]()
    silent = DatabaseUnreachable("the database does not answer")

    def rows(*_: object, **__: object) -> NoReturn:
        reads["match"] += 1
        eventually(lambda: len(line.came) == 4)
        raise silent

    def look() -> DatabaseUnreachable:
        with pytest.raises(DatabaseUnreachable) as error:
            book.edition(monotonic())
        return error.value

    with patch.object(rig.database, "rows", rows), patch.object(book, "_reading", line):
        assert at_once(*[look] * 4) == [silent] * 4
    assert reads["match"] == 1
    assert book.edition(monotonic()).lanes == {}


class Line:
    """A lock that counts those who came for it."""

    def __init__(self) -> None:
        self.came: list[None] = []
        self._lock = Lock()

    def __enter__(self) -> None:
        self.came.append(None)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_what_one_worker_passes_by_for_its_reservation_is_hidden_from_no_other(rig: Rig) -> None:
    submit(rig, MANY, 1)
    large = submit(rig, ["large"], 1, cpus=4, priority=1)
    book = LaneBook(rig.database)
    worker, other = rig.worker(cpus=4), rig.worker("other", cpus=2)
    for one in (worker, other):
        one.lanes = Lanes(rig.database, one.id, refresh_s=LONG_S, patience_s=0, book=book)
    assert rig.queue.claim(worker.lanes, replace(worker.free, cpus=2)) == []
    assert len(other.claim(2)) == 2
    assert [grant.job_id for grant in worker.claim()] == large


def test_workers_at_once_leave_nothing_and_take_nothing_twice(rig: Rig) -> None:
    owners = [f"o{n}" for n in range(FEW + 44)]
    jobs = submit(rig, owners, 2)
    workers = [attentive(rig, f"w{n}", refresh_s=0.2) for n in range(4)]

    def work(worker: Worker) -> list[int]:
        found: list[int] = []
        while grants := worker.claim(3):
            found += [grant.job_id for grant in grants]
        return found

    shares = at_once(*[lambda worker=worker: work(worker) for worker in workers])
    assert sorted(job for share in shares for job in share) == jobs


def fences(grants: list[Grant]) -> set[object]:
    return {grant.fence for grant in grants}
