"""Submitting jobs, and the templates that they are made from.

Commands that submit nothing import neither the model of a job nor what stores one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from secrets import choice
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from forge_schema.model.errors import JobInvalid
from forge_schema.model.explanation import Explanation
from forge_schema.model.fields import Answer, InputName, Word
from forge_schema.model.job import OWN, RegisteredInput, Template
from forge_schema.model.reading import is_handle
from forge_schema.service.caller import Caller, Forbidden, Verbs
from forge_schema.service.parameters import Owner
from forge_schema.service.verb import SUBMITTER, Sent, verb

if TYPE_CHECKING:
    from forge_schema.database.pool import Database
    from forge_schema.model.spec import JobSpec
    from forge_schema.queue.submission import LaneIds
    from forge_schema.queue.templates import RegisteredInputs, Templates
    from forge_schema.service.job_requests import JobConfig
    from forge_schema.service.uploads import StoredUploads
    from forge_schema.storage import Store

Fields: TypeAlias = Mapping[str, Any]
Model = TypeVar("Model", bound=BaseModel)
NewJobs = Annotated[
    Sequence[Fields],
    Sent(
        kind="NewJobs",
        where="whole",
        write=lambda specs, _owner: {"jobs": [dict(fields) for fields in specs]},
        read=lambda new: new.jobs,
    ),
]
TEMPLATE = "/queue/templates/{name:path}"
INPUT = "/queue/inputs/{name}"
# What a job that is only looked at does without: files, and a key that another has.
UNSEEN = dict.fromkeys(("bundle_digest", "image_tar", "git", "idempotency_key"))
# Ids of such jobs, so that they take none of the queue's; each has its own.
REHEARSED = range(1 << 62, 1 << 63)
# Completes any config to a job, so that the rest can be checked.
SAMPLE = {"name": "sample", "command": ["sample"], "owner": "sample"}


class OwnerReference(BaseModel):
    """An owner by name."""

    model_config = ConfigDict(defer_build=True)

    owner: Word


class ConfigReference(OwnerReference):
    """A template by its name."""

    config_name: Word


class Submitted(Answer):
    """The jobs' ids, in order."""

    job_ids: list[int]


