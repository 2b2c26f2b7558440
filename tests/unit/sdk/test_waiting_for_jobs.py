"""Jobs in `concurrent.futures` and in asyncio."""

from __future__ import annotations

import asyncio
from concurrent import futures
from threading import Event

import pytest
from forge_client import (
    AsyncClient,
    AsyncJob,
    AsyncSweep,
    Client,
    ClientError,
    Job,
    JobFailed,
    Sweep,
)
from forge_client.sdk import watch
from forge_schema.model.job import JobDetail, JobStatus
from forge_schema.model.results import Result
from support.client.backends import FakeBackend, job
from support.waiting import eventually

HERE = {"sync", "future", "name", "state", "port"}


class Found:
    """What each job found: its id."""

    def result(self, job_id: int, *, rank: int = 0) -> Result:
        return Result(values={"id": job_id + rank})


class Ending(FakeBackend):
    """Its jobs end one by one, the first one without success."""

    findings = Found()

    def __init__(self, *states: str) -> None:
        super().__init__([job(n, state) for n, state in enumerate(states, start=1)])

    def end(self, job_id: int, state: str) -> None:
        self.states[job_id - 1] = job(job_id, state, exit_code=3, reason="exit_code")

    def jobs(self) -> list[Job]:
        return [Job(self.as_backend(), one.job_id) for one in self.states]


def test_futures_of_jobs_are_futures_of_the_standard_library() -> None:
    backend = Ending("running", "running", "running")
    waited = {one.future(): one.id for one in backend.jobs()}
    backend.end(2, "succeeded")
    done, _ = futures.wait(waited, timeout=60, return_when=futures.FIRST_COMPLETED)
    assert [(waited[one], one.result()) for one in done] == [(2, {"id": 2})]
    backend.end(1, "failed")
    backend.end(3, "succeeded")
    assert {waited[one] for one in futures.as_completed(waited, timeout=60)} == {1, 2, 3}
    failed = next(one for one, job_id in waited.items() if job_id == 1)
    assert isinstance(failed.exception(), JobFailed)


def test_all_jobs_are_asked_for_together() -> None:
    backend, all_made = Ending(*["succeeded"] * 30), Event()

    def wait_for_all() -> None:
        assert all_made.wait(60)

    backend.look = wait_for_all
    waited = [one.future() for one in backend.jobs()]
    all_made.set()
    futures.wait(waited, timeout=60)
    assert len(backend.asked) <= 2


def test_a_cancelled_future_stops_waiting_and_leaves_the_job_alone() -> None:
    backend = Ending("running", "running")
    first, second = (one.future() for one in backend.jobs())
    assert first.cancel()
    backend.end(2, "succeeded")
    assert second.result(timeout=60) == {"id": 2}
    assert backend.states[0].state == "running"
    eventually(lambda: backend.as_backend() not in watch._watches)


def test_a_queue_that_does_not_answer_ends_the_waiting() -> None:
    def refuse() -> None:
        raise ClientError("no answer")

    backend = Ending("running")
    backend.look = refuse
    with pytest.raises(ClientError, match="no answer"):
        backend.jobs()[0].future().result(timeout=60)


def test_a_job_that_was_removed_ends_the_waiting() -> None:
    backend = Ending("running")
    gone = Job(backend.as_backend(), 9)
    with pytest.raises(ClientError, match="there is no job 9"):
        gone.future().result(timeout=60)


def test_jobs_are_awaited_together_and_the_waiting_is_cancelled() -> None:
    backend = Ending("succeeded", "succeeded", "failed", "running")

    async def wait() -> object:
        first, second, third, fourth = backend.jobs()
        assert await first == {"id": 1}
        with pytest.raises(JobFailed):
            await AsyncJob(third)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fourth, 0.01)
        return await asyncio.gather(AsyncJob(second), first)

    assert asyncio.run(wait()) == [{"id": 2}, {"id": 1}]
    assert backend.states[3].state == "running"


class Stopping(Job):
    """A job of a function that raised StopIteration."""

    def _outcome(self, status: JobStatus) -> object:
        raise StopIteration(status.state)


def test_a_function_that_raised_stop_iteration_is_awaited() -> None:
    stopping = Stopping(Ending("failed").as_backend(), 1)

    async def wait() -> object:
        return await asyncio.wait_for(stopping, 60)

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(wait())


def test_a_log_is_followed_without_blocking() -> None:
    backend = FakeBackend([job(state="running"), job(state="running"), job(state="succeeded")])
    backend.write(b"caf\xc3")
    backend.write(b"\xa9\n")

    async def read() -> list[str]:
        followed = AsyncJob(Job(backend.as_backend(), 1)).logs(follow=True)
        return [text async for text in followed]

    assert "".join(asyncio.run(read())) == "café\n"


@pytest.mark.parametrize(
    ("kind", "other"), [(Client, AsyncClient), (Job, AsyncJob), (Sweep, AsyncSweep)]
)
def test_asyncio_has_every_method(kind: type, other: type) -> None:
    named = {name for name in dir(kind) if not name.startswith("_")}
    assert named - set(dir(other)) - HERE == set()


@pytest.mark.parametrize(
    ("state", "word", "exhausted"),
    [("ready", "queued", False), ("scheduled", "queued", False), ("dead", "failed", True)],
)
def test_a_server_of_0_2_is_understood(state: str, word: str, *, exhausted: bool) -> None:
    status = job(state=state)
    assert (status.state, status.exhausted) == (word, exhausted)
    assert JobDetail.model_validate_json(status.model_dump_json()) == status
