"""Jobs share threads one after another, never at once."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from threading import Event, Thread, current_thread, get_ident
from typing import TYPE_CHECKING

import pytest
from forge_worker import loop
from forge_worker.loop import SpareThreads

if TYPE_CHECKING:
    from support.waiting import Eventually


def test_a_thread_whose_job_has_ended_runs_the_next_one(eventually: Eventually) -> None:
    threads, used = SpareThreads(), list[tuple[int, str]]()

    def job() -> None:
        used.append((get_ident(), current_thread().name))

    threads.start("job 1", job)
    eventually(lambda: threads.idle == 1)
    threads.start("job 2", job)
    eventually(lambda: threads.idle == 1 and len(used) == 2)
    (first, _), (second, _) = used
    assert first == second
    assert [name for _, name in used] == ["job 1", "job 2"]


def test_jobs_that_run_at_once_have_threads_of_their_own(eventually: Eventually) -> None:
    threads, may_end, used = SpareThreads(), Event(), set[int]()

    def job() -> None:
        used.add(get_ident())
        assert may_end.wait(60)

    for n in range(3):
        threads.start(f"job {n}", job)
    eventually(lambda: len(used) == 3)
    may_end.set()
    eventually(lambda: threads.idle == 3)


def test_a_thread_without_a_job_ends(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(loop, "IDLE_S", 0.0)
    threads, own = SpareThreads(), SimpleQueue[Thread]()
    threads.start("job 1", lambda: own.put(current_thread()))
    ran = own.get(timeout=60)
    eventually(lambda: not ran.is_alive())
    assert threads.idle == 0


def test_a_job_given_to_a_thread_that_is_about_to_end_runs(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(loop, "IDLE_S", 0.0)
    threads, ran = SpareThreads(), list[int]()
    for n in range(200):
        threads.start(f"job {n}", partial(ran.append, n))
    eventually(lambda: len(ran) == 200)


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_leaves_nothing_behind_is_followed_in_its_thread(
    eventually: Eventually, *, fails: bool
) -> None:
    threads, used = SpareThreads(), list[int]()

    def job() -> None:
        used.append(get_ident())
        threads.reuse()
        threads.start("job 2", lambda: used.append(get_ident()))
        assert len(used) == 1
        if fails:
            raise ValueError

    threads.start("job 1", job)
    eventually(lambda: threads.idle == 1 and len(used) == 2)
    assert len(set(used)) == 1