class Submitting(Verbs):
    """Submits jobs; of templates, the owner is the caller unless an admin names another.

    Args:
        caller: who acts.
        database: opens the database.
        store: opens the store.
        lane_ids: the lanes found so far, where several services of one process share them.
    """

    def __init__(
        self,
        caller: Caller,
        database: Callable[[], Database],
        store: Callable[[], Store],
        *,
        lane_ids: LaneIds | None = None,
    ) -> None:
        super().__init__(caller, database)
        self._open_store = store
        self._lane_ids = {} if lane_ids is None else lane_ids

    @verb("POST", "/queue/check", SUBMITTER, errors=(404,), names_fields="job")
    def check(self, specs: NewJobs) -> None:
        """Refuse what submitting would refuse, and store nothing. Uploads may come later."""
        from forge_schema.queue.inputs import Sources, check_inputs, check_needs

        jobs = self._jobs_of(specs)
        sources = Sources(self._database)
        for job in jobs:
            check_needs(self._database, job, any_owner=self.caller.admin)
            sources.check(job, any_owner=self.caller.admin)
        check_inputs(self._database, jobs)

    @verb("POST", "/queue/foresee", SUBMITTER, errors=(404, 409), names_fields="job")
    def foresee(self, specs: NewJobs) -> Explanation:
        """Explain what the first of some jobs would wait for, and store nothing.

        It is submitted without its files, explained, and taken back.
        """
        from forge_schema.explain import explain
        from forge_schema.queue.submission import Rehearsal, Submission

        job = self._jobs_of(specs)[0].model_copy(update=UNSEEN)
        with self._database.transaction() as outer, outer.transaction(force_rollback=True):
            database = Rehearsal(outer)
            own_id = choice(REHEARSED)
            submission = Submission(database, self.caller.actor, {}, rehearsed_id=own_id)
            (job_id,) = submission.submit([job], any_owner=self.caller.admin)
            return explain(database, job_id, workers=0)

    @verb(
        "POST", "/queue/submit", SUBMITTER, answer=Submitted, errors=(404, 409), names_fields="job"
    )
    def submit(self, specs: NewJobs) -> list[int]:
        """Submit jobs, all of them or none, and return their ids in order.

        A repeat with the same idempotency keys returns the same ids and submits nothing.

        Args:
            specs: the fields of each, merged over those of its `config_name`.
        """
        from forge_schema.queue.inputs import NotUploaded
        from forge_schema.queue.submission import Submission

        jobs = self._jobs_of(specs)
        if not jobs:
            return []
        submission = Submission(self._database, self.caller.actor, self._lane_ids)
        try:
            return submission.submit(jobs, any_owner=self.caller.admin)
        except NotUploaded:
            self._uploads.look_for(jobs)
            return submission.submit(jobs, any_owner=self.caller.admin)

    @property
    def _uploads(self) -> StoredUploads:
        from forge_schema.service.uploads import StoredUploads

        return StoredUploads(self.caller, self._database, self._open_store)

    @verb("GET", "/queue/templates", tag="templates")
    def templates(self, *, owner: Owner = None) -> list[Template]:
        """Return an owner's templates, by name."""
        return [
            Template.model_validate(row) for row in self._templates(owner, reading=True).listed()
        ]

    @verb("GET", TEMPLATE, errors=(404,), tag="templates")
    def template(self, name: Word, *, owner: Owner = None) -> Template:
        """Return a template."""
        return Template.model_validate(self._templates(owner, reading=True).get(name))

    @verb("PUT", TEMPLATE, SUBMITTER, errors=(404,), tag="templates", names_fields="job")
    def keep_template(
        self, name: Word, spec: Annotated[Fields, Sent(kind=JobConfig)], *, owner: Owner = None
    ) -> None:
        """Store a template under a name, replacing any previous one."""
        templates = self._templates(owner)
        _check_config(self._with_sources(spec, owner or self.caller.owner, ("spec",)))
        self._check_room("template", name, owner, spec)
        templates.keep(name, spec)

    @verb("DELETE", TEMPLATE, SUBMITTER, again=False, errors=(404,), tag="templates")
    def remove_template(self, name: Word, *, owner: Owner = None) -> None:
        """Remove a template."""
        self._templates(owner).remove(name)

    @verb("GET", "/queue/inputs", tag="inputs")
    def inputs(self, *, owner: Owner = None) -> list[RegisteredInput]:
        """Return an owner's registered inputs, by name."""
        inputs = self._inputs(owner, reading=True)
        return [RegisteredInput.model_validate(row) for row in inputs.listed()]

    @verb("PUT", INPUT, SUBMITTER, tag="inputs", names_fields="other")
    def keep_input(
        self,
        name: InputName,
        source: Annotated[str, Sent(kind="SourceText")],
        *,
        owner: Owner = None,
    ) -> None:
        """Register the source of an input under a name, replacing any previous one.

        Jobs of the owner may have the name as an input's source. They keep the source that it has
        when they are submitted.
        """
        from forge_schema.model.spec.inputs import NewInput

        inputs = self._inputs(owner)
        new = checked(NewInput, {"name": name, "source": source}, ())
        self._check_room("input", name, owner)
        inputs.keep(new.name, new.source)

    @verb("DELETE", INPUT, SUBMITTER, again=False, errors=(404,), tag="inputs")
    def remove_input(self, name: Word, *, owner: Owner = None) -> None:
        """Remove a registered input. Jobs that were submitted with it keep its source."""
        self._inputs(owner).remove(name)

    def _jobs_of(self, requests: Sequence[Fields]) -> list[JobSpec]:
        """Return requests as jobs, each with the fields of its `config_name` below its own."""
        known: dict[str, RegisteredInputs] = {}
        return [self._whole(fields, ("jobs", n), known) for n, fields in enumerate(requests)]

    def _whole(
        self,
        given: Fields,
        place: tuple[str | int, ...],
        known: dict[str, RegisteredInputs] | None = None,
    ) -> JobSpec:
        fields = {"owner": self.caller.owner, **given}
        if fields["owner"] != self.caller.owner and not self.caller.admin:
            raise Forbidden("only an admin may submit jobs of another owner")
        if "config_name" in fields:
            named = {name: fields[name] for name in ConfigReference.model_fields}
            config = checked(ConfigReference, named, place)
            del fields["config_name"]
            kept = self._templates(config.owner).get(config.config_name)
            # A config without a name for its jobs gives them its own.
            fields = merged({"name": _called(config.config_name), **kept["spec"]}, fields)
        return _checked_job(self._with_sources(fields, fields["owner"], place, known), place)

    def _with_sources(
        self,
        fields: Fields,
        whose: Any,  # noqa: ANN401 - not checked yet
        place: tuple[str | int, ...],
        known: dict[str, RegisteredInputs] | None = None,
    ) -> Fields:
        """Return fields of a job with sources instead of the names of registered inputs."""
        inputs = fields.get("inputs")
        if not isinstance(inputs, Mapping) or not any(map(_is_name, inputs.values())):
            return fields
        owner = checked(OwnerReference, {"owner": whose}, place).owner
        known = {} if known is None else known
        if owner not in known:
            known[owner] = self._inputs(owner)
        return {**fields, "inputs": known[owner].resolved(inputs)}

    def _templates(self, owner: str | None, *, reading: bool = False) -> Templates:
        from forge_schema.queue.templates import Templates

        whose = self.caller.acting_for(owner, "read or write the templates", reading=reading)
        return Templates(self._database, owner=whose, actor=self.caller.actor)

    def _inputs(self, owner: str | None, *, reading: bool = False) -> RegisteredInputs:
        from forge_schema.queue.templates import RegisteredInputs

        what = "read or write the registered inputs"
        whose = self.caller.acting_for(owner, what, reading=reading)
        return RegisteredInputs(self._database, owner=whose, actor=self.caller.actor)


