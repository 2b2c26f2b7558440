"""The gateway: the same over SQL and over HTTP, and calls repeated after a lost answer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from forge_schema.model.attempt_records import (
    ArtifactRecord,
    CheckpointRecord,
    LogChunkRecord,
    MetricLines,
    MetricRecord,
    ReportedResult,
    ReportedTests,
    StoredArtifacts,
)
from forge_schema.model.attempt_records import Tested as OneTest
from forge_schema.model.lease import End, Fence, Gathering, Member, Usage
from forge_schema.model.states import (
    Command,
    Phase,
    Reason,
    Standing,
    State,
    Verdict,
    WorkerKind,
    WorkerStatus,
)
from forge_schema.queue.queue import WorkerUnknown
from forge_worker.circuit_breaker import ServerUnreachable
from forge_worker.queue.gateway import SqlGateway
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.session import ServerRefused, TokenRefused
from support.gangs.runs import formed, gang
from support.http.api import opened
from support.http.http_worker import DIGEST, PLENTY, claimed, machine, session
from support.store.storage import proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forge_schema.model.lease import Grant
    from forge_worker.queue.gateway import Gateway
    from support.http.api import Api
    from support.queue.rig import Rig
    from support.store.storage import Proxy
    from support.waiting import Eventually

TTL = timedelta(seconds=120)


@pytest.fixture
def api(rig: Rig, tmp_path: Path) -> Iterator[Api]:
    with opened(rig, tmp_path / "store", long_poll_s=0.2) as made:
        yield made


@pytest.fixture
def token(api: Api) -> str:
    return api.workers.create("w")[1]


@pytest.fixture(params=["sql", "http"])
def gateway(request: pytest.FixtureRequest, rig: Rig) -> Iterator[Gateway]:
    if request.param == "sql":
        direct = SqlGateway(rig.database, name="w", ttl=TTL)
        direct.register(machine())
        yield direct
        return
    api: Api = request.getfixturevalue("api")
    with session([api.url], request.getfixturevalue("token")) as opened_session:
        over_http = HttpGateway(opened_session)
        over_http.register(machine())
        yield over_http


def grant_of(gateway: Gateway, rig: Rig, **fields: Any) -> Grant:  # noqa: ANN401  fields of all types
    rig.submit(**fields)
    gateway.new_work()
    (grant,) = gateway.finish_and_claim([], PLENTY, 1)[1]
    return grant


def chunk(grant: Grant, number: int = 0) -> LogChunkRecord:
    key = f"jobs/{grant.fence.job_id}/{grant.attempt}-{grant.fence.mark}/logs/{number:08d}.zst"
    return LogChunkRecord(number, key, 0, 5, DIGEST)


def checkpoint(grant: Grant) -> CheckpointRecord:
    stem = f"jobs/{grant.fence.job_id}/{grant.attempt}-{grant.fence.mark}/checkpoints"
    return CheckpointRecord(0, f"{stem}/000000.json", 2, 10)


TESTED = OneTest(0, "s", "t", Verdict.ERROR, 0.5, "é")


def artifact(grant: Grant, path: str = "a") -> ArtifactRecord:
    stem = f"jobs/{grant.fence.job_id}/{grant.attempt}-{grant.fence.mark}/artifacts"
    return ArtifactRecord(path, f"{stem}/{path}", 1, DIGEST)


def test_a_worker_is_awaited_by_a_job_of_just_now_and_by_a_gang(gateway: Gateway, rig: Rig) -> None:
    assert not gateway.is_awaited()
    job = rig.submit()
    assert gateway.is_awaited()
    rig.queue.cancel(job)
    gang = rig.submit(nodes=2)
    assert not gateway.is_awaited()
    rig.rows(
        "INSERT INTO draft (worker_id, job_id, lane_id, nice, until)"
        " SELECT worker.id, job_id, lane_id, nice, forge_now() + '1 minute' FROM worker, ready"
        f" WHERE job_id = {gang}"
    )
    assert gateway.is_awaited()


def test_a_job_goes_its_way(gateway: Gateway, rig: Rig) -> None:
    grant = grant_of(gateway, rig, timeout_s=60, priority=7, env={"A": "b"})
    assert (grant.priority, grant.timeout_s, grant.attempt, grant.owner) == (7, 60, 1, "ann")
    assert grant.spec["env"] == {"A": "b"}
    assert gateway.report(grant.fence, Phase.RUNNING, devices=["GPU-1"]) is Standing.OK
    assert gateway.record(grant.fence, chunk(grant))
    assert gateway.latest_checkpoint(grant.fence.job_id) is None
    assert gateway.record(grant.fence, checkpoint(grant))
    latest = gateway.latest_checkpoint(grant.fence.job_id)
    assert latest is not None
    assert (latest["key"], latest["files"]) == (checkpoint(grant).key, 2)
    assert gateway.record(grant.fence, StoredArtifacts([artifact(grant)]))
    lines = [MetricRecord(0, 1.0, {"loss": 0.5, "deep": [{"x": None}]})]
    assert gateway.record(grant.fence, MetricLines(lines, 0.5))
    assert gateway.record(grant.fence, ReportedResult({"a": [1, None]}))
    assert gateway.record(grant.fence, ReportedTests([TESTED]))
    assert (rig.jobs.result(grant.fence.job_id) or {})["values"] == {"a": [1, None]}
    (tested,) = rig.jobs.tests(grant.fence.job_id)
    assert (tested["name"], tested["verdict"], tested["message"]) == ("t", "error", "é")
    lease = rig.row("SELECT phase, devices, progress FROM lease")
    assert tuple(lease.values()) == ("running", ["GPU-1"], 0.5)
    renewal = gateway.renew([grant.fence], WorkerStatus.BUSY)
    assert (renewal.standings, renewal.command) == ({grant.fence: Standing.OK}, None)
    usage = Usage(gpu_seconds=2.0, energy_j=3.0, cost=4.0)
    end = End(grant.fence, Reason.SUCCEEDED, 0, usage=usage)
    (ended,), grants = gateway.finish_and_claim([end], PLENTY, 1)
    assert (ended.job_id, ended.accepted, ended.state) == (
        grant.fence.job_id, True, State.SUCCEEDED,
    )  # fmt: skip
    assert grants == []
    (attempt,) = rig.jobs.attempts(grant.fence.job_id)
    assert (attempt["gpu_seconds"], attempt["cost"]) == (2.0, 4.0)
    gateway.disconnect()
    assert rig.registry.workers()[0]["status"] == "offline"


def test_a_lease_that_was_lost_is_lost_in_every_word(gateway: Gateway, rig: Rig) -> None:
    grant = grant_of(gateway, rig)
    rig.expire()
    rig.tick.run()
    fence = grant.fence
    assert gateway.report(fence, Phase.RUNNING) is Standing.LOST
    assert not gateway.record(fence, chunk(grant))
    assert not gateway.record(fence, checkpoint(grant))
    assert not gateway.record(fence, StoredArtifacts([artifact(grant)]))
    assert not gateway.record(fence, MetricLines([MetricRecord(0, None, {})], None))
    assert not gateway.record(fence, ReportedResult({}))
    assert not gateway.record(fence, ReportedTests([TESTED]))
    assert gateway.renew([fence], WorkerStatus.BUSY).standings == {fence: Standing.LOST}
    success, failure = End(fence, Reason.SUCCEEDED), End(fence, Reason.OOM)
    assert [ended.accepted for ended in gateway.finish([failure])] == [False]
    assert not gateway.finish_and_claim([success], PLENTY, 0)[0][0].accepted
    unheard = replace(fence, nonce=uuid4())
    assert gateway.report(unheard, Phase.RUNNING) is Standing.LOST
    assert [end.accepted for end in gateway.finish([End(unheard, Reason.OOM)])] == [False]
    assert not gateway.finish_and_claim([End(unheard, Reason.SUCCEEDED)], PLENTY, 0)[0][0].accepted


def test_what_is_asked_is_heard(gateway: Gateway, rig: Rig) -> None:
    first, second = grant_of(gateway, rig), grant_of(gateway, rig)
    rig.queue.cancel(first.fence.job_id)
    rig.queue.preempt(second.fence.job_id)
    rig.registry.command(rig.registry.workers()[0]["id"], Command.DRAIN)
    renewal = gateway.renew([first.fence, second.fence], WorkerStatus.BUSY)
    assert list(renewal.standings.values()) == [Standing.CANCELLED, Standing.PREEMPTED]
    assert renewal.command == Command.DRAIN
    assert gateway.report(first.fence, Phase.RUNNING) is Standing.CANCELLED


def test_a_member_gathers_with_the_others_and_ends_with_them(gateway: Gateway, rig: Rig) -> None:
    other = rig.worker("other")
    mine = replace(other, name="w", id=rig.registry.named("w"))
    run = formed(rig, gang(rig, 2), [mine, other])
    fence = run.fences[0]
    told = gateway.gather(fence, 1, {"address": "10.0.0.5"})
    members = [Member(0, "w", 1, {"address": "10.0.0.5"}), Member(1, "other", 0)]
    assert told == Gathering(Standing.OK, members)
    run.end(1, Reason.PREFLIGHT_FAILED)
    told = gateway.gather(fence, 1, {"address": "10.0.0.5"})
    assert (told.standing, told.members[1].over) == (Standing.ENDED, True)
    assert gateway.renew([fence], WorkerStatus.BUSY).standings == {fence: Standing.ENDED}
    assert gateway.report(fence, Phase.STOPPING) is Standing.ENDED
    (ended,) = gateway.finish([End(fence, Reason.RUN_ENDED)])
    assert (ended.accepted, ended.state) == (True, State.SCHEDULED)
    assert gateway.gather(fence, 2, {}) == Gathering(Standing.LOST)


def test_a_newer_boot_makes_this_one_unknown(gateway: Gateway, rig: Rig) -> None:
    rig.rows("UPDATE worker SET boot_id = gen_random_uuid()")
    with pytest.raises(WorkerUnknown):
        gateway.renew([], WorkerStatus.IDLE)
    gateway.register(machine())
    assert gateway.renew([], WorkerStatus.IDLE).standings == {}


def test_what_a_job_said_may_be_anything(gateway: Gateway, rig: Rig) -> None:
    grant = grant_of(gateway, rig)
    detail = "\0 \udcff \U0001f600" + "x" * 20_000
    (ended,) = gateway.finish([End(grant.fence, Reason.EXIT_CODE, 1, detail)])
    assert ended.accepted
    (attempt,) = rig.jobs.attempts(grant.fence.job_id)
    assert attempt["detail"].startswith("\ufffd ? \U0001f600x")
    assert len(attempt["detail"]) == 10_000


def test_no_room_is_no_error(gateway: Gateway, rig: Rig) -> None:
    rig.submit()
    assert gateway.finish_and_claim([], replace(PLENTY, cpus=-1e-16), 1) == ([], [])


def test_many_rows_travel(gateway: Gateway, rig: Rig) -> None:
    grant = grant_of(gateway, rig)
    files = [artifact(grant, f"{n:05d}/{'p' * 200}") for n in range(12_000)]
    assert gateway.record(grant.fence, StoredArtifacts(files))
    assert rig.count("artifact") == 12_000
    lines = [MetricRecord(n, float(n), {"text": "\x01" * 10_000}) for n in range(60)]
    lines += [MetricRecord(n, float(n), {"n": n}) for n in range(60, 12_000)]
    assert gateway.record(grant.fence, MetricLines(lines, 0.5))
    assert rig.count("metric") == 12_000


def test_an_admins_word_reaches_the_worker(api: Api) -> None:
    token = api.workers.create("spot", kind=WorkerKind.EPHEMERAL)[1]
    with session([api.url], token) as opened_session:
        told = HttpGateway(opened_session).register(machine(kind=WorkerKind.PERSISTENT))
    assert (told.kind, told.heartbeat_s) == (WorkerKind.EPHEMERAL, 30.0)


def test_a_token_that_was_replaced_is_read_again(api: Api, tmp_path: Path) -> None:
    worker_id, token = api.workers.create("w")
    file = tmp_path / "token"
    file.write_text(token)
    with session([api.url], token) as opened_session:
        opened_session._read_token = file.read_text
        gateway = HttpGateway(opened_session)
        gateway.register(machine())
        new = api.workers.rotate(worker_id)
        for _ in range(30):
            # The refused token is not sent again and again, which would lock the worker out.
            with pytest.raises(TokenRefused):
                gateway.renew([], WorkerStatus.IDLE)
        file.write_text(new)
        gateway.renew([], WorkerStatus.IDLE)


def test_what_a_server_refuses_is_not_asked_again(api: Api, token: str) -> None:
    with session([api.url], token) as opened_session:
        gateway = HttpGateway(opened_session)
        gateway.register(machine())
        grant = grant_of(gateway, api.rig)
        with pytest.raises(ServerRefused, match="404 this lease has no such object"):
            gateway.record(grant.fence, replace(chunk(grant), key="jobs/9/x"))
        assert gateway.renew([grant.fence], WorkerStatus.BUSY).standings


class Lossy:
    """A gateway whose next answers can get lost on the way back."""

    def __init__(self, gateway: HttpGateway, between: Proxy, rig: Rig) -> None:
        self.gateway, self.between, self.rig = gateway, between, rig

    def lost(self, act: Callable[[], object]) -> None:
        """Have the server do something, but lose its answer."""
        self.between.answer_limit = lambda _method, _path: 0
        seen = len(self.between.seen)
        with pytest.raises(ServerUnreachable):
            act()
        assert len(self.between.seen) == seen + 1
        self.between.answer_limit = lambda _method, _path: None

    def twice(self, act: Callable[[], Any], eventually: Eventually) -> Any:  # noqa: ANN401  its answer
        """Do something whose first answer is lost, and repeat it until it is answered."""
        self.lost(act)
        return answered(act, eventually)


def answered(act: Callable[[], Any], eventually: Eventually) -> Any:  # noqa: ANN401  its answer
    """Do something as soon as the server is reached again."""

    def once() -> tuple[Any]:
        try:
            return (act(),)
        except ServerUnreachable as error:
            raise AssertionError from error

    return eventually(once)[0]


@pytest.fixture
def lossy(api: Api, token: str) -> Iterator[Lossy]:
    with ExitStack() as held:
        between = held.enter_context(proxy(api.url))
        gateway = HttpGateway(held.enter_context(session([between.url], token)))
        gateway.register(machine())
        yield Lossy(gateway, between, api.rig)


def everything(rig: Rig) -> dict[str, int]:
    tables = ("lease", "ready", "outcome", "attempt", "log_chunk", "checkpoint", "artifact",
              "metric", "result", "test_result", "worker", "event")  # fmt: skip
    return {table: rig.count(table) for table in tables}


def verbs(gateway: HttpGateway, fence: Fence, grant: Grant) -> dict[str, Callable[[], object]]:
    """Return the first call of each verb that changes something, except the claim."""
    known = machine()
    lines = [MetricRecord(0, 1.0, {"a": 1}), MetricRecord(1, 2.0, {"a": 2})]
    success, failure = End(fence, Reason.SUCCEEDED, 0), End(fence, Reason.OOM, 137, "too much")
    return {
        "register": lambda: gateway.register(known),
        "renew": lambda: gateway.renew([fence], WorkerStatus.BUSY).standings,
        "report": lambda: gateway.report(fence, Phase.RUNNING, devices=["d"]),
        "gather": lambda: gateway.gather(fence, 1, {"address": "10.0.0.5"}).standing,
        "log chunk": lambda: gateway.record(fence, chunk(grant)),
        "checkpoint": lambda: gateway.record(fence, checkpoint(grant)),
        "artifacts": lambda: gateway.record(fence, StoredArtifacts([artifact(grant)])),
        "metrics": lambda: gateway.record(fence, MetricLines(lines, 0.5)),
        "result": lambda: gateway.record(fence, ReportedResult({"a": 1})),
        "tests": lambda: gateway.record(fence, ReportedTests([TESTED])),
        "success": lambda: gateway.finish_and_claim([success], PLENTY, 0)[0],
        "failure": lambda: gateway.finish([failure]),
        "disconnect": gateway.disconnect,
    }


VERBS = ["register", "renew", "report", "gather", "log chunk", "checkpoint", "artifacts", "metrics",
         "result", "tests", "success", "failure", "disconnect"]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_that_was_lost_is_answered_again_and_nothing_is_done_twice(
    lossy: Lossy,
    verb: str,
    eventually: Eventually,
) -> None:
    gateway, rig = lossy.gateway, lossy.rig
    grant = grant_of(gateway, rig)
    act = verbs(gateway, grant.fence, grant)[verb]
    lossy.lost(act)
    # Two registrations of one boot are two events, as any two are.
    once = everything(rig)
    answers = [answered(act, eventually), act()]
    assert answers[0] == answers[1]
    after = everything(rig)
    if verb == "register":
        assert after.pop("event") > once.pop("event")
    assert after == once
    if verb in {"success", "failure"}:
        (ended,) = answers[1]
        assert ended.accepted
    elif verb not in {"register", "disconnect", "renew", "report", "gather"}:
        assert answers[1] is True


def test_a_claim_whose_answer_was_lost_is_handed_out_again(
    lossy: Lossy,
    eventually: Eventually,
) -> None:
    gateway, rig = lossy.gateway, lossy.rig
    jobs = rig.submit_many(2)
    lossy.lost(lambda: claimed(gateway))
    rig.clock.advance(50)
    # A claim of no jobs does not ask for the lost grants.
    assert answered(lambda: gateway.finish_and_claim([], PLENTY, 0), eventually) == ([], [])
    (first,) = answered(lambda: claimed(gateway), eventually)
    assert (first.job_id, first.attempt, first.age_s) == (jobs[0], 1, pytest.approx(50, abs=1))
    assert gateway.renew([first.fence], WorkerStatus.BUSY).standings == {first.fence: "ok"}
    (second,) = claimed(gateway)
    assert (second.job_id, second.age_s) == (jobs[1], 0)


def test_a_claim_that_is_refused_does_not_forget_one_whose_answer_was_lost(
    lossy: Lossy, eventually: Eventually
) -> None:
    gateway, rig = lossy.gateway, lossy.rig
    job, _ = rig.submit_many(2)
    lossy.lost(lambda: claimed(gateway))
    stranger = End(Fence(job, 4_711, uuid4()), Reason.OOM)
    ended, grants = answered(lambda: gateway.finish_and_claim([stranger], PLENTY, 1), eventually)
    assert ([one.accepted for one in ended], grants) == ([False], [])
    assert [grant.job_id for grant in claimed(gateway)] == [job]


def granted_before(gateway: Gateway) -> list[Grant]:
    with gateway.granted_before() as grants:
        return grants


@pytest.mark.parametrize("command", [None, Command.DRAIN])
def test_a_claim_whose_answer_was_lost_can_be_asked_for_without_a_claim(
    lossy: Lossy, command: Command | None, eventually: Eventually
) -> None:
    gateway, rig = lossy.gateway, lossy.rig
    first, second = rig.submit_many(2)
    lossy.lost(lambda: claimed(gateway))
    if command:
        rig.registry.command(rig.registry.workers()[0]["id"], command)
    grants = answered(lambda: granted_before(gateway), eventually)
    # The queue itself takes a job back from a worker that is told to drain.
    assert [grant.job_id for grant in grants] == ([] if command else [first])
    assert rig.places(first) == (["ready"] if command else ["lease"])
    assert granted_before(gateway) == []
    assert rig.places(second) == ["ready"]


MIXED = [Reason.SUCCEEDED, Reason.EXIT_CODE, Reason.DRAINED, Reason.OOM]


def mixed_ends(gateway: Gateway, rig: Rig) -> list[End]:
    """Claim a job for each reason, and return their ends."""
    rig.submit_many(len(MIXED))
    gateway.new_work()
    grants = gateway.finish_and_claim([], PLENTY, len(MIXED))[1]
    return [
        End(grant.fence, reason, 0 if reason is Reason.SUCCEEDED else 3, f"why {reason.value}")
        for grant, reason in zip(grants, MIXED, strict=True)
    ]


def test_ends_of_all_reasons_go_with_a_claim(gateway: Gateway, rig: Rig) -> None:
    ends = mixed_ends(gateway, rig)
    following = rig.submit()
    ended, grants = gateway.finish_and_claim(ends, PLENTY, 2)
    assert [(one.accepted, one.reason) for one in ended] == [(True, reason) for reason in MIXED]
    # The one that was given back is ready again, and is the older one.
    assert [grant.job_id for grant in grants] == [ends[2].fence.job_id, following]
    rows = rig.rows("SELECT reason, exit_code, detail FROM attempt ORDER BY job_id")
    assert [tuple(row.values()) for row in rows] == [
        (end.reason.value, end.exit_code, end.detail) for end in ends
    ]


def test_an_end_that_the_server_refuses_with_a_claim_harms_no_other(
    gateway: Gateway, rig: Rig
) -> None:
    *ends, last = mixed_ends(gateway, rig)
    stranger = replace(last, fence=replace(last.fence, token=last.fence.token + 1000))
    ended, _ = gateway.finish_and_claim([*ends, stranger], PLENTY, 1)
    assert [one.accepted for one in ended] == [True, True, True, False]
    assert rig.places(last.fence.job_id) == ["lease"]


def test_a_result_whose_answer_was_lost_with_a_claim_counts_once(
    lossy: Lossy,
    eventually: Eventually,
) -> None:
    gateway, rig = lossy.gateway, lossy.rig
    grant = grant_of(gateway, rig)
    following = rig.submit()
    act = lambda: gateway.finish_and_claim([End(grant.fence, Reason.SUCCEEDED)], PLENTY, 1)  # noqa: E731
    (ended,), grants = lossy.twice(act, eventually)
    assert (ended.accepted, [grant.job_id for grant in grants]) == (True, [following])
    assert rig.count("outcome") == 1
    assert rig.count("lease") == 1


def test_the_next_job_has_no_lease(gateway: Gateway, rig: Rig) -> None:
    job = rig.submit()
    found = gateway.next_job()
    assert found is not None
    assert (found.job_id, found.token) == (job, 0)
