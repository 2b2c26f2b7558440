"""A job request as written by people in forge.toml, options and the SDK."""

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from forge_schema.model.errors import plainly, shorter
from forge_schema.model.quantities import MIB, Capacity, Duration
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
)

from forge_client.errors import ClientError

OWN_NAME = re.compile(r"[0-9]+\.[0-9]+")
NAME = re.compile(r"(?P<job_id>[0-9]+)(:(?P<attempt>[0-9]+)\.(?P<number>[0-9]+))?")

# The largest numbers that the queue can store.
MOST = {"job_id": 2**63 - 1, "attempt": 32_767, "number": 2_000_000_000}


def parsed(name: object) -> dict[str, int]:
    """Return a checkpoint's name in the queue's form.

    Raises:
        ValueError: it is not the name of a checkpoint.
    """
    found = NAME.fullmatch(str(name).strip())
    if found is None:
        raise ValueError(
            "write a job's id for its newest checkpoint, or JOB:ATTEMPT.NUMBER as"
            " `forge checkpoints JOB` shows them"
        )
    asked = {part: int(said) for part, said in found.groupdict().items() if said is not None}
    if any(number > MOST[part] for part, number in asked.items()):
        raise ValueError(f"there is no checkpoint {name}; `forge checkpoints JOB` lists a job's")
    return asked


def own_checkpoint(job_id: int, name: str) -> tuple[int, int]:
    """Return the attempt and the number of a checkpoint of this job: `1.31`, or `12:1.31`.

    Raises:
        ClientError: it is not the name of a checkpoint, or that of another job's.
    """
    try:
        found = parsed(of_job(job_id, name))
    except ValueError:
        found = {}
    if found.get("job_id") != job_id or "attempt" not in found:
        raise ClientError(
            f"{name!r} is not a checkpoint of job {job_id}",
            hint=f"write ATTEMPT.NUMBER as `forge checkpoints {job_id}` shows them; only a new job"
            " can start from another job's: forge rerun",
            code="option_invalid",
        )
    return found["attempt"], found["number"]


def of_job(job_id: int, name: str) -> str:
    """Return the name of a checkpoint with its job, by default this one."""
    return f"{job_id}:{name.strip()}" if OWN_NAME.fullmatch(name.strip()) else name


_Name = Annotated[str, Field(pattern=r"^\s*[0-9]+(:[0-9]+\.[0-9]+)?\s*$")]
CheckpointName = Annotated[
    dict[str, Any], BeforeValidator(parsed, json_schema_input_type=int | _Name)
]


def _folder(said: object) -> object:
    """Return a folder's path as the queue writes it: a shell completes `runs` to `runs/`."""
    if not isinstance(said, str):
        return said
    if not PurePosixPath(said).parts:
        raise ValueError(
            "the project's folder itself cannot be the checkpoint folder; name the files that the"
            " job writes there by patterns, such as --checkpoint '*.pt'"
        )
    return said.removeprefix("./").rstrip("/") or said


def _patterns(said: object) -> object:
    """Return patterns as the queue writes them; a single one may be given alone."""
    if isinstance(said, str):
        said = [said]
    if not isinstance(said, Iterable):
        return said
    return [one.removeprefix("./").rstrip("/") if isinstance(one, str) else one for one in said]


def _jobs(said: object) -> object:
    """Return ids given as a number, as `7,8`, as a `Job`, or in a list, where each may be any."""
    if isinstance(said, Iterable) and not isinstance(said, str):
        return [job_id for one in said for job_id in _some(one)]
    return _some(said)


def _some(said: object) -> list[object]:
    return list(said.split(",")) if isinstance(said, str) else [getattr(said, "id", said)]


_Ids = Annotated[str, Field(pattern=r"^\s*[0-9]+\s*(,\s*[0-9]+\s*)*$")]
Jobs = Annotated[
    list[int] | None,
    BeforeValidator(_jobs, json_schema_input_type=int | _Ids | list[int | _Ids]),
]


def _names(said: object) -> object:
    """Return names of extras or groups; a single one may be given alone, or several as `a,b`."""
    words = [said] if isinstance(said, str) else said
    if not isinstance(words, Iterable):
        return said
    return [one.strip() for each in words for one in str(each).split(",") if one.strip()]


Names = Annotated[list[str] | None, BeforeValidator(_names, json_schema_input_type=str | list[str])]


RANGE = re.compile(r"\s*([0-9]{1,9})\s*(?:\.\.\s*([0-9]{1,9})\s*)?")


def _range(said: object) -> object:
    """Return a number of machines, or a range such as `2..8`, as the least and the most of them."""
    if said is None or isinstance(said, tuple):
        return said
    found = None if isinstance(said, bool) else RANGE.fullmatch(str(said))
    if found is None:
        raise ValueError("write a number of machines, or a range of them such as 2..8")
    return tuple(number and int(number) for number in found.groups())


