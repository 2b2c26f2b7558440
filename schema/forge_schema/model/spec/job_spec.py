"""The request for a job, validated before it is stored."""

import hashlib
import json
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict

from forge_schema.model.fields import (
    HANDLE,
    MOST_TAGS,
    NUMERIC,
    Document,
    Flag,
    KnownFields,
    Number,
    ShownName,
    Text,
    empty,
)
from forge_schema.model.fields import Word as Name
from forge_schema.model.quantities import size_text
from forge_schema.model.spec.inputs import Inputs, needed_labels, starts_alone
from forge_schema.model.spec.options import (
    CHECKPOINTS,
    CODE,
    FAILURES,
    RESOURCES,
    START,
    Option,
    keys_of,
)
from forge_schema.model.spec.parts import (
    HANDLER,
    IMAGES,
    MAX_LABELS_BYTES,
    MOST_NODES,
    MOST_PATTERNS,
    RESERVED_ENV,
    SHOWN,
    SWEEP,
    YEAR_S,
    Budget,
    CheckpointPattern,
    CheckpointSource,
    Environment,
    EnvName,
    Git,
    ImageName,
    Needed,
    Parallel,
    Parameter,
    Period,
    RelativePath,
    Resources,
    Scalar,
    SignalName,
    Stall,
    Tag,
    Tuning,
    kinds_of_job,
    sorted_json,
)
from forge_schema.model.states import DependencyKind, JobKind, Launcher, Target

# Fields with columns of their own. All others are in the payload, unless they have the default:
# workers read them with `.get`.
IN_COLUMNS = {"name", "owner", "queue", "priority", "bundle_digest", "labels", "target"}
IN_COLUMNS |= {"max_failures", "max_losses", "max_preemptions", "backoff_s", "timeout_s"}
IN_COLUMNS |= {"delay_s", "from_checkpoint", "idempotency_key"}
# Fields in which the jobs of a sweep differ. The first two are always in the payload.
VARIED = ("command", "env", "arguments", "parameters")

# What the validators below check, in the JSON schema.
A_PROGRAM = {"prefixItems": [{"type": "string", "minLength": 1}]}
OWN_NAMES = {"propertyNames": {"pattern": "^(?!FORGE_|LD_|NVIDIA_)[^=]+$"}}
NO_OTHER: JsonDict = {"additionalProperties": False}


