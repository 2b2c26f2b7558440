"""The submit form: its fields as text, and the job made from them."""

import json
import math
import shlex
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Annotated, Any, Self
from uuid import uuid4

from forge_schema.model.errors import JobInvalid
from forge_schema.model.reading import is_handle, words_of
from forge_schema.model.spec import JobSpec, Resources
from pydantic import BaseModel, Field

MIB_PER_GIB = 1024
Text = Annotated[str, Field(max_length=20_000)]
# Named as in JobSpec; fields with other names are in `_TAKEN`.
PLAIN = (
    *("name", "owner", "queue", "experiment", "config_name", "image", "target", "bundle_digest"),
)
WHOLE = ("priority", "max_failures", "max_losses", "max_preemptions")
WORDS = ("accelerator", "gpu_model")
NEEDS = (*WORDS, "gpus", "cpus")
SAID = (*PLAIN, *WHOLE)
ROOMS = {"vram": "vram_mb", "memory": "memory_mb", "disk": "disk_mb"}
# The values of empty fields.
USUAL = {
    name: field.get_default(call_default_factory=True)
    for name, field in JobSpec.model_fields.items()
    if not field.is_required()
}
USUAL["config_name"] = USUAL["owner"] = None
USUAL_NEEDS = Resources().model_dump()
_TAKEN = {
    *(*PLAIN, *WHOLE, "command", "labels", "env", "resources", "timeout_s", "tags"),
    "idempotency_key",
}
# What most jobs need no more than, and what belongs to no job.
FIRST = {"command", "name", "bundle_digest", "gpus", "queue", "tags"}
SCRIPTS = (".py", ".sh", ".jl", ".R")
# Characters of a command in a job's name.
NAMED = 60
_ASIDE = {"schedule", "cron", "timezone", "idempotency_key"}