# A range begins with 2; which of its numbers is the greater, a pattern cannot tell.
_COUNT, _SEVERAL = "0*[1-9][0-9]{0,3}", "0*([2-9]|[1-9][0-9]{1,3})"
_Range = Annotated[str, Field(pattern=rf"^\s*({_COUNT}|{_SEVERAL}\s*\.\.\s*{_SEVERAL})\s*$")]
_Nodes = Annotated[int, Field(ge=1)]
Nodes = Annotated[
    tuple[int, int | None] | None, BeforeValidator(_range, json_schema_input_type=_Nodes | _Range)
]


# `_words` makes a command of it, and `_folder` takes off what the queue does not.
_Line = Annotated[str, Field(pattern=r"\S")]
_Words = Annotated[list[str], Field(min_length=1)]
_Below = Annotated[str, Field(pattern=r"^(\./)?((?!\.\.?/)[^/\\]+/)*(?!\.\.?/*$)[^/\\]+/*$")]


def _words(command: object) -> object:
    return shlex.split(command) if isinstance(command, str) else command


def words(command: Sequence[str] | str) -> list[str]:
    """Return the words of a command; a string is split as in a shell.

    Raises:
        ClientError: it is no command, or its quotation marks do not match.
    """
    return Request().changed({"command": command}).command or []


def several(given: Iterable[str] | str) -> list[str]:
    """Return the texts of a list; a single text, which would be its letters, is a list of one."""
    return [given] if isinstance(given, str) else list(given)


def _file_or_not(said: object) -> object:
    if said is None or said is False or (isinstance(said, str) and said):
        return said
    raise ValueError("it must be a path in the project, or false to install nothing")


_Path = Annotated[str, Field(min_length=1)]
IMAGE_WAYS = {"image", "image_tar", "dockerfile"}


class Resources(BaseModel):
    """Resources that a job needs; sizes such as `512MiB`, `cpus` may be fractional."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpus: float | None = None
    memory: Capacity | None = None
    disk: Capacity | None = None
    gpus: int | None = None
    gpu_model: str | None = None
    vram: Capacity | None = None
    accelerator: str | None = None

    def spec(self) -> dict[str, Any]:
        """Return the resources in the queue's form, with sizes in MiB, rounded up."""
        sizes = {"memory_mb": self.memory, "disk_mb": self.disk, "vram_mb": self.vram}
        return {
            **self.model_dump(
                include={"cpus", "gpus", "gpu_model", "accelerator"}, exclude_none=True
            ),
            **{name: math.ceil(size / MIB) for name, size in sizes.items() if size is not None},
        }


class Tuning(BaseModel):
    """Variables that tell a job how to use its GPU."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: str | None = None
    streams: int | None = None
    objective: str | None = None


class Stall(BaseModel):
    """How long a job may show no sign of life before it counts as stalled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    no_progress: Duration | None = None
    silent_log: Duration | None = None
    idle_gpu: Duration | None = None
    idle_gpu_percent: float | None = None

    def spec(self) -> dict[str, float]:
        """Return it in the queue's form, with times in seconds."""
        given = self.model_dump(exclude_none=True)
        return {f"{name}_s" if name in TIMES else name: value for name, value in given.items()}


TIMES = {"no_progress", "silent_log", "idle_gpu"}
TABLES: dict[str, type[BaseModel]] = {"resources": Resources, "tuning": Tuning, "stall": Stall}


