"""The request for a job: what its fields must agree on, and how it is stored."""

import hashlib
import json
from collections.abc import Hashable, Mapping
from typing import Any, Self

from pydantic import field_validator, model_validator

from forge_schema.model.quantities import size_text
from forge_schema.model.spec.inputs import needed_labels, starts_alone
from forge_schema.model.spec.job_fields import JobFields
from forge_schema.model.spec.options import keys_of
from forge_schema.model.spec.parts import (
    HANDLER,
    IMAGES,
    MAX_LABELS_BYTES,
    RESERVED_ENV,
    SHOWN,
    UNASKED,
    sorted_json,
)
from forge_schema.model.states import DependencyKind, JobKind, Launcher

# Fields with columns of their own. All others are in the payload, unless they have the default: so
# is the experiment, too, which workers tell jobs of.
IN_COLUMNS = {"name", "owner", "queue", "priority", "bundle_digest", "labels", "target"}
IN_COLUMNS |= {"max_failures", "max_losses", "max_preemptions", "backoff_s", "timeout_s"}
IN_COLUMNS |= {"delay_s", "from_checkpoint", "idempotency_key", "sweep"}
# Fields in which the jobs of a sweep differ.
VARIED = ("command", "env", "arguments", "parameters")


class JobSpec(JobFields):
    """A job as submitted. Times are in seconds; a higher priority goes first.

    A gang runs on several machines, its `nodes`, at once; each has the `resources`. `launcher`
    starts its program, by default `none`. All machines have the same value of the label `same`,
    and the same model of GPU unless they may be `mixed`.
    With `max_nodes`, each run has as many machines as are free then, from `nodes` up to so many.
    `checkpoint_dir` is a folder of the project that is the checkpoint folder as well. The files
    that the patterns `checkpoint` name in the work folder are in its checkpoints too.
    """

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
        return {name: content[name] for name in VARIED if name in content}

    def shared(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rest of the payload."""
        # Kept even if it is the default: the queue retries exactly as often as requested.
        chosen = {"max_failures"} & self.model_fields_set
        return {
            **{name: content[name] for name in content.keys() - IN_COLUMNS - {*VARIED}},
            # Workers look at these in every payload.
            "env": {},
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


def as_asked(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored payload with the defaults that it leaves out and that readers look at."""
    resources = {**UNASKED, **payload.get("resources", {})}
    return {"image": None, **payload, "resources": resources}


KEYS = {key.name: key for key in keys_of(JobSpec)}
"""Every key of forge.toml that is of a job, in the order in which people see them."""
