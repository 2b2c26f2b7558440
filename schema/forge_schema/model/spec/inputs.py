"""A job's inputs, read-only folders each from a source that a text names; its workers' labels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

from forge_schema.model.fields import INPUT_NAME, InputName, KnownFields, Text
from forge_schema.model.spec.parts import (
    ALL_PORTS,
    GANG_NETWORK,
    HANDLERS,
    IMAGES,
    RUNS,
    RUNS_BUILDS,
    RUNS_IMAGES,
    RUNS_LAUNCHERS,
    RUNS_PROJECTS,
    SECRET,
    owner_mark,
)
from forge_schema.model.states import Launcher

if TYPE_CHECKING:
    from forge_schema.model.spec.job_spec import JobSpec

ARTIFACT, CHECKPOINT, FOLDER, S3, HUB = "artifact", "checkpoint", "folder", "s3", "hf"
OF_JOBS = (ARTIFACT, CHECKPOINT)
# Labels that name what a worker can give to jobs: kinds of sources, and each folder.
INPUT = "forge.input."
# The label of the kinds of job to which a worker can give a folder at any path: in containers.
PATHS = f"{INPUT}paths"
MOST_INPUTS = 16

NAME = r"[A-Za-z][A-Za-z0-9_]{0,39}"
PLACE = r"/[^\x00-\x1f,:\\]{1,199}"
LABEL = r"[^\x00-\x1f\s,*?\[\]]{1,100}"
NUMBER = r"[1-9][0-9]{0,17}"
WORD = INPUT_NAME
REST = {
    ARTIFACT: rf"(?P<job>{NUMBER})(/(?P<path>[^\x00-\x1f]{{1,500}}))?",
    CHECKPOINT: rf"(?P<job>{NUMBER})(:(?P<attempt>[1-9][0-9]{{0,3}})\.(?P<number>[0-9]{{1,6}}))?",
    FOLDER: rf"(?P<name>{LABEL})",
    S3: r"//(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/(?P<path>[^\x00-\x1f]{0,900}))?",
    HUB: (
        rf"//(?P<datasets>datasets/)?(?P<repo>{WORD}/{WORD}|{WORD}(?=@|$))"
        rf"(@(?P<revision>{WORD}))?(/(?P<path>[^\x00-\x1f]{{1,500}}))?"
    ),
}
FORMS = {
    ARTIFACT: "artifact:JOB or artifact:JOB/path",
    CHECKPOINT: "checkpoint:JOB or checkpoint:JOB:ATTEMPT.NUMBER",
    FOLDER: "folder:NAME, of a folder that a worker offers",
    S3: "s3://bucket or s3://bucket/path",
    HUB: "hf://org/name, hf://datasets/org/name, with @revision or /path",
}
# Where Google's buckets speak S3's protocol.
GOOGLE = "https://storage.googleapis.com"
# Of a container's root: what the container needs, or Forge puts there.
TAKEN = ("/forge", "/proc", "/sys", "/dev", "/tmp", "/etc")  # noqa: S108  a container's
# The validators, as patterns in the JSON schema.
SOURCES = "|".join(f"{kind}:{re.sub(r'[?]P<[a-z]+>', '', rest)}" for kind, rest in REST.items())
NAMES: JsonDict = {"propertyNames": {"pattern": f"^({NAME}|{PLACE})$"}}


@dataclass(frozen=True, slots=True)
class NamedSource:
    """Where an input comes from: the kind of source, and the parts of its text."""

    kind: str
    parts: dict[str, str]

    @property
    def job_id(self) -> int:
        """The job that has stored it."""
        return int(self.parts["job"])

    @property
    def path(self) -> str:
        """The file or folder within the source, without slashes around; empty for all of it."""
        return self.parts.get("path", "").strip("/")


def source_of(text: str) -> NamedSource:
    """Return the source that a text names; `ValueError` if it names none."""
    kind, colon, rest = text.partition(":")
    if kind == "gs":
        raise ValueError(
            f"write s3:{rest}, with the secrets AWS_ENDPOINT_URL={GOOGLE}, AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, of an HMAC key: Google's buckets speak S3's protocol too"
        )
    if not colon or kind not in REST:
        forms = "; ".join([*FORMS.values(), "or the NAME of one that you registered"])
        raise ValueError(f"{text!r} names no source: write {forms}")
    match = re.fullmatch(REST[kind], rest)
    parts = {name: part for name, part in match.groupdict().items() if part} if match else {}
    if not match or (kind in OF_JOBS and ".." in PurePosixPath(parts.get("path", "")).parts):
        raise ValueError(f"{text!r} is malformed: write {FORMS[kind]}")
    return NamedSource(kind, parts)


def is_name(text: object) -> bool:
    """Tell whether a text is no source, but may be the name of a registered one."""
    return isinstance(text, str) and re.fullmatch(WORD, text) is not None


def _source(text: str) -> str:
    source_of(text)
    return text


def sound_names(inputs: dict[str, str]) -> dict[str, str]:
    """Return inputs whose names can be variables, or paths of folders in a container.

    Raises:
        ValueError: a name can be neither, or two overlap.
    """
    for name in inputs:
        if name.startswith("/"):
            _check_place(name)
        elif not re.fullmatch(NAME, name):
            raise ValueError(
                f"{name!r} cannot be the name of an input: use up to 40 letters (A to Z, a to z),"
                " digits and underscores, not beginning with a digit, or an absolute path"
            )
    for name, other in combinations(inputs, 2):
        if name.lower() == other.lower() or _holds(name, other) or _holds(other, name):
            raise ValueError(f"the inputs {name!r} and {other!r} overlap")
    return inputs


def _check_place(name: str) -> None:
    place = PurePosixPath(name)
    if not re.fullmatch(PLACE, name) or str(place) != name or ".." in place.parts:
        raise ValueError(f"{name!r} is no plain absolute path of a folder")
    if taken := next((folder for folder in TAKEN if place.is_relative_to(folder)), None):
        raise ValueError(f"an input cannot be at {name!r}: {taken} is the container's own")


def _holds(folder: str, other: str) -> bool:
    return folder.startswith("/") and other.startswith(f"{folder}/")


def worker_labels(inputs: dict[str, str], kind_of_job: str) -> dict[str, str]:
    """Return the labels that a worker must have to give these inputs to a job of a kind."""
    labels = {}
    for name, text in inputs.items():
        kind = source_of(text).kind
        labels[INPUT + (text if kind == FOLDER else kind)] = "*"
        if name.startswith("/") and text != f"{FOLDER}:{name}":
            labels[PATHS] = f"*{kind_of_job}*"
    return labels


def variable(name: str) -> str:
    """Return the variable that has the path of an input."""
    return f"FORGE_INPUT_{name.upper()}"


SourceText = Annotated[
    Text, Field(json_schema_extra={"pattern": f"^({SOURCES})$"}), AfterValidator(_source)
]
# In a request, it may be the name of a registered one.
SourceOrName = Annotated[
    Text, Field(json_schema_extra={"pattern": f"^({SOURCES}|{WORD})$"}), AfterValidator(_source)
]
Inputs = Annotated[
    dict[Text, SourceOrName],
    Field(max_length=MOST_INPUTS, json_schema_extra=NAMES),
    AfterValidator(sound_names),
]


class NewInput(KnownFields):
    """The source of an input, and the name under which to register it."""

    name: InputName
    source: SourceText


def needed_labels(job: JobSpec) -> dict[str, Any]:
    """Return the labels that a worker must have, with a pattern of each one's value.

    With these come the wishes about its price and its being a spot machine.
    """
    # Training libraries and launchers listen on ports of their own choice.
    fixed = job.nodes == 1 or job.launcher in {None, Launcher.NONE}
    secrets = {SECRET + name: f"*,{owner_mark(job.owner)},*" for name in job.secrets}
    ports = {} if fixed else {GANG_NETWORK: ALL_PORTS}
    named = any(getattr(job, name) is not None for name in IMAGES)
    inputs = worker_labels(job.inputs, RUNS_IMAGES if named else RUNS_PROJECTS)
    return _kind_of_worker(job) | secrets | ports | inputs | job.resources.wishes()


def starts_alone(job: JobSpec) -> bool:
    """Tell whether a launcher starts the job's processes on its one machine."""
    single = job.nodes == 1 and job.max_nodes is None and job.handler is None
    return single and job.launcher is not None and job.launcher.starts_alone


def _kind_of_worker(job: JobSpec) -> dict[str, str]:
    if job.handler is not None:
        return {HANDLERS: f"*,{job.handler},*"}
    named = job.image is not None or job.image_tar is not None
    kind = RUNS_IMAGES if named else RUNS_PROJECTS
    kind = RUNS_BUILDS if job.dockerfile is not None else kind
    return {RUNS: f"*{kind}*" + f"{RUNS_LAUNCHERS}*" * starts_alone(job)}
