"""Actions of the audit trail as people would tell them: in words, with names, each kind once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from string import Formatter
from typing import Any

from forge_schema.database.pool import Row
from forge_schema.model.reading import happened

from forge_functions.dashboard.words import t

# What happened, with fields of the action's detail; the detail of others follows them as it is.
SAID = {
    "submitted": "Job submitted",
    "promoted": "Job queued",
    "released": "Job queued after it was held",
    "asked for approval": "Job needs approval",
    "approved": "Job approved",
    "dependency failed": "Job cancelled: job {needs}, which it waited for, failed",
    "retried": "Job queued again",
    "deleted": "Job {name} deleted",
    "asked to cancel": "Job asked to end",
    "asked to preempt": "Job asked to leave its worker",
    "asked to time out": "Job over its time limit",
    "asked to grow": "Job asked to restart on more machines",
    "cancelled": "Job cancelled",
    "entered": "Job entered",
    "set aside": "Damaged row set aside",
    "sweep parallel set": "Sweep {sweep} runs {parallel} jobs at once",
    "jobs removed": "Old jobs removed: {jobs}",
    "refused": "Refused: {method} {path}",
    "restored": "Queue restored from {dump}",
    "worker_created": "Worker {name} created",
    "token_rotated": "Worker got a new token",
    "joined": "Worker joined",
    "worker_deleted": "Worker {name} deleted",
    "registered": "Worker connected",
    "registration_refused": "Worker refused: {why}",
    "status_changed": "Worker is {to}",
    "disconnected": "Worker disconnected",
    "offline": "Worker silent for too long",
    "suspected": "Worker suspected: {why}",
    "trusted": "Worker trusted again",
    "reaped": "Worker {name} removed",
    "drain": "Worker asked to take no more jobs",
    "stop": "Worker asked to stop",
    "undrain": "Worker may take jobs again",
    "queue set": "Queue {name} changed",
    "owner quota set": "Limits of {owner} changed",
    "team set": "Team {team} changed",
    "team removed": "Team {team} removed",
    "budget spent": "Budget used up",
    "budget renewed": "Budget renewed",
    "input_kept": "Input {name} saved",
    "input_removed": "Input {name} removed",
    "template_kept": "Template {name} saved",
    "template_removed": "Template {name} removed",
    "schedule_kept": "Schedule {name} saved",
    "schedule_paused": "Schedule {name} paused",
    "schedule_resumed": "Schedule {name} resumed",
    "schedule_removed": "Schedule {name} removed",
    "notification_kept": "Notification {name} saved",
    "notification_paused": "Notification {name} paused",
    "notification_resumed": "Notification {name} resumed",
    "notification_removed": "Notification {name} removed",
    "notifier_set": "Sending of messages changed",
    "key_created": "Key for {owner} made: {role}",
    "key_rotated": "Key of {key} replaced",
    "invitation_accepted": "Invitation accepted",
    "key_revoked": "Key of {key} revoked",
    "login": "Logged in",
    "login_refused": "Login refused",
    "logout": "Logged out",
}
# Who acts without being a person.
ITSELF, NOBODY = {"sweeper", "queue"}, "anonymous"
# Of no use to people, or told by the sentence.
SILENT = {
    "boot_id", "signs", "session", "request", "from", "said", "attempt", "rank", "inputs", "token",
}  # fmt: skip
TOLD_BY_NAME = {"registered": {"name"}, "joined": {"name"}, "key_created": {"key"}}
# Of the same, so much later one is told anew.
TOGETHER = timedelta(minutes=15)

Names = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Told:
    """The same that happened once or more: the newest first, by the same actor."""

    acts: list[Row]
    who: str
    what: str
    rest: Mapping[str, Any]

    @property
    def newest(self) -> Row:
        """The last of them."""
        return self.acts[0]

    @property
    def oldest(self) -> Row:
        """The first of them."""
        return self.acts[-1]

    @property
    def place(self) -> str:
        """A name for the row that stays when another of the same happens."""
        return str(self.oldest.get("id") or f"job-{self.oldest.get('submitted')}")


def told(acts: Iterable[Row], names: Names) -> list[Told]:
    """Return actions in words, each where its newest is; those of the same kind are one.

    Args:
        acts: the newest first.
        names: from `audit.names_of`.
    """
    found: list[Told] = []
    open_by: dict[tuple[str, ...], Told] = {}
    for act in acts:
        one = Told([act], who(act["actor"], names), what(act, names), _rest(act))
        key = (act["actor"], one.what, str(act.get("worker_id")), repr(one.rest))
        same = open_by.get(key)
        if same and same.oldest["at"] - act["at"] <= TOGETHER:
            same.acts.append(act)
            continue
        found.append(one)
        open_by[key] = one
    return found


def what(act: Row, names: Names) -> str:
    """Return what happened as a sentence."""
    fields = dict(act["detail"] or {})
    sentence = SAID.get(act["action"])
    if sentence is None:
        text = happened(act["action"], fields).replace("_", " ")
        return text[:1].upper() + text[1:]
    if "key" in fields:
        fields["key"] = names.get(("key", str(fields["key"])), fields["key"])
    if not set(_places(sentence)) <= set(fields):
        return t(sentence.partition(":")[0].partition(" {")[0])
    # A worker's status and a role are words of their own.
    return t(sentence, **{name: t(str(value)) for name, value in fields.items()})


def who(actor: str, names: Names) -> str:
    """Return who acted."""
    kind, _, name = actor.partition(":")
    if actor in ITSELF:
        return t("Forge itself")
    if actor == NOBODY:
        return t("somebody")
    return names.get((kind, name), name or actor)


def _rest(act: Row) -> dict[str, Any]:
    shown = {*_places(SAID.get(act["action"], "")), *TOLD_BY_NAME.get(act["action"], ()), *SILENT}
    if act["action"] in {"changed", "annotated", "displaced", "agent replaced"}:
        return {}
    detail = act["detail"] or {}
    return {
        name: value
        for name, value in detail.items()
        if name not in shown and value is not None and value is not False and value != []
    }


def _places(sentence: str) -> Sequence[str]:
    return [name for _, name, _, _ in Formatter().parse(sentence) if name]
