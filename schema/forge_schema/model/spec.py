"""The request for a job, validated before it is stored."""

import hashlib
import json
import re
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict

from forge_schema.model.fields import NUMERIC, Document, Flag, Id, KnownFields, Number, Text
from forge_schema.model.fields import Word as Name
from forge_schema.model.job import HANDLE, SHOWN, Environment, Git
from forge_schema.model.quantities import size_text
from forge_schema.model.states import DependencyKind, JobKind, Launcher, Target

# Limits of the columns: an integer, and the labels in the unique index on shapes.
MAX_INTEGER = 2_000_000_000
MAX_LABELS_BYTES = 1500
YEAR_S = 31_536_000
MAX_ID = 2**63 - 1
MAX_SMALL = 32_767
MOST_NODES = 1000
MOST_PATTERNS = 32
BRACES = re.compile(r"\{[^{}/]*,[^{}]*\}")

# Fields left out of the payload if they have the default; workers read them with `.get`.
OPTIONAL = {"kind", "handler", "sweep", "junit", "image_tar", "dockerfile"}
OPTIONAL |= {"requirements", "secrets", "tuning", "preempt_signal", "checkpoint_dir", "checkpoint"}
OPTIONAL |= {"keep_checkpoints", "stall", "after", "after_ok", "after_any", "parallel"}
OPTIONAL |= {"nodes", "max_nodes", "launcher", "same", "mixed"} | SHOWN
# The same, of those in which the jobs of a sweep differ.
VARIED = ("arguments", "parameters")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
HANDLER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
SORTED = json.JSONEncoder(sort_keys=True)


def _relative(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or any(part in {"", ".", ".."} for part in parts):
        raise ValueError("it must be a path below the project's folder, with forward slashes")
    return path


def _without_braces(pattern: str) -> str:
    # A shell expands them, if they are not quoted; as a pattern they match no usual file.
    if BRACES.search(pattern):
        raise ValueError(
            f"braces as in {pattern!r} are not expanded: name each pattern on its own,"
            " as in --checkpoint '*.pt' --checkpoint '*.ckpt'"
        )
    return pattern


def _env_name(name: str) -> str:
    if not ENV_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid name of a secret: use up to 100 letters (A to Z, a to z),"
            " digits and underscores, not beginning with a digit"
        )
    return name


def owner_mark(owner: str) -> str:
    """Return what stands for an owner in a worker's labels, which everybody may read."""
    return hashlib.sha256(owner.encode()).hexdigest()[:12]


def _in_order(job_ids: list[int]) -> list[int]:
    return sorted(set(job_ids))


def _image(name: str) -> str:
    if not name:
        raise ValueError("it is empty: name an image, or leave it out")
    return name


