"""A notification is sent only while whoever made it could still see the job; likewise schedules."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.access.api_keys import Keys, Sessions
from forge_schema.model.admin import TeamChanges
from forge_schema.model.states import Reason, Role
from forge_schema.notifications.rules import NotificationWithheld
from forge_schema.notifications.sender import DeliverySender
from forge_schema.queue.limits import Limits, NoSuchTeam
from forge_schema.service.caller import Caller, Forbidden
from forge_schema.service.notifications import Notifying
from forge_schema.service.service import Service
from support.notifications.receivers import receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forge_schema.storage.store import Store
    from support.notifications.receivers import Receiver
    from support.queue.rig import Rig

DAY = timedelta(days=1)


class Scene:
    """A receiver, and people who make notifications that reach it."""

    def __init__(self, rig: Rig, hook: Receiver) -> None:
        self.rig, self.hook = rig, hook
        self.keys = Keys(rig.database, actor="key:root")
        self.sessions = Sessions(rig.database)
        self.sender = DeliverySender(rig.database, threads=1)
        self.root = self.by(Caller("root", Role.ADMIN, "user:root"))
        rig.rows("UPDATE notifier SET allow = '{127.0.0.0/8}'")

    def by(self, who: Caller) -> Notifying:
        return Notifying(who, lambda: self.rig.database)

    def key(self, owner: str, role: Role, **said: Any) -> Caller:  # noqa: ANN401  fields of all types
        key_id, _ = self.keys.create(owner, role, **said)
        return Caller(owner, role, f"key:{key_id}", key_id)

    def person(self, owner: str, role: Role) -> Caller:
        self.sessions.note_person(f"oidc:{owner}", owner, role, self.rig.clock.now.timestamp())
        return Caller(owner, role, f"oidc:{owner}", session=self.session(f"oidc:{owner}", owner))

    def session(self, actor: str, owner: str) -> str:
        begun = self.sessions.begin(
            actor, owner, Role.ADMIN, name="", address="", lasts=timedelta(hours=12)
        )
        assert begun is not None
        return str(begun["id"])

    def keep(self, who: Caller, **said: Any) -> None:  # noqa: ANN401  as above
        self.by(who).keep("ops", {"kind": "webhook", "target": self.hook.url, **said})

    def revoke(self, who: Caller) -> None:
        self.keys.revoke(who.key_id or who.session)

    def tell(self, owner: str = "ann") -> int:
        """Have a job fail; return how many messages arrived of it."""
        before = len(self.hook.calls)
        self.fail(owner)
        self.rig.tick.run()
        self.send()
        # What happened within a minute of the last tick is noticed once more.
        self.rig.clock.advance(61)
        self.rig.tick.run()
        return len(self.hook.calls) - before

    def fail(self, owner: str = "ann") -> None:
        self.rig.submit(max_failures=0, owner=owner)
        self.rig.finish(self.rig.worker("vm-1").claim_one(), Reason.EXIT_CODE, exit_code=3)

    def send(self) -> None:
        self.sender.begin()
        self.sender.wait()

    def trail(self) -> list[tuple[str, str]]:
        rows = self.rig.rows(
            "SELECT action, detail FROM event"
            " WHERE starts_with(action, 'notification_') ORDER BY id"
        )
        return [
            (row["action"].removeprefix("notification_"), row["detail"].get("reason", ""))
            for row in rows
        ]

    @property
    def reason(self) -> str | None:
        return self.root.listed()[0].withheld


@pytest.fixture
def scene(rig: Rig) -> Iterator[Scene]:
    with receiver() as hook:
        made = Scene(rig, hook)
        yield made
        made.sender.end()


def _no_store() -> Store:
    raise AssertionError


def lowered(scene: Scene, who: Caller) -> None:
    scene.rig.rows("UPDATE api_key SET role = 'submitter' WHERE id = %s", who.key_id)


def viewing(scene: Scene, who: Caller) -> None:
    scene.rig.rows("UPDATE api_key SET role = 'viewer' WHERE id = %s", who.key_id)


def removed(scene: Scene, who: Caller) -> None:
    scene.rig.rows("DELETE FROM api_key WHERE id = %s", who.key_id)


def lasting(scene: Scene, who: Caller) -> None:
    del who
    scene.rig.clock.advance(2 * DAY.total_seconds())


def another(scene: Scene, who: Caller) -> None:
    """Another key of the same owner: whoever has it did not choose where messages go."""
    scene.key(who.owner, who.role)
    scene.revoke(who)


def rotated(scene: Scene, who: Caller) -> None:
    scene.keys.rotate(who.key_id or "")


@pytest.mark.parametrize(("role", "said", "event", "why"), [
    (Role.ADMIN, {"everyone": True}, Scene.revoke, "was revoked"),
    (Role.ADMIN, {"everyone": True}, lowered, "has the role submitter now, and it needs admin"),
    (Role.ADMIN, {"everyone": True}, lasting, "has expired"),
    (Role.ADMIN, {"everyone": True}, rotated, None),
    (Role.ADMIN, {"events": ["failed", "worker_offline"]}, lowered, "it needs admin"),
    (Role.ADMIN, {}, lowered, None),
    (Role.SUBMITTER, {}, viewing, None),
    (Role.SUBMITTER, {}, Scene.revoke, "was revoked"),
    (Role.SUBMITTER, {}, another, "was revoked"),
    (Role.SUBMITTER, {}, removed, "its maker is not known here"),
    (Role.SUBMITTER, {}, rotated, None),
])  # fmt: skip
def test_a_key_that_may_not_see_the_job_any_more_is_told_nothing(
    scene: Scene,
    role: Role,
    said: dict[str, Any],
    event: Callable[[Scene, Caller], None],
    why: str | None,
) -> None:
    who = scene.key("ann", role, lasts=DAY)
    scene.keep(who, **said)
    assert scene.tell() == 1
    event(scene, who)
    assert scene.tell() == (0 if why else 1)
    assert (scene.reason or "").endswith(why or "")
    assert bool(scene.reason) is bool(why)
    assert [action for action, _ in scene.trail()] == ["kept", *(["paused"] if why else [])]


def test_deliveries_that_wait_at_a_revocation_are_never_sent(scene: Scene) -> None:
    who = scene.key("ann", Role.SUBMITTER)
    scene.keep(who)
    scene.fail()
    scene.rig.tick.run()
    # After the event was noticed and before it is sent; no tick has seen it.
    scene.revoke(who)
    scene.send()
    assert scene.hook.calls == []
    with pytest.raises(NotificationWithheld, match="was revoked"):
        scene.by(who).test("ops")
    scene.rig.tick.run()
    (given_up,) = scene.root.deliveries()
    assert (given_up.state, given_up.error) == ("failed", scene.reason)
    # Asking again does not help.
    assert scene.root.retry(name="ops") == 1
    scene.send()
    scene.rig.tick.run()
    assert scene.hook.calls == []
    assert scene.trail()[1:] == [("paused", scene.reason)]
    # Somebody who may see these jobs takes it over.
    scene.by(scene.key("ann", Role.SUBMITTER)).keep("ops", {})
    assert (scene.reason, scene.tell()) == (None, 1)
    assert scene.root.retry(name="ops") == 1
    scene.send()
    assert len(scene.hook.calls) == 2


def test_who_leaves_a_team_is_not_told_of_it(scene: Scene) -> None:
    limits = Limits(scene.rig.database, actor="user:root")
    limits.set_team("nlp", TeamChanges(join=["ann", "bob"]))
    outside, who = (scene.key("ann", Role.SUBMITTER, team=team) for team in (None, "nlp"))
    with pytest.raises(Forbidden, match="do not see the jobs of the team nlp"):
        scene.keep(outside, team="nlp")
    with pytest.raises(NoSuchTeam):
        scene.root.keep("ops", {"kind": "webhook", "target": scene.hook.url, "team": "no"})
    scene.keep(replace(who, team="nlp"), team="nlp")
    assert [scene.tell(owner) for owner in ("ann", "bob", "cleo")] == [1, 1, 0]
    limits.set_team("vision", TeamChanges(join=["ann"]))
    assert scene.tell("bob") == 0
    assert (scene.reason or "").endswith("does not see the team nlp")
    scene.root.keep("ops", {}, owner="ann")
    assert [scene.tell(owner) for owner in ("ann", "bob")] == [0, 1]
    limits.remove_team("nlp")
    assert scene.tell("bob") == 0
    assert scene.reason == "there is no team nlp any more"
    scene.root.keep("ops", {"everyone": True}, owner="ann")
    assert scene.root.listed()[0].team is None
    assert scene.tell("cleo") == 1


def test_a_person_whose_group_is_gone_is_not_told_of_the_team(scene: Scene) -> None:
    who = scene.person("ann", Role.SUBMITTER)
    now = scene.rig.clock.now.timestamp()

    def say(team: str | None) -> None:
        scene.sessions.note_person(who.actor, "ann", Role.SUBMITTER, now, team)

    Limits(scene.rig.database, actor="user:root").set_team("nlp", TeamChanges(join=["bob"]))
    say("nlp")
    scene.keep(replace(who, team="nlp"), team="nlp")
    for team, told in (("nlp", 1), (None, 0)):
        say(team)
        assert scene.tell("bob") == told
    assert scene.reason == "the login of ann, which made it, does not see the team nlp"


def test_an_admin_who_left_is_not_told_of_others(scene: Scene) -> None:
    who = scene.key("bob", Role.ADMIN)
    scene.by(who).keep("ops", {"kind": "webhook", "target": scene.hook.url}, owner="ann")
    assert scene.tell() == 1
    lowered(scene, who)
    assert scene.tell() == 0
    assert (scene.reason or "").endswith("does not see jobs of ann")


def test_who_has_the_database_may_see_everything(scene: Scene) -> None:
    scene.root.keep("ops", {"kind": "webhook", "target": scene.hook.url, "everyone": True})
    assert scene.tell() == 1


def test_the_person_counts_and_not_the_session(scene: Scene) -> None:
    who = scene.person("ann", Role.ADMIN)
    scene.keep(who, everyone=True)
    scene.sessions.end(who.session, actor=who.actor)
    scene.rig.clock.advance(20 * DAY.total_seconds())
    assert scene.tell("cin") == 1
    # Nothing says any more that the person is still there.
    scene.rig.clock.advance(11 * DAY.total_seconds())
    assert scene.tell("cin") == 0
    assert (scene.reason or "").endswith("is older than 30 days")
    scene.person("ann", Role.ADMIN)
    assert scene.tell("cin") == 1
    assert [action for action, _ in scene.trail()] == ["kept", "paused", "resumed"]
    # What the issuer says last counts, also beside a session from before; an older word does not.
    now = scene.rig.clock.now.timestamp()
    scene.sessions.note_person(who.actor, "ann", Role.SUBMITTER, now)
    scene.sessions.note_person(who.actor, "ann", Role.ADMIN, now - 60)
    assert scene.tell("cin") == 0
    assert "has the role submitter" in (scene.reason or "")


def test_an_admin_who_ends_a_persons_session_ends_what_the_person_made(scene: Scene) -> None:
    who = scene.person("ann", Role.SUBMITTER)
    scene.keep(who)
    for ended in (who.session, who.actor, None):
        if ended is None:
            scene.sessions.end_person(who.actor)
        else:
            scene.keys.revoke(ended)
        assert scene.tell() == 0
        assert (scene.reason or "").endswith("the login of ann, which made it, has ended")
        scene.rig.clock.advance(1)
        who = scene.person("ann", Role.SUBMITTER)
        scene.sessions.end(who.session, actor=who.actor)
        assert scene.tell() == 1
    Keys(scene.rig.database, actor=who.actor).revoke(who.session)
    assert scene.tell() == 1


def test_a_session_for_a_key_counts_as_the_key(scene: Scene) -> None:
    key = scene.key("ann", Role.SUBMITTER)
    session = scene.session(key.actor, "ann")
    scene.keep(Caller("ann", Role.SUBMITTER, key.actor, session=session))
    scene.sessions.end(session, actor=key.actor)
    assert scene.tell() == 1
    scene.revoke(key)
    assert scene.tell() == 0


def test_a_schedule_submits_only_while_its_maker_may(scene: Scene) -> None:
    def service(who: Caller) -> Service:
        return Service(who, lambda: scene.rig.database, _no_store)

    def jobs() -> int:
        scene.rig.clock.advance(3600)
        scene.rig.tick.run()
        return scene.rig.count("job")

    who = scene.key("ann", Role.SUBMITTER)
    service(who).keep_schedule("hourly", "0 * * * *", {"name": "x", "command": ["true"]})
    assert jobs() == 1
    viewing(scene, who)
    assert jobs() == 1
    kept = service(who).schedule("hourly")
    assert "has the role viewer now, and it needs submitter" in (kept.error or "")
    other = service(scene.key("ann", Role.SUBMITTER))
    other.pause_schedule("hourly")
    other.pause_schedule("hourly", paused=False)
    assert jobs() == 2
    assert service(who).schedule("hourly").error is None
