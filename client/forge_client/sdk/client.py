"""The Python SDK: submit jobs and hold them as futures."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack, get_args

from forge_schema.model.results import Experiment, GroupedBy, Run, RunGroup

from forge_client import settings
from forge_client.connection import connect
from forge_client.errors import InvalidInput
from forge_client.findings import sweeps
from forge_client.project.forge_toml import Project
from forge_client.project.matrix import NAME, Scalar, expanded, from_toml, left_out, sweep_name
from forge_client.project.request import several, words
from forge_client.project.submission import PYTEST, called
from forge_client.project.tasks import packing
from forge_client.results.names import whole_name
from forge_client.sdk.administration import Administration
from forge_client.sdk.arguments import checked, checked_verbs, in_calls, require_choice
from forge_client.sdk.job import Job
from forge_client.sdk.plans import Plans
from forge_client.sdk.rows import FoundRows, Rows
from forge_client.sdk.sending import Sender, compared_by, packed, requests, warn
from forge_client.sdk.spec import JobSpec, JobWithCommand, NamedSpec
from forge_client.sdk.sweeps import FoundJob, Sweep


@checked_verbs
class Client(Plans, Administration):
    """A connection to Forge; without arguments, to what the environment or `forge up` names.

    Args:
        url: the server's URL, `https://…`; else FORGE_URL.
        api_key: the API key; else FORGE_API_KEY, or the content of FORGE_API_KEY_FILE.
        tls_ca: a file of authorities to trust in addition to the system's; else FORGE_TLS_CA.
        database_url: a `postgresql://` URL, for use without a server; else FORGE_DATABASE_URL.
        store_url: `s3://…` or `file://…`; else FORGE_STORE_URL.
        up_dir: the folder of a running `forge up`; else FORGE_DIR, else the latest one.
        owner: the owner of submitted jobs; else FORGE_OWNER, else the API key's owner, or without
            a server the login name.

    Raises:
        ClientError: nothing is configured and no `forge up` runs, or the settings are invalid.
    """

    @checked
    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        tls_ca: Path | str | None = None,
        database_url: str | None = None,
        store_url: str | None = None,
        up_dir: Path | str | None = None,
        owner: str | None = None,
    ) -> None:
        server = {"url": url, "api_key": api_key, "tls_ca": tls_ca}
        direct = {"database_url": database_url, "store_url": store_url, "dir": up_dir}
        self._connect(settings.load({**server, **direct, "owner": owner}, {}))
        if note := self._settings.note():
            warn(note)

    def _connect(self, loaded: settings.Settings) -> None:
        self._settings = loaded
        self.backend = connect(loaded)
        self.sender = Sender(self.backend, loaded)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = self._settings.url or self._settings.dir or ""
        return f"Client({str(place)!r})" if place else "Client()"

    def close(self) -> None:
        """Close the connections."""
        self.backend.__exit__(None, None, None)

    def submit(
        self,
        folder: Path | str = ".",
        command: Sequence[str] | str | None = None,
        *,
        config: str | None = None,
        include: Sequence[str] | str = (),
        limit: int | None = None,
        **spec: Unpack[JobSpec],
    ) -> Job:
        """Submit a folder and a command as one job.

        Args:
            folder: the project; its forge.toml provides fields not given here.
            command: the command to run in it; a string is split as in a shell.
            config: the name of a template, used instead of forge.toml.
            include: patterns of files to upload that would otherwise be left out.
            limit: the largest total size of the folder's files, in bytes.
            **spec: fields by their names in forge.toml, `[resources]` included, such as
                `name`, `gpus`, `memory="2GiB"`, `timeout="2h"`, `labels`, `env`.

        Raises:
            ClientError: the folder or a field is invalid, or nothing answers.
        """
        job: JobWithCommand = {"command": command, **spec}
        return self._submit([job], folder, config, include, limit)[0]

    def submit_many(
        self,
        jobs: Iterable[JobWithCommand],
        *,
        folder: Path | str = ".",
        config: str | None = None,
        include: Sequence[str] | str = (),
        limit: int | None = None,
    ) -> list[Job]:
        """Submit many jobs on one folder in one transaction: all of them or none.

        Args:
            jobs: the fields of each, as `submit` takes them.
            folder: the project, packed and uploaded once.
            config: the name of a template, used instead of forge.toml.
            include: patterns of files to upload that would otherwise be left out.
            limit: the largest total size of the folder's files, in bytes.

        Raises:
            ClientError: as for `submit`.
        """
        return self._submit(jobs, folder, config, include, limit)

    def _submit(
        self,
        jobs: Iterable[Mapping[str, Any]],
        folder: Path | str,
        config: str | None,
        include: Sequence[str] | str,
        limit: int | None,
    ) -> list[Job]:
        root = Path(folder)
        project = Project.read(root).including(include)
        asked = requests(project, jobs, config=config)
        is_plain = not config and not any(request.kind for request in asked)
        if is_plain and (note := left_out(project.matrix)):
            warn(in_calls(note))
        parcel = packed(project, root, asked, limit=limit, config=config)
        return [Job(self.backend, job_id) for job_id in self.sender.submit(parcel, asked)]

    def map(
        self,
        command: Sequence[str] | str,
        values: Iterable[Mapping[str, object]],
        *,
        folder: Path | str = ".",
        **spec: Unpack[JobSpec],
    ) -> list[Job]:
        """Submit one job for each set of values, replacing every `{name}` in the command.

        Numbers, short texts and booleans are also the job's parameters, by which runs are compared.

        Args:
            command: such as `"python train.py --lr {lr}"`, split as `submit` does, and before the
                values are put in.
            values: such as `[{"lr": 0.1}, {"lr": 0.01}]`.
            folder: the project.
            **spec: fields of every job, as `submit` takes them.

        Raises:
            ClientError: a `{name}` has no value, or as for `submit`.
        """
        each = words(command)
        own = spec.get("parameters") or {}
        jobs: list[JobWithCommand] = [
            {
                **spec,
                "command": _filled(each, chosen),
                "parameters": compared_by(chosen.items(), own=own),
            }
            for chosen in _sets(values)
        ]
        return self.submit_many(jobs, folder=folder)

    def benchmark(
        self,
        folder: Path | str = ".",
        command: Sequence[str] | str | None = None,
        *,
        matrix: Mapping[str, Sequence[Scalar]] | None = None,
        repeat: int | None = None,
        per_job: int | None = None,
        include: Sequence[str] | str = (),
        **spec: Unpack[JobSpec],
    ) -> Sweep:
        """Submit one job per combination of parameters, all or none.

        Args:
            folder: the project; its forge.toml provides fields not given here, `[matrix]` too.
            command: the command; `{lr}` stands for the value of the parameter `lr`.
            matrix: the values of each parameter, such as `{"lr": [0.1, 0.01]}`.
            repeat: how many jobs for each combination.
            per_job: how many of these commands a job runs, one after another.
            include: patterns of files to upload that would otherwise be left out.
            **spec: fields of every job, as `submit` takes them. `sweep` is the beginning of the
                sweep's name, `parallel` the most of its jobs to run at once.

        Raises:
            ClientError: the matrix is invalid, or as for `submit`.
        """
        root = Path(folder)
        project = Project.read(root).including(include)
        base = project.request().changed({"parallel": project.parallel, "command": command, **spec})
        base = base.changed({"name": base.name or called(root)})
        made = sweep_name(base.sweep or base.name or "job", base.idempotency_key)
        points = expanded(
            base,
            {**from_toml(project.matrix), **from_toml(matrix or {})},
            repeat=project.repeat if repeat is None else repeat,
            sweep=made,
            key=base.idempotency_key,
        )
        with packing(points, per_job) as jobs:
            self.sender.submit(jobs.files(packed(project, root, points)), jobs.requests)
        return Sweep(self.backend, made)

    def sweep(self, name: str, *, owner: str | None = None) -> Sweep:
        """Return an existing sweep of yours, or of another owner, by its name or the start of it.

        Raises:
            ClientError: there is no such sweep, or several could be meant.
        """
        name = whole_name(self.backend, name, owner)
        self.backend.findings.sweep(name, owner=owner)
        return Sweep(self.backend, name, owner)

    def sweeps(self, *, owner: str | None = None, team: str | None = None) -> FoundRows[RunGroup]:
        """Return your newest sweeps, or another owner's, or a team's, as `run_groups` does."""
        page = sweeps(self.backend, owner=owner, team=team, own=self._settings.job_owner)
        return FoundRows(page.items, found=page.found, more=page.more)

    def test(
        self,
        folder: Path | str = ".",
        arguments: Sequence[str] | str = (),
        *,
        program: str = PYTEST,
        include: Sequence[str] | str = (),
        **spec: Unpack[NamedSpec],
    ) -> Job:
        """Run a project's tests as a job; `job.tests()` returns how each of them ended.

        Args:
            folder: the project.
            arguments: the arguments of the program that runs the tests.
            program: that program, which writes a JUnit report.
            include: patterns of files to upload that would otherwise be left out.
            **spec: fields of the job, as `submit` takes them.

        Raises:
            ClientError: as for `submit`.
        """
        no_retries = Project.read(Path(folder)).max_failures is None
        job: dict[str, Any] = {
            **({"max_failures": 0} if no_retries else {}),
            **spec,
            "kind": "test",
            "command": [*words(program), *(words(arguments) if arguments else [])],
        }
        return self._submit([job], folder, None, include, None)[0]

    def run_handler(
        self, handler: str, arguments: Mapping[str, Any] | None = None, **spec: Unpack[NamedSpec]
    ) -> Job:
        """Run a handler that an operator installed on a worker; it needs no project.

        Raises:
            ClientError: a field is invalid, or nothing answers.
        """
        (request,) = requests(
            Project(),
            [{"name": handler, "experiment": handler, **spec, "kind": "custom", "handler": handler,
              "arguments": arguments, "command": [handler], "requirements": False}],
        )  # fmt: skip
        return Job(self.backend, self.sender.submit(None, [request])[0])

    def job(self, handle: int | str) -> Job:
        """Return an existing job.

        Args:
            handle: its id, its name, the beginning of its name, or `@last` for your newest job.

        Raises:
            ClientError: there is no such job, or several could be meant.
        """
        job_id = handle if isinstance(handle, int) else self.backend.job_id(handle)
        self.backend.job(job_id)
        return Job(self.backend, job_id)

    def jobs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        states: Sequence[str] | str | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> Rows[FoundJob]:
        """Return jobs, newest first, of all owners unless one is given; `row.job` acts on one.

        Args:
            query: a filter as `forge ps` takes it, such as `"state:failed owner:me since:1d"`.
            owner: only this owner's jobs.
            states: only jobs in these states.
            before: only jobs with a lower id.
            count: the largest number of jobs, at most 1000.

        Raises:
            ClientError: the query is not a filter, or a state is none.
        """
        states = None if states is None else several(states)
        statuses = self.backend.jobs(query, owner=owner, states=states, before=before, count=count)
        return Rows(FoundJob.of(row, self.backend) for row in statuses)

    def runs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        sort: str | None = None,
        descending: bool = False,
        curve: str | None = None,
        count: int = 1000,
    ) -> FoundRows[Run]:
        """Return jobs as runs: with parameters, metrics, result, duration, cost and git revision.

        `to_frame` has a column for each parameter, metric (`metrics.loss.min`) and result. `found`
        is how many were sorted; `more` tells whether older jobs match that are not among them.

        Args:
            query: a filter, such as `"experiment:resnet*"`.
            owner: only this owner's jobs.
            sort: a column to sort the newest 10,000 that match by: a field of `Run`, or the name
                of a parameter, a metric (its last value; `loss.best` for its best) or a result.
            descending: whether the highest come first.
            curve: a metric of which each run gets an outline, in `curve`.
            count: the largest number of runs, at most 10,000.

        Raises:
            ClientError: the query is not a filter, or no run has the column to sort by.
        """
        page = self.backend.findings.runs(
            query,
            owner=owner,
            sort=sort,
            descending=descending,
            curve=[curve] if curve else (),
            count=count,
        )
        return FoundRows(page.items, found=page.found, more=page.more)

    def run_groups(
        self, query: str = "", *, by: GroupedBy = "experiment", owner: str | None = None
    ) -> FoundRows[RunGroup]:
        """Return the experiments, sweeps or owners of jobs, with their states, time and cost.

        Args:
            query: a filter, such as `"since:7d"`. Grouped are the newest 10,000 jobs that match,
                of which `found` is the number; `more` tells whether older ones match too.
            by: what groups them: `experiment`, `sweep` or `owner`.
            owner: only this owner's jobs.

        Raises:
            ClientError: the query is not a filter, or `by` is none of these.
        """
        require_choice("by", by, get_args(GroupedBy))
        page = self.backend.findings.run_groups(query, by=by, owner=owner)
        return FoundRows(page.items, found=page.found, more=page.more)

    def experiments(self, *, owner: str | None = None) -> Rows[Experiment]:
        """Return the newest experiments, with the newest job of each."""
        return Rows(self.backend.findings.experiments(owner=owner))

    def dashboard(self) -> str:
        """Return a link that logs you in to the dashboard once, within a minute."""
        from forge_client.login_link import login_link  # noqa: PLC0415 - rarely needed

        return login_link(self._settings)


def _sets(values: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    for chosen in values:
        if not isinstance(chosen, Mapping):
            raise InvalidInput(
                f"map: {chosen!r} is not the values of one job",
                hint='give a list with a dictionary for each job: [{"lr": 0.1}, {"lr": 0.01}]',
            )
        yield chosen


def _filled(command: Sequence[str], values: Mapping[str, object]) -> list[str]:
    known = [re.escape(f"{{{name}}}") for name in values]
    # One pass, so that a value that looks like a placeholder is not replaced. ${NAME} is a shell's.
    placeholder = re.compile("|".join([*known, rf"(?<!\$)\{{{NAME.pattern}\}}"]))
    return [placeholder.sub(lambda match: _value(match[0], values), word) for word in command]


def _value(placeholder: str, values: Mapping[str, object]) -> str:
    name = placeholder[1:-1]
    if name not in values:
        raise InvalidInput(
            f"the command has {placeholder}, but one of the jobs has values only for"
            f" {', '.join(map(str, values)) or 'no name'}",
            hint=f"add one; {name!r}: {placeholder!r} keeps the braces",
        )
    return str(values[name])