# These, and the secrets' validator, as patterns in the JSON schema.
BELOW: JsonDict = {"pattern": r"^((?!\.\.?/)[^/\\]+/)*(?!\.\.?$)[^/\\]+$"}
OWN_NAME: JsonDict = {"pattern": "^(?!FORGE_|LD_|NVIDIA_)[A-Za-z_][A-Za-z0-9_]{0,99}$"}
RelativePath = Annotated[
    Text,
    Field(min_length=1, max_length=500, json_schema_extra=BELOW),
    AfterValidator(_relative),
]
CheckpointPattern = Annotated[RelativePath, AfterValidator(_without_braces)]
EnvName = Annotated[str, Field(json_schema_extra=OWN_NAME), AfterValidator(_env_name)]
ImageName = Annotated[Text, Field(json_schema_extra={"minLength": 1}), AfterValidator(_image)]
SignalName = Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"]
Accelerator = Literal["any", "cpu", "cuda", "rocm", "mps"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
Objective = Literal["throughput", "latency"]
Parameter = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Needed = Annotated[list[Id], Field(max_length=100), AfterValidator(_in_order)]
Scalar = Flag | Annotated[int, Field(strict=True)] | Number | Annotated[Text, Field(max_length=500)]
Budget = Annotated[int, Field(ge=0, le=10_000), NUMERIC]
# The label that says what a worker runs: jobs with an image, projects without one.
RUNS = "forge.runs"
RUNS_IMAGES, RUNS_PROJECTS, RUNS_BUILDS = "images", "projects", "builds"
# The label that lists a worker's handlers for custom jobs.
HANDLERS = "forge.handlers"
# The label that says which ports of a worker the other machines of a gang reach: all of the machine
# (host), or the one that a member publishes (ports). Only the latter report it.
GANG_NETWORK = "forge.gang_network"
ALL_PORTS = "host"
# Labels that name the secrets that a worker has, each for everybody or for some owners.
SECRET = "forge.secret."  # noqa: S105 - the beginning of their names
FOR_ALL = "*"
RESERVED_ENV = re.compile(r"^(FORGE_|LD_|NVIDIA_)")
# What the validators below check, in the JSON schema.
A_PROGRAM = {"prefixItems": [{"type": "string", "minLength": 1}]}
OWN_NAMES = {"propertyNames": {"pattern": "^(?!FORGE_|LD_|NVIDIA_)[^=]+$"}}
NO_OTHER: JsonDict = {"additionalProperties": False}
IMAGES = ("image", "image_tar", "dockerfile")
NOTHING: JsonDict = {"type": "null"}
# It is part of a path.
SWEEP = "^[^/]+$"
MOST_PARALLEL = 10_000
Parallel = Annotated[int, Field(ge=1, le=MOST_PARALLEL), NUMERIC]
# JSON schema: what only a job on several machines has.
OF_A_GANG: list[JsonValue] = [
    {
        "properties": {
            **dict.fromkeys(("launcher", "same", "max_nodes"), NOTHING),
            "mixed": {"const": False},
        }
    },
    {"properties": {"nodes": {"type": "integer", "minimum": 2}}, "required": ["nodes"]},
]
# JSON schema: a checkpoint has both of these, or neither.
PLACE = ("attempt", "number")
WHOLE: list[JsonValue] = [
    {"properties": dict.fromkeys(PLACE, NOTHING)},
    {"properties": {name: {"type": "integer"} for name in PLACE}, "required": [*PLACE]},
]
# JSON schema: a cap requires a sweep.
OF_A_SWEEP: list[JsonValue] = [
    {"properties": {"parallel": NOTHING}},
    {"properties": {"sweep": {"type": "string", "pattern": SWEEP}}, "required": ["sweep"]},
]


def _kinds_of_job() -> JsonDict:
    """Return the JSON schema of which fields go together."""
    called: JsonDict = {"type": "string", "pattern": f"^{HANDLER.pattern}$"}
    none: JsonDict = dict.fromkeys((*IMAGES, "requirements"), NOTHING)
    custom: JsonDict = {
        "properties": {"kind": {"const": "custom"}, "handler": called, **none},
        "required": ["kind", "handler"],
    }
    others: JsonDict = {
        "kind": {"enum": [kind.value for kind in JobKind if kind is not JobKind.CUSTOM]},
        "handler": NOTHING,
    }
    by_image: list[JsonValue] = [
        {"properties": {**others, **{name: NOTHING for name in IMAGES if name != own}}}
        for own in IMAGES
    ]
    return {"anyOf": [custom, *by_image], "allOf": [{"anyOf": OF_A_SWEEP}, {"anyOf": OF_A_GANG}]}


# JSON schema: a GPU model or memory requires a number of GPUs.
OF_GPUS: JsonDict = {
    "anyOf": [
        {"required": ["gpus"]},
        {"properties": {"gpu_model": {"const": "*"}, "vram_mb": {"const": 0}}},
    ]
}


class Resources(KnownFields, BaseModel):
    """The resources of one rank of a job; memory and disk in MiB, `cpus` may be a fraction.

    Without `memory_mb` it gets a share of its worker's memory. Without `cpus` it gets 1 CPU, or
    with GPUs a share of the worker's CPUs; the SQL function `forge_lent` has the rule.
    """

    model_config = ConfigDict(json_schema_extra=OF_GPUS)

    accelerator: Accelerator = "any"
    gpus: Annotated[int, Field(ge=0, le=64), NUMERIC] = 0
    gpu_model: Name = "*"
    vram_mb: Annotated[int, Field(ge=0, le=MAX_INTEGER), NUMERIC] = 0
    cpus: Annotated[Number, Field(gt=0, le=4096)] | None = None
    memory_mb: Annotated[int, Field(gt=0, le=MAX_INTEGER), NUMERIC] | None = None
    disk_mb: Annotated[int, Field(gt=0, le=MAX_INTEGER), NUMERIC] = 10240

    @model_validator(mode="after")
    def _of_gpus(self) -> Self:
        # An explicit 0 overrides what a template or forge.toml requests.
        if "gpus" not in self.model_fields_set and (self.gpu_model != "*" or self.vram_mb):
            raise ValueError("a GPU model or memory is requested without a GPU: set gpus=1 too")
        return self

    def shape(self) -> dict[str, Any]:
        """Return the columns of the shape; 0 means a share of the worker."""
        cpus = self.cpus or (0.0 if self.gpus else 1.0)
        return {**vars(self), "cpus": cpus, "memory_mb": self.memory_mb or 0}

    def stored(self) -> dict[str, Any]:
        """Return the resources as stored with the job; None is a share of the worker."""
        shape = self.shape()
        return {**shape, **{name: shape[name] or None for name in ("cpus", "memory_mb")}}


class Tuning(KnownFields, BaseModel):
    """Hints to the job on how to use its GPU; nothing is enforced."""

    precision: Precision | None = None
    streams: Annotated[int, Field(ge=1, le=64), NUMERIC] | None = None
    objective: Objective | None = None


STALL_TIMES = ("no_progress_s", "silent_log_s", "idle_gpu_s")
NUMBER: JsonDict = {"type": "number"}
SOME: list[JsonValue] = [{"required": [n], "properties": {n: NUMBER}} for n in STALL_TIMES]


class Stall(KnownFields, BaseModel):
    """The seconds without a sign of life after which a job has stalled; None disables a check.

    The signs: progress in its metrics, output, a GPU busier than `idle_gpu_percent`.
    """

    model_config = ConfigDict(json_schema_extra={"anyOf": SOME})

    no_progress_s: Annotated[Number, Field(gt=0, le=YEAR_S)] | None = None
    silent_log_s: Annotated[Number, Field(gt=0, le=YEAR_S)] | None = None
    idle_gpu_s: Annotated[Number, Field(gt=0, le=YEAR_S)] | None = None
    idle_gpu_percent: Annotated[Number, Field(ge=0, lt=100)] = 5.0

    @model_validator(mode="after")
    def _watches_something(self) -> Self:
        if all(getattr(self, name) is None for name in STALL_TIMES):
            raise ValueError("set one of no_progress_s, silent_log_s and idle_gpu_s")
        return self


class CheckpointSource(KnownFields, BaseModel):
    """A checkpoint of another job: its newest, or one given by attempt and number."""

    model_config = ConfigDict(json_schema_extra={"anyOf": WHOLE})

    job_id: Annotated[int, Field(ge=1, le=MAX_ID), NUMERIC]
    attempt: Annotated[int, Field(ge=1, le=MAX_SMALL), NUMERIC] | None = None
    number: Annotated[int, Field(ge=0, le=MAX_INTEGER), NUMERIC] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.attempt is None) != (self.number is None):
            raise ValueError("give both the attempt and the number of a checkpoint, or neither")
        return self


