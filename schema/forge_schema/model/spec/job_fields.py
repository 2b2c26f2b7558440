"""The fields of a job: the only list of all of them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from forge_schema.model.fields import (
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
from forge_schema.model.reading import HANDLE
from forge_schema.model.spec.inputs import Inputs
from forge_schema.model.spec.options import CHECKPOINTS, CODE, FAILURES, RESOURCES, START, Option
from forge_schema.model.spec.parts import (
    MOST_NODES,
    MOST_PATTERNS,
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
)
from forge_schema.model.states import JobKind, Launcher, Target

# What the validators of a job check, in the JSON schema.
A_PROGRAM = {"prefixItems": [{"type": "string", "minLength": 1}]}
OWN_NAMES = {"propertyNames": {"pattern": "^(?!FORGE_|LD_|NVIDIA_)[^=]+$"}}
NO_OTHER: JsonDict = {"additionalProperties": False}


class JobFields(KnownFields, BaseModel):
    """What a job may say. Times are in seconds; a higher priority goes first."""

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
        Option("Priority, from -1000 to 1000, usually 0; higher goes first.", START, changes=True),
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
