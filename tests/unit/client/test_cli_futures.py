"""Jobs as futures."""

from __future__ import annotations

import pytest
from forge_client import ClientError, Job, JobCancelled, JobFailed, as_completed, wait
from forge_client.sdk.client import _filled
from support.client.backends import FakeBackend, ended, job


def test_the_end_is_waited_for() -> None:
    backend = FakeBackend([job(state="ready"), job(), job(state="succeeded", exit_code=0)])
    assert Job(backend.as_backend(), 1).wait(timeout=60).exit_code == 0


def test_a_failed_job_raises_with_its_reason_exit_code_and_last_lines() -> None:
    backend = FakeBackend([job(state="dead", reason="exit_code", exit_code=3)])
    backend.write(b"a\nValueError: no\n")
    with pytest.raises(JobFailed) as caught:
        Job(backend.as_backend(), 1).result()
    error = caught.value
    assert (error.status.reason, error.status.exit_code) == ("exit_code", 3)
    assert error.tail == "a\nValueError: no"
    assert "exit code 3" in str(error)
    assert "ValueError: no" in str(error)


def test_the_last_lines_are_those_of_the_rank_that_failed_first() -> None:
    backend = FakeBackend([job(state="failed", reason="exit_code", exit_code=3, nodes=3)])
    for rank in range(3):
        backend.write(b"from %d\n" % rank, rank=rank)
    backend.history = [
        ended(1, "run_ended", rank=0),
        ended(1, "exit_code", rank=1, exit_code=3),
        ended(1, "run_ended", rank=2),
    ]
    failed = Job(backend.as_backend(), 1)
    with pytest.raises(JobFailed) as raised:
        failed.result()
    assert raised.value.tail == "from 1"
    assert list(failed.logs(rank=2)) == ["from 2\n"]
    assert list(failed.logs(rank=2, follow=True)) == ["from 2\n"]


def test_a_cancelled_job_raises_so() -> None:
    backend = FakeBackend([job(state="cancelled", reason="cancelled")])
    with pytest.raises(JobCancelled):
        Job(backend.as_backend(), 1).result()


def test_a_result_that_takes_too_long_times_out() -> None:
    backend = FakeBackend([job()])
    with pytest.raises(TimeoutError, match="running"):
        Job(backend.as_backend(), 1).result(timeout=0)


def test_jobs_come_as_they_end_with_one_question_for_all() -> None:
    backend = FakeBackend([job(n) for n in (1, 2, 3)])
    ends = iter([2, 3, 1])

    def end_one() -> None:
        if len(backend.asked) > 1:
            ended = next(ends)
            backend.states = [
                job(s.job_id, "dead" if s.job_id == ended else s.state) for s in backend.states
            ]

    backend.look = end_one
    jobs = [Job(backend.as_backend(), n) for n in (1, 2, 3)]
    assert [one.id for one in as_completed(jobs, timeout=60)] == [2, 3, 1]
    assert backend.asked == [[1, 2, 3], [1, 2, 3], [1, 3], [1]]


def test_waiting_tells_who_is_done_and_who_is_not() -> None:
    backend = FakeBackend([job(1, "succeeded"), job(2)])
    jobs = [Job(backend.as_backend(), n) for n in (1, 2)]
    done, not_done = wait(jobs, timeout=0)
    assert ({one.id for one in done}, {one.id for one in not_done}) == ({1}, {2})
    with pytest.raises(TimeoutError):
        list(as_completed(jobs, timeout=0))


def test_equal_jobs_are_equal() -> None:
    backend = FakeBackend().as_backend()
    assert {Job(backend, 1), Job(backend, 1)} == {Job(backend, 1)}
    assert Job(backend, 1) != Job(FakeBackend().as_backend(), 1)


def test_placeholders_are_filled_once_and_other_braces_left_alone() -> None:
    command = ["{a}-{b}", '{"json": {a}}', "${c}"]
    assert _filled(command, {"a": "{b}", "b": 2}) == ["{b}-2", '{"json": {b}}', "${c}"]
    assert _filled(["x{}"], {}) == ["x{}"]
    with pytest.raises(ClientError, match=r"has \{c\}, .* values only for a") as refused:
        _filled(["{a}", "--c={c}"], {"a": 1})
    assert "'c': '{c}' keeps the braces" in refused.value.hint
    assert _filled(["{c}"], {"c": "{c}"}) == ["{c}"]


def test_an_outage_does_not_end_the_wait() -> None:
    backend = FakeBackend([job(state="succeeded")], slowest_s=0.0)
    gone = ClientError("the database does not answer", code="database_unreachable")
    answers = iter([gone, gone, None])

    def look() -> None:
        if error := next(answers):
            raise error

    backend.look = look
    waited = Job(backend.as_backend(), 1)
    assert list(as_completed([waited], timeout=60)) == [waited]
    assert len(backend.asked) == 3
