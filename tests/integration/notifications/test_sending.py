"""Deliveries are sent at least once, with one id, whatever their receivers and senders do."""

from __future__ import annotations

import base64
import hmac
import socket
from contextlib import contextmanager
from datetime import timedelta
from email import message_from_string
from email.utils import parsedate_to_datetime
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from forge_schema.model.errors import JobInvalid
from forge_schema.model.states import Reason, Role
from forge_schema.notifications import channels, trying
from forge_schema.notifications import sender as sending
from forge_schema.notifications.rules import DeliveryUnknown
from forge_schema.notifications.sender import FIRST_BREAK_S, PAUSES_S, DeliverySender
from forge_schema.service.caller import Caller
from forge_schema.service.notifications import Notifying
from support.notifications.receivers import mail_server, receiver
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.notifications.receivers import Receiver
    from support.queue.rig import Rig

LEAD_S = sending.LEAD_LASTS.total_seconds()
LEADING: dict[str, Any] = {"sender": UUID(int=7), "lasts": sending.LEAD_LASTS, "count": 1}


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as there:
        yield there


@pytest.fixture
def ann(rig: Rig) -> Notifying:
    rig.rows("UPDATE notifier SET allow = '{127.0.0.0/8}'")
    return Notifying(Caller("ann", Role.ADMIN, "user:ann"), lambda: rig.database)


@pytest.fixture
def sender(rig: Rig) -> Iterator[DeliverySender]:
    made = DeliverySender(rig.database, threads=2)
    yield made
    made.end()


def keep(ann: Notifying, hook: Receiver, name: str = "ops", **said: Any) -> str:  # noqa: ANN401  fields of all types
    kept = ann.keep(name, {"kind": "webhook", "target": hook.url, **said})
    return kept.secret or ""


def failed_job(rig: Rig, **changes: Any) -> int:  # noqa: ANN401  as above
    job_id = rig.submit(max_failures=0, **changes)
    rig.finish(rig.worker("vm-1").claim_one(), Reason.EXIT_CODE, exit_code=3, detail="boom\nmore")
    return job_id


def send(sender: DeliverySender) -> int:
    begun = sender.begin()
    sender.wait()
    return begun


def states(ann: Notifying) -> list[str]:
    return [one.state for one in ann.deliveries()]