class JobSpec(KnownFields, BaseModel):
    """A job as submitted. Times are in seconds; a higher priority goes first.

    A gang runs on several machines, its `nodes`, at once; each has the `resources`. `launcher`
    starts its program, by default `none`. All machines have the same value of the label `same`,
    and the same model of GPU unless they may be `mixed`.
    With `max_nodes`, each run has as many machines as are free then, from `nodes` up to so many.
    `checkpoint_dir` is a folder of the project that is the checkpoint folder as well. The files
    that the patterns `checkpoint` name in the work folder are in its checkpoints too.
    """

    # Those who only read its options build none.
    model_config = ConfigDict(json_schema_extra=kinds_of_job(), defer_build=True)

    name: Annotated[
        Name,
        Field(json_schema_extra={"not": {"pattern": f"^({HANDLE})$"}}),
        Option("Name of the job; default: the folder's name."),
    ]
    command: Annotated[
        list[Text],
        Field(min_length=1, json_schema_extra=A_PROGRAM),
        Option(
            "The program and its arguments: a list, or one text that is split as in a shell.",
            typed=False,
        ),
    ]
    owner: ShownName
    queue: Annotated[
        ShownName,
        Option("Queue that the job waits in.", START, variable="FORGE_QUEUE", changes=True),
    ] = "default"
    priority: Annotated[
        int,
        Field(ge=-1000, le=1000),
        NUMERIC,
        Option("Priority; higher goes first.", START, changes=True),
    ] = 0
    env: Annotated[
        dict[Text, Text],
        Field(json_schema_extra=OWN_NAMES),
        Option(
            "Variable of the job.",
            CODE,
            metavar="NAME=VALUE",
            more="NAME alone copies it from your environment.",
        ),
    ] = empty(dict)
    kind: Annotated[JobKind, Option("Kind of job.", typed=False)] = JobKind.COMMAND
    handler: Annotated[
        Name | None, Option("The worker's handler that runs a custom job.", typed=False)
    ] = None
    arguments: Annotated[Document, Option("Arguments of a handler.", typed=False)] = empty(dict)
    parameters: Annotated[
        dict[Parameter, Scalar],
        Field(max_length=50, json_schema_extra=NO_OTHER),
        Option("Parameters by which runs are compared.", typed=False),
    ] = empty(dict)
    experiment: Annotated[
        Name | None,
        Option(
            "Experiment that the job belongs to; default: the folder's name.",
            variable="FORGE_EXPERIMENT",
        ),
    ] = None
    tags: Annotated[
        list[Tag], Field(max_length=MOST_TAGS), Option("Tag that the job has.", names="--tag")
    ] = empty(list)
    sweep: Annotated[
        Annotated[Name, Field(pattern=SWEEP)] | None,
        Option("Sweep that the job belongs to.", typed=False),
    ] = None
    parallel: Annotated[
        Parallel | None, Option("Maximum number of a sweep's jobs to run at once.", typed=False)
    ] = None
    junit: Annotated[
        RelativePath | None,
        Option("Where tests write their report, if not to $FORGE_JUNIT_FILE.", typed=False),
    ] = None
    image: Annotated[
        ImageName | None,
        Option(
            "Container image; default: the worker's, or a process.", CODE, variable="FORGE_IMAGE"
        ),
    ] = None
    image_tar: Annotated[
        Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None,
        Option("Image file written by docker save, outside the project.", CODE),
    ] = None
    dockerfile: Annotated[
        RelativePath | None, Option("Dockerfile in the project, built where the job runs.", CODE)
    ] = None
    requirements: Annotated[
        RelativePath | None,
        Option(
            "File that lists what to install; default: the project's lock, or else its list.", CODE
        ),
    ] = None
    secrets: Annotated[
        list[EnvName],
        Field(max_length=50),
        Option(
            "Name of a secret to pass to the job; its value is a file on the workers.",
            CODE,
            names="--secret",
        ),
    ] = empty(list)
    inputs: Annotated[
        Inputs,
        Option(
            "Read-only data, e.g. data=s3://bucket/set: the job finds it in $FORGE_INPUT_DATA.",
            CODE,
            names="--input",
            metavar="NAME=SOURCE",
        ),
    ] = empty(dict)
    tuning: Annotated[
        Tuning, Option("Passed to the job in variables such as $FORGE_PRECISION; not enforced.")
    ] = Tuning()
    bundle_digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    git: Git | None = None
    environment: Environment | None = None
    resources: Annotated[Resources, Option("What each machine of the job needs.", changes=True)] = (
        Resources()
    )
    labels: Annotated[
        dict[Name, Name],
        Option(
            "Label that the worker must have; * and ? are wildcards.",
            RESOURCES,
            names="--label",
            metavar="NAME=VALUE",
            changes=True,
        ),
    ] = empty(dict)
    target: Annotated[Target, Option("Where it runs.", RESOURCES, changes=True)] = Target.AUTO
    nodes: Annotated[
        int,
        Field(ge=1, le=MOST_NODES),
        NUMERIC,
        Option(
            "Number of machines that run it together, or a range such as 2..8.",
            RESOURCES,
            metavar="N|MIN..MAX",
        ),
    ] = 1
    max_nodes: Annotated[int, Field(ge=1, le=MOST_NODES), NUMERIC] | None = None
    launcher: Annotated[
        Launcher | None,
        Option("How the program is started on several GPUs or machines.", RESOURCES),
    ] = None
    same: Annotated[
        Name | None,
        Option(
            "Run only on machines with the same value of this label.", RESOURCES, metavar="LABEL"
        ),
    ] = None
    mixed: Annotated[Flag, Option("Allow machines with different GPU models.", RESOURCES)] = False
    max_failures: Annotated[
        Budget, Option("Number of retries after the program fails.", FAILURES, changes=True)
    ] = 3
    max_losses: Annotated[
        Budget, Option("Number of retries after its worker is lost.", FAILURES, changes=True)
    ] = 5
    max_preemptions: Annotated[
        Budget, Option("Number of retries after preemptions.", FAILURES, changes=True)
    ] = 50
    backoff_s: Annotated[
        int,
        Field(ge=0, le=86_400),
        NUMERIC,
        Option(
            "Pause before the first retry, e.g. 30s; doubled for each further one, at most a day.",
            FAILURES,
            changes=True,
        ),
    ] = 10
    timeout_s: Annotated[
        Annotated[int, Field(gt=0, le=YEAR_S), NUMERIC] | None,
        Option("Time limit of one attempt, e.g. 2h; default: none.", FAILURES, changes=True),
    ] = None
    delay_s: Annotated[
        Number,
        Field(ge=0, le=YEAR_S),
        Option("Start no sooner than this from now, e.g. 1h.", START),
    ] = 0.0
    checkpoint_interval_s: Annotated[
        Period, Option("Time between checkpoints, e.g. 5m.", CHECKPOINTS, changes=True)
    ] = 30.0
    grace_s: Annotated[
        Number,
        Field(ge=0, le=3600),
        Option(
            "Time between SIGTERM and SIGKILL, except for preemption; at most an hour.",
            FAILURES,
            changes=True,
        ),
    ] = 30.0
    preempt_signal: Annotated[SignalName, Option("Signal that a preempted job gets.", FAILURES)] = (
        "SIGTERM"
    )
    checkpoint_dir: Annotated[
        RelativePath | None,
        Option(
            "The project's folder that is stored as the checkpoint, e.g. trainer_output.",
            CHECKPOINTS,
            metavar="FOLDER",
        ),
    ] = None
    checkpoint: Annotated[
        list[CheckpointPattern],
        Field(max_length=MOST_PATTERNS),
        Option(
            "Files in the project's folder that checkpoints hold too, e.g. '*.pt'.",
            CHECKPOINTS,
            metavar="PATTERN",
        ),
    ] = empty(list)
    keep_checkpoints: Annotated[
        int,
        Field(ge=1, le=1000),
        NUMERIC,
        Option(
            "Number of newest checkpoints to keep; older ones are thinned out.",
            CHECKPOINTS,
            changes=True,
        ),
    ] = 5
    from_checkpoint: Annotated[
        CheckpointSource | None,
        Option(
            "Start from another job's checkpoint; default: its newest.",
            CHECKPOINTS,
            metavar="JOB[:ATTEMPT.NUMBER]",
        ),
    ] = None
    stall: Annotated[
        Stall | None,
        Option(
            "The job is stopped and retried after this long without a sign of life.", changes=True
        ),
    ] = None
    after: Annotated[
        Needed, Option("Start once these jobs have begun.", START, metavar="JOB,…")
    ] = empty(list)
    after_ok: Annotated[
        Needed, Option("Start once these jobs have succeeded.", START, metavar="JOB,…")
    ] = empty(list)
    after_any: Annotated[
        Needed, Option("Start once these jobs have ended.", START, metavar="JOB,…")
    ] = empty(list)
    idempotency_key: Annotated[
        Name | None, Option("Submitting again with the same key returns the same job.")
    ] = None

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
        images = [vars(self)[name] for name in IMAGES]
        if images.count(None) < len(images) - 1:
            raise ValueError("name only one of an image, a saved tar and a Dockerfile")
        return self

    @model_validator(mode="after")
    def _a_handler_for_custom_jobs(self) -> Self:
        if (self.kind is JobKind.CUSTOM) != (self.handler is not None):
            raise ValueError("a job of kind custom must name a handler; other kinds must not")
        if self.handler is None:
            return self
        if not HANDLER.fullmatch(self.handler):
            raise ValueError("a handler's name has letters, digits, dots, dashes and underscores")
        for name in (*IMAGES, "requirements"):
            if getattr(self, name) is not None:
                raise ValueError(f"a handler runs in the worker's environment: leave {name} out")
        return self

    @model_validator(mode="after")
    def _waits_once_for_each_job(self) -> Self:
        waits = len(self.after) + len(self.after_ok) + len(self.after_any)
        if waits and len(self.needs()) < waits:
            raise ValueError("name each job only once in after, after_ok and after_any")
        return self

    @model_validator(mode="after")
    def _parallel_in_a_sweep(self) -> Self:
        if self.parallel is not None and self.sweep is None:
            raise ValueError("parallel limits the jobs of a sweep: set sweep too")
        return self

    @model_validator(mode="after")
    def _several_machines_in_a_gang(self) -> Self:
        # Of a range, the other rule says what is wrong.
        if self.nodes > 1 or self.max_nodes is not None:
            return self
        for name in ("same", "mixed", *(() if starts_alone(self) else ("launcher",))):
            if given := getattr(self, name):
                fault = f"{name} is for jobs on several machines: set nodes to 2 or more"
                if isinstance(given, Launcher):
                    fault += given.on_one_machine(self.resources.gpus, self.command or ())
                raise ValueError(fault)
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
        labels = self._labels()
        if labels and len(json.dumps(labels, ensure_ascii=False).encode()) > MAX_LABELS_BYTES:
            raise ValueError(f"labels may have at most {size_text(MAX_LABELS_BYTES)} together")
        return self

    def needs(self) -> dict[int, str]:
        """Return the jobs that this one waits for, and what they must have done."""
        return {needed: kind.value for kind in DependencyKind for needed in getattr(self, kind)}

    def shape(self) -> dict[str, Any]:
        """Return the columns of the job's shape."""
        return {
            **self.resources.shape(),
            "labels": dict(sorted({**self._labels(), **needed_labels(self)}.items())),
            "nodes": self.nodes,
            "target": self.target.value,
        }

    def lane(self) -> Hashable:
        """Return what two jobs of one lane have in common."""
        labels = frozenset((*self._labels().items(), *needed_labels(self).items()))
        needs = vars(self.resources).values()
        return self.queue, self.owner, self.target, labels, self.nodes, *needs

    def _labels(self) -> dict[str, str]:
        # Each machine of a gang must have the label, whatever its value.
        return self.labels if self.same is None else {self.same: "*", **self.labels}

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
        return {**optional, "command": self.command, "env": self.env}

    def shared(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rest of the payload."""
        # Kept even if it is the default: the queue retries exactly as often as requested.
        chosen = {"max_failures"} & self.model_fields_set
        return {
            **{name: content[name] for name in content.keys() - IN_COLUMNS - {*VARIED}},
            "image": self.image,
            "resources": self.resources.stored(),
            "checkpoint_interval_s": self.checkpoint_interval_s,
            "grace_s": self.grace_s,
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
        return hashlib.sha256(sorted_json(content).encode()).hexdigest()


KEYS = {key.name: key for key in keys_of(JobSpec)}
"""Every key of forge.toml that is of a job, in the order in which people see them."""
