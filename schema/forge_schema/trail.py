"""The audit trail in words: what happened, from an action and its detail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Any

from forge_schema.model.quantities import MIB, counted, duration_text, names_text, size_text
from forge_schema.model.states import Phase, reason_in_words

if TYPE_CHECKING:
    from forge_schema.model.job import Event

# How the queue's names of times and sizes end, and how people read them.
UNITS: Mapping[str, Callable[[float], str]] = {
    "_s": duration_text,
    "_mb": lambda mebibytes: size_text(mebibytes * MIB),
}
# What happened, with fields of the action's detail; the detail of others follows them as it is.
SAID = {
    "submitted": "Job submitted",
    "dispatched": "Attempt {attempt} started",
    "ended": "Attempt {attempt} ended: {reason}",
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
    "queue removed": "Queue {name} removed",
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
# What a caller was refused, by the method and path; of others, these are told as they are.
REFUSED = {
    "POST /api/v1/admin/keys": "Refused to make a key",
    "POST /api/v1/admin/invitations": "Refused to invite people",
    "POST /api/v1/admin/workers": "Refused to create a worker",
    "POST /api/v1/admin/approvals": "Refused to approve jobs",
    "POST /api/v1/queue/submit": "Refused to submit jobs",
    "POST /api/v1/queue/cancel": "Refused to cancel jobs",
}
# Of no use to people, or told by the sentence.
SILENT = {
    "boot_id", "signs", "session", "request", "from", "said", "attempt", "rank", "inputs", "token",
}  # fmt: skip
# Without one, nothing is ever spent.
BUDGET = ("gpu_hours_per_month", "cost_per_month")
TOLD_BY_NAME = {"registered": {"name"}, "joined": {"name"}, "key_created": {"key"}}
# Those whose words are made of all of their detail.
WHOLE = {"changed", "annotated", "displaced", "agent replaced"}


def places(sentence: str) -> list[str]:
    """Return the fields of the detail that a sentence has."""
    return [name for _, name, _, _ in Formatter().parse(sentence) if name]


def rest_of(action: str, detail: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what of the detail is news to a reader of the sentence."""
    if action in WHOLE:
        return {}
    shown = {*places(SAID.get(action, "")), *TOLD_BY_NAME.get(action, ()), *SILENT}
    if detail and all(detail.get(name) is None for name in BUDGET):
        shown.add("when_spent")
    return {
        name: value
        for name, value in (detail or {}).items()
        if name not in shown and not _says_nothing(name, value)
    }


def _says_nothing(name: str, value: object) -> bool:
    return value is None or value is False or value == [] or (name, value) == ("exit_code", 0)


def filled(sentence: str, **values: object) -> str:
    """Return a sentence with its values."""
    return sentence.format(**values) if values else sentence


def in_words(action: str, fields: Mapping[str, Any], say: Callable[..., str] = filled) -> str:
    """Return what happened as a sentence.

    Args:
        action: an action of the trail.
        fields: its detail.
        say: fills in a sentence, or a word without values, in the reader's language.
    """
    sentence = SAID.get(action)
    if action == "refused":
        sentence = REFUSED.get(f"{fields.get('method')} {fields.get('path')}", sentence)
    if sentence is None:
        text = _of_all(action, fields)
        return text[:1].upper() + text[1:]
    if not set(places(sentence)) <= set(fields):
        return say(sentence.partition(":")[0].partition(" {")[0])
    # A worker's status, a role and a reason are words of their own.
    words = {name: _word(name, value) for name, value in fields.items()}
    return say(sentence, **{name: say(word) for name, word in words.items()})


def _word(name: str, value: object) -> str:
    return reason_in_words(str(value)) if name == "reason" else str(value)


def _of_all(action: str, fields: Mapping[str, Any]) -> str:
    """Return the words that are made of all of the detail; of an unknown action, its name."""
    match action:
        case "agent replaced":
            job = "had ended" if fields.get("phase") == Phase.FINISHING else "ran on"
            return f"the agent of {fields['worker']} was replaced; the job {job}"
        case "inputs given":
            return f"had the inputs {', '.join(given_texts(fields['inputs']).values())}"
        case "displaced":
            return f"displaced by job {job_displacing(fields)}"
        case "changed":
            return ", ".join(_changed(fields))
        case "annotated":
            return ", ".join(_annotated(fields))
    return action.replace("_", " ")


def job_displacing(detail: Mapping[str, Any]) -> str:
    """Return which job another one left for, and by what right."""
    if guaranteed_to := detail.get("guaranteed_to"):
        return f"{detail['by']}, whose GPUs are guaranteed to {guaranteed_to}"
    return f"{detail['by']} of priority {detail['priority']}"


def _annotated(fields: Mapping[str, Any]) -> Iterator[str]:
    if added := fields.get("tags_added"):
        yield f"tagged {names_text(added, len(added))}"
    if removed := fields.get("tags_removed"):
        yield f"no longer tagged {names_text(removed, len(removed))}"
    if (note := fields.get("note")) is not None:
        yield f"noted: {note}" if note else "note removed"
    if (archived := fields.get("archived")) is not None:
        yield "archived" if archived else "brought back from the archive"


def given_texts(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return what a job found in its inputs, in words by name; a digest enough to compare it."""
    return {
        name: f"{name}={given['source']}"
        + (f" ({_content(given)})" if given.get("digest") is not None else "")
        for name, given in sorted(inputs.items())
    }


def input_texts(spec: Mapping[str, Any], events: Sequence[Event]) -> dict[str, str]:
    """Return the inputs of a job in words by name, with what its last attempt found in each."""
    asked: Mapping[str, str] = spec.get("inputs") or {}
    given = [event.detail for event in events if event.action == "inputs given" and event.detail]
    known = given_texts(given[-1]["inputs"]) if given else {}
    return {name: known.get(name, f"{name}={asked[name]}") for name in sorted(asked)}


def _content(given: Mapping[str, Any]) -> str:
    size = f"{counted(given['files'], 'file')}, {size_text(given['bytes'])}"
    return f"{given['version']}: {size}, {given['digest'][:12]}"


def _changed(fields: Mapping[str, Any]) -> Iterator[str]:
    texts = (_change(name, both) for name, both in fields.items())
    yield f"changed {next(texts, '')}"
    yield from texts


def _change(name: str, both: Mapping[str, Any]) -> str:
    unit = name[name.rfind("_") :]
    old, new = (_in_words(unit, both.get(side)) for side in ("from", "to"))
    return f"{name.removesuffix(unit) if unit in UNITS else name} from {old} to {new}"


def _in_words(unit: str, value: object) -> str:
    if value is None or unit not in UNITS:
        return "none" if value is None else str(value)
    return UNITS[unit](float(str(value)))