class Request(BaseModel):
    """A requested job; fields that are None take the queue's defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None
    command: Annotated[
        list[str] | None, BeforeValidator(_words, json_schema_input_type=_Line | _Words)
    ] = None
    image: str | None = None
    image_tar: str | None = None
    dockerfile: str | None = None
    queue: str | None = None
    priority: int | None = None
    target: str | None = None
    nodes: Nodes = None
    launcher: str | None = None
    same: str | None = None
    mixed: bool | None = None
    labels: dict[str, str] = {}
    env: dict[str, str] = {}
    timeout: Duration | None = None
    delay: Duration | None = None
    backoff: Duration | None = None
    checkpoint_interval: Duration | None = None
    grace: Duration | None = None
    preempt_signal: str | None = None
    checkpoint_dir: Annotated[
        str | None, BeforeValidator(_folder, json_schema_input_type=_Below)
    ] = None
    checkpoint: Annotated[
        list[str] | None, BeforeValidator(_patterns, json_schema_input_type=_Below | list[_Below])
    ] = None
    keep_checkpoints: int | None = None
    from_checkpoint: CheckpointName | None = None
    after: Jobs = None
    after_ok: Jobs = None
    after_any: Jobs = None
    max_failures: int | None = None
    max_losses: int | None = None
    max_preemptions: int | None = None
    idempotency_key: str | None = None
    kind: str | None = None
    junit: str | None = None
    handler: str | None = None
    arguments: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    experiment: str | None = None
    sweep: str | None = None
    parallel: int | None = None
    requirements: Annotated[
        str | Literal[False] | None,
        PlainValidator(_file_or_not, json_schema_input_type=_Path | Literal[False]),
    ] = None
    extras: Names = None
    groups: Names = None
    secrets: list[str] | None = None
    resources: Resources = Resources()
    tuning: Tuning = Tuning()
    stall: Stall = Stall()

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return the request with some fields changed.

        Labels, env, secrets, resources, tuning and stall are merged, not replaced.

        Args:
            changes: fields by name, also those in tables; None and empty values change nothing.

        Raises:
            ClientError: a field is unknown or invalid.
        """
        given = {name: value for name, value in changes.items() if value not in (None, {}, [])}
        tables = {
            table: {name: given.pop(name) for name in model.model_fields if name in given}
            for table, model in TABLES.items()
        }
        try:
            other = Request.model_validate({**given, **tables})
        except ValidationError as error:
            raise refused(error.errors()[0]) from error
        # An image given here, in whichever way, replaces any other.
        ways = IMAGE_WAYS if IMAGE_WAYS & given.keys() else set()
        # Existing values are kept as they are: they have been validated.
        return self.model_copy(
            update={
                **{name: getattr(other, name) for name in {*given, *ways}},
                "labels": {**self.labels, **other.labels},
                "env": {**self.env, **other.env},
                "secrets": [*dict.fromkeys([*(self.secrets or []), *(other.secrets or [])])]
                or None,
                **{
                    table: getattr(self, table).model_copy(
                        update=getattr(other, table).model_dump(exclude_unset=True)
                    )
                    for table in TABLES
                },
            }
        )

    def spec(self, *, owner: str | None, name: str) -> dict[str, Any]:
        """Return the job in the queue's form: times in seconds, only fields that were given.

        Args:
            owner: the job's owner; None leaves it to the server.
            name: the job's name and experiment if the request has none.

        Raises:
            ClientError: there is no command.
        """
        if not self.command:
            raise no_command()
        called = {"name": name, "experiment": name}
        return {**({"owner": owner} if owner else {}), **called, **self.fields()}

    def fields(self) -> dict[str, Any]:
        """Return the given fields in the queue's form."""
        seconds = {"timeout_s": self.timeout, "backoff_s": self.backoff}
        exact = {
            "delay_s": self.delay,
            "checkpoint_interval_s": self.checkpoint_interval,
            "grace_s": self.grace,
        }
        same = {"name", "command", "image", "queue", "priority", "target", "idempotency_key"}
        same |= {"image_tar", "dockerfile"}
        same |= {"labels", "env", "max_failures", "max_losses", "max_preemptions"}
        same |= {"kind", "junit", "handler", "arguments", "parameters", "sweep", "secrets"}
        same |= {"experiment"}
        same |= {"preempt_signal", "checkpoint_dir", "checkpoint", "keep_checkpoints"}
        same |= {"after", "after_ok", "after_any"}
        same |= {"parallel", "launcher", "same", "mixed"}
        nodes = zip(("nodes", "max_nodes"), self.nodes or (), strict=False)
        tuning, stall = self.tuning.model_dump(exclude_none=True), self.stall.spec()
        return {
            **self.model_dump(include=same, exclude_none=True),
            **{field: value for field, value in nodes if value is not None},
            **{field: math.ceil(value) for field, value in seconds.items() if value is not None},
            **{field: value for field, value in exact.items() if value is not None},
            **({"requirements": self.requirements} if self.requirements else {}),
            **({"tuning": tuning} if tuning else {}),
            **({"stall": stall} if stall else {}),
            **({"from_checkpoint": self.from_checkpoint} if self.from_checkpoint else {}),
            "resources": self.resources.spec(),
        }


KEYS = {*Request.model_fields, *(key for one in TABLES.values() for key in one.model_fields)}
# The queue's names of times and sizes end with the unit, and it has two for a range of machines.
WITH_UNIT = re.compile(r"\b([a-z_]+)_(?:s|mb)\b")


def no_command() -> ClientError:
    """Return the error for a job without a command."""
    return ClientError(
        "no command given",
        hint="write it after --, as in `forge submit . -- python train.py`, or as"
        " `command` in forge.toml",
        code="command_empty",
    )


def refused(first: Mapping[str, Any]) -> ClientError:
    """Return an error that names the wrong field and its fault, from pydantic's first error."""
    # An option or a key of forge.toml, whichever table it is in.
    field = ".".join(str(part) for part in first["loc"]).removeprefix("resources.")
    if first["type"] == "extra_forbidden":
        return _unknown(field)
    said = ": ".join(filter(None, [field, plainly(first["msg"])]))
    return ClientError(
        in_own_words(said),
        hint="`forge submit --help` lists the options",
        code="spec_invalid",
    )


def _unknown(field: str) -> ClientError:
    near = get_close_matches(field, KEYS, n=1)
    return ClientError(
        f"a job has no field {field!r}",
        hint=f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(KEYS))}",
        code="spec_invalid",
    )


def in_own_words(said: str) -> str:
    """Return a message from the queue with keys as people write them, in shorter words."""
    said = shorter(said).replace("max_nodes:", "nodes:")
    return WITH_UNIT.sub(lambda name: name[1] if name[1] in KEYS else name[0], said)