class JobForm(BaseModel):
    """The fields as typed. An empty one leaves the choice to the template or the queue.

    `timeout` is in minutes, `vram`, `memory` and `disk` in GiB, `labels` and `env` are lines of
    NAME=VALUE, `tags` are words, and `more` is JSON: other fields of a job. `schedule` is a name
    for those of the job and its times.
    """

    name: Text = ""
    owner: Text = ""
    command: Text = ""
    config_name: Text = ""
    bundle_digest: Text = ""
    queue: Text = ""
    priority: Text = ""
    target: Text = ""
    labels: Text = ""
    gpus: Text = ""
    gpu_model: Text = ""
    accelerator: Text = ""
    vram: Text = ""
    cpus: Text = ""
    memory: Text = ""
    disk: Text = ""
    experiment: Text = ""
    image: Text = ""
    env: Text = ""
    timeout: Text = ""
    max_failures: Text = ""
    max_losses: Text = ""
    max_preemptions: Text = ""
    tags: Text = ""
    more: Text = ""
    schedule: Text = ""
    cron: Text = ""
    timezone: Text = ""
    idempotency_key: Text = ""

    @classmethod
    def fresh(cls) -> Self:
        """Return an empty form. It submits one job, however often it is sent."""
        return cls(idempotency_key=f"form:{uuid4().hex}")

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Self:
        """Return a form that submits the same job again."""
        needs, timeout = asked["resources"], asked["timeout_s"]
        fields = {
            name: str(value) for name in SAID if (value := asked.get(name)) != USUAL.get(name)
        }
        fields |= {name: str(needs[name]) for name in NEEDS if needs[name] != USUAL_NEEDS[name]}
        return cls(
            **fields,
            **{
                name: _short(needs[field] / MIB_PER_GIB)
                for name, field in ROOMS.items()
                if needs[field] != USUAL_NEEDS[field]
            },
            command=shlex.join(asked["command"]),
            labels=_lines(asked["labels"]),
            env=_lines(asked["env"]),
            tags=" ".join(asked.get("tags") or []),
            timeout="" if timeout is None else _short(timeout / 60),
            more=_more(asked),
            idempotency_key=cls.fresh().idempotency_key,
        )

    def uncommon(self, faults: Mapping[str, str]) -> bool:
        """Tell whether more than the first fields are filled in, or wrong."""
        rest = set(type(self).model_fields) - FIRST - _ASIDE
        return any(getattr(self, name) or name in faults for name in rest)

    def renewed(self) -> Self:
        """Return a copy of the form that submits another job."""
        return self.model_copy(update={"idempotency_key": self.fresh().idempotency_key})

    def request(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the fields of the job, and the faults by form field."""
        read = _Reading()
        asked: dict[str, Any] = read("more", self.more, _object) or {}
        plain = {name: getattr(self, name).strip() for name in PLAIN}
        asked |= {name: text for name, text in plain.items() if text}
        asked |= read.some(WHOLE, self, int)
        needs = read.some(("gpus",), self, int) | read.some(("cpus",), self, float)
        needs |= {name: text for name in WORDS if (text := getattr(self, name).strip())}
        needs |= {ROOMS[name]: v for name, v in read.some(ROOMS, self, _mib).items()}
        for name, value in (
            ("command", read("command", self.command, words_of)),
            ("labels", read("labels", self.labels, _pairs)),
            ("env", read("env", self.env, _pairs)),
            ("tags", self.tags.replace(",", " ").split()),
            ("timeout_s", read("timeout", self.timeout, _seconds)),
            ("resources", needs),
            ("idempotency_key", self.idempotency_key),
        ):
            if value:
                asked[name] = value
        # A template gives its own name.
        if "command" in asked and not {"name", "config_name"} & set(asked):
            asked["name"] = _called(asked["command"])
        return asked, read.faults


def _called(command: list[str]) -> str:
    """Return the name of a job that has only a command: its script, its module or its program."""
    script = next((word for word in command if word.endswith(SCRIPTS)), command[0])
    module = [after for word, after in pairwise(command) if word == "-m"]
    name = module[0] if module else PurePosixPath(script).stem
    name = "".join(filter(str.isprintable, name)).strip()[:NAMED] or "job"
    return f"job-{name}" if is_handle(name) else name


class _Reading:
    """Parses texts and collects their faults by field name."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}

    def __call__(self, name: str, text: str, read: Callable[[str], Any]) -> Any:  # noqa: ANN401 - as in `read`
        if not text.strip():
            return None
        try:
            return read(text.strip())
        except (ValueError, OverflowError) as error:
            known = {int: "write a whole number", float: "write a number"}
            self.faults[name] = known.get(read, str(error))  # type: ignore[call-overload] # any key may occur
            return None

    def some(
        self, names: Mapping[str, str] | tuple[str, ...], form: JobForm, read: Callable[[str], Any]
    ) -> dict[str, Any]:
        values = {name: self(name, getattr(form, name), read) for name in names}
        return {name: value for name, value in values.items() if value is not None}


def faults_of(error: JobInvalid) -> dict[str, str]:
    """Return the faults of an invalid job by form field."""
    faults: dict[str, str] = {}
    for fault in error.faults:
        place = [str(part) for part in fault["loc"]]
        message = str(fault["msg"]).removeprefix("Value error, ")
        name = _field(place)
        if fault.get("type") == "missing" and name in FIRST:
            # A job's name is made of its command.
            name, message = "command", "write the command"
        inner = ".".join(place if name == "more" else place[1:])
        text = f"{inner}: {message}" if inner and name in {"labels", "env", "more"} else message
        faults.setdefault(name, text)
    return faults


def _field(place: list[str]) -> str:
    if not place:
        return ""
    if place[0] == "resources":
        rooms = {field: name for name, field in ROOMS.items()}
        # There is only one rule about resources as a whole.
        return rooms.get(place[1], place[1]) if len(place) > 1 else "gpus"
    if place[0] == "timeout_s":
        return "timeout"
    return place[0] if place[0] in JobForm.model_fields else "more"


def _more(asked: Mapping[str, Any]) -> str:
    """Return the fields that the form lacks, unless they have the default."""
    other = {
        name: value
        for name, value in asked.items()
        if name in USUAL and name not in _TAKEN and value not in (None, USUAL[name])
    }
    return json.dumps(other, indent=2, ensure_ascii=False) if other else ""


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not valid JSON: {error}") from error
    if isinstance(value, dict):
        return value
    raise ValueError('write a JSON object, such as {"grace_s": 60}')


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for line in filter(str.strip, text.splitlines()):
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise ValueError(
                f"{line.strip()!r} lacks a name or an equals sign; write one NAME=VALUE per line"
            )
        pairs[name.strip()] = value
    return pairs


def _lines(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in pairs.items())


def _mib(text: str) -> int:
    return math.ceil(round(_finite(text) * MIB_PER_GIB, 6))


def _seconds(text: str) -> int:
    return math.ceil(round(_finite(text) * 60, 6))


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("write a number")
    return number


def _short(number: float) -> str:
    return f"{number:.15g}"
