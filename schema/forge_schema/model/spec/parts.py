"""The parts of a job's request: field types, its resources, and the labels that it needs."""

import hashlib
import json
import re
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]  # the stubs lack the encoder in C
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

from forge_schema.model.fields import NUMERIC, OF_TAGS, TAG, Flag, Id, KnownFields, Number, Text
from forge_schema.model.fields import Word as Name
from forge_schema.model.spec.options import CODE, FAILURES, RESOURCES, Option
from forge_schema.model.states import JobKind, Launcher

# Fields of a job that are only shown to people.
SHOWN = frozenset({"git", "environment", "experiment", "tags"})
# Parts of a request are built with it: those who only read jobs need none.
IN_A_REQUEST = ConfigDict(defer_build=True)
# Limits of the columns: an integer, and the labels in the unique index on shapes.
MAX_INTEGER = 2_000_000_000
MAX_LABELS_BYTES = 1500
YEAR_S = 31_536_000
MAX_ID = 2**63 - 1
MAX_SMALL = 32_767
MOST_NODES = 1000
MOST_PATTERNS = 32
# A registry, a path in it, a tag and a digest.
_HOST = r"([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(:[0-9]+)?"
_PART = r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
_DIGEST = r"[A-Za-z][A-Za-z0-9_+.-]*:[0-9A-Fa-f]{32,}"
IMAGE_NAME = rf"({_HOST}/)?{_PART}(/{_PART})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@{_DIGEST})?"
BRACES = re.compile(r"\{[^{}/]*,[^{}]*\}")

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# Models of GPUs with | between them, none of them blank.
MODELS = r"^[^|]*[^|\s][^|]*(\|[^|]*[^|\s][^|]*)*$"
HANDLER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
ENCODER = json.JSONEncoder(sort_keys=True)
# `ENCODER.encode` makes one of these for each value, which takes longer than what it encodes.
_SETTINGS = {"sort_keys": True, "skipkeys": False, "allow_nan": True}
_encode = c_make_encoder(
    None, ENCODER.default, encode_basestring_ascii, None, ": ", ", ", *_SETTINGS.values()
)


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
    """Return what stands for an owner or a team in labels, which everybody may read."""
    return hashlib.sha256(owner.encode()).hexdigest()[:12]


def _tag(text: str) -> str:
    if not re.fullmatch(TAG, text):
        raise ValueError(f"{text!r} cannot be a tag: {OF_TAGS}")
    return text


def has_folder(owner: str) -> bool:
    """Tell whether an owner's name can be that of the folder with the owner's secrets."""
    return is_folder_name(owner) and not owner.startswith(OF_TEAM)


def is_folder_name(name: str) -> bool:
    """Tell whether a folder can have this name."""
    return "/" not in name and "\0" not in name and name not in {"", ".", ".."}


def _in_order(job_ids: list[int]) -> list[int]:
    return sorted(set(job_ids))


def _image(name: str) -> str:
    if not name:
        raise ValueError("it is empty: name an image, or leave it out")
    if not re.fullmatch(IMAGE_NAME, name):
        raise ValueError(
            f"{name!r} names no image: write it as the engine does, in small letters, such as"
            " pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime"
        )
    return name