def _is_name(source: object) -> bool:
    from forge_schema.model.spec.inputs import is_name

    return is_name(source)


def _called(config_name: str) -> str:
    return f"job-{config_name}" if is_handle(config_name) else config_name


def _check_config(config: Fields) -> None:
    place = ("spec",)
    if taken := [name for name in OWN if name in config]:
        fault = {
            "loc": (taken[0],),
            "msg": "leave it out: a template cannot have it",
            "type": "not_in_config",
        }
        raise JobInvalid(place, [fault])
    _checked_job({**SAMPLE, **config}, place)


def _checked_job(fields: Fields, place: tuple[str | int, ...]) -> JobSpec:
    from forge_schema.model.spec import JobSpec

    job = checked(JobSpec, fields, place)
    if is_handle(job.name):
        message = f"{job.name!r} cannot be a name, since commands would take it for another job"
        raise JobInvalid(place, [{"loc": ("name",), "msg": message, "type": "handle"}])
    return job


def checked(model: type[Model], fields: Fields, place: tuple[str | int, ...]) -> Model:
    """Return fields as a model.

    Raises:
        JobInvalid: they are not; `place` is where they stand in the request.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise JobInvalid(place, error.errors()) from error


def merged(below: Fields, above: Fields) -> dict[str, Any]:
    """Return fields with others laid over them; objects are merged, all else is replaced.

    A number of nodes replaces a range of them.
    """
    both = {
        name: merged(below[name], value)
        for name, value in above.items()
        if isinstance(value, Mapping) and isinstance(below.get(name), Mapping)
    }
    alone = {"max_nodes": None} if below.get("max_nodes") and "nodes" in above else {}
    return {**below, **alone, **above, **both}
