"""Each event makes one delivery for each notification that wants it, and for no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from forge_schema.database.connections import STATEMENT_S
from forge_schema.job_filter import FilterInvalid
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.errors import JobInvalid
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason, Role
from forge_schema.notifications.messages import LATE, line
from forge_schema.notifications.rules import NotificationInvalid, NotificationUnknown
from forge_schema.service.caller import Caller, Forbidden
from forge_schema.service.notifications import Notifying

if TYPE_CHECKING:
    from support.queue.rig import Rig

HOOK = {"kind": "webhook", "target": "https://hooks.example/secret"}
ALL = ["started", "succeeded", "failed", "cancelled", "stalled", "approval"]


def caller(rig: Rig, owner: str = "ann", role: Role = Role.SUBMITTER) -> Notifying:
    return Notifying(Caller(owner, role, f"user:{owner}"), lambda: rig.database)


def told(rig: Rig, name: str = "n") -> list[tuple[str, int]]:
    """Tick, and return the events and subjects that a notification tells of."""
    rig.tick.run()
    rows = rig.rows(
        "SELECT event, subject FROM delivery JOIN notification AS n ON n.id = notification_id"
        " WHERE n.name = %s AND state = 'waiting' ORDER BY at, event",
        name,
    )
    return [(row["event"], row["subject"]) for row in rows]


def lines(rig: Rig) -> list[str]:
    rows = rig.rows("SELECT message FROM delivery WHERE message IS NOT NULL ORDER BY at, event")
    return [line(row["message"]) for row in rows]


def end(rig: Rig, reason: Reason = Reason.SUCCEEDED, **changes: Any) -> None:  # noqa: ANN401  fields of all types
    rig.clock.advance(1)
    grant = rig.worker("vm-1").claim_one()
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.clock.advance(90)
    rig.finish(grant, reason, **changes)


def test_all_that_happens_to_jobs_is_told_in_order_and_once(rig: Rig) -> None:
    caller(rig).keep("n", {**HOOK, "events": ALL})
    good, bad, gone = (rig.submit(name=name, max_failures=0) for name in ("good", "bad", "gone"))
    end(rig)
    end(rig, Reason.OOM, exit_code=137, detail="killed")
    rig.clock.advance(1)
    rig.queue.cancel(gone)
    expected = [("started", good), ("succeeded", good), ("started", bad), ("failed", bad)]
    assert told(rig) == [*expected, ("cancelled", gone)]
    assert lines(rig) == [
        f"Forge: job {good} 'good' of ann started on vm-1",
        f"Forge: job {good} 'good' of ann succeeded after 1 min 30 s",
        f"Forge: job {bad} 'bad' of ann started on vm-1",
        f"Forge: job {bad} 'bad' of ann failed after 1 min 30 s (out of memory): killed",
        f"Forge: job {gone} 'gone' of ann was cancelled",
    ]
    began = rig.row("SELECT message FROM delivery WHERE event = 'started' AND subject = %s", bad)
    job = began["message"]["data"]["job"]
    assert (job["state"], job["reason"], job["exit_code"], job["ran_s"]) == ("running", *[None] * 3)
    before = rig.count("delivery")
    told(rig)
    rig.clock.advance(LATE.total_seconds())
    told(rig)
    assert rig.count("delivery") == before


def test_a_start_is_told_while_the_job_runs_and_not_again_at_its_end(rig: Rig) -> None:
    caller(rig).keep("n", {**HOOK, "events": ["started"]})
    job = rig.submit()
    grant = rig.worker().claim_one()
    assert told(rig) == []
    rig.queue.report(grant.fence, Phase.RUNNING)
    assert told(rig) == [("started", job)]
    rig.finish(grant)
    assert told(rig) == [("started", job)]


def test_an_attempt_that_stalled_is_told_though_the_job_goes_on(rig: Rig) -> None:
    caller(rig).keep("n", HOOK)
    job = rig.submit()
    end(rig, Reason.STALLED)
    assert told(rig) == [("stalled", job)]
    assert lines(rig) == [
        f"Forge: job {job} 'job' of ann no longer progressed, and attempt 1 was ended"
    ]


def test_a_job_that_waits_for_approval_is_told(rig: Rig) -> None:
    caller(rig).keep("n", HOOK)
    rig.admin.limit_owner("ann", OwnerSettings(approve_gpu_hours=1))
    job = rig.submit(gpus=1, timeout_s=7200)
    assert told(rig) == [("approval", job)]
    assert lines(rig) == [
        f"Forge: job {job} 'job' of ann waits for approval: it may spend 2 GPU-hours"
    ]


def test_a_silent_worker_is_told_to_admins(rig: Rig) -> None:
    with pytest.raises(Forbidden):
        caller(rig).keep("n", {**HOOK, "events": ["worker_offline"]})
    admin = caller(rig, "root", Role.ADMIN)
    admin.keep("n", {**HOOK, "events": ["worker_offline", "failed"]})
    # Those of all owners it tells of only when it is said so.
    rig.submit(max_failures=0)
    end(rig, Reason.OOM)
    worker = rig.worker("vm-9")
    rig.clock.advance(3600)
    # The tick that marks it tells of it.
    assert ("worker_offline", worker.id) in told(rig)
    assert {*lines(rig)} == {"Forge: worker vm-1 is offline", "Forge: worker vm-9 is offline"}


def test_only_jobs_of_the_owner_and_of_the_query_are_told(rig: Rig) -> None:
    admin = caller(rig, "root", Role.ADMIN)
    ann, bob = caller(rig), caller(rig, "bob")
    ann.keep("mine", HOOK)
    ann.keep("trains", {**HOOK, "query": "name:train* reason:oom"})
    ann.keep("resnets", {**HOOK, "query": "experiment:res*"})
    bob.keep("bobs", HOOK)
    admin.keep("all", {**HOOK, "everyone": True})
    admin.keep("roots", HOOK)
    admin.keep("of-bob", {**HOOK, "everyone": True, "query": "owner:bob"})
    with pytest.raises(Forbidden):
        ann.keep("n", {**HOOK, "everyone": True})
    ids = {}
    for name, owner, reason in (
        ("train-1", "ann", Reason.OOM),
        ("train-2", "ann", Reason.EXIT_CODE),
        ("eval", "ann", Reason.OOM),
        ("train-3", "bob", Reason.OOM),
    ):
        experiment = "resnet" if name == "train-2" else "other"
        ids[name] = rig.submit(name=name, owner=owner, max_failures=0, experiment=experiment)
        end(rig, reason)
    heard = {
        name: [job for _, job in told(rig, name)]
        for name in ("mine", "trains", "resnets", "bobs", "all", "roots", "of-bob")
    }
    every = [*ids.values()]
    assert heard == {
        "mine": every[:3], "trains": every[:1], "resnets": every[1:2], "bobs": every[3:],
        "all": every, "roots": [], "of-bob": every[3:],
    }  # fmt: skip
    # What a query left out is not looked at again, and leaves.
    assert rig.row("SELECT count(*) FROM delivery WHERE state = 'skipped'")["count"] == 7
    rig.clock.advance(3600)
    rig.tick.run()
    rig.clock.advance(2 * 86_400)
    rig.tick.run()
    assert rig.row("SELECT count(*) FROM delivery WHERE state = 'skipped'")["count"] == 0


def test_nothing_from_before_a_notification_is_told(rig: Rig) -> None:
    rig.submit(max_failures=0)
    end(rig, Reason.OOM)
    rig.clock.advance(1)
    caller(rig).keep("n", HOOK)
    assert told(rig) == []


def test_a_change_misses_no_event_and_keeps_the_beginning_and_the_links(rig: Rig) -> None:
    ann, server = caller(rig), "https://forge.example"
    begun = ann.keep("n", HOOK, server=server).notification.created_at
    job = rig.submit(max_failures=0)
    end(rig, Reason.OOM)
    rig.clock.advance(1)
    changed = ann.keep("n", {**HOOK, "query": "owner:ann"})
    assert changed.notification.created_at == begun
    assert told(rig) == [("failed", job)]
    (delivery,) = rig.rows("SELECT message FROM delivery")
    assert delivery["message"]["data"]["job"]["url"] == f"{server}/jobs/{job}"
    # Those that were made before stay as well.
    assert ann.keep("n", HOOK).notification.waiting == 1


def test_what_is_left_out_of_a_change_stays(rig: Rig) -> None:
    root, demoted = caller(rig, "root", Role.ADMIN), caller(rig, "root")
    with pytest.raises(NotificationUnknown, match="no notification 'n'"):
        root.keep("n", {"query": "name:x"})
    with pytest.raises(NotificationInvalid, match="together"):
        root.keep("n", {"target": HOOK["target"]})
    said = {"events": ["failed"], "query": "name:x", "everyone": True}
    root.keep("n", {**HOOK, **said})
    before = rig.row("SELECT * FROM notification")
    changed = root.keep("n", {"events": ["stalled"]})
    assert changed.changed == ["events"]
    assert rig.row("SELECT * FROM notification") == {**before, "events": ["stalled"]}
    assert root.keep("n", {"events": ["stalled"]}).changed == []
    with pytest.raises(Forbidden):
        demoted.keep("n", {"query": ""})
    assert root.keep("n", {"query": "", "everyone": False}).changed == ["query", "everyone"]
    again = root.keep("n", {"kind": "slack", "target": HOOK["target"]})
    assert (again.changed, again.secret) == (["kind"], None)
    with pytest.raises(NotificationInvalid, match="only webhooks"):
        root.keep("n", {"new_secret": True})
    assert root.keep("n", HOOK).secret not in {None, before["secret"]}


def test_an_end_that_is_committed_late_is_told_too(rig: Rig) -> None:
    caller(rig).keep("n", HOOK)
    job = rig.submit(max_failures=0)
    grant = rig.worker().claim_one()
    with rig.uncommitted() as late:
        late.finish([End(grant.fence, Reason.OOM)])
        rig.clock.advance(STATEMENT_S)
        assert told(rig) == []
    assert told(rig) == [("failed", job)]


def test_events_while_no_sweeper_ran_are_told_for_a_day(rig: Rig) -> None:
    caller(rig).keep("n", HOOK)
    rig.tick.run()
    old, new = (rig.submit(max_failures=0) for _ in range(2))
    end(rig, Reason.OOM)
    rig.clock.advance(3 * 3600)
    end(rig, Reason.OOM)
    rig.clock.advance(22 * 3600)
    assert told(rig) == [("failed", new)]
    assert old != new


def test_secrets_are_shown_once(rig: Rig) -> None:
    ann = caller(rig)
    kept = ann.keep("n", HOOK)
    assert (kept.secret or "").startswith("whsec_")
    # Another choice of events must not break the receiver.
    changed = ann.keep("n", {**HOOK, "events": ["succeeded"]})
    assert (kept.changed, changed.changed, changed.secret) == (None, ["events"], None)
    assert rig.row("SELECT secret FROM notification") == {"secret": kept.secret}
    again = ann.keep("n", {**HOOK, "new_secret": True})
    assert again.secret not in {kept.secret, None}
    assert rig.row("SELECT secret FROM notification") == {"secret": again.secret}
    (listed,) = ann.listed()
    assert listed.target == "https://hooks.example/…"
    ann.keep("slack", {"kind": "slack", "target": f"https://hooks.example/{'s' * 40}/chan7"})
    assert [one.target for one in ann.listed()][1] == "https://hooks.example/…han7"
    events = rig.rows("SELECT detail FROM event WHERE action LIKE 'notif%%'")
    assert "secret" not in str([*events, listed.model_dump()])
    assert caller(rig, "bob").listed() == []
    with pytest.raises(NotificationUnknown):
        caller(rig, "bob").remove("n")
    for name in ("n", "slack"):
        ann.remove(name)
    assert ann.listed() == []


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (NotificationInvalid, {"target": "ftp://hooks.example/"}),
        (NotificationInvalid, {"target": "https://user:pass@hooks.example/"}),
        (NotificationInvalid, {"target": "https://hooks.example/a b"}),
        (NotificationInvalid, {"target": "https://hooks.example:99999/"}),
        (NotificationInvalid, {"kind": "email", "target": "ann"}),
        (NotificationInvalid, {"kind": "email", "target": "a@b.c\r\nBcc: d@e.f"}),
        (NotificationInvalid, {"kind": "slack", "new_secret": True}),
        (NotificationInvalid, {"query": "state:failed"}),
        (NotificationInvalid, {"query": "since:1d"}),
        (FilterInvalid, {"query": "nam:x"}),
        (JobInvalid, {"events": ["exploded"]}),
        (JobInvalid, {"events": []}),
        (JobInvalid, {"colour": "red"}),
    ],
)
def test_what_cannot_be_used_is_refused(
    rig: Rig, error: type[Exception], changes: dict[str, object]
) -> None:
    with pytest.raises(error):
        caller(rig).keep("n", {**HOOK, **changes})
    assert rig.count("notification") == 0


def test_viewers_read_and_change_nothing(rig: Rig) -> None:
    viewer = caller(rig, role=Role.VIEWER)
    assert (viewer.listed(), viewer.deliveries()) == ([], [])
    for act in (
        lambda: viewer.keep("n", HOOK),
        lambda: viewer.remove("n"),
        lambda: viewer.test("n"),
        lambda: viewer.retry(ids=[str(uuid4())]),
        viewer.notifier,
        lambda: viewer.set_notifier({"allow": []}),
    ):
        with pytest.raises(Forbidden):
            act()


def test_a_mail_server_and_a_network_must_be_one(rig: Rig) -> None:
    admin = caller(rig, "root", Role.ADMIN)
    for changes in (
        {"smtp_url": "http://mail.example"},
        {"sender": "nobody"},
        {"allow": ["office"]},
        {"allow": ["10.0.0.1/8"]},
        {"allow": ["10.0.0.0/8", "169.254.169.254"]},
    ):
        with pytest.raises(NotificationInvalid):
            admin.set_notifier(changes)
    now = admin.set_notifier({"smtp_url": "smtps://a:b@mail.example", "sender": "a@mail.example"})
    assert now.model_dump() == {
        "smtp": "smtps://mail.example", "sender": "a@mail.example", "allow": [],
    }  # fmt: skip
    assert admin.set_notifier({"allow": ["10.0.0.0/8"]}).smtp == "smtps://mail.example"
    assert admin.set_notifier({"sender": None}).allow == ["10.0.0.0/8"]