# These, and the secrets' validator, as patterns in the JSON schema.
BELOW: JsonDict = {"pattern": r"^((?!\.\.?/)[^/\\]+/)*(?!\.\.?$)[^/\\]+$"}
OWN_NAME: JsonDict = {"pattern": "^(?!FORGE_|LD_|NVIDIA_)[A-Za-z_][A-Za-z0-9_]{0,99}$"}
RelativePath = Annotated[
    Text, Field(min_length=1, max_length=500, json_schema_extra=BELOW), AfterValidator(_relative)
]
CheckpointPattern = Annotated[RelativePath, AfterValidator(_without_braces)]
EnvName = Annotated[str, Field(json_schema_extra=OWN_NAME), AfterValidator(_env_name)]
Tag = Annotated[
    str, Field(json_schema_extra={"pattern": f"^{TAG}$", "examples": ["paper"]}),
    AfterValidator(_tag),
]  # fmt: skip
ImageName = Annotated[
    Text, Field(json_schema_extra={"pattern": f"^{IMAGE_NAME}$"}), AfterValidator(_image)
]
SignalName = Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"]
Accelerator = Literal["any", "cpu", "cuda", "rocm", "mps"]
SpotWish = Literal["never", "prefer", "only"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
Objective = Literal["throughput", "latency"]
Parameter = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Needed = Annotated[list[Id], Field(max_length=100), AfterValidator(_in_order)]
Scalar = Flag | Annotated[int, Field(strict=True)] | Number | Annotated[Text, Field(max_length=500)]
Budget = Annotated[int, Field(ge=0, le=10_000), NUMERIC]
# The label that says what a worker runs: jobs with an image, projects without one.
RUNS = "forge.runs"
RUNS_IMAGES, RUNS_PROJECTS, RUNS_BUILDS = "images", "projects", "builds"
# After those kinds of job: launchers start them on this machine's GPUs.
RUNS_LAUNCHERS = "launchers"
# The label that lists a worker's handlers for custom jobs.
HANDLERS = "forge.handlers"
# The label that says which ports of a worker the other machines of a gang reach: all of the machine
# (host), or the one that a member publishes (ports). Only the latter report it.
GANG_NETWORK = "forge.gang_network"
ALL_PORTS = "host"
# The label that says whether a worker is a spot machine, and what jobs may want of that.
SPOT = "forge.spot"
IS_SPOT, NOT_SPOT = "yes", "no"
# Wishes of a shape that no worker has a label for; see `forge_labels_match`.
PREFERS_SPOT = "forge.prefers_spot"
MAX_PRICE = "forge.max_price"
SPOT_WISHES: dict[str, dict[str, Any]] = {
    "never": {SPOT: NOT_SPOT},
    "prefer": {PREFERS_SPOT: IS_SPOT},
    "only": {SPOT: IS_SPOT},
}
# Labels that name the secrets that a worker has, each for everybody or for some owners.
SECRET = "forge.secret."  # noqa: S105 - the beginning of their names
FOR_ALL = "*"
# Before the name of a team whose folder of secrets it is.
OF_TEAM = "@"
RESERVED_ENV = re.compile(r"^(FORGE_|LD_|NVIDIA_)")

# JSON schema: a checkpoint has both of these, or neither.
PLACE = ("attempt", "number")
NOTHING: JsonDict = {"type": "null"}
WHOLE: list[JsonValue] = [
    {"properties": dict.fromkeys(PLACE, NOTHING)},
    {"properties": {name: {"type": "integer"} for name in PLACE}, "required": [*PLACE]},
]
# JSON schema: a GPU model or memory requires a number of GPUs.
OF_GPUS: JsonDict = {
    "anyOf": [
        {"required": ["gpus"]},
        {"properties": {"gpu_model": {"const": "*"}, "vram_mb": {"const": 0}}},
    ]
}


class Resources(KnownFields, BaseModel):
    """The resources of one rank of a job; memory and disk in MiB, `cpus` may be a fraction.

    `max_price` is per hour of a whole worker, as its cost is counted.

    Without `memory_mb` it gets a share of its worker's memory. Without `cpus` it gets 1 CPU, or
    with GPUs a share of the worker's CPUs; the SQL function `forge_lent` has the rule.
    """

    model_config = ConfigDict(json_schema_extra=OF_GPUS)

    accelerator: Annotated[Accelerator, Option("Kind of device.", RESOURCES)] = "any"
    gpus: Annotated[
        int, Field(ge=0, le=64), NUMERIC, Option("Number of GPUs.", RESOURCES, names="--gpu --gpus")
    ] = 0
    gpu_model: Annotated[
        Name,
        Field(json_schema_extra={"pattern": MODELS}),
        Option(
            "Model of the GPUs, e.g. 'a100*'; * and ? are wildcards, 'h100|a100*' is either.",
            RESOURCES,
        ),
    ] = "*"
    vram_mb: Annotated[
        int,
        Field(ge=0, le=MAX_INTEGER),
        NUMERIC,
        Option("Least memory of each GPU, e.g. 40GiB.", RESOURCES),
    ] = 0
    cpus: Annotated[
        Annotated[Number, Field(ge=0.01, le=4096)] | None,
        Option(
            "Number of CPUs, may be a fraction; default: 1, or with GPUs a share of the worker's.",
            RESOURCES,
        ),
    ] = None
    memory_mb: Annotated[
        Annotated[int, Field(gt=0, le=MAX_INTEGER), NUMERIC] | None,
        Option("Memory limit, e.g. 8GiB; default: a share of the worker's.", RESOURCES),
    ] = None
    disk_mb: Annotated[
        int,
        Field(gt=0, le=MAX_INTEGER),
        NUMERIC,
        Option("Disk limit, e.g. 20GiB; default: 10GiB.", RESOURCES),
    ] = 10240

    spot: Annotated[
        SpotWish | None,
        Option("Spot machines: never, only, or prefer, which waits 15 s for one.", RESOURCES),
    ] = None
    max_price: Annotated[
        Annotated[Number, Field(ge=0, le=1e6)] | None,
        Option("Most that a worker may cost per hour; one without a price is left out.", RESOURCES),
    ] = None

    @field_validator("gpu_model")
    @classmethod
    def _either(cls, models: str) -> str:
        if not re.search(MODELS, models):
            raise ValueError(f"{models!r} names no model beside a |; write one on each side")
        return "|".join(model.strip() for model in models.split("|"))

    @model_validator(mode="after")
    def _of_gpus(self) -> Self:
        # An explicit 0 overrides what a template or forge.toml requests.
        if "gpus" not in self.model_fields_set and (self.gpu_model != "*" or self.vram_mb):
            raise ValueError(
                "a GPU model or memory is requested without a GPU: set gpus=1 too, or --gpu 1"
            )
        return self

    def shape(self) -> dict[str, Any]:
        """Return the columns of the shape; 0 means a share of the worker."""
        cpus = self.cpus or (0.0 if self.gpus else 1.0)
        return {**vars(self), "cpus": cpus, "memory_mb": self.memory_mb or 0}

    def stored(self) -> dict[str, Any]:
        """Return the resources as stored with the job; None is a share of the worker."""
        shape = self.shape()
        shape |= {name: shape[name] or None for name in ("cpus", "memory_mb")}
        unasked = {**UNASKED, "spot": None, "max_price": None}
        return {name: value for name, value in shape.items() if value != unasked.get(name, ...)}

    def wishes(self) -> dict[str, Any]:
        """Return what the shape has as labels of the price, and of spot machines."""
        price = {} if self.max_price is None else {MAX_PRICE: self.max_price}
        return price if self.spot is None else {**SPOT_WISHES[self.spot], **price}


# Stored only if a job asks for something else; workers of every version do without.
UNASKED = {
    name: Resources.model_fields[name].default for name in ("accelerator", "gpu_model", "vram_mb")
}


class Tuning(KnownFields, BaseModel):
    """Hints to the job on how to use its GPU; nothing is enforced."""

    precision: Annotated[
        Precision | None, Option("Hint to the job: the precision to compute in.", CODE)
    ] = None
    streams: Annotated[
        Annotated[int, Field(ge=1, le=64), NUMERIC] | None,
        Option("Hint to the job: the number of GPU streams.", CODE),
    ] = None
    objective: Annotated[Objective | None, Option("Hint to the job: what to aim at.", CODE)] = None


Period = Annotated[Number, Field(gt=0, le=YEAR_S)]
STALL_TIMES = ("no_progress_s", "silent_log_s", "idle_gpu_s")
NUMBER: JsonDict = {"type": "number"}
SOME: list[JsonValue] = [{"required": [n], "properties": {n: NUMBER}} for n in STALL_TIMES]


class Stall(KnownFields, BaseModel):
    """The seconds without a sign of life after which a job has stalled; None disables a check.

    The signs: progress in its metrics, output, a GPU busier than `idle_gpu_percent`.
    """

    model_config = ConfigDict(json_schema_extra={"anyOf": SOME})

    no_progress_s: Annotated[
        Period | None,
        Option(
            "Stop and retry the job after this long without progress, e.g. 30m.",
            FAILURES,
            names="--stall-no-progress",
        ),
    ] = None
    silent_log_s: Annotated[
        Period | None,
        Option(
            "Stop and retry the job after this long without output, e.g. 1h.",
            FAILURES,
            names="--stall-silent-log",
        ),
    ] = None
    idle_gpu_s: Annotated[
        Period | None,
        Option(
            "Stop and retry the job after this long with idle GPUs, e.g. 15m.",
            FAILURES,
            names="--stall-idle-gpu",
        ),
    ] = None
    idle_gpu_percent: Annotated[
        Number,
        Field(ge=0, lt=100),
        Option(
            "A GPU is idle while it is busy for at most this share of the time.",
            FAILURES,
            names="--stall-idle-gpu-percent",
        ),
    ] = 5.0

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


IMAGES = ("image", "image_tar", "dockerfile")
# It is part of a path.
SWEEP = "^[^/]+$"
MOST_PARALLEL = 10_000
Parallel = Annotated[int, Field(ge=1, le=MOST_PARALLEL), NUMERIC]
# JSON schema: what only a job on several machines has.
OF_A_GANG: list[JsonValue] = [
    {
        "properties": {
            **dict.fromkeys(("same", "max_nodes"), NOTHING),
            "launcher": {"enum": [None, *(it.value for it in Launcher if it.starts_alone)]},
            "mixed": {"const": False},
        }
    },
    {"properties": {"nodes": {"type": "integer", "minimum": 2}}, "required": ["nodes"]},
]
# JSON schema: a cap requires a sweep.
OF_A_SWEEP: list[JsonValue] = [
    {"properties": {"parallel": NOTHING}},
    {"properties": {"sweep": {"type": "string", "pattern": SWEEP}}, "required": ["sweep"]},
]


def kinds_of_job() -> JsonDict:
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


def sorted_json(value: object) -> str:
    """Return a value as JSON with sorted keys, as `json.dumps` does."""
    return "".join(_encode(value, 0))


class Git(KnownFields, BaseModel):
    """The commit that a job's code is based on; `diff` is the digest of a bundle with the changes.

    It is for people: nothing is checked out.
    """

    model_config = IN_A_REQUEST

    revision: Annotated[str, Field(pattern="^[0-9a-f]{40,64}$")]
    branch: Name | None = None
    dirty: Flag = False
    diff: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class Environment(KnownFields, BaseModel):
    """What a job's packages were taken from when it was submitted.

    It is for people: the job installs its `requirements`. `reason` says why this `source`, and why
    it was not locked. If it was, `packages` is how many the lock has, and `lock` its SHA-256.
    `python` is the version that the project asks for.
    """

    model_config = IN_A_REQUEST

    source: Annotated[Text, Field(min_length=1, max_length=500)]
    reason: Annotated[Text, Field(max_length=1000)] | None = None
    packages: Annotated[int, Field(ge=0, le=1_000_000), NUMERIC] | None = None
    lock: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    python: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")] | None = None