def test_a_webhook_says_what_happened_and_is_signed(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    secret = keep(ann, hook)
    job_id = failed_job(rig, name="train")
    rig.tick.run()
    assert send(sender) == 1
    (call,) = hook.calls
    assert call.path == "/hook?team=a"
    sent, at = call.headers["webhook-id"], call.headers["webhook-timestamp"]
    assert at == str(int(rig.clock.now.timestamp()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = hmac.digest(key, f"{sent}.{at}.".encode() + call.body, "sha256")
    assert call.headers["webhook-signature"] == f"v1,{base64.b64encode(expected).decode()}"
    assert call.message["type"] == "job.failed"
    job = call.message["data"]["job"]
    assert (job["id"], job["name"], job["owner"], job["state"]) == (
        job_id,
        "train",
        "ann",
        "failed",
    )
    assert (job["reason"], job["exit_code"], job["detail"]) == ("exit_code", 3, "boom\nmore")
    (told,) = ann.deliveries()
    assert (told.id, told.state, told.job_id, told.tries) == (sent, "sent", job_id, 1)
    assert send(sender) == 0


def test_a_receiver_that_fails_and_recovers_hears_of_it_once_more(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    keep(ann, hook)
    failed_job(rig)
    rig.tick.run()
    hook.answers += [500, 302]
    send(sender)
    (told,) = ann.deliveries()
    assert (told.state, told.error) == ("waiting", "the receiver answered 500")
    # Another event does not hasten a receiver that is down.
    failed_job(rig)
    rig.tick.run()
    assert send(sender) == 0
    (kept,) = ann.listed()
    assert (kept.waiting, kept.error) == (2, "the receiver answered 500")
    # Nobody is promised an earlier try than there will be.
    assert [one.next_at for one in ann.deliveries()] == [kept.paused_until] * 2
    rig.clock.advance(FIRST_BREAK_S)
    send(sender)
    # One message at a time tries it, and the break grows with its failures, up to a minute.
    assert [one.tries for one in ann.deliveries()] == [1, 1]
    rig.clock.advance(2 * FIRST_BREAK_S - 1)
    assert send(sender) == 0
    rig.clock.advance(1)
    send(sender)
    assert states(ann) == ["sent", "sent"]
    assert ann.listed()[0].error is None
    assert len(hook.calls) == 4
    assert len({*hook.ids}) == 2
    # A redirect is not followed: nobody has checked where it leads.
    assert hook.ids[0] in hook.ids[1:]


def test_what_is_never_accepted_is_dead_until_somebody_retries_it(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    keep(ann, hook)
    failed_job(rig)
    rig.tick.run()
    hook.answers += [503] * (len(PAUSES_S) + 1)
    for pause in [*PAUSES_S, 1]:
        send(sender)
        rig.clock.advance(pause)
    (failed,) = ann.deliveries(state="failed")
    assert (failed.tries, failed.error) == (len(PAUSES_S) + 1, "the receiver answered 503")
    assert ann.listed()[0].failed == 1
    rig.clock.advance(86_400)
    assert send(sender) == 0
    assert ann.retry(ids=[failed.id]) == 1
    assert ann.retry(ids=[failed.id]) == 0
    send(sender)
    assert states(ann) == ["sent"]
    assert len({*hook.ids}) == 1


def test_a_receiver_may_ask_for_a_pause(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    keep(ann, hook)
    failed_job(rig)
    rig.tick.run()
    hook.answers, hook.more = [429], {"Retry-After": "90"}
    send(sender)
    rig.clock.advance(89)
    assert send(sender) == 0
    rig.clock.advance(1)
    assert send(sender) == 1
    assert states(ann) == ["sent"]


def test_a_slow_receiver_holds_up_no_other(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    with receiver() as slow:
        slow.awake.clear()
        keep(ann, slow, "a-slow-one")
        keep(ann, hook, "ops")
        for _ in range(3):
            failed_job(rig)
        rig.tick.run()
        assert sender.begin() == 2
        eventually(lambda: len(hook.calls) == 3)
        eventually(lambda: sorted(states(ann)) == ["sent"] * 3 + ["waiting"] * 3)
        # It has one at a time, and a new round begins no other.
        assert sender.begin() == 0
        assert len(slow.calls) == 1
        slow.awake.set()
        sender.wait()
        assert len(slow.calls) == 3


def test_a_receiver_that_trickles_is_cut_off(
    rig: Rig,
    ann: Notifying,
    sender: DeliverySender,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "DEADLINE_S", 0.2)
    over = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        ann.keep(
            "ops",
            {"kind": "slack", "target": f"http://127.0.0.1:{server.getsockname()[1]}/"},
        )
        failed_job(rig)
        rig.tick.run()
        sender.begin()
        heard, _ = server.accept()
        with heard:
            # It never ends its first line, and never stays silent for long.
            while not over.wait(0.05):
                try:
                    heard.sendall(b"HTTP/1.1 ")
                except OSError:
                    over.set()
        sender.wait()
    (told,) = ann.deliveries()
    assert (told.state, told.error) == ("waiting", "the receiver did not answer within 10 s")


@contextmanager
def dying_before_it_is_marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(DeliverySender, "_record", die)
        yield


def test_a_sender_that_dies_after_sending_sends_again_with_the_same_id(
    rig: Rig,
    ann: Notifying,
    hook: Receiver,
    sender: DeliverySender,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(ann, hook)
    failed_job(rig)
    rig.tick.run()
    with dying_before_it_is_marked(monkeypatch):
        send(sender)
    assert states(ann) == ["waiting"]
    # Nobody takes it over while the first one may still be sending it.
    assert send(sender) == 0
    rig.clock.advance(sending.CLAIM_LASTS.total_seconds())
    send(sender)
    assert states(ann) == ["sent"]
    assert hook.ids == [hook.ids[0]] * 2
    assert hook.calls[0].body == hook.calls[1].body


def test_of_two_senders_one_sends_until_it_is_gone_and_nothing_is_sent_twice(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    keep(ann, hook)
    for _ in range(20):
        failed_job(rig)
    rig.tick.run()
    other = DeliverySender(rig.database, threads=2)
    hook.awake.clear()
    assert (sender.begin(), other.begin()) == (1, 0)
    rig.clock.advance(LEAD_S - 1)
    assert (sender.begin(), other.begin()) == (0, 0)
    # It stays silent, but is not dead: both send for a moment.
    rig.clock.advance(LEAD_S + 1)
    assert (other.begin(), sender.begin()) == (1, 0)
    hook.awake.set()
    sender.wait()
    other.wait()
    other.end()
    assert len(hook.calls) == len({*hook.ids}) == 20
    rig.clock.advance(-3600)
    assert rig.database.rows("due_notifications", **LEADING) == []
    assert rig.row("SELECT led_by FROM notifier") == {"led_by": LEADING["sender"]}


def test_a_claim_passes_by_what_another_one_holds_or_a_pause(
    rig: Rig, ann: Notifying, hook: Receiver
) -> None:
    keep(ann, hook)
    failed_job(rig)
    rig.tick.run()
    params: dict[str, Any] = {"notification_id": 1, "together": 9, "lasts": sending.CLAIM_LASTS}
    rig.rows("UPDATE notification SET paused_until = forge_now() + interval '1 minute'")
    assert rig.database.rows("claim_deliveries", **params) == []
    rig.rows("UPDATE notification SET paused_until = NULL")
    with rig.database.transaction() as connection:
        connection.execute("SELECT FROM delivery FOR UPDATE")
        assert rig.database.rows("claim_deliveries", **params) == []
    assert len(rig.database.rows("claim_deliveries", **params)) == 1


def test_slack_gets_one_message_for_many_events(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    said = {"kind": "slack", "target": hook.url}
    ann.keep("ops", said, server="https://forge.example")
    jobs = [failed_job(rig, name="<train> & co") for _ in range(3)]
    rig.tick.run()
    send(sender)
    (call,) = hook.calls
    lines = call.message["text"].split("\n")
    assert lines == [
        f"Forge: job {job} '&lt;train&gt; &amp; co' of ann failed (exit code 3): boom"
        f" (<https://forge.example/jobs/{job}|open>)"
        for job in jobs
    ]
    assert states(ann) == ["sent"] * 3


def test_mail_goes_through_the_server_that_an_admin_has_named(
    rig: Rig, ann: Notifying, sender: DeliverySender
) -> None:
    ann.keep("ops", {"kind": "email", "target": "team@example.com"})
    failed_job(rig, name="train")
    rig.tick.run()
    send(sender)
    (told,) = ann.deliveries()
    assert "no mail server is set" in (told.error or "")
    with mail_server() as box:
        shown = ann.set_notifier({"smtp_url": box.url, "sender": "forge@example.com"})
        assert "ss" not in str(shown.smtp).removeprefix("smtp")
        box.refusals.append(b"451 later\r\n")
        rig.clock.advance(PAUSES_S[0])
        send(sender)
        assert ann.delivery(told.id).error == "the mail server answered 451 later"
        rig.clock.advance(PAUSES_S[1])
        send(sender)
        assert states(ann) == ["sent"]
    (letter,) = box.letters
    # Python 3.13 writes `rcpt to`.
    assert [one.lower() for one in box.recipients] == ["rcpt to:<team@example.com>"] * 2
    assert base64.b64decode(box.logins[-1].split(" ")[-1]) == b"\0ann\0pa:ss"
    assert "Subject: Forge: job 1 'train' of ann failed (exit code 3): boom" in letter
    assert f"Message-ID: <{told.id}@example.com>" in letter
    assert "From: forge@example.com" in letter
    headers = message_from_string(letter)
    assert parsedate_to_datetime(headers["Date"]).tzinfo is not None
    assert (headers["MIME-Version"], headers["Auto-Submitted"]) == ("1.0", "auto-generated")


def test_a_mail_server_may_look_into_a_letter_for_longer_than_others_answer(
    rig: Rig, ann: Notifying, sender: DeliverySender, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It connects, shakes hands and is greeted before.
    assert sending.CLAIM_LASTS.total_seconds() > 3 * trying.DEADLINE_S + trying.LETTER_S
    assert trying.LETTER_S > trying.DEADLINE_S
    monkeypatch.setattr(channels, "LETTER_S", 0.5)
    ann.keep("ops", {"kind": "email", "target": "team@example.com"})
    with mail_server() as box:
        ann.set_notifier({"smtp_url": box.url, "sender": "forge@example.com"})
        failed_job(rig)
        rig.tick.run()
        box.awake.clear()
        send(sender)
        box.awake.set()
    assert ann.deliveries()[0].error == "the receiver did not answer within 0.5 s"


def test_a_letter_is_repeated_as_it_was_and_another_one_has_another_id(
    rig: Rig, ann: Notifying, sender: DeliverySender
) -> None:
    ann.keep("ops", {"kind": "email", "target": "team@example.com"})
    with mail_server() as box:
        ann.set_notifier({"smtp_url": box.url, "sender": "forge@example.com"})
        for _ in range(2):
            failed_job(rig)
        rig.tick.run()
        # The server has the letter, and does not say so.
        box.verdicts.append(b"451 later\r\n")
        send(sender)
        failed_job(rig)
        rig.tick.run()
        rig.clock.advance(PAUSES_S[0])
        send(sender)
    assert states(ann) == ["sent"] * 3
    first, other, again = (message_from_string(letter) for letter in box.letters)
    assert (again["Message-ID"], again.get_payload()) == (first["Message-ID"], first.get_payload())
    assert "(and 1 more)" in again["Subject"]
    assert "more" not in other["Subject"]
    assert other["Message-ID"] != first["Message-ID"]


def test_a_test_is_sent_at_once_even_to_one_that_pauses(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    keep(ann, hook)
    hook.answers.append(500)
    failed_job(rig)
    rig.tick.run()
    send(sender)
    failed_job(rig)
    rig.tick.run()
    hook.answers.append(503)
    made = ann.test("ops")
    assert (made.state, made.event, made.job_id) == ("waiting", "test", None)
    assert made.next_at == made.at
    send(sender)
    assert ann.delivery(made.id).error == "the receiver answered 503"
    # It goes before what waits, which stays where it is.
    assert send(sender) == 0
    assert hook.types == ["job.failed", "test"]
    again = ann.test("ops")
    send(sender)
    assert ann.delivery(again.id).state == "sent"
    assert hook.types == ["job.failed", "test", "test", "job.failed"]
    # The one that failed does not come later.
    with pytest.raises(DeliveryUnknown):
        ann.delivery(made.id)


def test_a_receiver_rests_for_a_minute_at_most_however_many_messages_fail(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    keep(ann, hook)
    for _ in range(6):
        failed_job(rig)
    rig.tick.run()
    hook.answers += [500] * 6
    for tries, rest in enumerate((10, 20, 40, 60, 60, 60), 1):
        send(sender)
        assert len(hook.calls) == tries
        assert ann.listed()[0].paused_until == rig.clock.now + timedelta(seconds=rest)
        rig.clock.advance(rest)


def test_a_private_address_is_reached_only_if_an_admin_allows_it(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    ann.set_notifier({"allow": ["10.0.0.0/8", "::1"]})
    keep(ann, hook)
    ann.test("ops")
    send(sender)
    assert hook.calls == []
    (told,) = ann.deliveries()
    assert told.error == (
        "127.0.0.1 has no public address, and none that an admin has allowed: `forge notification"
        " setup --allow NETWORK` does so"
    )
    ann.set_notifier({"allow": ["127.0.0.1"]})
    rig.clock.advance(PAUSES_S[0])
    send(sender)
    assert states(ann) == ["sent"]


def test_old_deliveries_are_removed(
    rig: Rig, ann: Notifying, hook: Receiver, sender: DeliverySender
) -> None:
    keep(ann, hook)
    failed_job(rig)
    rig.tick.run()
    send(sender)
    (told,) = ann.deliveries()
    rig.clock.advance(30 * 86_400 - 1)
    rig.tick.run()
    assert ann.delivery(told.id) is not None
    rig.clock.advance(2)
    rig.tick.run()
    with pytest.raises(DeliveryUnknown):
        ann.delivery(told.id)


def test_a_state_that_no_delivery_has_is_refused(ann: Notifying) -> None:
    with pytest.raises(JobInvalid, match="waiting"):
        ann.deliveries(state="lost")
