"""The service itself refuses forbidden calls, whoever makes them and by whichever route."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.admin import OwnerSettings, TeamChanges
from forge_schema.model.errors import ForgeError
from forge_schema.model.job import JobUnknown
from forge_schema.model.states import Role
from forge_schema.model.stored import Segment, SegmentList
from forge_schema.model.worker import NoSuchWorker
from forge_schema.queue.queue import NotRetryable
from forge_schema.read.runs import SweepUnknown
from forge_schema.schedules import NoSuchSchedule
from forge_schema.service.admin import invite
from forge_schema.service.caller import Caller, Forbidden
from forge_schema.service.local import LocalService
from forge_schema.storage import keys, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from forge_schema.storage import Store
    from support.queue.rig import Rig

    Act = Callable[[LocalService, int], object]

DIGEST = "0" * 64
SPEC = {"name": "x", "command": ["ls"]}
CHANGES: dict[str, Act] = {
    "submit": lambda s, _: s.submit([SPEC]),
    "check": lambda s, _: s.check([SPEC]),
    "is_stored": lambda s, _: s.uploads.is_stored(keys.bundle(DIGEST), DIGEST, size=1),
    "missing_segments": lambda s, _: s.uploads.missing_segments(
        SegmentList(segments=[Segment(sha256=DIGEST, bytes=1)])
    ),
    "cancel": lambda s, job: s.cancel(job),
    "change": lambda s, job: s.change(job, {"priority": 1}),
    "retry": lambda s, job: s.retry(job),
    "preempt": lambda s, job: s.preempt(job),
    "cancel_all": lambda s, job: s.cancel_all([job]),
    "retry_all": lambda s, job: s.retry_all([job]),
    "cancel_sweep": lambda s, _: s.findings.cancel_sweep("grid"),
    "keep_template": lambda s, _: s.keep_template("nightly", {}),
    "remove_template": lambda s, _: s.remove_template("nightly"),
    "keep_input": lambda s, _: s.keep_input("set", "s3://sets"),
    "remove_input": lambda s, _: s.remove_input("set"),
    "keep_schedule": lambda s, _: s.keep_schedule("nightly", "0 3 * * *", SPEC),
    "check_schedule": lambda s, _: s.check_schedule("nightly", "0 3 * * *"),
    "pause_schedule": lambda s, _: s.pause_schedule("nightly"),
    "run_schedule": lambda s, _: s.run_schedule("nightly"),
    "remove_schedule": lambda s, _: s.remove_schedule("nightly"),
}
RULES: dict[str, Act] = {
    "drain": lambda s, _: s.drain(1),
    "admin": lambda s, _: s.admin.api_keys(),
    "report of all owners": lambda s, _: s.report("queue_demand", count=1),
    "job of another owner": lambda s, _: s.submit([{**SPEC, "owner": "ann"}]),
    "templates of another owner": lambda s, _: s.templates(owner="ann"),
    "inputs of another owner": lambda s, _: s.inputs(owner="ann"),
    "schedules of another owner": lambda s, _: s.schedules(owner="ann"),
    "a schedule of another owner": lambda s, _: s.schedule("nightly", owner="ann"),
    "a new schedule of another owner": lambda s, _: s.keep_schedule(
        "nightly", "0 3 * * *", SPEC, owner="ann"
    ),
    "pausing another owner's schedule": lambda s, _: s.pause_schedule("nightly", owner="ann"),
    "running another owner's schedule": lambda s, _: s.run_schedule("nightly", owner="ann"),
    "removing another owner's schedule": lambda s, _: s.remove_schedule("nightly", owner="ann"),
    "sweep of another owner": lambda s, _: s.findings.sweep("grid", owner="ann"),
}
OF_A_JOB: dict[str, Act] = {
    "job": lambda s, job: s.job(job),
    "cancel": lambda s, job: s.cancel(job),
    "change": lambda s, job: s.change(job, {"priority": 1}),
    "retry": lambda s, job: s.retry(job),
    "preempt": lambda s, job: s.preempt(job),
    "attempts": lambda s, job: s.attempts(job),
    "explain": lambda s, job: s.explain(job),
    "events": lambda s, job: s.events(job),
    "log_chunks": lambda s, job: s.log_chunks(job),
    "log_chunks_before": lambda s, job: s.log_chunks_before(job),
    "artifacts": lambda s, job: s.artifacts(job),
    "artifact_chunks": lambda s, job: s.artifact_chunks(job, "a"),
    "checkpoints": lambda s, job: s.checkpoints(job),
    "result": lambda s, job: s.findings.result(job),
    "tests": lambda s, job: s.findings.tests(job),
    "series": lambda s, job: s.findings.series(job),
    "metrics": lambda s, job: s.findings.metrics(job),
    "last_metrics": lambda s, job: s.findings.last_metrics(job),
}

# What no name is, and what an owner with a folder, a team or a worker is not called in addition.
UNSEEN = (
    "", " ", "a ", "a\nb", "a\u202eb", ".", "..", "a" * 201, "a\u061cb", "a\u180eb", "a\ufff9b",
    "a\U000e0061b", "a\ue000b", "a\u0378b", "ann\u200d", "\u200cann", "an\u200dn",
    "a\u00a0b", "क्\u200d", "क्\u200d\u200dष",
)  # fmt: skip
MAKERS: dict[str, tuple[Callable[[LocalService, str], object], tuple[str, ...]]] = {
    "key": (lambda s, name: s.admin.create_key(name, "viewer"), ("a/b", "@nlp")),
    "invitation": (
        lambda s, name: invite(s.admin, name, Role.VIEWER, team=None, lasts=timedelta(days=1)),
        ("a/b",),
    ),
    "team": (lambda s, name: s.admin.change_team(name, TeamChanges(join=["x"])), ("a/b", "@nlp")),
    "limits of a team": (lambda s, name: s.admin.change_team(name, TeamChanges(max_jobs=1)), ()),
    "member": (
        lambda s, name: s.admin.change_team("nlp", TeamChanges(join=[name])),
        ("a/b", "@nlp"),
    ),
    "limits of an owner": (lambda s, name: s.admin.limit_owner(name, OwnerSettings()), ()),
    "queue": (lambda s, name: s.admin.pause(name), ()),
    "worker": (lambda s, name: s.admin.create_worker(name), ("a/b",)),
    "worker that joins": (
        lambda s, name: s.admin.invite_worker(name, url="http://x", digest=DIGEST),
        ("a/b",),
    ),
    "job's queue": (lambda s, name: s.check([{**SPEC, "queue": name}]), ()),
    "job's owner": (lambda s, name: s.check([{**SPEC, "owner": name}]), ()),
    "schedule": (lambda s, name: s.keep_schedule(name, "0 3 * * *", SPEC), ()),
}


class Services:
    """Makes services for callers on one queue and one store."""

    def __init__(self, rig: Rig, store: Store) -> None:
        self._rig = rig
        self._store = store

    def of(self, owner: str, role: Role) -> LocalService:
        caller = Caller(owner, role, f"user:{owner}")
        return LocalService(caller, lambda: self._rig.database, lambda: self._store)


@pytest.fixture(scope="module")
def services(shared_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Services:
    return Services(shared_rig, open_store(tmp_path_factory.mktemp("store").as_uri()))


@pytest.mark.parametrize("act", CHANGES.values(), ids=CHANGES)
def test_a_viewer_changes_nothing(services: Services, shared_rig: Rig, act: Act) -> None:
    job = shared_rig.submit()
    with pytest.raises(Forbidden, match="needs the role submitter; yours is viewer"):
        act(services.of("ann", Role.VIEWER), job)
    assert shared_rig.state(job) == "ready"


@pytest.mark.parametrize("act", RULES.values(), ids=RULES)
def test_only_an_admin_rules_or_acts_for_others(services: Services, act: Act) -> None:
    with pytest.raises(Forbidden) as refused:
        act(services.of("bob", Role.SUBMITTER), 0)
    assert refused.value.hint
    with suppress(SweepUnknown, NoSuchWorker, NoSuchSchedule):
        act(services.of("root", Role.ADMIN), 0)


@pytest.mark.parametrize("act", OF_A_JOB.values(), ids=OF_A_JOB)
def test_another_owners_job_is_as_good_as_none(
    services: Services, shared_rig: Rig, act: Act
) -> None:
    job = shared_rig.submit()
    for impossible in (job, 0, -1, 2**53):
        with pytest.raises(JobUnknown, match=f"there is no job {impossible}"):
            act(services.of("bob", Role.SUBMITTER), impossible)
    assert shared_rig.state(job) == "ready"
    with suppress(NotRetryable):
        act(services.of("ann", Role.SUBMITTER), job)


@pytest.mark.parametrize(("make", "more"), MAKERS.values(), ids=MAKERS)
def test_a_name_is_seen_as_it_is(
    services: Services, make: Callable[[LocalService, str], object], more: tuple[str, ...]
) -> None:
    root = services.of("root", Role.ADMIN)
    for name in (*UNSEEN, *more):
        with pytest.raises(ForgeError) as refused:
            make(root, name)
        assert refused.value.code in {"option_invalid", "spec_invalid"}
    make(root, "प्रयोगशाला_1")
    for joined in ("क्\u200dष", "র\u200d্যাম", "می\u200cرود"):
        make(root, joined)