class JobSpec(KnownFields, BaseModel):
    """A job as submitted. Times are in seconds; a higher priority goes first.

    A gang runs on several machines, its `nodes`, at once; each has the `resources`. `launcher`
    starts its program, by default `none`. All machines have the same value of the label `same`,
    and the same model of GPU unless they may be `mixed`.
    With `max_nodes`, each run has as many machines as are free then, from `nodes` up to so many.
    `checkpoint_dir` is a folder of the project that is the checkpoint folder as well. The files
    that the patterns `checkpoint` name in the work folder are in its checkpoints too.
    """

    model_config = ConfigDict(json_schema_extra=_kinds_of_job())

    name: Annotated[Name, Field(json_schema_extra={"not": {"pattern": f"^({HANDLE})$"}})]
    command: Annotated[list[Text], Field(min_length=1, json_schema_extra=A_PROGRAM)]
    owner: Name
    queue: Name = "default"
    priority: Annotated[int, Field(ge=-1000, le=1000), NUMERIC] = 0
    env: Annotated[dict[Text, Text], Field(json_schema_extra=OWN_NAMES)] = {}
    kind: JobKind = JobKind.COMMAND
    handler: Name | None = None
    arguments: Document = {}
    parameters: Annotated[
        dict[Parameter, Scalar], Field(max_length=50, json_schema_extra=NO_OTHER)
    ] = {}
    experiment: Name | None = None
    sweep: Annotated[Name, Field(pattern=SWEEP)] | None = None
    parallel: Parallel | None = None
    junit: RelativePath | None = None
    image: ImageName | None = None
    image_tar: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    dockerfile: RelativePath | None = None
    requirements: RelativePath | None = None
    secrets: Annotated[list[EnvName], Field(max_length=50)] = []
    tuning: Tuning = Tuning()
    bundle_digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    git: Git | None = None
    environment: Environment | None = None
    resources: Resources = Resources()
    labels: dict[Name, Name] = {}
    target: Target = Target.AUTO
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES), NUMERIC] = 1
    max_nodes: Annotated[int, Field(ge=1, le=MOST_NODES), NUMERIC] | None = None
    launcher: Launcher | None = None
    same: Name | None = None
    mixed: Flag = False
    max_failures: Budget = 3
    max_losses: Budget = 5
    max_preemptions: Budget = 50
    backoff_s: Annotated[int, Field(ge=0, le=86_400), NUMERIC] = 10
    timeout_s: Annotated[int, Field(gt=0, le=YEAR_S), NUMERIC] | None = None
    delay_s: Annotated[Number, Field(ge=0, le=YEAR_S)] = 0.0
    checkpoint_interval_s: Annotated[Number, Field(gt=0, le=YEAR_S)] = 30.0
    grace_s: Annotated[Number, Field(ge=0, le=3600)] = 30.0
    preempt_signal: SignalName = "SIGTERM"
    checkpoint_dir: RelativePath | None = None
    checkpoint: Annotated[list[CheckpointPattern], Field(max_length=MOST_PATTERNS)] = []
    keep_checkpoints: Annotated[int, Field(ge=1, le=1000), NUMERIC] = 5
    from_checkpoint: CheckpointSource | None = None
    stall: Stall | None = None
    after: Needed = []
    after_ok: Needed = []
    after_any: Needed = []
    idempotency_key: Name | None = None

    @field_validator("command")
    @classmethod
    def _command_names_a_program(cls, command: list[str]) -> list[str]:
        # Later words may be empty: `python -c ""`.
        if not command[0]:
            raise ValueError("its first word, the program, must not be empty")
        return command

    @field_validator("env")
    @classmethod
    def _env_is_the_jobs_own(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if not name or "=" in name:
                raise ValueError(f"{name!r} is not a valid name of an environment variable")
            if RESERVED_ENV.match(name):
                raise ValueError(f"{name} is reserved: the worker sets FORGE_*, LD_* and NVIDIA_*")
        return env

    @field_validator("secrets")
    @classmethod
    def _secrets_are_the_jobs_own(cls, secrets: list[str]) -> list[str]:
        if reserved := next((name for name in secrets if RESERVED_ENV.match(name)), None):
            raise ValueError(f"{reserved} is reserved: the worker sets FORGE_*, LD_* and NVIDIA_*")
        return secrets

    @model_validator(mode="after")
    def _one_image(self) -> Self:
        if sum(getattr(self, name) is not None for name in IMAGES) > 1:
            raise ValueError("name only one of an image, a saved tar and a Dockerfile")
        return self

    @model_validator(mode="after")
    def _a_handler_for_custom_jobs(self) -> Self:
        if (self.kind is JobKind.CUSTOM) != (self.handler is not None):
            raise ValueError("a job of kind custom must name a handler; other kinds must not")
        if self.handler is not None and not HANDLER.fullmatch(self.handler):
            raise ValueError("a handler's name has letters, digits, dots, dashes and underscores")
        for name in (*IMAGES, "requirements"):
            if self.handler is not None and getattr(self, name) is not None:
                raise ValueError(f"a handler runs in the worker's environment: leave {name} out")
        return self

    @model_validator(mode="after")
    def _waits_once_for_each_job(self) -> Self:
        if len(self.needs()) < len(self.after) + len(self.after_ok) + len(self.after_any):
            raise ValueError("name each job only once in after, after_ok and after_any")
        return self

    @model_validator(mode="after")
    def _parallel_in_a_sweep(self) -> Self:
        if self.parallel is not None and self.sweep is None:
            raise ValueError("parallel limits the jobs of a sweep: set sweep too")
        return self

    @model_validator(mode="after")
    def _several_machines_in_a_gang(self) -> Self:
        for name in ("launcher", "same", "mixed"):
            # Of a range, the other rule says what is wrong.
            if self.nodes == 1 and self.max_nodes is None and (given := getattr(self, name)):
                told = f"{name} is for jobs on several machines: set nodes to 2 or more"
                if isinstance(given, Launcher):
                    told += given.on_one_machine(self.resources.gpus, self.command or ())
                raise ValueError(told)
        return self

    @model_validator(mode="after")
    def _a_range_of_machines(self) -> Self:
        if self.max_nodes is None:
            return self
        if self.nodes == 1:
            raise ValueError("a range of machines begins with 2 or more, for example 2..3")
        if self.max_nodes < self.nodes:
            raise ValueError(
                f"a range of machines cannot go from {self.nodes} to {self.max_nodes}:"
                " the least comes first"
            )
        return self

    @model_validator(mode="after")
    def _labels_fit(self) -> Self:
        if len(json.dumps(self._labels(), ensure_ascii=False).encode()) > MAX_LABELS_BYTES:
            raise ValueError(f"labels may have at most {size_text(MAX_LABELS_BYTES)} together")
        return self

    def needs(self) -> dict[int, str]:
        """Return the jobs that this one waits for, and what they must have done."""
        return {needed: kind.value for kind in DependencyKind for needed in getattr(self, kind)}

    def shape(self) -> dict[str, Any]:
        """Return the columns of the job's shape."""
        return {
            **self.resources.shape(),
            "labels": dict(sorted({**self._labels(), **self._needs_of_the_worker()}.items())),
            "nodes": self.nodes,
            "target": self.target.value,
        }

    def lane(self) -> Hashable:
        """Return what two jobs of one lane have in common."""
        labels = frozenset((*self._labels().items(), *self._needs_of_the_worker().items()))
        needs = vars(self.resources).values()
        return self.queue, self.owner, self.target, labels, self.nodes, *needs

    def _labels(self) -> dict[str, str]:
        # Each machine of a gang must have the label, whatever its value.
        return self.labels if self.same is None else {self.same: "*", **self.labels}

    def _needs_of_the_worker(self) -> dict[str, str]:
        # Training libraries and launchers listen on ports of their own choice.
        fixed = self.launcher in {None, Launcher.NONE}
        secrets = {SECRET + name: f"*,{owner_mark(self.owner)},*" for name in self.secrets}
        return self._kind_of_worker() | secrets | ({} if fixed else {GANG_NETWORK: ALL_PORTS})

    def _kind_of_worker(self) -> dict[str, str]:
        if self.handler is not None:
            return {HANDLERS: f"*,{self.handler},*"}
        if self.dockerfile is not None:
            return {RUNS: f"*{RUNS_BUILDS}*"}
        named = self.image is not None or self.image_tar is not None
        return {RUNS: f"*{RUNS_IMAGES if named else RUNS_PROJECTS}*"}

    def content(self) -> dict[str, Any]:
        """Return everything but the key, in JSON's types, without what has its default."""
        # A field that is unset has its default too, and is cheaper to recognise.
        content = self.model_dump(mode="json", exclude_defaults=True, exclude_unset=True)
        content.pop("idempotency_key", None)
        return content

    def payload(self) -> dict[str, Any]:
        """Return the payload that the worker runs the job from: the `spec` column."""
        content = self.content()
        return {**self.shared(content), **self.varied(content)}

    def varied(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of the payload in which the jobs of a sweep differ."""
        optional = {name: content[name] for name in VARIED if name in content}
        return {"command": self.command, "env": self.env, **optional}

    def shared(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rest of the payload."""
        # Kept even if it is the default: the queue retries exactly as often as requested.
        chosen = {"max_failures"} & self.model_fields_set
        return {
            "image": self.image,
            "resources": self.resources.stored(),
            "checkpoint_interval_s": self.checkpoint_interval_s,
            "grace_s": self.grace_s,
            **{name: content[name] for name in OPTIONAL & content.keys()},
            **{name: getattr(self, name) for name in chosen},
        }

    def content_digest(self, content: Mapping[str, Any] | None = None) -> str:
        """Return the SHA-256 of the content, which a repeated submit must match.

        Args:
            content: the job's `content`, if it is known.
        """
        # Defaults are left out: a field added later must not change the digests of old jobs.
        content = self.content() if content is None else content
        # A commit between two submits of the same files changes nothing.
        content = {name: value for name, value in content.items() if name not in SHOWN}
        return hashlib.sha256(SORTED.encode(content).encode()).hexdigest()
